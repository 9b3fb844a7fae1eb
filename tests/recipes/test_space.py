"""The folder for Hugging Face Spaces needs what the package needs, and offers a list of models."""

import runpy
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
SPACE = ROOT / "recipes" / "space"


def test_requirements_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    listed = (SPACE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert listed == [*project["dependencies"], *extras["app"], *extras["marian"]]


def test_the_space_runs_the_app_with_a_gradio_that_the_package_takes() -> None:
    page = (SPACE / "README.md").read_text(encoding="utf-8")
    described = yaml.safe_load(page.split("---\n")[1])
    assert described["sdk"] == "gradio" and (SPACE / described["app_file"]).is_file()
    lowest = dict(line.split("==") for line in (ROOT / ".ci" / "lowest.txt").read_text().split())
    assert described["sdk_version"] == lowest["gradio"] and described["license"] == "apache-2.0"


def test_visitors_choose_from_a_list() -> None:
    events = runpy.run_path(str(SPACE / "app.py"))["make_events"]()
    assert not events.models.hub and len(events.models.labels) > 1
    found, target, _ = events.explain(events.models.labels[0], "nothing", None, "Hello.", "", "model", *[""] * 6)
    assert "<iframe" in found and target

"""Files of the project that repeat each other say the same."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from hf_lrp import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOOLS = {"import-linter", "mypy", "ruff"}  # not what the tests run with


def lowest_versions() -> dict[str, str]:
    """By name, the bounds of all dependencies, also of extras."""
    extras = PROJECT["optional-dependencies"].values()
    wanted = {requirement for group in (PROJECT["dependencies"], *extras) for requirement in group}
    wanted -= {requirement for requirement in wanted if requirement.startswith("hf-lrp[")} | TOOLS
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)(,<\d+)?", requirement) for requirement in sorted(wanted)]
    assert all(found), f"without a lowest version: {[w for w, f in zip(sorted(wanted), found, strict=True) if not f]}"
    return {match[1]: match[2] for match in found if match}


def test_lowest_versions_are_those_that_tests_are_run_with() -> None:
    lines = (ROOT / ".ci" / "lowest.txt").read_text().split()
    pinned = dict(line.split("==") for line in lines)
    lowest = lowest_versions()
    assert pinned.keys() == lowest.keys()
    for name, version in lowest.items():
        assert pinned[name] == version or pinned[name].startswith(f"{version}."), name


def test_python_versions_agree() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    tested = workflow["jobs"]["tests"]["strategy"]["matrix"]["python"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named == tested and PROJECT["requires-python"] == f">={tested[0]}"
    assert f"Python {tested[0]} or newer" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__ and citation["license"] == PROJECT["license"]


def test_releases_are_dated() -> None:
    headings = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    released = [heading for heading in headings if heading != "Unreleased"]
    assert released[0].startswith(f"{__version__} (") and headings.count("Unreleased") <= 1
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", heading) for heading in released)


def advised(path: Path) -> list[str]:
    """What a file tells its readers to install, by the arguments of `pip install`."""
    text = re.sub(r'"\s*\n\s*f?r?"', "", path.read_text(encoding="utf-8"))  # strings over several lines
    return [found.strip() for found in re.findall(r"pip install ([^`\n&#;]+)", text)]


def test_messages_name_packages_that_an_index_has() -> None:
    """The package is on no index, so that pip finds neither it nor its extras."""
    known = {*lowest_versions(), "gguf", "{missing}"}
    files = sorted((ROOT / "hf_lrp").rglob("*.py"))
    named = {(path.name, words) for path in files for words in advised(path)}
    assert len(named) >= 10
    for file, words in named:
        packages = re.findall(r"^[\"']?([\w{}-]+)", words)
        assert packages and set(packages) <= known, f"{file}: pip install {words}"


def test_documents_install_from_a_clone() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*.md")]:
        if path.name != "CHANGELOG.md":
            assert not [words for words in advised(path) if re.search(r"hf.lrp", words)], path.name


def exists(path: Path) -> bool:
    """Pages of the gallery are made of results when the site is built."""
    return path.exists() or (path.parent.name == "gallery" and path.with_suffix(".safetensors").exists())


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/**/*.md")]))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not exists(page.parent / link)]
    assert not missing


def test_messages_on_the_page_of_errors_are_those_of_the_code() -> None:
    rows = [line.split(" | ") for line in (ROOT / "docs" / "errors.md").read_text(encoding="utf-8").splitlines()]
    messages = [row[0].removeprefix("| ") for row in rows if len(row) == 3 and not row[0].startswith("| message")]
    messages = [message for message in messages if not message.startswith("---")]
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "hf_lrp").rglob("*.py")))
    code = re.sub(r'"\s*\n\s*f?r?"', "", code)  # strings over several lines
    parts = {part.strip() for message in messages for part in message.split("…") if part.strip()}
    assert len(messages) > 40
    assert {part for part in parts if part not in code} == set()


def test_contributing_names_what_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:hf_lrp|tests|recipes|docs)/[\w./]+)`", text))
    assert len(named) >= 40
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_tests_use_no_private_names() -> None:
    defined = re.compile(r"(?:\b(?:def|class) |\bself\.|^)(_[A-Za-z]\w*)(?=[(:\[]|\s*=)", re.MULTILINE)
    private = {name for path in ROOT.glob("hf_lrp/**/*.py") for name in defined.findall(path.read_text("utf-8"))}
    private -= {"_replace", "_repr_html_", "_repr_png_", "_version"}  # names that Python, notebooks and torch gave
    assert len(private) > 100
    found = []
    for path in ROOT.glob("tests/**/*.py"):
        text = path.read_text(encoding="utf-8")
        used = re.findall(r"(?<!self)(?<!cls)\.(_[A-Za-z]\w*)", text)  # attributes, and names that are patched
        for names in re.findall(r"^from hf_lrp[\w.]* import (\([^)]*\)|.*)$", text, re.MULTILINE):
            used += re.split(r"[\s,()]+", names)
        found += [f"{path.relative_to(ROOT)}: {name}" for name in used if name in private]
    assert found == []

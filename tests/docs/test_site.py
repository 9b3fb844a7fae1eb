"""The site is built without a warning: every link leads somewhere, every name in the reference exists."""

import os
import subprocess
import sys
from pathlib import Path

import hf_lrp

ROOT = Path(__file__).parents[2]


def test_the_site_is_built(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = "".join(page.read_text(encoding="utf-8") for page in (tmp_path / "reference").glob("*.html"))
    missing = [name for name in hf_lrp.__all__ if f'id="hf_lrp.{name}"' not in pages and name != "__version__"]
    assert missing == []
    assert "docs/images" not in (tmp_path / "index.html").read_text(encoding="utf-8")
    outside = [page for page in tmp_path.rglob("*.html") if "fonts.googleapis" in page.read_text(encoding="utf-8")]
    assert outside == []  # readers fetch nothing from elsewhere

"""The gallery's results: those kept in docs are what the recipe gives, and each has its place on the page."""

import re
from pathlib import Path

import gallery
import pytest
import torch

from hf_lrp import Contributions

ROOT = Path(__file__).parents[2]
KEPT = sorted((ROOT / "docs" / "gallery").glob("*.safetensors"))


def test_results_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: gallery.TRANSLATIONS[name] for name in ("agreement", "contrast")}
    monkeypatch.setattr(gallery, "TRANSLATIONS", few)
    gallery.main(["--out", str(tmp_path)])
    for name in few:
        written, kept = (Contributions.load(folder / f"{name}.safetensors") for folder in (tmp_path, KEPT[0].parent))
        assert written.target_tokens == kept.target_tokens and written.model == kept.model
        torch.testing.assert_close(written.source, kept.source, atol=1e-4, rtol=0)


def test_every_result_is_on_the_page() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    shown = re.findall(r'<iframe src="gallery/([\w-]+)\.html"', page)
    assert sorted(shown) == [path.stem for path in KEPT] and len(shown) >= 10
    assert {*gallery.TRANSLATIONS} <= {*shown}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_results_are_exact_and_name_no_folder(path: Path) -> None:
    result = Contributions.load(path)
    assert result.conservation_error < 1e-5 and "/" not in result.model

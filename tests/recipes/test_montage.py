"""Pictures look as they did: each kind is drawn from made-up results and compared with a stored one (`tests/looks`).

Both are looked at from afar, as means of small squares: fonts may be rendered a little differently elsewhere, but what
moves, grows, vanishes or changes its colour is seen. CONTRIBUTING.md says how to renew the stored pictures.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from montage import SHEET, SMALL_DPI, combine, main, make_result, pictures, render
from PIL import Image

LOOKS = Path(__file__).parents[1] / "looks"
SQUARE = 8  # pixels
LARGEST = 25  # difference of two squares' means, of 255
DRAWN = pictures()


def from_afar(image: Image.Image) -> np.ndarray:
    """Mean colours of squares, `[height, width, 3]`."""
    height, width = (size // SQUARE for size in (image.height, image.width))
    pixels = np.asarray(image.convert("RGB"), dtype=float)[: height * SQUARE, : width * SQUARE]
    return pixels.reshape(height, SQUARE, width, SQUARE, 3).mean(axis=(1, 3))


def difference(image: Image.Image, stored: Image.Image) -> float:
    """The largest difference between two squares; infinite where the pictures have other sizes."""
    if max(abs(image.height - stored.height), abs(image.width - stored.width)) > 2:
        return np.inf
    size = (min(image.width, stored.width), min(image.height, stored.height))
    first, second = (from_afar(one.crop((0, 0, *size))) for one in (image, stored))
    return float(np.abs(first - second).max())


@pytest.mark.parametrize("name", DRAWN)
def test_pictures_look_as_they_did(name: str, tmp_path: Path) -> None:
    image = render(DRAWN[name], SMALL_DPI)
    image.save(tmp_path / f"{name}.png")
    with Image.open(LOOKS / f"{name}.png") as stored:
        found = difference(image, stored)
    assert found < LARGEST, (
        f"{name} looks other than {LOOKS / name}.png: see {tmp_path / name}.png. If that is meant, renew it: "
        "python recipes/pictures/montage.py --out montage.png --each tests/looks"
    )


def test_every_stored_picture_is_drawn() -> None:
    assert {path.stem for path in LOOKS.glob("*.png")} == set(DRAWN)


@pytest.mark.parametrize(
    "change",
    [
        lambda result: result.plot(cmap="Greens"),
        lambda result: result.plot(title=""),
        lambda result: result.plot(title="another"),
        lambda result: result[1:].plot(),
        lambda result: result.plot(width=6.5),
    ],
)
def test_a_change_of_looks_is_seen(change: Callable[..., Figure]) -> None:
    result = make_result(("▁a", "▁b", "</s>"), ("▁c", "▁d", "</s>"))
    before = render(result.plot, SMALL_DPI)
    assert difference(render(lambda: change(result), SMALL_DPI), before) > LARGEST


def test_a_sheet_with_all_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: DRAWN[name] for name in ("sentences", "growth")}
    monkeypatch.setattr("montage.pictures", lambda: few)
    main(["--out", str(tmp_path / "montage.png"), "--each", str(tmp_path / "each")])
    with Image.open(tmp_path / "montage.png") as sheet:
        assert sheet.width == SHEET
    assert {path.stem for path in (tmp_path / "each").iterdir()} == set(few)


def test_pictures_on_a_sheet_do_not_cover_each_other() -> None:
    images = [Image.new("RGB", (900, height), "black") for height in (300, 200, 100, 50, 400)]
    sheet = np.asarray(combine(images))
    assert (sheet == 0).all(axis=2).sum() == sum(image.width * image.height for image in images)

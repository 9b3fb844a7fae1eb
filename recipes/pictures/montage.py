"""Draw every kind of picture from made-up results, without a model, and put all of them on one sheet.

    python recipes/pictures/montage.py --out montage.png
    python recipes/pictures/montage.py --out montage.png --each tests/looks

With `--each`, every picture is also written by itself, small: what the tests compare pictures with.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image

from hf_lrp import Contributions, ContributionsList
from hf_lrp.corpus.measures import DIVERGENCE
from hf_lrp.corpus.stages import Stages
from hf_lrp.corpus.timeline import CHANGE, STAGED, Timeline
from hf_lrp.corpus.training_charts import charts_of_timeline
from hf_lrp.data.files import write_atomically
from hf_lrp.models.words import group_words
from hf_lrp.pictures.charts import Chart, Curve, Kind, Panel, describe_bands
from hf_lrp.pictures.figures import draw
from hf_lrp.pictures.look import printed_look
from hf_lrp.results.intervals import Estimate
from hf_lrp.results.quantities import QUANTITIES
from hf_lrp.results.spans import Span
from hf_lrp.results.used_method import UsedMethod

ENGLISH = ["▁He", "▁for", "got", "▁his", "▁umbrella", "▁in", "▁the", "▁red", "▁car", ".", "</s>"]
FRENCH = ["▁Il", "▁a", "▁oublié", "▁son", "▁para", "pluie", "▁dans", "▁la", "▁voiture", "▁rouge", ".", "</s>"]
OTHER = ["▁Il", "▁laissa", "▁son", "▁para", "pluie", "▁dans", "▁l", "'", "auto", ".", "</s>"]
SYLLABLES = ("ba", "di", "ko", "la", "me", "nu", "po", "ri", "sa", "tu")
STEPS = (100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600)
DPI, SMALL_DPI = 110, 64
SHEET = 2350  # pixels across
MARGIN = 16


# ---- made-up results


def make_result(source: Sequence[str], target: Sequence[str], seed: int = 0, **changes: Any) -> Contributions:
    """Shares as a translation model has them: along the diagonal, at the end of the source, at the token before."""
    positions, steps = len(source), len(target)
    shares = 0.04 + 0.4 * np.random.default_rng(seed).random((steps, positions + steps)) ** 4
    for step in range(steps):
        shares[step, round(step * (positions - 1) / max(steps - 1, 1))] += 0.1 * positions
        shares[step, positions - 1] += 0.03 * positions
        if step:
            shares[step, positions + step - 1] += (0.05 + 0.05 * (step % 4)) * positions
    shares[:, positions:] = np.tril(shares[:, positions:], -1)
    shares /= shares.sum(axis=1, keepdims=True)
    described = {
        "conservation_error": 3e-7,
        "start_token": "exclude",
        "prefix": "reference",
        "predict": "top1",
        "method": UsedMethod("LRP", {"rule": "AlphaBeta(alpha=1.0, beta=0.0)"}),
        "model": "made-up/en-fr",
        "dtype": "float32",
        "source_words": group_words(source, [token == "</s>" for token in source]),
        "target_words": group_words(target, [token == "</s>" for token in target]),
    }
    tensors = {
        "source": torch.from_numpy(shares[:, :positions]).float(),
        "target": torch.from_numpy(shares[:, positions:]).float(),
        "start": torch.full((steps,), 0.05),
        "logits": torch.zeros(steps),
        "log_probability": torch.full((steps,), 0.5).log(),
        "source_ids": torch.arange(positions),
        "target_ids": torch.arange(steps),
        "predicted_ids": torch.arange(steps),
    }
    tokens = {"source_tokens": source, "target_tokens": target, "predicted_tokens": target}
    return Contributions(**(described | tensors | tokens | changes))


def with_another_prediction(result: Contributions) -> Contributions:
    """The same with a step at which the explained token is not the written one."""
    ids, tokens = result.predicted_ids.clone(), list(result.predicted_tokens)
    ids[2], tokens[2] = 999, "▁laissé"
    return replace(result, predicted_ids=ids, predicted_tokens=tuple(tokens))


def with_prompt(result: Contributions, seed: int = 0) -> Contributions:
    """The same as of a model that reads a prompt with several parts."""
    parts = {"first token": ["<s>"], "instruction": ["▁Translate", "▁into", "▁French", ":"], "examples": ["▁x"] * 40}
    draw_random = np.random.default_rng(seed)
    spans = {}
    for number, (name, tokens) in enumerate(parts.items()):
        shares = draw_random.random((len(result), len(tokens))) * (0.06 + 0.04 * number) / len(tokens)
        spans[name] = Span(tuple(tokens), torch.from_numpy(shares).float())
    return replace(result, spans=spans)


def make_tokens(number: int, seed: int) -> list[str]:
    """Words of one to three syllables, and the end of the sentence."""
    draws = np.random.default_rng(seed).integers(0, len(SYLLABLES), (number - 1, 3))
    return ["▁" + "".join(SYLLABLES[i] for i in row[: 1 + row[0] % 3]) for row in draws] + ["</s>"]


def make_curve(label: str, level: float, fall: float, width: float = 0.02, step: int | None = None) -> Curve:
    """A quantity at nine positions that falls and ends lower; without a value at the first."""
    x = np.arange(1.0, 10.0)
    value = level - fall * (x / 9) - 0.5 * fall * (x == 9) + 0.01 * np.sin(3 * x)
    value[0] = np.nan
    return Curve(label, x, value, value - width, value + width, step)


def make_chart(labels: Sequence[str], *, kind: Kind = "curves", differences: bool = False) -> Chart:
    """Source contribution and entropy of runs or prefix types by position."""
    panels = []
    for number, quantity in enumerate(("source_total", "source_entropy")):
        curves = tuple(make_curve(label, 0.7 + number - 0.05 * n, 0.15) for n, label in enumerate(labels))
        named = ((9.0, "</s>"),)
        panels.append(
            Panel(quantity, QUANTITIES[quantity].label, "target token position", curves, named_positions=named)
        )
    for quantity in ("source_total", "source_entropy") if differences else ():
        curves = tuple(make_curve(label, 0.02 * n, 0.05) for n, label in enumerate(labels[1:]))
        label = f"difference to {labels[0]}"
        panels.append(
            Panel(quantity, label, "target token position", curves, QUANTITIES[quantity].title, True, ((9.0, "</s>"),))
        )
    line = f"made-up/en-fr, 40 sentences. {describe_bands(40)}"
    return Chart("made-up", "", tuple(panels), columns=2 if differences else 1, kind=kind, line=line)


def make_timeline() -> Timeline:
    """A training whose contributions fall, rise and hardly change, at nine checkpoints."""
    turns = np.interp(np.arange(len(STEPS)), [0, 3, 6, 8], [0.8, 0.5, 0.65, 0.655])
    falling = np.geomspace(0.6, 0.004, len(STEPS))
    series = {
        "source_total": turns,
        "source_entropy": 2 + turns,
        "target_entropy": 0.7 + turns,
        "accuracy": 0.8 - falling,
        DIVERGENCE: np.append(falling[:-1], 0.0),
    }
    for name in (*QUANTITIES, DIVERGENCE):
        series[CHANGE + name] = np.append(np.nan, falling[1:])

    def estimate(value: np.ndarray) -> Estimate:
        return Estimate(value, value - 0.015, value + 0.015)

    slope = np.append(np.linspace(0.05, -0.05, 8), -0.12)
    return Timeline(
        prefix="reference",
        steps=np.array(STEPS),
        folders=tuple(map(str, STEPS)),
        number=60,
        relative=False,
        positions=np.arange(1, 10),
        overall={name: estimate(value) for name, value in series.items()},
        by_position={name: estimate(value[:, None] + slope) for name, value in series.items()},
        stages=dict.fromkeys(STAGED, Stages(800, 6400, 0.3, 0.15, 0.01, "")),
        names={9: "</s>"},
    )


# ---- pictures


def pictures() -> dict[str, Callable[[], Figure]]:
    """What draws each picture, by name."""
    result = with_another_prediction(make_result(ENGLISH, FRENCH))
    random = make_result(ENGLISH, FRENCH, seed=1, prefix="random")
    long = make_result(make_tokens(69, 1), make_tokens(38, 2))
    contrast = replace(result, source=result.source - 0.06, predict="contrastive")
    sentences = ContributionsList(make_result(ENGLISH, FRENCH[: 8 + n], seed=n) for n in range(5))
    drawn: dict[str, Callable[[], Figure]] = {
        "result": result.plot,
        "result-in-a-column": lambda: result.plot(width=3.3, title=""),
        "words": result.merge_subwords().plot,
        "contrast": contrast.plot,
        "long-result": long.plot,
        "prompt": with_prompt(result).plot,
        "start-kept": replace(result, start_token="keep").plot,
        "difference": result.compare(random).plot,
        "difference-of-prompts": lambda: with_prompt(result).compare(with_prompt(random, 1)).plot(width=3.3),
        "two-translations": result.compare(make_result(ENGLISH, OTHER, model="made-up/other")).plot,
        "sentences": sentences.plot,
    }
    charts = {
        "prefix-types": make_chart(("reference", "model", "random")),
        "side-by-side": make_chart(("base", "word dropout", "minimum risk"), differences=True),
        "growth": make_chart(("1k", "10k", "100k", "1m"), kind="growth"),
    } | {chart.stem.split("-", 1)[1]: chart for chart in charts_of_timeline(make_timeline(), "base")}
    return drawn | {name: _drawing(chart) for name, chart in charts.items()}


def _drawing(chart: Chart) -> Callable[[], Figure]:
    return lambda: draw(chart)


def render(picture: Callable[[], Figure], dpi: int) -> Image.Image:
    """A picture as an image, in the fonts that matplotlib brings along."""
    buffer = io.BytesIO()
    with printed_look():
        picture().savefig(buffer, format="png", dpi=dpi)
    return Image.open(buffer).convert("RGB")


def combine(images: Sequence[Image.Image]) -> Image.Image:
    """All images on one sheet, in rows from the left, the highest first."""
    places: list[tuple[int, int]] = []
    left = top = below = MARGIN
    ordered = sorted(images, key=lambda image: -image.height)
    for image in ordered:
        if left + image.width > SHEET:
            left, top = MARGIN, below
        places.append((left, top))
        left, below = left + image.width + MARGIN, max(below, top + image.height + MARGIN)
    sheet = Image.new("RGB", (SHEET, below), "#bbbbbb")
    for image, place in zip(ordered, places, strict=True):
        sheet.paste(image, place)
    return sheet


def as_png(image: Image.Image) -> bytes:
    """A small file: 128 colours are enough for looks."""
    buffer = io.BytesIO()
    image.quantize(128, kmeans=3, dither=Image.Dither.NONE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the sheet, for example montage.png")
    parser.add_argument("--each", type=Path, metavar="DIR", help="folder for each picture by itself")
    options = parser.parse_args(arguments)
    drawn = pictures()
    buffer = io.BytesIO()
    combine([render(picture, DPI) for picture in drawn.values()]).save(buffer, format="png")
    write_atomically(options.out, buffer.getvalue())
    print(f"wrote {options.out}")
    if options.each is not None:
        options.each.mkdir(parents=True, exist_ok=True)
        for name, picture in drawn.items():
            write_atomically(options.each / f"{name}.png", as_png(render(picture, SMALL_DPI)))
        print(f"wrote {len(drawn)} pictures into {options.each}")


if __name__ == "__main__":
    main()

"""The page and the picture of the way through the layers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from page_reader import Page
from tiny_models import random_ids, tiny_model

from hf_lrp import Contributions, explain, load
from hf_lrp.commands.cli import main
from hf_lrp.pages.flow import flow_data, render_flow, write_flow
from hf_lrp.pictures.flow import draw_flow

SENTENCE = "The big dog eats an apple."


@pytest.fixture(scope="module")
def result() -> Contributions:
    found = explain(*load(), SENTENCE, "Le grand chien mange une pomme.", inside="pairs")
    assert isinstance(found, Contributions)
    return found


def test_the_page_has_what_the_result_has(result: Contributions) -> None:
    words = result.merge_subwords()
    data, inside = flow_data(words), words.inside
    assert inside is not None
    assert data["predicted"] == list(words.labels[2]) and data["tokens"]["encoder"][0] == "The"
    torch.testing.assert_close(
        torch.tensor(data["positions"]["encoder"]), inside["encoder.positions"], rtol=0, atol=1e-4
    )
    torch.testing.assert_close(torch.tensor(data["sent"]), inside["decoder.sent"], rtol=0, atol=1e-4)
    torch.testing.assert_close(torch.tensor(data["heads"]["cross"]), inside.heads("cross"), rtol=0, atol=1e-4)
    layer, query, key, share = max(data["pairs"]["decoder"][4], key=lambda pair: pair[3])
    both = inside["decoder.self.to_keys"] + inside["decoder.self.to_values"]
    assert share == pytest.approx(float(both[4, layer, :, query, key].sum()), abs=1e-4)
    assert key < query <= 4
    assert all(query != key for step in data["pairs"]["encoder"] for _, query, key, _ in step)


def test_the_page_is_self_contained_and_escapes(result: Contributions, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    assert result.inside is not None
    tokens = {**result.inside.tokens, "encoder": (hostile, *result.inside.tokens["encoder"][1:])}
    changed = replace(result, inside=replace(result.inside, tokens=tokens), model=hostile)
    page = Page(render_flow(changed, hostile))
    assert not page.all("img") and not page.all("link") and len(page.all("script")) == 2
    assert page.policy["default-src"] == "'none'"
    assert hostile in page.all("h1")[0][1]
    write_flow(tmp_path / "flow.html", result)
    assert (tmp_path / "flow.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_some_steps_are_drawn_between_tokens(result: Contributions) -> None:
    data = flow_data(result[2:4])
    assert data["steps"] == [3, 4] and len(data["pairs"]["decoder"]) == 2
    assert "▁" not in "".join(data["tokens"]["encoder"])
    render_flow(result[2:4])


def test_without_an_inside_there_is_nothing_to_draw() -> None:
    plain = explain(tiny_model(), None, random_ids(3), random_ids(2, seed=1))
    for draw in (render_flow, draw_flow):
        with pytest.raises(ValueError, match="inside=True"):
            draw(plain)  # type: ignore[operator]


def test_the_picture(result: Contributions) -> None:
    figure = draw_flow(result, 4)
    decoder, sent, encoder = figure.axes[:3]
    assert result.inside is not None
    for axes, name in ((decoder, "decoder.positions"), (sent, "decoder.sent"), (encoder, "encoder.positions")):
        drawn = np.asarray(axes.images[0].get_array())
        expected = result.inside[name][3].numpy()[: len(drawn)]
        np.testing.assert_allclose(drawn, expected, atol=1e-6)
    assert len(decoder.images[0].get_array()) == 3  # without the top's output
    assert [label.get_text() for label in encoder.get_yticklabels()] == ["into 1", "into 2", "into 3", "output"]
    assert "mange" in figure.get_suptitle() and "all predictions" in draw_flow(result).get_suptitle()
    with pytest.raises(ValueError, match="no step 40"):
        draw_flow(result, 40)


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    flow: Any = tmp_path / "flow.html"
    saved = tmp_path / "saved.safetensors"
    assert main(["explain", "--source", SENTENCE, "--flow", str(flow), "--save", str(saved)]) == 0
    kept = Contributions.load(saved).inside
    assert kept is not None and "decoder.cross.to_values" in kept
    assert '"pairs":{"decoder":' in flow.read_text(encoding="utf-8")

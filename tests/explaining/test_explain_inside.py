"""explain(..., inside=...): what goes through the layers, with the result."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_decoders import tiny_decoder
from tiny_models import ALL_FAMILIES, encoder_inputs, random_ids, tiny_model
from tiny_tokenizer import tiny_tokenizer
from torch import Tensor

from hf_lrp import Contributions, Epsilon, explain, load
from hf_lrp.methods import Attention
from hf_lrp.results.inside import Inside

SENTENCE, TARGET = "The big dog eats an apple.", "Le grand chien mange une pomme."
SOURCES = [random_ids(5, seed=5), random_ids(3, seed=6)]
TARGETS = [random_ids(4, seed=7), random_ids(6, seed=8)]
KINDS = ("to_queries", "to_keys", "to_values")


@pytest.fixture(scope="module")
def embedded() -> Any:
    return load()


@pytest.fixture(scope="module")
def result(embedded: Any) -> Contributions:
    found = explain(*embedded, SENTENCE, TARGET, inside="pairs")
    assert isinstance(found, Contributions)
    return found


def inside_of(contributions: Any) -> Inside:
    assert isinstance(contributions, Contributions)
    assert contributions.inside is not None
    return contributions.inside


def assert_ones(shares: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(shares, torch.ones_like(shares), rtol=0, atol=tolerance)


def assert_same(actual: Inside, expected: Inside, tolerance: float) -> None:
    assert actual.tensors.keys() == expected.tensors.keys()
    assert (actual.tokens, actual.words) == (expected.tokens, expected.words)
    for name, tensor in actual.tensors.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=tolerance)


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_every_border_sums_to_one(family: str) -> None:
    model = tiny_model(family)
    source: Any = encoder_inputs(model)
    source = source.get("input_ids", source)
    if isinstance(source, dict):
        source = {name: tensor[None] for name, tensor in source.items()}
    found: Any = explain(model, None, source, TARGETS[:1] if isinstance(source, dict) else TARGETS[0], inside=True)
    inside = inside_of(found[0] if isinstance(found, list) else found)
    assert inside.borders.shape == (4, 6)  # two layers on each side
    assert_ones(inside.borders)


def test_every_border_of_a_decoder_only_model_sums_to_one() -> None:
    found = explain(tiny_decoder("llama"), tiny_tokenizer(), "a b", "b a", prompt="b {source} a", inside=True)
    inside = inside_of(found)
    assert "encoder.positions" not in inside and set(inside.tokens) == {"decoder"}
    assert_ones(inside.borders)
    assert isinstance(found, Contributions)
    prompt = len(inside.tokens["decoder"]) - (len(found) - 1)
    assert inside.tokens["decoder"][prompt:] == found.target_tokens[:-1]
    written = inside["decoder.positions"][:, 0, prompt:].sum(-1)
    torch.testing.assert_close(written, found.target_total * (1 - found.start), rtol=0, atol=1e-6)
    assert_ones(inside_of(found.merge_subwords()).borders)


def test_what_enters_the_lowest_layers_are_the_raw_shares(result: Contributions) -> None:
    inside = inside_of(result)
    kept = (1 - result.start)[:, None]
    torch.testing.assert_close(inside["encoder.positions"][:, 0], result.source * kept, rtol=0, atol=1e-6)
    start, target = inside["decoder.positions"][:, 0].split([1, len(result) - 1], 1)
    torch.testing.assert_close(start[:, 0], result.start, rtol=0, atol=1e-6)
    torch.testing.assert_close(target, result.target[:, :-1] * kept, rtol=0, atol=1e-6)
    assert inside.tokens == {
        "decoder": (*result.start_tokens, *result.target_tokens[:-1]),
        "encoder": result.source_tokens,
    }


def test_nothing_else_of_the_result_changes(embedded: Any, result: Contributions) -> None:
    plain = explain(*embedded, SENTENCE, TARGET)
    assert isinstance(plain, Contributions)
    assert plain.inside is None
    assert torch.equal(plain.source, result.source) and torch.equal(plain.target, result.target)


def test_a_batch_gives_what_single_sentences_give() -> None:
    model = tiny_model("marian")
    batch: Any = explain(model, None, SOURCES, TARGETS, inside="pairs")
    for number, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        assert_same(inside_of(batch[number]), inside_of(explain(model, None, source, target, inside="pairs")), 1e-6)


def test_heads_of_a_kind_are_the_sums_of_their_parts(result: Contributions) -> None:
    inside = inside_of(result)
    for kind, name in (("encoder", "encoder.self"), ("self", "decoder.self"), ("cross", "decoder.cross")):
        heads = inside.heads(kind)  # type: ignore[arg-type]
        torch.testing.assert_close(heads.sum(-1), inside[f"{name}.through"], rtol=0, atol=1e-6)
        pairs = sum(inside[f"{name}.{part}"].flatten(3).sum(-1) for part in KINDS)
        torch.testing.assert_close(pairs, heads, rtol=0, atol=1e-6)
    with pytest.raises(KeyError, match=r"no 'decoder\.middle'.*decoder\.positions"):
        inside["decoder.middle"]


def test_chosen_steps_have_their_own_inside(embedded: Any, result: Contributions) -> None:
    some = inside_of(result[2:4])
    assert torch.equal(some["decoder.sent"], inside_of(result)["decoder.sent"][2:4])
    contrast = explain(*embedded, SENTENCE, TARGET, predict={"chien": "chat"}, inside=True)
    assert_ones(inside_of(contrast).borders)
    assert len(inside_of(contrast)["decoder.sent"]) == len(contrast)


@pytest.mark.parametrize("level", ["token", "word"])
def test_saved_and_loaded(result: Contributions, level: str, tmp_path: Path) -> None:
    kept = result if level == "token" else result.merge_subwords()
    kept.save(tmp_path / "kept.safetensors")
    again = Contributions.load(tmp_path / "kept.safetensors")
    assert again == kept and inside_of(again) == inside_of(kept)
    changed = Inside({**inside_of(kept).tensors, "decoder.sent": inside_of(kept)["decoder.sent"] + 1})
    assert changed != inside_of(kept)


def test_words_add_positions_and_average_steps(result: Contributions) -> None:
    words = result.merge_subwords()
    inside, pieces = inside_of(words), inside_of(result)
    assert inside.tokens["encoder"] == words.source_tokens
    assert inside.tokens["decoder"][1:] == words.target_tokens[:-1]
    assert_ones(inside.borders)
    word = result.target_words[5]  # "pomme" is two pieces
    assert result.target_words[6] == word
    expected = pieces["decoder.positions"][5:7].mean(0)
    expected = torch.cat([expected[:, :6], expected[:, 6:8].sum(1, True), expected[:, 8:]], 1)
    torch.testing.assert_close(inside["decoder.positions"][word], expected, rtol=0, atol=1e-6)
    queries = inside["decoder.cross.to_values"].sum(-1)  # keys are words of the source
    expected = pieces["decoder.cross.to_values"][0].sum(-1)[..., 6:8].sum(-1)
    torch.testing.assert_close(queries[0, :, :, 6], expected, rtol=0, atol=1e-6)


def test_what_cannot_be_kept_is_refused(embedded: Any) -> None:
    options: list[tuple[dict[str, Any], str]] = [
        ({"inside": "heads"}, "True, False or 'pairs'"),
        ({"inside": True, "source_tokens": False}, "source_tokens=False leaves out"),
        ({"inside": True, "method": Attention()}, "Only LRP passes through layers"),
        ({"inside": "pairs", "rule": Epsilon()}, "inside=True with Epsilon"),
    ]
    for given, message in options:
        with pytest.raises(ValueError, match=message):
            explain(*embedded, SENTENCE, TARGET, **given)


def test_pairs_that_do_not_fit_the_memory_are_refused(embedded: Any) -> None:
    source = " ".join([SENTENCE] * 6)
    explain(*embedded, source, TARGET, inside=True, max_memory="40MB")
    with pytest.raises(ValueError, match="Give at least max_memory"):
        explain(*embedded, source * 3, source * 2, inside="pairs", max_memory="40MB")


def test_rules_of_both_signs_keep_their_totals(embedded: Any) -> None:
    inside = inside_of(explain(*embedded, SENTENCE, TARGET, inside=True, rule=Epsilon()))
    assert_ones(inside.borders, 1e-3)


def test_tensors_that_do_not_fit_are_refused(result: Contributions) -> None:
    inside = inside_of(result)
    with pytest.raises(ValueError, match="one per step"):
        replace(result, inside=inside.at([0, 1]))
    tokens = {**inside.tokens, "encoder": ("a",)}
    with pytest.raises(ValueError, match="1 tokens in the encoder"):
        replace(result, inside=replace(inside, tokens=tokens))

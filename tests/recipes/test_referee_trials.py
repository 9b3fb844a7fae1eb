"""What the referee does to sentences and models, against plain re-computations."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_decoders import tiny_decoder
from tiny_models import tiny_model
from transformers import PreTrainedModel
from trials import faithfulness, meaning, randomisation
from trials.interventions import Changed, Edit, distributions
from trials.keeping import Findings
from trials.links import read_pairs
from trials.sentences import Sentence

NONE: frozenset[int] = frozenset()


def tiny(family: str) -> PreTrainedModel:
    return tiny_decoder(family) if family == "llama" else tiny_model(family)


def sentence(family: str, seed: int = 0, length: int = 9) -> Sentence:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(4, 30, 7).tolist(), rng.integers(4, 30, length).tolist()
    others = tuple(rng.integers(4, 30, 7).tolist()), tuple(rng.integers(4, 30, length).tolist())
    if family == "llama":  # two tokens of the prompt before the source, one after it
        prompt = [5, 6, *source, 7]
        decoder = (*prompt, *target[:-1])
        return Sentence((), decoder, len(prompt), tuple(target), tuple(range(2, 9)), tuple(range(7)), *others)
    return Sentence(tuple(source), (2, *target[:-1]), 1, tuple(target), tuple(range(7)), tuple(range(6)), *others)


def log_probability(model, encoder, encoder_mask, decoder, decoder_mask, token) -> float:
    inputs = {"input_ids": torch.tensor([decoder]), "attention_mask": torch.tensor([decoder_mask])}
    if encoder:
        inputs = {
            "input_ids": torch.tensor([encoder]),
            "attention_mask": torch.tensor([encoder_mask]),
            "decoder_input_ids": torch.tensor([decoder]),
            "decoder_attention_mask": torch.tensor([decoder_mask]),
        }
    with torch.no_grad():
        return model(**inputs).logits[0, -1].log_softmax(-1)[token].item()


@pytest.mark.parametrize("way", ["mask", "replace"])
@pytest.mark.parametrize("family", ["marian", "llama"])
def test_edits_reach_the_tokens_they_name(family: str, way: str) -> None:
    model, given, step = tiny(family), sentence(family), 5
    encoder, decoder = list(given.encoder), list(given.decoder[: given.given + step])
    masks = [1] * len(encoder), [1] * len(decoder)
    before = log_probability(model, encoder, masks[0], decoder, masks[1], given.target[step])
    holder, holder_mask, offset = (encoder, masks[0], 0) if encoder else (decoder, masks[1], 2)
    if way == "mask":
        holder_mask[offset + 1] = holder_mask[offset + 4] = masks[1][given.given + 2] = 0
        decoder[given.given + 2] = given.unknown
        if not encoder:
            decoder[offset + 1] = decoder[offset + 4] = given.unknown
    else:
        holder[offset + 1], holder[offset + 4] = given.other_source[1], given.other_source[4]
        decoder[given.given + 2] = given.other_target[2]
    after = log_probability(model, encoder, masks[0], decoder, masks[1], given.target[step])
    changed = Changed(model, given, step)
    assert changed.untouched == pytest.approx(before, abs=1e-5)
    assert changed[Edit(frozenset({1, 4}), frozenset({2}), way)] == pytest.approx(after, abs=1e-5)
    assert abs(before - after) > 1e-4


@pytest.mark.parametrize("family", ["marian", "llama"])
def test_an_order_by_true_effects_beats_blind_ones(family: str) -> None:
    model, totals = tiny(family), {}
    for number in range(24):
        given = sentence(family, seed=number)
        source, target = np.zeros((9, 7)), np.zeros((9, 9))
        for step in faithfulness.choose_steps(given, number):
            changed = Changed(model, given, step)
            for column in given.removable:
                source[step, column] = changed.untouched - changed[Edit(frozenset({column}), NONE, "replace")]
            for place in range(step):
                target[step, place] = changed.untouched - changed[Edit(NONE, frozenset({place}), "replace")]
        for name, found in faithfulness.measure(model, given, number, {"oracle": (source, target)}).items():
            assert len(found["both_fall"]) == 1
            totals.setdefault(name, []).append(np.mean(found["both_fall_replace"]))
    means = {name: np.mean(values) for name, values in totals.items()}
    assert set(means) == {"oracle", *faithfulness.RANDOM, faithfulness.NEAREST}
    assert means["oracle"] > 1.5 * max(value for name, value in means.items() if name != "oracle")


def test_all_tokens_gone_is_the_same_for_every_order() -> None:
    given = sentence("marian")
    values = {name: (np.random.default_rng(k).random((9, 7)), np.zeros((9, 9))) for k, name in enumerate("ab")}
    found = faithfulness.measure(tiny_model("marian"), given, 0, values)
    assert found["a"]["source_fall"] != found["b"]["source_fall"]
    assert 0 in given.removable and 6 not in given.removable  # the end of the source is never taken


def test_movements_are_divergences_from_what_was_predicted() -> None:
    model = tiny_model("marian")
    sentences = [sentence("marian", seed, length) for seed, length in enumerate((6, 4, 5, 9))]
    found = meaning.movements(model, sentences, 0)
    own, p = [2, *sentences[0].target[:-1]], distributions(model, sentences[0], sentences[0])
    assert p.shape[0] == 6 and torch.allclose(p.exp().sum(-1), torch.ones(6), atol=1e-5)
    expected = []
    for other in sentences[1:]:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([other.encoder]), decoder_input_ids=torch.tensor([own])).logits[0]
        expected.append([(p[t].exp() * (p[t] - logits[t].log_softmax(-1))).sum().item() for t in range(1, 6)])
    assert found["moved_source"] == pytest.approx(np.mean(expected, 0), abs=1e-5)
    shares = [a / (a + b) for a, b in zip(found["moved_source"], found["moved_prefix"], strict=True)]
    assert found["moved_share"] == pytest.approx(shares)


def test_tokens_without_a_counterfactual_are_left_out() -> None:
    kinds = meaning.classes(["▁The", "cat", "▁.", "</s>"], [0, 0, 1, 2], True)
    assert kinds["classes"] == [
        meaning.CONTINUATION * 3 + 0,
        meaning.PUNCTUATION * 3 + 1,
        meaning.END * 3 + 2,
    ]
    moved = {"moved_source": [1.0, 2.0, 3.0], "moved_prefix": [1.0, None, 1.0], "moved_share": [0.5, None, 0.75]}
    rows = meaning.rows({"m": np.array([1.0, 0.2, 0.3, 0.4])}, moved, kinds)
    assert rows["m"]["share"] == [0.2, 0.4] and rows["m"]["rest"] == pytest.approx([0.8, 0.6])
    assert rows["m"]["moved_share"] == [0.5, 0.75] and rows["m"]["classes"] == [
        kinds["classes"][0],
        kinds["classes"][2],
    ]


def test_weights_are_shuffled_from_the_top_down() -> None:
    model = tiny_model("marian")
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    changed = {}
    for name, copy in randomisation.shuffled_models(model):
        weights = dict(copy.named_parameters())
        changed[name] = {key for key in before if not torch.equal(before[key], weights[key])}
        for key in changed[name]:
            assert torch.equal(before[key].flatten().sort().values, weights[key].flatten().sort().values)
    top, decoder, everything = (changed[name] for name in randomisation.CASCADE)
    assert top and all(key.startswith("model.decoder.layers.1.") for key in top)
    assert top < decoder < everything
    assert all(key.startswith("model.decoder.layers.") for key in decoder)
    assert not any("position" in key for key in everything) and any("encoder" in key for key in everything)
    assert all(torch.equal(before[name], weight) for name, weight in model.named_parameters())


def test_similarity_is_of_ranks_of_all_that_a_step_reads() -> None:
    source, target = np.random.default_rng(0).random((5, 3)), np.tril(np.random.default_rng(1).random((5, 5)), -1)
    assert randomisation.similarity((source, target), (source**3, target**3)) == pytest.approx(1)
    assert randomisation.similarity((source, target), (-source, -target)) == pytest.approx(-1)


def test_findings_go_on_where_they_stopped(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "subject", "trial", {"sentences": 3})
    assert list(findings.missing(range(2), ["a", "b"])) == [(0, ["a", "b"]), (1, ["a", "b"])]
    findings.add(0, "a", [1.5])
    findings.add(0, "b", [2.5])
    findings.add(1, "a", [3.5])
    again = Findings(tmp_path / "subject", "trial", {"sentences": 3})
    assert list(again.missing(range(2), ["a", "b"])) == [(1, ["b"])]
    assert again.complete([0, 1], ["a", "b"]) == {"a": [[1.5]], "b": [[2.5]]}
    assert again.complete([0, 1], ["a", "c"]) == {"a": [[1.5], [3.5]]}
    with pytest.raises(ValueError, match="other settings"):
        Findings(tmp_path / "subject", "trial", {"sentences": 4})


def test_links_are_read_with_their_kind(tmp_path: Path) -> None:
    file = tmp_path / "links.tsv"
    file.write_text("a b\tx y z\t0-0 1p2\n" + "w " * 21 + "\tx\t0-0\n", encoding="utf-8")
    (pair,) = read_pairs(file)
    assert pair.source.text == "a b" and pair.target.words == ("x", "y", "z")
    assert pair.sure == {(0, 0)} and pair.possible == {(0, 0), (1, 2)}

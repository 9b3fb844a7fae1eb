"""The method inside inseq gives what `explain` gives, and results become its objects."""

from pathlib import Path
from typing import Any

import pytest
import torch
from example_contributions import make_contributions
from tiny_decoders import tiny_decoder
from word_tokenizer import word_tokenizer

from hf_lrp import explain, load
from hf_lrp.methods.table import METHODS
from hf_lrp.models.loading import EMBEDDED_MODEL

inseq = pytest.importorskip("inseq", reason="needs inseq: pip install inseq")
import hf_lrp.inseq  # noqa: E402

SOURCES = ["I would like a cup of coffee, please.", "Where is the station?"]
TARGETS = ["Je voudrais un café.", "Où est la gare, s'il vous plaît ?"]


@pytest.fixture(scope="module")
def attribution_model() -> Any:
    assert hf_lrp.inseq.AlphaBetaLRP.method_name in inseq.list_feature_attribution_methods()
    return inseq.load_model(str(EMBEDDED_MODEL), "alpha_beta_lrp")


def attribute(model: Any, *args: Any, **options: Any) -> list[Any]:
    """One attribution object per sentence."""
    return list(model.attribute(*args, show_progress=False, **options).sequence_attributions)


def assert_same(found: Any, expected: Any) -> None:
    assert found.source == expected.source
    assert [token.token for token in found.target] == [token.token for token in expected.target]
    assert (found.attr_pos_start, found.attr_pos_end) == (expected.attr_pos_start, expected.attr_pos_end)
    for name in ("source_attributions", "target_attributions"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), atol=2e-6, rtol=0, equal_nan=True)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_inseq_gives_what_explain_gives(attribution_model: Any, batch_size: int) -> None:
    options = {"attribute_target": True, "batch_size": batch_size, "step_scores": ["probability"]}
    found = attribute(attribution_model, SOURCES, TARGETS, **options)
    results = explain(*load(), SOURCES, TARGETS, predict="target", start_token="keep")
    for ours, result in zip(found, results, strict=True):
        assert_same(ours, result.to_inseq())
        sums = ours.source_attributions.sum(0) + ours.target_attributions.nansum(0)
        torch.testing.assert_close(sums, torch.ones(len(result)), atol=1e-5, rtol=0)
        assert ours.step_scores["probability"].shape == result.probability.shape


@pytest.mark.parametrize("name", [name for name in METHODS if name != "lrp"])
def test_other_methods_give_their_own_values(name: str) -> None:
    model = inseq.load_model(str(EMBEDDED_MODEL), f"hf_lrp_{name.replace('-', '_')}")
    found = attribute(model, SOURCES, TARGETS, attribute_target=True, batch_size=2)
    method = METHODS[name].method
    results = explain(*load(), SOURCES, TARGETS, predict="target", start_token="keep", method=method)
    for ours, result in zip(found, results, strict=True):
        raw = result.raw
        torch.testing.assert_close(ours.source_attributions, raw.source.T, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(ours.target_attributions[0], raw.start, atol=1e-4, rtol=1e-4)
        written = ours.target_attributions[1:].nan_to_num()[: raw.target.shape[1]]
        torch.testing.assert_close(written, raw.target.T[: len(written)], atol=1e-4, rtol=1e-4)


def test_the_models_own_translation_and_the_source_alone(attribution_model: Any) -> None:
    (found,) = attribute(attribution_model, SOURCES[1])
    expected = explain(*load(), SOURCES[1], predict="target", start_token="keep").to_inseq()
    assert found.target_attributions is None
    torch.testing.assert_close(found.source_attributions, expected.source_attributions, atol=2e-6, rtol=0)


def test_a_model_without_an_encoder(tmp_path: Path) -> None:
    tiny_decoder("llama").save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    model = inseq.load_model(str(tmp_path), "alpha_beta_lrp")
    (found,) = attribute(model, "write : the cat =", "write : the cat = a dog")
    result = explain(
        *load(tmp_path), "the cat", "a dog", prompt="write : {source} =", predict="target", start_token="keep"
    )
    steps = len(found.target) - found.attr_pos_start
    assert found.source_attributions is None and steps == 2
    torch.testing.assert_close(found.target_attributions.nansum(0), torch.ones(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.target_attributions[2:4], result.source[:2].T, atol=2e-6, rtol=0)
    for name in ("alti", "attnlrp", "gradient-norm", "gradient-input", "attention", "erasure"):
        model = inseq.load_model(str(tmp_path), f"hf_lrp_{name.replace('-', '_')}")
        (found,) = attribute(model, "write : the cat =", "write : the cat = a dog")
        options = {"prompt": "write : {source} =", "predict": "target", "start_token": "keep"}
        raw = explain(*load(tmp_path), "the cat", "a dog", method=METHODS[name].method, **options).raw
        torch.testing.assert_close(found.target_attributions[2:4], raw.source[:2].T, atol=1e-5, rtol=1e-4)


def test_the_model_is_left_as_it_was(attribution_model: Any) -> None:
    classes = [type(module) for module in attribution_model.model.modules()]
    attribute(attribution_model, SOURCES[1], TARGETS[1])
    assert [type(module) for module in attribution_model.model.modules()] == classes


def test_other_functions_are_refused(attribution_model: Any) -> None:
    with pytest.raises(ValueError, match="explains the logit of the written token"):
        attribute(attribution_model, SOURCES[1], TARGETS[1], attributed_fn="entropy")


def test_results_can_be_shown_and_aggregated() -> None:
    result = make_contributions(start_tokens=("<pad>",))
    converted = result.to_inseq()
    assert converted.target[0].token == "<pad>" and converted.target_attributions[0].tolist() == [0.0] * len(result)
    assert converted.target_attributions[1:].isnan().equal(~result.known.T)
    assert "▁chat" in converted.show(display=False, return_html=True, do_aggregation=False)
    part = result[2:5].to_inseq()
    assert (part.attr_pos_start, part.attr_pos_end) == (3, 6) and part.source_attributions.shape == (5, 3)
    with pytest.raises(ValueError, match="steps that follow each other"):
        result[::2].to_inseq()

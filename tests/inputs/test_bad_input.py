"""What explain() refuses: each problem is named, with a word on what to do, and the model stays as it was."""

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer
from transformers import MarianModel

from hf_lrp import explain

SOURCES, TARGETS = ["the cat", "a dog", "she is"], ["he", "we", "they"]


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


BAD_INPUT = {
    "empty text": (dict(source=""), ValueError, "source 0 is empty"),
    "blank text in a list": (dict(source=["the cat", "  "]), ValueError, "source 1 is empty"),
    "empty list": (dict(source=[]), ValueError, "source is empty"),
    "empty target": (dict(source="the cat", target=""), ValueError, "target 0 is empty"),
    "empty ids": (dict(source=torch.tensor([], dtype=torch.long)), ValueError, "source 0 has no tokens"),
    "padding only": (dict(source=[39, 39]), ValueError, "or padding only"),
    "masked out": (dict(source={"input_ids": [[3]], "attention_mask": [[0]]}), ValueError, "source 0 is padding only"),
    "bytes": (dict(source=b"the cat"), TypeError, r"source is bytes, not text: decode it first"),
    "list of bytes": (dict(source=["the", b"cat"]), TypeError, r"source 1 is bytes, not text: decode it first"),
    "target bytes": (dict(source="the", target=b"cat"), TypeError, r"target is bytes, not text"),
    "set": (dict(source={"the cat"}), TypeError, "has no order: pass a list"),
    "table": (dict(source=pd.DataFrame({"en": ["the"]})), TypeError, "DataFrame: pass one of its columns"),
    "surrogate": (dict(source="the \ud83d cat"), ValueError, "half a character at position 4"),
    "words": (dict(source=[["the", "cat"]]), TypeError, "join them into one text"),
    "bool ids": (dict(source=torch.tensor([True, False])), TypeError, "integer token ids, got torch.bool"),
    "bool array": (dict(source=np.array([True, False])), TypeError, "integer token ids, got torch.bool"),
    "sparse ids": (dict(source=torch.tensor([1, 2]).to_sparse()), TypeError, "sparse or nested tensor"),
    "meta ids": (dict(source=torch.ones(2, dtype=torch.long, device="meta")), TypeError, "meta device"),
    "huge id": (dict(source=[[10**30]]), ValueError, "token id 10+, but the model's vocabulary"),
    "hole": (
        dict(source={"input_ids": [[3, 4, 5]], "attention_mask": [[1, 0, 1]]}),
        ValueError,
        "attention_mask of source 0 has a hole at position 1",
    ),
    "half mask": (
        dict(source={"input_ids": torch.tensor([[3, 4]]), "attention_mask": torch.tensor([[1, 0.5]])}),
        ValueError,
        "must hold 0 and 1 only",
    ),
    "mask shape": (
        dict(source={"input_ids": torch.tensor([[3, 4]]), "attention_mask": torch.ones(1, 3)}),
        ValueError,
        "one entry for each of input_ids",
    ),
    "mask number": (dict(source={"input_ids": [3, 4], "attention_mask": 1}), ValueError, "one entry for each"),
    "head mask": (
        dict(source={"input_ids": [3, 4], "head_mask": torch.ones(2, 2)}),
        ValueError,
        r"brings head_mask, which explain\(\) does not use: remove it",
    ),
    "labels": (dict(source={"input_ids": [3, 4], "labels": [1]}), ValueError, "Pass labels as target"),
    "count": (dict(source=SOURCES, target=TARGETS[:2]), ValueError, "a list of 3 sources but a list of 2 targets"),
    "list and text": (dict(source=SOURCES, target="he"), ValueError, "a list of 3 sources but a single target"),
    "too long": (dict(source="the " * 40), ValueError, "source 0 has 42 tokens, but the model has only 32 positions"),
    "too long target": (dict(source="the", target="a " * 40), ValueError, "target 0 has 42 tokens"),
    "unknown id": (dict(source=[3, 400]), ValueError, "token id 400, but the model's vocabulary has ids 0 to 39"),
    "mixed": (dict(source=["the", [3, 4]]), TypeError, "source mixes kinds: item 1 is a list, item 0 a str"),
    "a gap": (dict(source=["the", None]), TypeError, "source mixes kinds: item 1 is a NoneType, item 0 a str"),
    "a number": (dict(source=3), TypeError, "source must be text or token ids"),
    "float ids": (dict(source=torch.tensor([1.0, 2.0])), TypeError, "must be integer token ids, got torch.float32"),
    "3-D ids": (dict(source=torch.ones(1, 2, 3, dtype=torch.long)), TypeError, r"has the shape \[1, 2, 3\]"),
    "no ids": (dict(source={"ids": [1]}), ValueError, "Expected 'input_ids'"),
    "no reference": (dict(source="the", prefix="reference"), ValueError, "needs a target"),
    "nothing to shuffle": (dict(source="the", target="a", prefix="random"), ValueError, "only one sentence"),
    "no targets": (dict(source=SOURCES, prefix="random"), ValueError, "targets to shuffle"),
    "equal targets": (dict(source=SOURCES, target=["a"] * 3, prefix="random"), ValueError, "All targets are equal"),
    "pool of itself": (
        dict(source="the", target="a", prefix="random", pool=["a"]),
        ValueError,
        "nothing but the target of sentence 0",
    ),
    "pool without random": (dict(source="the", pool=["a"]), ValueError, "pool is for prefix='random'"),
    "unknown prefix": (dict(source="the", prefix="gold"), ValueError, "prefix must be"),
    "unknown start": (dict(source="the", start_token="drop"), ValueError, "start_token must be"),
    "unknown predict": (dict(source="the", target="a", predict="best"), ValueError, "predict must be"),
    "predict length": (dict(source="the", target="a", predict=[1, 2, 3]), ValueError, r"its 2 steps need \[2\] ids"),
    "predict id": (dict(source="the", target="a", predict=[1, 99]), ValueError, "ids outside the vocabulary"),
    "predict count": (dict(source=["the"], target=["a"], predict=[[1, 2], [1, 2]]), ValueError, "for 2 sentences"),
    "predict nothing": (dict(source="the", target="a", predict=None), ValueError, "predict must be .* got None"),
    "predict object": (dict(source="the", target="a", predict=object()), TypeError, "predict must be .* got object"),
    "predict number": (dict(source="the", target="a", predict=3), TypeError, "predict must be .* got int"),
    "predict ragged": (
        dict(source="the", target="a", predict=[[1, 2], [3]]),
        ValueError,
        "is not a rectangular array of ids",
    ),
    "predict floats": (dict(source="the", target="a", predict=[1.0, 2.0]), TypeError, "predict must be .* got float"),
    "predict twice": (
        dict(source="the", target="a", predict=[[1, 2], [3, 3]]),
        ValueError,
        "predict for sentence 0 has the same token twice at step 2",
    ),
    "predict text": (dict(source="the", target="a", predict=["the cat", "</s>"]), ValueError, "is not one token of"),
    "no rule": (dict(source="the", rule="lrp"), TypeError, "rule must be a rule"),
    "batch size": (dict(source="the", batch_size=0), ValueError, "batch_size must be at least 1"),
    "half a batch": (dict(source="the", batch_size=1.5), TypeError, "batch_size must be a whole number, got 1.5"),
    "half a seed": (dict(source="the", seed=1.5), TypeError, "seed must be a whole number, got 1.5"),
    "negative seed": (dict(source="the", seed=-1), ValueError, "seed must be between 0 and"),
    "half a byte": (dict(source="the", max_memory=0.5), TypeError, "max_memory must be a whole number of bytes"),
    "memory": (dict(source="the", max_memory=0), ValueError, "max_memory must be positive"),
    "memory text": (dict(source="the", max_memory="much"), ValueError, "max_memory must be .* got 'much'"),
    "no beams": (dict(source="the", num_beams=0), ValueError, "num_beams must be at least 1, got 0"),
    "beams text": (dict(source="the", num_beams="4"), TypeError, "num_beams must be a whole number, got '4'"),
    "language id": (
        dict(source="the", forced_bos_token_id=400),
        ValueError,
        "forced_bos_token_id must be a token id of the target's vocabulary, 0 to 39, got 400",
    ),
    "negative language": (dict(source="the", target="a", forced_bos_token_id=-1), ValueError, "0 to 39, got -1"),
    "language name": (dict(source="the", forced_bos_token_id="fr"), ValueError, "got 'fr'. tokenizer.convert_tokens"),
    "start id": (dict(source="the", decoder_start_token_id=40), ValueError, "decoder_start_token_id must be"),
    "typo": (
        dict(source="the", target="a", progres=True),
        TypeError,
        "Unknown arguments: progres. Did you mean progress?",
    ),
    "targets": (dict(source="the", targets="a"), TypeError, "Unknown arguments: targets. Did you mean target?"),
    "unknown": (dict(source="the", target="a", xyz=True), TypeError, "Unknown arguments: xyz. "),
    "several": (dict(source="the", num_return_sequences=2, num_beams=2), ValueError, "num_return_sequences must be 1"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_named(tokenizer, name):
    arguments, error, message = BAD_INPUT[name]
    model = tiny_model()
    with pytest.raises(error, match=message):
        explain(model, tokenizer, **arguments)
    assert not any("Relevance" in type(module).__name__ for module in model.modules())


def test_text_needs_a_tokenizer():
    with pytest.raises(ValueError, match="there is no tokenizer"):
        explain(tiny_model(), None, "the cat")


def test_training_mode_is_refused(tokenizer):
    model = tiny_model().train()
    with pytest.raises(ValueError, match=r"Call model.eval\(\) first"):
        explain(model, tokenizer, "the cat")
    assert model.training


def test_unsupported_models_are_named(tokenizer):
    with pytest.raises(TypeError, match="MarianModel has no output layer: load the checkpoint with AutoModel"):
        explain(MarianModel(tiny_model().config).eval(), tokenizer, "the cat")
    with pytest.raises(TypeError, match="Expected a transformers PreTrainedModel, got Linear"):
        explain(torch.nn.Linear(2, 2), tokenizer, "the cat")


def test_nan_weights_are_named(tokenizer):
    model = tiny_model()
    with torch.no_grad():
        model.get_submodule("model.decoder.layers.1.fc1").weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"model.decoder.layers.1.fc1.weight contain NaN or infinity"):
        explain(model, tokenizer, "the cat", "he")


def test_fsmt_in_float64_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"cannot compute FSMT in float64.*model\.float\(\)"):
        explain(tiny_model("fsmt").double(), None, [3, 4], [5, 6])


def test_missing_start_token_is_named(tokenizer):
    model = tiny_model()
    vars(model.config)["decoder_start_token_id"] = model.generation_config.decoder_start_token_id = None
    with pytest.raises(ValueError, match="decoder_start_token_id is not set"):
        explain(model, tokenizer, "the cat")

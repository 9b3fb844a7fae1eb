"""Results that can be computed but mean little, and models that cannot be used."""

import warnings

import pytest
import torch
from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer
from transformers import BartTokenizer

from hf_lrp import AlphaBeta, explain, patched

KNOWN, UNKNOWN = "the cat sees", "le chat voit the dog"


def test_text_that_is_mostly_unknown_is_said():
    with pytest.warns(UserWarning, match="3 of the 5 tokens of the source are unknown to the tokenizer. Is it"):
        c, d = explain(tiny_model(), tiny_tokenizer(), [UNKNOWN, KNOWN], ["he", "le chat"])
    assert c.notes == ("3 of the 5 tokens of the source are unknown to the tokenizer",)
    assert d.notes == ("2 of the 2 tokens of the target are unknown to the tokenizer",)


def test_there_is_one_warning_for_many_sentences():
    message = "of the 5 tokens of the source are unknown to the tokenizer \\(and so on: 2 sentences\\)"
    with pytest.warns(UserWarning, match=message) as caught:
        explain(tiny_model(), tiny_tokenizer(), [UNKNOWN, "le chat", KNOWN], ["he"] * 3)
    assert len(caught) == 1


def test_known_text_and_ids_are_not_doubted():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c = explain(tiny_model(), tiny_tokenizer(), KNOWN + " le", "he")
        d = explain(tiny_model(), None, [3, 0, 0, 1], [4, 1])
    assert c.notes == d.notes == ()


def test_another_models_tokenizer_is_said():
    model = tiny_model(vocab_size=400, decoder_vocab_size=400)
    model.config.eos_token_id = model.generation_config.eos_token_id = 7
    with pytest.warns(UserWarning, match="not this model's: it has 27 tokens, the model 400; its end .* is 1, .* 7"):
        c = explain(model, tiny_tokenizer(), KNOWN, "he")
    assert "the tokenizer is perhaps not this model's" in c.notes[0]
    small = tiny_model(vocab_size=26, decoder_vocab_size=26, pad_token_id=25, decoder_start_token_id=25)
    with pytest.warns(UserWarning, match="it has 27 tokens, the model 26"):
        explain(small, tiny_tokenizer(), KNOWN, "he")


def test_a_tokenizer_without_text_is_refused():
    with pytest.raises(ValueError, match="The tokenizer knows no text: all its 5 tokens are special"):
        explain(tiny_model(), BartTokenizer(), KNOWN, "he")


class Packed(torch.Tensor):
    """Stands for what torchao and others put in place of weights."""


def quantised():
    return torch.ao.quantization.quantize_dynamic(tiny_model(), {torch.nn.Linear}, dtype=torch.qint8).eval()


def packed():
    model = tiny_model()
    layer = model.get_submodule("model.encoder.layers.0.fc1")
    layer.weight = torch.nn.Parameter(layer.weight.data.as_subclass(Packed), requires_grad=False)
    return model


UNUSABLE = {
    "dynamic": (quantised, TypeError, "is quantised .*Load the model without quantisation"),
    "packed": (packed, TypeError, r"model.encoder.layers.0.fc1.weight is a Packed\).* without quantisation"),
    "meta": (lambda: tiny_model().to("meta"), ValueError, "has no weights: .* is on the meta device. Load"),
}


@pytest.mark.parametrize("name", UNUSABLE)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_models_without_plain_weights_are_refused_before_any_work(name):
    make, error, message = UNUSABLE[name]
    model = make()
    with pytest.raises(error, match=message):
        explain(model, tiny_tokenizer(), KNOWN)
    with pytest.raises(error, match=message), patched(model):
        pass


def test_nan_in_a_buffer_is_named():
    model = tiny_model()
    model.get_buffer("final_logits_bias")[0, 3] = float("nan")
    with pytest.raises(ValueError, match="the weights final_logits_bias contain NaN or infinity"):
        explain(model, tiny_tokenizer(), KNOWN, "he")


def test_shares_that_do_not_sum_to_one_are_said():
    with pytest.warns(UserWarning, match=r"with LRP\(.*beta=-3\)\), raw shares do not sum to 1 and say"):
        c = explain(tiny_model(), tiny_tokenizer(), KNOWN, "he", rule=AlphaBeta(4, -3), start_token="keep")
    assert c.conservation_error > 0.01 and "raw shares sum to 1 only within" in c.notes[0]


def test_relevance_that_overflows_is_named():
    with pytest.raises(ValueError, match=r"With LRP\(.*alpha=4000000000.0.*grows beyond what torch.float32 can"):
        explain(tiny_model(), tiny_tokenizer(), KNOWN, "he", rule=AlphaBeta(4e9, 1 - 4e9))

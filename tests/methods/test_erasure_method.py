"""Erasure: batches with a shared encoder give what one call per token gives."""

import pytest
import torch
from left_alone import unchanged
from slow_erasure import slow_erasure
from tiny_decoders import tiny_decoder
from tiny_models import tiny_model
from tiny_questions import MODELS, model_of, question_of, values_of
from torch import Tensor

from hf_lrp.methods import erasure
from hf_lrp.methods.erasure import Erasure

TEXT_MODELS = [name for name in MODELS if name != "whisper"]


@pytest.mark.parametrize("name", TEXT_MODELS)
@pytest.mark.parametrize("by", ["mask", "replace"])
def test_equals_one_call_per_token(name: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "TOGETHER", 2)
    model = model_of(name)
    question = question_of(model)._replace(unknown=(3, 4))
    (values,) = Erasure(by=by).explain(question)  # type: ignore[arg-type]
    source, decoder = slow_erasure(question, values.explained, by)
    tolerance = 1e-4 if name == "xglm" else 1e-6  # some models compute norms and softmax in float32
    torch.testing.assert_close(values.source, source, rtol=0, atol=tolerance)
    torch.testing.assert_close(values.decoder, decoder, rtol=0, atol=tolerance)
    assert not values.decoder.triu(question.given[0].steps.start + 1).any()
    assert bool((values.decoder != 0).any())


@pytest.mark.parametrize("name", ["marian", "t5", "llama"])
def test_rows_in_batches_that_fit_make_no_difference(name: str) -> None:
    model = model_of(name)
    together, enough = values_of(Erasure(), model), None
    for memory in range(15 * 10**6, 40 * 10**6, 10**5):
        try:
            enough = values_of(Erasure(), model, max_memory=memory)
            break
        except ValueError as error:
            assert "Give at least max_memory=" in str(error)  # noqa: PT017
    assert enough is not None
    torch.testing.assert_close(enough.source, together.source, rtol=0, atol=1e-9)
    torch.testing.assert_close(enough.decoder, together.decoder, rtol=0, atol=1e-9)


def test_without_an_encoder_only_what_follows_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "TOGETHER", 2)
    model, read = tiny_decoder("llama"), []
    hook = model.register_forward_pre_hook(
        lambda _, given, named: read.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    Erasure().explain(question_of(model))
    hook.remove()
    assert read == [(1, 7), (2, 7), (2, 5), (2, 3), (1, 1)]


def test_units_are_taken_out_together_and_share_their_value() -> None:
    question = question_of(tiny_model(dtype=torch.float64))
    groups = [0, 0, 1, 1, 1], [0, 1, 1, 2, 3, 3]
    (values,) = Erasure(unit="word").explain(question._replace(group=lambda unit: [groups]))
    model, given = question.model, question.given[0]
    source = question.source["input_ids"][None]
    masks = {"attention_mask": torch.tensor([[0, 0, 1, 1, 1]])}
    before, after = (
        model(input_ids=source, decoder_input_ids=given.ids[None], **extra).logits[0].log_softmax(-1)
        for extra in ({}, masks)
    )
    fall = (before - after).gather(1, values.explained[:, None])[:, 0]
    torch.testing.assert_close(values.source[:, 0], fall / 2)
    torch.testing.assert_close(values.source[:, 1], fall / 2)
    # the second word's pieces: one is known at step 2, both from step 3 on
    assert values.decoder[1, 1] != 0 and values.decoder[1, 2] == 0
    assert bool((values.decoder[2:, 1] == values.decoder[2:, 2]).all())


def test_a_whole_source_is_replaced_since_nothing_would_be_left_to_attend_to() -> None:
    question = question_of(tiny_model(dtype=torch.float64))._replace(unknown=(3, 3))
    groups = [0] * 5, [0, 1, 1, 1, 1, 1]
    (masked,) = Erasure(unit="part").explain(question._replace(group=lambda unit: [groups]))
    (replaced,) = Erasure(unit="part", by="replace").explain(question._replace(group=lambda unit: [groups]))
    assert torch.equal(masked.source, replaced.source)
    assert bool(torch.isfinite(masked.decoder).all())


def test_pairs_are_explained_by_the_difference_of_their_log_probabilities() -> None:
    def pairs(logits: Tensor) -> Tensor:
        return logits.topk(2).indices

    def second(logits: Tensor) -> Tensor:
        return pairs(logits)[:, 1]

    model = tiny_decoder("llama", dtype=torch.float64)
    both = values_of(Erasure(), model, choose=pairs)
    one, other = values_of(Erasure(), model), values_of(Erasure(), model, choose=second)
    torch.testing.assert_close(both.decoder, one.decoder - other.decoder)


def test_speech_and_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="listens to audio"):
        values_of(Erasure(), tiny_model("whisper"))
    with pytest.raises(ValueError, match="unit must be one of token, word, part"):
        Erasure(unit="sentence")  # type: ignore[arg-type]


def test_the_model_comes_back_as_it_was() -> None:
    model = tiny_model()
    with unchanged(model):
        values_of(Erasure(), model)

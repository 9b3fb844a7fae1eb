"""What a model predicts once tokens that it read are masked or replaced.

Masked: nothing attends to a token; where it stands in the decoder, whose own position goes on predicting from it, is
the unknown token. Replaced: a token of another sentence stands in its place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from trials.sentences import Sentence

ROWS = 48  # changed sentences in one forward pass
Way = Literal["mask", "replace"]


class Edit(NamedTuple):
    """Tokens that are taken from a sentence: columns of the source, places in the target."""

    source: frozenset[int]
    prefix: frozenset[int]
    way: Way


class Changed:
    """Log-probabilities of one step's token after edits of what comes before it; each edit is computed once."""

    def __init__(self, model: PreTrainedModel, sentence: Sentence, step: int) -> None:
        """step: from 0; the token ``sentence.target[step]`` is predicted."""
        self._model, self._sentence, self._step = model, sentence, step
        self._known: dict[Edit, float] = {}
        self._encoded: dict[Edit, Tensor] = {}  # by what is taken from the source: the encoder's output [S, d]
        self._beginning: Any = None  # of a prompt: keys and values before the source, which no edit changes

    def compute(self, edits: Iterable[Edit]) -> None:
        """Get many edits done together."""
        missing = [edit for edit in dict.fromkeys(edits) if edit not in self._known]
        if self._sentence.encoder:
            self._encode(dict.fromkeys(_of_source(edit) for edit in missing))
        for first in range(0, len(missing), ROWS):
            some = missing[first : first + ROWS]
            rows = _rows(self._sentence, self._step, some)
            with last_position_only(self._model):
                if self._sentence.encoder:
                    encoded = torch.stack([self._encoded[_of_source(edit)] for edit in some])
                    logits = _predict(self._model, *rows, encoded)[:, -1]
                else:
                    logits = self._predict_after_beginning(*rows[2:])[:, -1]
            values = logits.float().log_softmax(-1)[:, self._sentence.target[self._step]]
            self._known.update(zip(some, values.tolist(), strict=True))

    @torch.no_grad()
    def _predict_after_beginning(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits after the prompt's beginning, which is read once for all edits."""
        first = min(self._sentence.columns)
        if not first:
            return _predict(self._model, None, None, ids, mask)
        if self._beginning is None:
            self._beginning = self._model(input_ids=ids[:1, :first], use_cache=True).past_key_values
        beginning = copy.deepcopy(self._beginning)
        beginning.batch_repeat_interleave(len(ids))
        return self._model(input_ids=ids[:, first:], attention_mask=mask, past_key_values=beginning).logits

    @torch.no_grad()
    def _encode(self, edits: Iterable[Edit]) -> None:
        missing = [edit for edit in edits if edit not in self._encoded]
        for first in range(0, len(missing), ROWS):
            some = missing[first : first + ROWS]
            ids, mask, _, _ = _rows(self._sentence, self._step, some)
            found = self._model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
            self._encoded.update(zip(some, found, strict=True))

    def __getitem__(self, edit: Edit) -> float:
        self.compute([edit])
        return self._known[edit]

    @property
    def untouched(self) -> float:
        """Without any edit."""
        return self[Edit(frozenset(), frozenset(), "mask")]


def _of_source(edit: Edit) -> Edit:
    """What of an edit the encoder sees."""
    return edit._replace(prefix=frozenset(), way=edit.way if edit.source else "mask")


@contextmanager
def last_position_only(model: PreTrainedModel) -> Iterator[None]:
    """Logits of the last position alone: with large vocabularies, those of all others take most of the time."""
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda head, given: (given[0][:, -1:],))
    try:
        yield
    finally:
        hook.remove()


def distributions(model: PreTrainedModel, source: Sentence, prefix: Sentence) -> Tensor:
    """Log-probabilities [T, V] at each step of one sentence's target after another sentence's source."""
    own = [*source.decoder[: source.given], *prefix.target[:-1]]
    ids = torch.tensor([own])
    encoder = torch.tensor([source.encoder]) if source.encoder else None
    logits = _predict(model, encoder, None, ids, torch.ones_like(ids))[0]
    return logits[source.given - 1 :].float().log_softmax(-1)


def _rows(sentence: Sentence, step: int, edits: Sequence[Edit]) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor]:
    """Ids and masks of encoder and decoder, [edits, length] each."""
    encoder = torch.tensor([sentence.encoder] * len(edits)) if sentence.encoder else None
    decoder = torch.tensor([sentence.decoder[: sentence.given + step]] * len(edits))
    encoder_mask = None if encoder is None else torch.ones_like(encoder)
    decoder_mask = torch.ones_like(decoder)
    ids, mask = (decoder, decoder_mask) if encoder is None else (encoder, encoder_mask)
    assert mask is not None
    for row, edit in enumerate(edits):
        for column in edit.source:
            place = sentence.columns[column]
            unknown = None if sentence.encoder else sentence.unknown
            _take(ids, mask, (row, place), sentence.other_source[column], unknown, edit.way)
        for number in edit.prefix:
            place = sentence.given + number
            _take(decoder, decoder_mask, (row, place), sentence.other_target[number], sentence.unknown, edit.way)
    return encoder, encoder_mask, decoder, decoder_mask


def _take(ids: Tensor, mask: Tensor, place: tuple[int, int], other: int, unknown: int | None, way: Way) -> None:
    if way == "mask":
        mask[place] = 0
        if unknown is not None:
            ids[place] = unknown
    else:
        ids[place] = other


@torch.no_grad()
def _predict(
    model: PreTrainedModel,
    encoder: Tensor | None,
    encoder_mask: Tensor | None,
    decoder: Tensor,
    mask: Tensor,
    encoded: Tensor | None = None,
) -> Tensor:
    """encoded: what the encoder makes of ``encoder``, if that is known."""
    inputs: dict[str, Any] = {"use_cache": False}
    if encoder is None:
        inputs |= {"input_ids": decoder, "attention_mask": mask}
    else:
        inputs |= {"input_ids": encoder, "attention_mask": encoder_mask}
        inputs |= {"decoder_input_ids": decoder, "decoder_attention_mask": mask}
        if encoded is not None:
            inputs["encoder_outputs"] = BaseModelOutput(encoded)
    return model(**inputs).logits

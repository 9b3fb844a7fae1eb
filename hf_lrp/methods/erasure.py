"""Erasure: how much less probable a prediction gets when a token, a word or a part of a prompt is taken out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from hf_lrp.methods.method import Question, memory_beyond_pass
from hf_lrp.models.beginnings import Beginnings
from hf_lrp.models.passes import (
    Chosen,
    DecoderInput,
    Relevance,
    choose_logits,
    decoder_arguments,
    require_finite,
    takes,
)
from hf_lrp.models.structure import widths

Unit = Literal["token", "word", "part"]
TOGETHER = 16  # inputs that go on from what they share with the untouched one, sorted by where they part from it


@dataclass(frozen=True)
class Erasure:
    """The fall of the explained token's log-probability (of a pair: of the difference) without a part of the input.

    Args:
        unit: what is taken out at a time: a token; a word with all its pieces; or a part: the whole source, each named
            part of a prompt, the whole prefix. The pieces of a unit share its value equally.
        by: ``"mask"``: nothing attends to the tokens, and where they stand in the decoder, which goes on predicting
            from there, is the unknown token. ``"replace"``: they become the unknown token, which others attend to.
    """

    unit: Unit = "token"
    by: Literal["mask", "replace"] = "mask"
    sums_to_one: ClassVar[bool] = False
    conserves: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, choices in (("unit", ("token", "word", "part")), ("by", ("mask", "replace"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}.")

    def explain(self, question: Question) -> list[Relevance]:
        """Values in nats; 0 for tokens that are not yet written."""
        if "input_features" in question.source:
            raise ValueError(
                f"{type(question.model).__name__} listens to audio, from which Erasure() can take nothing out: sound "
                "has no token that stands for nothing. Use another method, such as GradientNorm()."
            )
        units = question.units(self.unit)
        with torch.no_grad(), torch.autocast(question.model.device.type, enabled=False):
            passes = ErasedPasses(question, self.by == "mask")
            return [_explain_one(passes, given, groups) for given, groups in zip(question.given, units, strict=True)]


class Erased(NamedTuple):
    """Versions of one input, by row: what of the source [n, S] and of the decoder's input [n, D] is taken out."""

    source: Tensor
    decoder: Tensor


def _explain_one(passes: ErasedPasses, given: DecoderInput, groups: tuple[Sequence[int], Sequence[int]]) -> Relevance:
    before = passes.before(given)
    in_source, in_decoder = (_members(side, before.value.device) for side in groups)
    without = Erased(
        torch.cat([in_source, in_source.new_zeros(len(in_decoder), in_source.shape[1])]),
        torch.cat([in_decoder.new_zeros(len(in_source), in_decoder.shape[1]), in_decoder]),
    )
    unchanged = _of_choice(before)
    fall = unchanged - passes.after(given, before.ids, unchanged, without)  # [groups, T]
    of_source, of_decoder = fall[: len(in_source)].T, fall[len(in_source) :].T
    source = of_source @ (in_source / in_source.sum(1, keepdim=True)).to(fall)
    positions = torch.arange(given.steps.start, given.steps.stop, device=fall.device)
    known = torch.arange(len(given.ids), device=fall.device) <= positions[:, None]  # [T, D]
    members = in_decoder & known[:, None]  # [T, groups, D]
    share = members / members.sum(2, keepdim=True).clamp_min(1)
    return before.relevance(source, (of_decoder[..., None] * share.to(fall)).sum(1))


def _of_choice(chosen: Chosen) -> Tensor:
    """[T], the explained token's log-probability, or the difference of a pair's."""
    return chosen.log_probability if chosen.ids.dim() == 1 else chosen.value


def _members(groups: Sequence[int], device: torch.device) -> Tensor:
    """[groups, n], which of n positions belong to each group; ``groups`` has the group's number for each position."""
    numbers = torch.tensor(groups, dtype=torch.long, device=device)
    return torch.arange(max(groups, default=-1) + 1, device=device)[:, None] == numbers


class ErasedPasses:
    """Forward passes over one source without some of its tokens, or of the decoder's; in batches that fit.

    The encoder runs once for all rows that keep the source. A model without an encoder reads only what comes after the
    first token that is taken out.
    """

    def __init__(self, question: Question, mask: bool) -> None:
        """mask: what is taken out is hidden by the attention mask; else it is replaced only."""
        self.question, self.mask = question, mask
        self._memory: Tensor | None = None
        self._beginnings: Beginnings | None = None

    def before(self, given: DecoderInput) -> Chosen:
        """Logits that are explained, with nothing taken out."""
        model, network = self.question.model, self.question.network
        source = {name: tensor[None] for name, tensor in self.question.source.items()}
        arguments = decoder_arguments(model, network, given)
        output = model(**source, **arguments | {"use_cache": network.encoder is None})
        if network.encoder is None:
            self._beginnings = Beginnings.of(getattr(output, "past_key_values", None))
        logits = output.logits[0]
        first = given.steps.start - (len(given.ids) - len(logits))
        require_finite(model, logits[first:])
        if network.encoder is not None:
            self._memory = output.encoder_last_hidden_state
        return choose_logits(logits[first : first + given.steps.stop - given.steps.start], given)

    def after(self, given: DecoderInput, ids: Tensor, unchanged: Tensor, erased: Erased) -> Tensor:
        """[n, T], log-probabilities of ids [T], or differences of ids [T, 2], for n versions of the input.

        unchanged: [T], those of the untouched input, which hold for steps before anything is taken out.
        """
        result = unchanged.repeat(len(erased.decoder), 1)
        whole = ~erased.source.any(1)
        first = erased.decoder.int().argmax(1)
        for keeps_source in (True, False):
            rows = (whole == keeps_source).nonzero()[:, 0]
            rows = rows[first[rows].argsort(stable=True)]
            for some in rows.split(self._rows_at_once(given)) if len(rows) else ():
                part = Erased(erased.source[some], erased.decoder[some])
                shared = 0 if self._beginnings is None else int(first[some[0]])
                logits = self._run(given, part, keeps_source, shared)
                at = len(given.ids) - logits.shape[1]  # where the first of the logits stands
                begin = max(at, given.steps.start)
                logits, step = logits[:, begin - at : given.steps.stop - at], begin - given.steps.start
                require_finite(self.question.model, logits)
                result[some, step:] = _log_probability(logits, ids[step:])
        return result

    def _run(self, given: DecoderInput, erased: Erased, keeps_source: bool, shared: int) -> Tensor:
        """[n, positions, V]; shared: the decoder's first positions, as they are in the untouched input."""
        model, network, count = self.question.model, self.question.network, len(erased.decoder)
        inputs: dict[str, Any] = dict(decoder_arguments(model, network, given))
        side = "" if network.encoder is None else "decoder_"
        ids = given.ids.expand(count, -1).masked_fill(erased.decoder, self.question.unknown[1])
        hidden = erased.decoder.clone()
        hidden[:, 0] = False  # something must be left to attend to
        inputs[f"{side}input_ids"] = ids[:, shared:]
        inputs[f"{side}attention_mask"] = self._seen(hidden)
        if network.encoder is None:
            if takes(model, "position_ids"):  # or some models count positions by the mask
                # not expanded: XGLM adds to them in place in older releases of transformers
                inputs["position_ids"] = torch.arange(shared, ids.shape[1], device=ids.device).repeat(count, 1)
            if shared and self._beginnings is not None:
                inputs["past_key_values"] = self._beginnings.cut(shared, count)
                inputs["use_cache"] = True
            return _logits(model(**inputs))
        tokens = self.question.source["input_ids"].expand(count, -1)
        if keeps_source:
            assert self._memory is not None
            encoded = BaseModelOutput(self._memory.expand(count, -1, -1).contiguous())
            return _logits(model(input_ids=tokens, encoder_outputs=encoded, **inputs))
        alone = erased.source.all(1, keepdim=True)  # nothing would be left to attend to: replaced only
        replaced = erased.source if not self.mask else erased.source & alone
        tokens = tokens.masked_fill(replaced, self.question.unknown[0])
        return _logits(model(input_ids=tokens, attention_mask=self._seen(erased.source & ~alone), **inputs))

    def _seen(self, hidden: Tensor) -> Tensor:
        """An attention mask of what is not hidden."""
        return (~hidden).long() if self.mask else torch.ones_like(hidden, dtype=torch.long)

    def _rows_at_once(self, given: DecoderInput) -> int:
        question = self.question
        width, widest = widths(question.network)
        longest = max(len(given.ids), question.positions)
        heads = max(linear.q.heads for linear in _attention(question))
        written = given.steps.stop - (given.steps.start if question.network.encoder is None else 0)
        logits = 3 * written * len(question.network.head.weight)
        row = question.model.dtype.itemsize * (longest * (10 * width + 4 * widest + 4 * heads * longest) + logits)
        memory = memory_beyond_pass(question, row)
        if self._beginnings is None:
            return max(1, memory // row)
        row += 2 * self._beginnings.bytes  # of a layer, what was there and what is put together stand side by side
        if memory < row:
            self._beginnings = None
        return max(1, min(TOGETHER, memory // row))


def _attention(question: Question) -> Iterator[Any]:
    for layer in question.network.decoder.layers:
        for residual in layer.residuals:
            yield from (branch.block for branch in residual.branches if branch.block.mixes_positions)


def _logits(output: Any) -> Tensor:
    logits: Tensor = output.logits
    return logits


def _log_probability(logits: Tensor, ids: Tensor) -> Tensor:
    """[n, T] of logits [n, T, V]."""
    pairs = ids.reshape(1, len(ids), -1).expand(len(logits), -1, -1)
    values = logits.log_softmax(-1).gather(2, pairs)
    return values[..., 0] if ids.dim() == 1 else values[..., 0] - values[..., 1]

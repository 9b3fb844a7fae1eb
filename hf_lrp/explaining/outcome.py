"""From raw shares to what users get: `Contributions`, with what a reader should know of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from hf_lrp.explaining.call import Call, Case, Settings
from hf_lrp.explaining.start_share import leave_out_start
from hf_lrp.inputs.doubts import doubts_about_text, warn_of_sums
from hf_lrp.inputs.ids import Described
from hf_lrp.kinds.kind import Parted
from hf_lrp.models.vocabulary import Vocabulary
from hf_lrp.models.words import group_words
from hf_lrp.results.contrasted import Contrasted
from hf_lrp.results.contributions import Contributions
from hf_lrp.results.inside import Inside
from hf_lrp.results.shares import Shares, kept_without_start, to_shares
from hf_lrp.results.spans import Span
from hf_lrp.results.used_method import UsedMethod

# Raw shares of the paper's rule sum to 1 within this; results that do not say so in their notes.
CONSERVATION = 1e-5
# Where they miss 1 by more than this, they say little.
MISLEADING = 0.01
# A source whose tokens were not asked for.
WHOLE_SOURCE = Described(("<source>",), torch.tensor([-1]), (0,))


def as_contributions(
    parted: Parted,
    described: Described,
    kind: str,
    case: Case,
    call: Call,
    settings: Settings,
    contrasted: Sequence[Contrasted] = (),
) -> Contributions:
    """The result for one source; kind: of the prefix; contrasted: words, by step."""
    relevance, prefix, vocabulary = parted.relevance, parted.prefix, call.vocabulary
    reads_text = call.reading.sources.argument == "input_ids"
    doubts = doubts_about_text(vocabulary, described.ids, "source") if reads_text else ()
    steps, prompt = len(relevance.source), len(prefix.prompt)
    start, source = relevance.decoder[:, :prompt].sum(1), relevance.source
    target = source.new_zeros(steps, len(prefix.ids))
    target[:, :-1] = relevance.decoder[:, prompt:]
    numbers = tuple(step + 1 for step in (range(steps) if case.steps is None else case.steps))
    shares, error, spread = _as_shares(Shares(source, target, start, torch.ones_like(start)), settings, numbers)
    notes = (*call.notes, *doubts, *doubts_about_text(vocabulary, prefix.ids, "target"), *spread)
    scale = shares.scale.where(shares.scale != 0, 1)[:, None]
    spans = {name: Span(span.tokens, span.shares / scale) for name, span in parted.spans.items()}
    explained = relevance.explained.cpu()
    predicted = [vocabulary.tokens(column, "target") for column in explained.reshape(steps, -1).T]
    contrastive = len(predicted) == 2
    target_tokens = vocabulary.tokens(prefix.ids, "target")
    return Contributions(
        source=shares.source,
        target=shares.target,
        start=shares.start,
        logits=relevance.logits,
        log_probability=relevance.log_probability,
        source_tokens=described.tokens,
        target_tokens=target_tokens,
        predicted_tokens=tuple(f"{a} vs {b}" for a, b in zip(*predicted, strict=True))
        if contrastive
        else predicted[0],
        source_ids=described.ids,
        target_ids=prefix.ids,
        predicted_ids=explained,
        source_words=described.words,
        target_words=group_words(target_tokens, vocabulary.is_special(prefix.ids)),
        conservation_error=error,
        start_token=settings.start_token,
        prefix=kind,
        predict=settings.predict if isinstance(settings.predict, str) else "contrastive" if contrastive else "ids",
        method=UsedMethod.of(settings.method),
        model=call.model.config.name_or_path or type(call.model).__name__,
        dtype=str(source.dtype).removeprefix("torch."),
        notes=(*notes, *parted.notes),
        start_tokens=vocabulary.tokens(prefix.prompt, "target"),
        steps=numbers,
        spans=spans,
        sums_to_one=settings.method.sums_to_one,
        scale=shares.scale,
        contrasted=tuple(contrasted),
        inside=_inside(parted, described, case, vocabulary),
    )


def _as_shares(values: Shares, settings: Settings, numbers: Sequence[int]) -> tuple[Shares, float, tuple[str, ...]]:
    """Shares of a method's own values, how far these miss 1, and what a reader should know of it.

    numbers: of the steps, for errors.
    """
    method = settings.method
    notes: tuple[str, ...] = ()
    source, target, start, _ = values
    error = float((source.sum(1) + target.sum(1) + start - 1).abs().max())
    if not math.isfinite(error):
        raise ValueError(
            f"With {method}, relevance of both signs grows beyond what {source.dtype} can hold. Use a rule closer to "
            "AlphaBeta(1, 0), or explain model.double()."
        )
    if method.conserves:
        if not error <= CONSERVATION:
            notes = (f"raw shares sum to 1 only within {error:.1e}: this rule lets relevance of both signs grow",)
        if error > MISLEADING:
            warn_of_sums(str(method))
    else:
        values, error = to_shares(source, target, start, sums_to_one=method.sums_to_one), math.nan
        by = "sum" if method.sums_to_one else "sum of sizes, with their signs"
        notes = (f"shares are the method's own values, which raw has, divided by each step's {by}",)
    if settings.start_token == "keep":
        return values, error, notes
    if method.sums_to_one:
        source, target = leave_out_start(*values[:3], numbers, method)
    else:
        kept = kept_without_start(values.start, sums_to_one=False)[:, None]
        source, target = (side.where(kept > 0, 0) / kept.where(kept > 0, 1) for side in values[:2])
    return values._replace(source=source, target=target), error, notes


def _inside(parted: Parted, described: Described, case: Case, vocabulary: Vocabulary) -> Inside | None:
    """Inside of the model as it was kept, with steps first, and the tokens at its positions."""
    flow, ids = parted.relevance.inside, case.prefix.decoder_ids
    if flow is None:
        return None
    tokens = vocabulary.tokens(ids, "target")
    named, words = {"decoder": tokens}, {"decoder": group_words(tokens, vocabulary.is_special(ids))}
    if "encoder.positions" in flow:
        named, words = {**named, "encoder": described.tokens}, {**words, "encoder": described.words}
    return Inside({name: tensor.transpose(0, 1) for name, tensor in flow.items()}, named, words)

"""The user's verb: contributions of source and prefix tokens to a model's predictions."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from hf_lrp.inputs.contrast import is_contrast, read_contrasts
from hf_lrp.inputs.doubts import doubts_about_text, doubts_about_tokenizer, warn_of, warn_of_sums
from hf_lrp.inputs.ids import Described, Sources, read_predictions, read_sources
from hf_lrp.inputs.memory import generation_batch_size, memory_limit
from hf_lrp.inputs.options import (
    check_generation,
    check_options,
    check_prefix_targets,
    check_use,
    require_evaluation_mode,
    require_generate,
    require_no_forced_tokens,
    require_no_prompt,
)
from hf_lrp.inputs.prefixes import (
    DecoderPrompts,
    Prefix,
    draw_from_pool,
    generate_targets,
    read_targets,
    seeded,
    shuffle_targets,
)
from hf_lrp.inputs.start_share import leave_out_start
from hf_lrp.kinds.decoder_only import Prompted, read_prompted
from hf_lrp.kinds.speech import read_audio
from hf_lrp.models.adapters import merge_adapters
from hf_lrp.models.configs import generation_config_of
from hf_lrp.models.families import family_of
from hf_lrp.models.half_precision import in_float32
from hf_lrp.models.loading import load
from hf_lrp.models.vocabulary import Vocabulary
from hf_lrp.models.weights import require_plain_weights
from hf_lrp.models.words import group_words
from hf_lrp.relevance.patching import patched
from hf_lrp.relevance.propagation import DecoderInput, Relevance, join_steps, memory_for_steps, propagate_all
from hf_lrp.relevance.rules import AlphaBeta, Rule
from hf_lrp.results.collection import ContributionsList
from hf_lrp.results.contributions import Contributions

Choice = Callable[[Tensor], Tensor]  # from logits [T, V] to the ids that are explained

PAPER_RULE = AlphaBeta(alpha=1.0, beta=0.0)
# Raw shares of the paper's rule sum to 1 within this; results that do not say so in their notes.
CONSERVATION = 1e-5
# Where they miss 1 by more than this, they say little.
MISLEADING = 0.01
# A source whose tokens were not asked for.
WHOLE_SOURCE = Described(("<source>",), torch.tensor([-1]), (0,))
SEED = 0


def explain(
    model: PreTrainedModel | str | os.PathLike[str],
    tokenizer: PreTrainedTokenizerBase | ProcessorMixin | None = None,
    source: Any = None,
    target: Any = None,
    *,
    prompt: Any = None,
    prefix: Literal["model", "reference", "random"] | None = None,
    predict: Any = "top1",
    rule: Rule = PAPER_RULE,
    start_token: Literal["exclude", "keep"] = "exclude",
    source_tokens: bool = True,
    batch_size: int | None = None,
    max_memory: int | str | None = None,
    seed: int = SEED,
    pool: Any = None,
    progress: bool = False,
    **generate_options: Any,
) -> Contributions | ContributionsList:
    """How much each source token and each prefix token contributes to each prediction of a translation model.

    The model is not changed, not even while an error is raised. One source gives one result, a list a list of results,
    in order, which can also be averaged and drawn together (``ContributionsList``).

    Args:
        model: a model of a supported family, in evaluation mode, or the folder, GGUF file or Hub id of one,
            which is loaded (see `hf_lrp.load`). Half-precision models are explained in a float32 copy,
            models with adapters of PEFT in a copy with these merged.
        tokenizer: the model's tokenizer, or its processor; may be None where source and target are ids, and where the
            model is given by name. Languages are the tokenizer's: its ``src_lang`` and ``tgt_lang``.
        source: a text, a list of texts, ids (1-D tensor or list), a list of those, or a padded batch (a
            ``BatchEncoding``, or a 2-D tensor in which the padding token pads). Arrays, columns of tables and
            generators are taken as well. For speech models: samples, a 1-D array of floats at the sampling rate of
            the processor's feature extractor; log-mel features [bins, frames]; a list of either; features [batch,
            bins, frames]; or a mapping with ``input_features``.
        target: texts or ids, where the target is known. Ids may come with or without start token, forced tokens and
            padding; what ``model.generate`` returns, [1, T], goes with a single source too.
        prompt: for a model without an encoder, what the source, a text, stands in: a template with ``{source}``, chat
            messages, or a `hf_lrp.Prompt` with named parts, whose shares are the result's ``spans``.
        prefix: what the model is conditioned on: ``"reference"``, the target (the default where there is one);
            ``"model"``, what it generates itself, by its generation config and ``generate_options``; ``"random"``, an
            unrelated sentence: another one's target, or one from ``pool``.
        predict: whose logit is explained at each step: ``"top1"``, the most probable token (the paper); ``"target"``,
            the token that follows in the prefix; ids or tokens (``"▁cat"``) per step, [T]; pairs of them, [T, 2],
            whose logit difference is explained (contrastive); or words of the target and what might stand there
            instead, such as ``{"banque": "gare"}``: why the one, not the other, at the steps where these begin to
            differ; the result has these steps only. For a list of sources, a list of such.
        rule: the redistribution rule; default: the paper's.
        start_token: ``"exclude"`` leaves the decoder start token and forced tokens, such as the target language (in a
            model without an encoder: the prompt around the source), out, so that source and target sum to 1 (the
            paper); ``"keep"`` returns raw shares, which sum to 1 together with ``start``.
        source_tokens: False where only R_t(source) is asked for, which takes about half the time: the source counts as
            one token, ``<source>``, with the id -1.
        batch_size: how many sources are translated together for ``prefix="model"``; None: as many as fit.
        max_memory: bytes, or a text such as ``"4GB"``, that may be used on top of the model; default: half of what is
            free. Steps are processed in chunks that fit; an error names the least that works where none does.
        seed: makes random prefixes repeatable, and sampled translations (``do_sample=True``) of the same batches.
        pool: unrelated target sentences for ``prefix="random"``, texts or ids.
        progress: show a progress bar.
        **generate_options: passed to ``model.generate``, for ``prefix="model"``. ``forced_bos_token_id``, the token
            that the decoder is prompted with, may be given with every prefix; by default it is that of the model's
            configs, or else the language token that the tokenizer puts in front of targets.
    """
    check_options(prefix, predict, start_token, rule, batch_size, seed)
    if source is None:
        raise TypeError("There is no source to explain: pass it after the tokenizer, or as source=...")
    model, tokenizer = _loaded(model, tokenizer)
    model, merged = merge_adapters(model)
    inputs = _read_inputs(model, tokenizer, source, prompt, generate_options)
    targets = None if target is None else _read_targets(target, inputs)
    if prefix is None:
        prefix = "model" if targets is None else "reference"
    check_use(prefix, pool, generate_options)
    model, notes = in_float32(model)
    notes = merged + notes
    limit = memory_limit(max_memory, model.device)

    if prefix == "model":
        prefixes = _generate(model, inputs, batch_size, limit, progress, seed, generate_options)
    else:
        prefixes = _given_prefixes(prefix, targets, pool, inputs, seed)
    single = inputs.sources.single
    if is_contrast(predict):
        texts = target if prefix == "reference" else None
        contrasts = read_contrasts(predict, texts, prefixes, single, inputs.vocabulary.tokenizer, inputs.encode)
        cases = [
            _Case(one, functools.partial(_given, c.pairs), c.steps) for one, c in zip(prefixes, contrasts, strict=True)
        ]
    else:
        cases = _read_predict(predict, prefixes, single, inputs.vocabulary)
    settings = _Settings(predict, start_token, rule, notes, limit, source_tokens)
    each = _explain_each(model, inputs, {prefix: cases}, settings)
    results = ContributionsList(found[prefix] for found in _bar(each, len(prefixes), progress and not single))
    return results[0] if single else results


def explain_prefixes(
    model: PreTrainedModel | str | os.PathLike[str],
    tokenizer: PreTrainedTokenizerBase | ProcessorMixin | None,
    sources: Any,
    targets: Mapping[str, Any],
    *,
    prompt: Any = None,
    rule: Rule = PAPER_RULE,
    batch_size: int | None = None,
    max_memory: int | str | None = None,
    **generate_options: Any,
) -> Iterator[dict[str, Contributions]]:
    """What `explain` gives for several prefixes of each source, which share the encoder's work.

    One dictionary per source, by prefix type, in order, computed when it is asked for; translations are generated
    when the first one is. Explained are the most probable tokens, the start token excluded (the paper).

    Args:
        model, tokenizer, prompt, rule, batch_size, max_memory: as for `explain`.
        sources: a list of texts or ids, or what else `explain` takes.
        targets: for ``"reference"``, ``"model"`` and ``"random"``, or some of them, what the model is conditioned on:
            a text or ids per source. None for ``"model"``: what it generates.
        **generate_options: as for `explain`, where translations are generated.
    """
    check_prefix_targets(targets)
    for prefix in targets:
        check_options(prefix, "top1", "exclude", rule, batch_size, SEED)
    model, tokenizer = _loaded(model, tokenizer)
    model, merged = merge_adapters(model)
    inputs = _read_inputs(model, tokenizer, sources, prompt, generate_options)
    given = {prefix: None if target is None else _read_targets(target, inputs) for prefix, target in targets.items()}
    generates = None in given.values()
    check_use("model" if generates else "reference", None, generate_options)
    if generates:
        require_generate(model)
    model, notes = in_float32(model)
    notes = merged + notes
    limit = memory_limit(max_memory, model.device)

    def explain_lazily() -> Iterator[dict[str, Contributions]]:
        prefixes = {
            prefix: found or _generate(model, inputs, batch_size, limit, False, SEED, generate_options)
            for prefix, found in given.items()
        }
        cases = {prefix: [_Case(one, _top1) for one in found] for prefix, found in prefixes.items()}
        yield from _explain_each(model, inputs, cases, _Settings("top1", "exclude", rule, notes, limit))

    return explain_lazily()


class _Inputs(NamedTuple):
    sources: Sources
    vocabulary: Vocabulary
    prompts: DecoderPrompts
    doubts: tuple[str, ...]
    prompted: Prompted | None = None  # in a model that is a decoder only

    def encode(self, target: str, number: int) -> list[int]:
        """The ids of a target's text that are predicted."""
        if self.prompted is not None:
            return self.prompted.encode(target, number)
        ids: list[int] = self.prompts.read(self.vocabulary.encode([target], "target")[0], number).ids.tolist()
        return ids


class _Case(NamedTuple):
    """What one source is explained with: the prefix, the choice of ids, and the steps by index; None: all of them."""

    prefix: Prefix
    choose: Choice
    steps: Sequence[int] | None = None

    def decoder_inputs(self, device: torch.device) -> list[DecoderInput]:
        """One for all steps, or one for each of the chosen steps."""
        ids, all_steps = self.prefix.decoder_ids.to(device), self.prefix.steps
        if self.steps is None:
            return [DecoderInput(ids, self.choose, all_steps)]
        rows = [(row, all_steps.start + step) for row, step in enumerate(self.steps)]
        return [DecoderInput(ids, functools.partial(_row, self.choose, row), slice(i, i + 1)) for row, i in rows]


class _Settings(NamedTuple):
    predict: Any
    start_token: str
    rule: Rule
    notes: tuple[str, ...]
    max_memory: int
    source_tokens: bool = True


def _explain_each(
    model: PreTrainedModel,
    inputs: _Inputs,
    chosen: Mapping[str, Iterable[_Case]],
    settings: _Settings,
) -> Iterator[dict[str, Contributions]]:
    """Per source, the contributions for each of its prefixes. The model is patched only while one is computed."""
    sources, prompted = inputs.sources, inputs.prompted
    for number, (item, *cases) in enumerate(zip(sources.items, *chosen.values(), strict=True)):
        dtype = model.dtype if item.is_floating_point() else item.dtype
        source = {sources.argument: item.to(model.device, dtype)}
        given = [case.decoder_inputs(model.device) for case in cases]
        parts = [each for one in given for each in one]
        lengths = len(sources.describe(item).tokens), max(len(each.ids) for each in parts)
        with patched(model, settings.rule) as patch:
            memory = memory_for_steps(patch.network, *lengths, model.dtype.itemsize, settings.max_memory)
            found = iter(propagate_all(patch, source, parts, memory, settings.source_tokens))
        relevances = [join_steps([next(found) for _ in one]) for one in given]
        described = sources.describe(item) if settings.source_tokens else WHOLE_SOURCE
        results = {}
        for name, relevance, case in zip(chosen, relevances, cases, strict=True):
            raw = relevance.decoder
            if prompted is not None:
                relevance, prefix = prompted.cut(number, relevance, case.prefix, settings.source_tokens)
                case = case._replace(prefix=prefix)
            result = _result(relevance, described, name, case, inputs, settings, model)
            results[name] = result if prompted is None else prompted.with_spans(number, raw, result)
        yield results


def _loaded(model: Any, tokenizer: Any) -> tuple[PreTrainedModel, Any]:
    """The model and the tokenizer; both, or the model alone, may be given by the name of a checkpoint."""
    if not isinstance(model, (str, os.PathLike)):
        return model, tokenizer
    loaded, own = load(model)
    return loaded, own if tokenizer is None else tokenizer


def _read_inputs(
    model: PreTrainedModel, tokenizer: Any, source: Any, prompt: Any, generate_options: dict[str, Any]
) -> _Inputs:
    family = family_of(model)
    require_plain_weights(model)
    require_evaluation_mode(model)
    tokenizer, feature_extractor = _unpack(tokenizer)
    vocabulary = Vocabulary(model, tokenizer)
    check_generation(generate_options, vocabulary.sizes["target"])
    if family.encoder is None:
        require_no_forced_tokens(generate_options)
        sources, prompted = read_prompted(source, prompt, vocabulary)
    else:
        require_no_prompt(model, prompt)
        hears, prompted = family.source == "input_features", None
        sources = read_audio(source, model, feature_extractor) if hears else read_sources(source, vocabulary)
    if sources.argument == "input_ids":
        warn_of(doubt for item in sources.items for doubt in doubts_about_text(vocabulary, item, "source"))
    doubts = doubts_about_tokenizer(model, vocabulary)
    warn_of(doubts)
    return _Inputs(sources, vocabulary, DecoderPrompts(model, vocabulary, generate_options), doubts, prompted)


def _generate(
    model: PreTrainedModel,
    inputs: _Inputs,
    batch_size: int | None,
    limit: int,
    progress: bool,
    seed: int,
    generate_options: dict[str, Any],
) -> list[Prefix]:
    """What the model translates each source to."""
    require_generate(model)
    beams = generate_options.get("num_beams") or generation_config_of(model).num_beams or 1
    prompted = inputs.prompted
    items = inputs.sources.items if prompted is None else [prompt.ids for prompt in prompted.prompts]
    size = batch_size or generation_batch_size(model, max(item.shape[-1] for item in items), beams, limit)
    with seeded(seed, model.device):
        if prompted is not None:
            return prompted.generate(model, size, generate_options, progress)
        return generate_targets(model, inputs.sources, inputs.prompts, size, progress, generate_options)


def _unpack(tokenizer: Any) -> tuple[PreTrainedTokenizerBase | None, Any]:
    """Tokenizer and feature extractor of what may be either a tokenizer or a processor with both."""
    if isinstance(tokenizer, ProcessorMixin):
        return getattr(tokenizer, "tokenizer", None), getattr(tokenizer, "feature_extractor", None)
    return tokenizer, None


def _read_targets(target: Any, inputs: _Inputs) -> list[Prefix]:
    targets, one = _read_prefixes(target, inputs)
    sources = inputs.sources
    row = len(targets) == 1 and getattr(target, "ndim", None) == 2  # [1, T], as `generate` returns one translation
    if len(targets) != len(sources.items) or one != (sources.single and not row):
        raise ValueError(
            f"{_number(len(sources.items), 'source', sources.single)} but {_number(len(targets), 'target', one)}: "
            "pass one target for each source, a list for a list."
        )
    warn_of(doubt for prefix in targets for doubt in doubts_about_text(inputs.vocabulary, prefix.ids, "target"))
    return targets


def _read_prefixes(target: Any, inputs: _Inputs) -> tuple[list[Prefix], bool]:
    prompted = inputs.prompted
    return read_targets(target, inputs.prompts) if prompted is None else prompted.read_targets(target)


def _number(count: int, side: str, single: bool) -> str:
    return f"a single {side}" if single else f"a list of {count} {side}{'s' if count != 1 else ''}"


def _given_prefixes(prefix: str, targets: list[Prefix] | None, pool: Any, inputs: _Inputs, seed: int) -> list[Prefix]:
    """Reference or random prefixes."""
    if prefix == "reference":
        if targets is None:
            raise ValueError("prefix='reference' needs a target. Pass target=..., or use prefix='model'.")
        return targets
    if pool is not None:
        drawn = draw_from_pool(_read_prefixes(pool, inputs)[0], targets, len(inputs.sources.items), seed)
        if inputs.prompted is None:
            return drawn
        return [inputs.prompted.prefix(number, prefix.ids.tolist()) for number, prefix in enumerate(drawn)]
    if targets is None:
        raise ValueError("prefix='random' needs targets to shuffle, or unrelated target sentences as pool=[...].")
    return shuffle_targets(targets, seed)


def _read_predict(predict: Any, prefixes: Sequence[Prefix], single: bool, vocabulary: Vocabulary) -> list[_Case]:
    """Per sentence, the prefix and the function from logits [T, V] to the ids that are explained."""
    if isinstance(predict, str) and predict == "top1":
        return [_Case(prefix, _top1) for prefix in prefixes]
    if isinstance(predict, str) and predict == "target":
        ids = [prefix.ids for prefix in prefixes]
    else:
        ids = read_predictions(predict, [len(prefix.ids) for prefix in prefixes], single, vocabulary)
    return [_Case(prefix, functools.partial(_given, chosen)) for prefix, chosen in zip(prefixes, ids, strict=True)]


def _top1(logits: Tensor) -> Tensor:
    return logits.argmax(-1)


def _given(ids: Tensor, logits: Tensor) -> Tensor:
    return ids.to(logits.device)


def _row(choose: Choice, row: int, logits: Tensor) -> Tensor:
    return choose(logits)[row : row + 1]


def _bar(sentences: Any, count: int, progress: bool) -> Iterator[Any]:
    return iter(tqdm(sentences, total=count, desc="Explaining", unit="sentence", disable=not progress))


def _result(
    relevance: Relevance,
    described: Described,
    kind: str,
    case: _Case,
    inputs: _Inputs,
    settings: _Settings,
    model: PreTrainedModel,
) -> Contributions:
    prefix, vocabulary = case.prefix, inputs.vocabulary
    reads_text = inputs.sources.argument == "input_ids"
    doubts = doubts_about_text(vocabulary, described.ids, "source") if reads_text else ()
    steps, prompt = len(relevance.source), len(prefix.prompt)
    start, source = relevance.decoder[:, :prompt].sum(1), relevance.source
    target = source.new_zeros(steps, len(prefix.ids))
    target[:, :-1] = relevance.decoder[:, prompt:]
    error = float((source.sum(1) + relevance.decoder.sum(1) - 1).abs().max())
    if not math.isfinite(error):
        raise ValueError(
            f"With {settings.rule}, relevance of both signs grows beyond what {source.dtype} can hold. Use a rule "
            "closer to AlphaBeta(1, 0), or explain model.double()."
        )
    numbers = tuple(step + 1 for step in (range(steps) if case.steps is None else case.steps))
    if settings.start_token == "exclude":
        source, target = leave_out_start(source, target, start, numbers, settings.rule)
    notes = (*settings.notes, *inputs.doubts, *doubts, *doubts_about_text(vocabulary, prefix.ids, "target"))
    if not error <= CONSERVATION:
        notes += (f"raw shares sum to 1 only within {error:.1e}: this rule lets relevance of both signs grow",)
    if error > MISLEADING:
        warn_of_sums(str(settings.rule))
    explained = relevance.explained.cpu()
    predicted = [vocabulary.tokens(column, "target") for column in explained.reshape(steps, -1).T]
    contrastive = len(predicted) == 2
    target_tokens = vocabulary.tokens(prefix.ids, "target")
    return Contributions(
        source=source,
        target=target,
        start=start,
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
        rule=str(settings.rule),
        model=model.config.name_or_path or type(model).__name__,
        dtype=str(source.dtype).removeprefix("torch."),
        notes=notes,
        start_tokens=vocabulary.tokens(prefix.prompt, "target"),
        steps=numbers,
    )

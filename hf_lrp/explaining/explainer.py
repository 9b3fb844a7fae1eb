"""The user's verb: contributions of source and prefix tokens to a model's predictions."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Literal, TypeAlias, overload

import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from hf_lrp.explaining.call import Call, Case, Settings
from hf_lrp.explaining.outcome import WHOLE_SOURCE, as_contributions
from hf_lrp.explaining.whole_words import contrasted_words
from hf_lrp.inputs.doubts import doubts_about_text, doubts_about_tokenizer, warn_of
from hf_lrp.inputs.memory import memory_limit
from hf_lrp.inputs.options import (
    check_generation,
    check_inside_option,
    check_options,
    check_prefix_targets,
    check_source_tokens,
    check_spelling,
    check_use,
    read_method,
    require_evaluation_mode,
    require_generate,
)
from hf_lrp.kinds.kind import Asked
from hf_lrp.kinds.table import kind_of
from hf_lrp.methods.method import Method, Question
from hf_lrp.models.copies import Layout, WorkingCopy
from hf_lrp.models.exchange import read_plain_network
from hf_lrp.models.loading import load
from hf_lrp.models.passes import join_steps
from hf_lrp.models.structure import Network
from hf_lrp.models.vocabulary import Vocabulary
from hf_lrp.models.weights import require_computable, require_plain_weights
from hf_lrp.relevance.rules import Rule
from hf_lrp.relevance.trace import Inside
from hf_lrp.results.collection import ContributionsList
from hf_lrp.results.contributions import Contributions

SEED = 0

# Candidates of one source that are explained together, sharing its encoder.
MOST_TOGETHER = 16

Row = tuple[int, tuple[Case, ...]]  # the number of a source, and its cases by prefix


Texts: TypeAlias = list[str] | tuple[str, ...] | Iterator[str] | list[list[int]] | list[Tensor]
ModelOrName: TypeAlias = PreTrainedModel | str | os.PathLike[str]
Tokens: TypeAlias = PreTrainedTokenizerBase | ProcessorMixin | None


# One source gives one result, a list a list of results. Options, which all of these have, stand where they are read.
@overload
def explain(
    model: ModelOrName, tokenizer: Tokens, source: str | Sequence[int], target: Any = None, **options: Any
) -> Contributions: ...


@overload
def explain(
    model: ModelOrName, tokenizer: Tokens, source: Texts, target: Any = None, **options: Any
) -> ContributionsList: ...


@overload
def explain(
    model: ModelOrName, tokenizer: Tokens = ..., *, source: str | Sequence[int], target: Any = None, **options: Any
) -> Contributions: ...


@overload
def explain(
    model: ModelOrName, tokenizer: Tokens = ..., *, source: Texts, target: Any = None, **options: Any
) -> ContributionsList: ...


@overload
def explain(
    model: ModelOrName, tokenizer: Tokens = ..., source: Any = ..., target: Any = None, **options: Any
) -> Contributions | ContributionsList: ...


def explain(
    model: PreTrainedModel | str | os.PathLike[str],
    tokenizer: PreTrainedTokenizerBase | ProcessorMixin | None = None,
    source: Any = None,
    target: Any = None,
    *,
    prompt: Any = None,
    prefix: Literal["model", "reference", "random"] | None = None,
    predict: Any = "top1",
    method: Method | None = None,
    rule: Rule | None = None,
    start_token: Literal["exclude", "keep"] = "exclude",
    source_tokens: bool = True,
    inside: Inside = False,
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
        predict: which token's logit to explain per step: ``"top1"``, the most probable one (the paper); ``"target"``,
            the token that follows in the prefix; ids or tokens (``"▁cat"``) per step, [T]; pairs of them, [T, 2],
            whose logit difference is explained (contrastive); or words of the target and what might stand there
            instead, such as ``{"banque": "gare"}``: why the one, not the other, at the steps where these begin to
            differ; the result has these steps only. For a list of sources, a list of such.
        method: how contributions are computed, such as ``ALTI()`` (see `hf_lrp.methods`); default: ``LRP()``, the
            paper's. Results name it.
        rule: the redistribution rule of LRP, a short way to say ``method=LRP(rule)``; default: the paper's.
        start_token: ``"exclude"`` leaves the decoder start token and forced tokens, such as the target language (in a
            model without an encoder: the prompt around the source), out, so that source and target sum to 1 (the
            paper); ``"keep"`` returns raw shares, which sum to 1 together with ``start``.
        source_tokens: False where only R_t(source) is asked for, which takes about half the time: the source counts as
            one token, ``<source>``, with the id -1.
        inside: True keeps what goes through layers and attention heads, as the result's ``inside``
            (`hf_lrp.results.inside.Inside`); ``"pairs"`` also what goes from each position to each other one in each
            head, which takes memory.
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
    return Explainer(model, tokenizer).explain(
        source,
        target,
        prompt=prompt,
        prefix=prefix,
        predict=predict,
        method=method,
        rule=rule,
        start_token=start_token,
        source_tokens=source_tokens,
        inside=inside,
        batch_size=batch_size,
        max_memory=max_memory,
        seed=seed,
        pool=pool,
        progress=progress,
        **generate_options,
    )


def explain_prefixes(
    model: PreTrainedModel | str | os.PathLike[str],
    tokenizer: PreTrainedTokenizerBase | ProcessorMixin | None,
    sources: Any,
    targets: Mapping[str, Any],
    *,
    prompt: Any = None,
    method: Method | None = None,
    rule: Rule | None = None,
    batch_size: int | None = None,
    max_memory: int | str | None = None,
    **generate_options: Any,
) -> Iterator[dict[str, Contributions]]:
    """Results for several prefixes of each source, as `explain` gives them, which share the encoder's work.

    One dictionary per source, by prefix type, in order, computed when it is asked for; translations are generated
    when the first one is. Explains the most probable tokens, the start token excluded (the paper).

    Args:
        model, tokenizer, prompt, method, rule, batch_size, max_memory: as for `explain`.
        sources: a list of texts or ids, or what else `explain` takes.
        targets: for ``"reference"``, ``"model"`` and ``"random"``, or some of them, what the model is conditioned on:
            a text or ids per source. None for ``"model"``: what it generates.
        **generate_options: as for `explain`, where translations are generated.
    """
    return Explainer(model, tokenizer).explain_prefixes(
        sources,
        targets,
        prompt=prompt,
        method=method,
        rule=rule,
        batch_size=batch_size,
        max_memory=max_memory,
        **generate_options,
    )


class Explainer:
    """A model that is read once and explained many times.

    `explain` reads the model, its tokenizer and its settings on every call; an `Explainer` reads them again only where
    something has changed: weights, modules and settings are those of the moment with every call. Worth it in loops
    over sentences that come one by one, and for models that are explained in a copy (half precision, adapters).

    Args:
        model, tokenizer: as for `hf_lrp.explain`.
    """

    def __init__(
        self,
        model: PreTrainedModel | str | os.PathLike[str],
        tokenizer: PreTrainedTokenizerBase | ProcessorMixin | None = None,
    ) -> None:
        if isinstance(model, (str, os.PathLike)):
            model, own = load(model)
            tokenizer = own if tokenizer is None else tokenizer
        self.model, self.tokenizer = model, tokenizer
        self._copy = WorkingCopy(model)
        self._known: tuple[Layout, Network] | None = None

    @overload
    def explain(self, source: str | Sequence[int], target: Any = None, **options: Any) -> Contributions: ...

    @overload
    def explain(self, source: Texts, target: Any = None, **options: Any) -> ContributionsList: ...

    @overload
    def explain(self, source: Any, target: Any = None, **options: Any) -> Contributions | ContributionsList: ...

    def explain(
        self,
        source: Any,
        target: Any = None,
        *,
        prompt: Any = None,
        prefix: Literal["model", "reference", "random"] | None = None,
        predict: Any = "top1",
        method: Method | None = None,
        rule: Rule | None = None,
        start_token: Literal["exclude", "keep"] = "exclude",
        source_tokens: bool = True,
        inside: Inside = False,
        batch_size: int | None = None,
        max_memory: int | str | None = None,
        seed: int = SEED,
        pool: Any = None,
        progress: bool = False,
        **generate_options: Any,
    ) -> Contributions | ContributionsList:
        """Results, as `hf_lrp.explain` gives them for these arguments."""
        check_options(prefix, predict, start_token, batch_size, seed)
        method = read_method(method, rule)
        check_source_tokens(method, source_tokens)
        check_inside_option(inside, source_tokens, method)
        if source is None:
            raise TypeError("There is no source to explain: pass it after the tokenizer, or as source=...")
        call = self._read(source, prompt, generate_options)
        check_spelling(generate_options, call.model, inspect.signature(Explainer.explain).parameters)
        targets = None if target is None else call.read_targets(target)
        if prefix is None:
            prefix = "model" if targets is None else "reference"
        check_use(prefix, pool, generate_options)
        call = self._prepare(call, max_memory)
        if prefix == "model":
            prefixes = call.generate(batch_size, progress, seed)
        else:
            prefixes = call.given_prefixes(prefix, targets, pool, seed)
        cases = call.read_predict(predict, prefixes, target if prefix == "reference" else None)
        settings = Settings(predict, start_token, method, source_tokens, inside)
        each = self._explain_each(call, {prefix: cases}, settings)
        single = call.reading.sources.single
        results = ContributionsList(found[prefix] for found in _bar(each, len(prefixes), progress and not single))
        return results[0] if single else results

    def explain_prefixes(
        self,
        sources: Any,
        targets: Mapping[str, Any],
        *,
        prompt: Any = None,
        method: Method | None = None,
        rule: Rule | None = None,
        batch_size: int | None = None,
        max_memory: int | str | None = None,
        **generate_options: Any,
    ) -> Iterator[dict[str, Contributions]]:
        """Results, as `hf_lrp.explain_prefixes` gives them for these arguments."""
        check_prefix_targets(targets)
        for prefix in targets:
            check_options(prefix, "top1", "exclude", batch_size, SEED)
        settings = Settings("top1", "exclude", read_method(method, rule))
        read = self._read(sources, prompt, generate_options)
        check_spelling(generate_options, read.model, inspect.signature(Explainer.explain_prefixes).parameters)
        given = {prefix: None if target is None else read.read_targets(target) for prefix, target in targets.items()}
        generates = None in given.values()
        check_use("model" if generates else "reference", None, generate_options)
        if generates:
            require_generate(read.model)
        call = self._prepare(read, max_memory)

        def explain_lazily() -> Iterator[dict[str, Contributions]]:
            prefixes = {prefix: found or call.generate(batch_size, False, SEED) for prefix, found in given.items()}
            cases = {prefix: call.read_predict("top1", found, None) for prefix, found in prefixes.items()}
            yield from self._explain_each(call, cases, settings)

        return explain_lazily()

    def _read(self, source: Any, prompt: Any, options: dict[str, Any]) -> Call:
        """The sources, read. The model comes after them: copies take time."""
        model, merged = self._copy.merged()
        kind = kind_of(model)
        require_plain_weights(model)
        require_computable(model)
        require_evaluation_mode(model)
        tokenizer, processor = _unpack(self.tokenizer)
        vocabulary = Vocabulary(model, tokenizer)
        check_generation(options, vocabulary.sizes["target"])
        reading = kind.read(Asked(model, vocabulary, source, prompt, processor, options))
        if reading.sources.argument == "input_ids":
            warn_of(doubt for ids in reading.sources.items for doubt in doubts_about_text(vocabulary, ids, "source"))
        doubts = doubts_about_tokenizer(model, vocabulary)
        warn_of(doubts)
        return Call(model, vocabulary, reading, (*merged, *doubts), options)

    def _prepare(self, call: Call, max_memory: int | str | None) -> Call:
        """The call with the model as it is explained, and with its limits."""
        model, converted = self._copy.in_float32(call.model)
        if self._known is None or not self._known[0].is_of(model):
            self._known = Layout(model), read_plain_network(model)
        limit = memory_limit(max_memory, model.device)
        return replace(call, model=model, network=self._known[1], notes=(*converted, *call.notes), max_memory=limit)

    def _explain_each(
        self, call: Call, chosen: Mapping[str, Iterable[Case]], settings: Settings
    ) -> Iterator[dict[str, Contributions]]:
        """Per source, the contributions for each prefix. The model is changed only while one is computed."""
        model, sources = call.model, call.reading.sources
        rows = zip(range(len(sources.items)), zip(*chosen.values(), strict=True), strict=True)
        apart = call.network is None or call.network.encoder is None or bool(settings.inside)  # which takes memory
        for together in _of_one_source(rows, sources.items, 1 if apart else MOST_TOGETHER):
            item = sources.items[together[0][0]]
            dtype = model.dtype if item.is_floating_point() else item.dtype
            source = {sources.argument: item.to(model.device, dtype)}
            found = iter(settings.method.explain(_ask(call, source, together, settings)))
            described = sources.describe(item) if settings.source_tokens else WHOLE_SOURCE
            for number, cases in together:
                results = {}
                for name, case in zip(chosen, cases, strict=True):
                    relevance = join_steps(list(islice(found, case.passes)))
                    parted = call.reading.part(number, relevance, case.prefix, settings.source_tokens)
                    words = contrasted_words(call, source, case)
                    results[name] = as_contributions(parted, described, name, case, call, settings, words)
                yield results


def _of_one_source(rows: Iterable[Row], items: Sequence[Tensor], most: int) -> Iterator[list[Row]]:
    """Rows that follow each other and have the same source, up to ``most``: they share the encoder's work."""
    together: list[Row] = []
    for row in rows:
        if together and (len(together) == most or not torch.equal(items[row[0]], items[together[0][0]])):
            yield together
            together = []
        together.append(row)
    if together:
        yield together


def _ask(call: Call, source: dict[str, Tensor], rows: Sequence[Row], settings: Settings) -> Question:
    """The question to a method about one source with its prefixes."""
    model, network, reading = call.model, call.network, call.reading
    assert network is not None
    cases = [(number, case) for number, cases in rows for case in cases]
    given = [(number, case.prefix, each) for number, case in cases for each in case.decoder_inputs(model.device)]
    return Question(
        model=model,
        network=network,
        source={} if network.encoder is None else source,
        positions=len(reading.sources.describe(reading.sources.items[rows[0][0]]).tokens),
        given=[each for _, _, each in given],
        max_memory=call.max_memory,
        source_tokens=settings.source_tokens,
        inside=settings.inside,
        unknown=call.vocabulary.unknown,
        group=lambda unit: [reading.group(number, prefix, unit) for number, prefix, _ in given],
    )


def _unpack(tokenizer: Any) -> tuple[PreTrainedTokenizerBase | None, Any]:
    """Tokenizer and feature extractor of what may be either a tokenizer or a processor with both."""
    if isinstance(tokenizer, ProcessorMixin):
        return getattr(tokenizer, "tokenizer", None), getattr(tokenizer, "feature_extractor", None)
    return tokenizer, None


def _bar(sentences: Any, count: int, progress: bool) -> Iterator[Any]:
    return iter(tqdm(sentences, total=count, desc="Explaining", unit="sentence", disable=not progress))

"""The result of an explanation: how much each source and each prefix token contributes to each prediction."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

import torch
from torch import Tensor

from hf_lrp.models.words import display_tokens, plain_tokens
from hf_lrp.results import quantities
from hf_lrp.results.checks import FLOATS, IDS, check_descriptions, check_tensors
from hf_lrp.results.contrasted import Contrasted
from hf_lrp.results.inside import Inside, check_inside
from hf_lrp.results.paged import Paged
from hf_lrp.results.plotted import Plotted
from hf_lrp.results.shares import RawValues, kept_without_start, raw_values
from hf_lrp.results.spans import Span, check_spans
from hf_lrp.results.steps import Step, step_at
from hf_lrp.results.used_method import UsedMethod

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from hf_lrp.pictures.panels import Place
    from hf_lrp.results.comparison import Comparison
    from hf_lrp.results.terminal import TerminalTable

_TUPLES = (
    "source_tokens",
    "target_tokens",
    "predicted_tokens",
    "source_words",
    "target_words",
    "notes",
    "start_tokens",
    "steps",
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Contributions(Plotted, Paged):
    """Contributions of S source tokens and of N target tokens to T predictions.

    All N steps are there (T = N) unless some were chosen: `c[2:7]`, or a contrast at one word. Steps count from 1, as
    in the paper and in tables and plots; indices of tensors and of the result itself count from 0, so that `c[0]` is
    step 1. A frozen dataclass of ordinary tensors on the CPU, without gradients: a copy of what it is made of.

    Attributes:
        source: `[T, S]`, R_t(x_i): the share of source token i in the prediction at step t.
        target: `[T, N]`, R_t(y_j): the share of target token j in the prediction at step t; 0 for tokens that are not
            yet written, so that it is strictly lower triangular where all steps are there. At word level (see
            `merge_subwords`) the diagonal holds the share of earlier pieces of the same word.
        start: `[T]`, the raw share of the decoder start token and of forced tokens.
        logits: `[T]`, the explained logit (contrastive: the difference of two).
        log_probability: `[T]`, the natural logarithm of the explained token's probability, which is `probability`.
        source_tokens: S raw tokenizer pieces such as `▁Hello`.
        target_tokens: N pieces that the model is conditioned on.
        predicted_tokens: T pieces whose logits are explained.
        source_ids: `[S]`; at word level the id of a word's first piece, as for the next two.
        target_ids: `[N]`.
        predicted_ids: `[T]`, or `[T, 2]` for a contrastive pair.
        source_words: S indices: which word each token belongs to; starts at 0 and never decreases.
        target_words: N indices, likewise.
        conservation_error: largest |sum - 1| of the raw shares as propagation returned them; nan for methods whose own
            values sum to nothing in particular.
        start_token: `"exclude"` where source and target sum to 1, `"keep"` where `start` has a part in it.
        prefix: `"reference"`, `"model"` or `"random"`.
        predict: `"top1"`, `"target"`, `"ids"` or `"contrastive"`.
        method: what made it: a name, such as `LRP`, and settings (see `UsedMethod`).
        model: the model's name.
        dtype: what was computed in, for example `"float32"`.
        notes: what a reader should know, for example that half-precision weights were propagated in float32.
        level: `"token"`, or `"word"` after `merge_subwords`.
        start_tokens: the decoder start token and what was forced after it, such as the target language; their
            shares are `start`.
        steps: the numbers of the T steps, ascending; by default 1 to N.
        spans: for a model that is a decoder only, the parts of its prompt other than the source, by name, in order:
            their tokens and raw shares (see `Span`); `start` is their sum.
        contrasted: by step the two words that were asked about, `word` and `other`, with a `note` on the pieces at
            which they part, which `predicted_tokens` has; empty where no words were asked about.
        sums_to_one: whether the shares of a step sum to 1, the start's among them where it is kept. Otherwise they are
            of both signs, and their sizes sum to 1: of methods whose values are no parts of a whole. Totals and
            entropies are then those of sizes.
        scale: `[T]`, what the method's own values were divided by to become shares; 1 where they were shares before.
            `raw` has the values themselves; nan at words whose pieces have different scales.
        inside: what was kept of the model's inside, by layer and head, if that was asked for.
    """

    source: Tensor
    target: Tensor
    start: Tensor
    logits: Tensor
    log_probability: Tensor
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    predicted_tokens: tuple[str, ...]
    source_ids: Tensor
    target_ids: Tensor
    predicted_ids: Tensor
    source_words: tuple[int, ...]
    target_words: tuple[int, ...]
    conservation_error: float
    start_token: str
    prefix: str
    predict: str
    method: UsedMethod
    model: str
    dtype: str
    notes: tuple[str, ...] = ()
    level: Literal["token", "word"] = "token"
    start_tokens: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    spans: Mapping[str, Span] = field(default_factory=dict)
    contrasted: tuple[Contrasted, ...] = ()
    sums_to_one: bool = True
    scale: Tensor = None  # type: ignore[assignment]  # ones of what `start` is
    inside: Inside | None = None

    def __post_init__(self) -> None:
        for name in _TUPLES:
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "contrasted", tuple(Contrasted(*each) for each in self.contrasted))
        if not self.steps:
            object.__setattr__(self, "steps", tuple(range(1, len(self.target_tokens) + 1)))
        if self.scale is None and isinstance(self.start, Tensor):
            object.__setattr__(self, "scale", torch.ones_like(self.start))
        for name in (*FLOATS, *IDS):
            value = getattr(self, name)
            if not isinstance(value, Tensor):
                raise ValueError(f"{name} must be a tensor, got {type(value).__name__}.")
            with torch.inference_mode(False):  # whatever it is called in: autograd takes no tensors of inference mode
                kept = value.detach().cpu().clone(memory_format=torch.contiguous_format)
            object.__setattr__(self, name, kept)
        object.__setattr__(self, "spans", dict(self.spans))
        check_spans(self.spans, len(self.steps))
        check_inside(self.inside, len(self.steps))
        check_descriptions(self)
        check_tensors(self)

    # ---- steps

    def __len__(self) -> int:
        """How many steps there are."""
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: SupportsIndex) -> Step: ...

    @overload
    def __getitem__(self, index: slice) -> Contributions: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Step | Contributions:
        """The step at an index, which counts from 0; for a slice, the same result with these steps only."""
        if isinstance(index, slice):
            return self._choose(range(len(self))[index])
        i = operator.index(index)
        if not -len(self) <= i < len(self):
            raise IndexError(f"there is no step at index {i}: there are {len(self)} steps.")
        return step_at(self, i)

    def _choose(self, indices: range) -> Contributions:
        chosen = sorted(indices)
        if not chosen:
            raise IndexError(f"the slice holds none of the {len(self)} steps.")
        tensors = {name: getattr(self, name)[chosen] for name in (*FLOATS, "predicted_ids")}
        predicted = tuple(self.predicted_tokens[i] for i in chosen)
        spans = {name: span.at(chosen) for name, span in self.spans.items()}
        numbers = tuple(self.steps[i] for i in chosen)
        inside = self.inside and self.inside.at(chosen)
        words = tuple(self.contrasted[i] for i in chosen) if self.contrasted else ()
        chosen_parts: dict[str, Any] = {"spans": spans, "inside": inside, "contrasted": words}
        return replace(self, **tensors, predicted_tokens=predicted, steps=numbers, **chosen_parts)

    @property
    def known(self) -> Tensor:
        """`[T, N]`: whether a target token is written before a step; at word level also while it is written."""
        last = torch.tensor(self.steps)[:, None] - int(self.level == "token")
        return torch.arange(len(self.target_tokens)) < last

    @property
    def is_written(self) -> tuple[bool, ...]:
        """For each step, whether the explained token is the written one; of a contrastive pair, the first."""
        written = [step - 1 for step in self.steps]
        if self.level == "word":  # ids are those of first pieces
            return tuple(a == self.target_tokens[i] for a, i in zip(self.predicted_tokens, written, strict=True))
        explained = self.predicted_ids.reshape(len(self), -1)[:, 0]
        return tuple((explained == self.target_ids[written]).tolist())

    # ---- quantities

    @property
    def probability(self) -> Tensor:
        """`[T]`, the probability of the explained token; 0 where float32 has no number that is so small."""
        return self.log_probability.exp()

    @property
    def source_total(self) -> Tensor:
        """R_t(source), `[T]`: the share of the whole source in each prediction."""
        return quantities.source_total(self._counted(self.source))

    @property
    def target_total(self) -> Tensor:
        """R_t(target), `[T]`: the share of the whole prefix in each prediction."""
        return quantities.target_total(self._counted(self.target))

    @property
    def source_entropy(self) -> Tensor:
        """Entropy in nats of R_t(x_i) / R_t(source), `[T]`; nan at steps where a share is negative."""
        return quantities.source_entropy(self._counted(self.source))

    @property
    def target_entropy(self) -> Tensor:
        """Entropy in nats of R_t(y_j) / R_t(target), `[T]`; nan where there is no prefix, or as for the source."""
        return quantities.target_entropy(self._counted(self.target))

    def _counted(self, shares: Tensor) -> Tensor:
        """Shares as totals and entropies count them."""
        return shares if self.sums_to_one else shares.abs()

    @property
    def raw(self) -> RawValues:
        """The method's own values before they became shares, of source, target, start and spans.

        Raises:
            ValueError: words were merged whose pieces have different scales.
        """
        return raw_values(self)

    @property
    def part_totals(self) -> dict[str, Tensor]:
        """Shares of all that the model reads, by name, `[T]` each; they sum to 1, whatever `start_token` is.

        The parts are the spans of a prompt in order, or `"start"` where there are none; then `"source"`, `"target"`.
        Where shares have signs (`sums_to_one` is False), those of source and target are sizes, the others sums.
        """
        left_out = self.start_token == "exclude"
        kept = kept_without_start(self.start, sums_to_one=self.sums_to_one) if left_out else 1
        before = {name: span.total for name, span in self.spans.items()} or {"start": self.start}
        return before | {"source": self.source_total * kept, "target": self.target_total * kept}

    def mean(self) -> dict[str, float]:
        """Means over the steps from the second on of `source_total`, `source_entropy` and `target_entropy`.

        Step 1 is left out: without a prefix, R_1(source) = 1 whatever the model does. Steps where a quantity is
        undefined are left out too; nan where none is left.
        """
        return {name: quantities.mean_over_steps(getattr(self, name), self.steps) for name in quantities.AVERAGED}

    # ---- other forms

    @property
    def labels(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Source, target and predicted tokens as tables show them (`words.display_tokens`), or contrasted words."""
        both = display_tokens(self.target_tokens + self.predicted_tokens)
        predicted = both[len(self.target_tokens) :]
        return (
            display_tokens(self.source_tokens),
            both[: len(self.target_tokens)],
            self._whole_words or predicted,
        )

    @property
    def row_labels(self) -> tuple[str, ...]:
        """For each step the predicted token as pictures show it, with the written one where it is another.

        Of a contrast of words, these.
        """
        if self._whole_words:
            return self._whole_words
        both = plain_tokens(self.target_tokens + self.predicted_tokens)
        target, predicted = both[: len(self.target_tokens)], both[len(self.target_tokens) :]
        rows = zip(predicted, self.steps, self.is_written, strict=True)
        return tuple(label if same else f"{label} ≠ {target[step - 1]}" for label, step, same in rows)

    @property
    def _whole_words(self) -> tuple[str, ...]:
        """By step the contrasted words, as readers see them."""
        return tuple(each.label for each in self.contrasted)

    @property
    def color_limit(self) -> float:
        """Where the colour scale of pages ends: the 98th percentile of the sizes of all shares.

        The first steps have few prefix tokens, with large shares; a scale up to those would hide the rest.
        """
        sizes = torch.cat([self.source.flatten(), self.target[self.known]]).double().abs()
        return sizes.quantile(0.98).item() or 1.0

    def merge_subwords(self) -> Contributions:
        """The same contributions between words instead of sub-word pieces.

        What the pieces of an input word contribute is added; predictions of a word's pieces are averaged, so
        source and target together still sum to 1 where they did. A word's later pieces are predicted from
        its earlier ones: their share stands on the diagonal of `target`. Probabilities are multiplied, logits
        and start shares averaged, pieces joined without their markers. Totals and entropies are those of the words'
        shares; those with signs may cancel in a word, and are divided so that their sizes sum to 1 again. Inside,
        positions of a word are added, and its steps averaged.
        """
        from hf_lrp.results.merging import merge_subwords

        return merge_subwords(self)

    def compare(self, other: Contributions) -> Comparison:
        """This result beside another one of the same source: another prefix, model, target or method.

        Raises:
            ValueError: the two do not belong together: they have other sources, levels or kinds of shares.
        """
        from hf_lrp.results.comparison import Comparison

        return Comparison(self, other)

    def alignment(self) -> set[tuple[int, int]]:
        """Links between source and target words, as pairs of their numbers from 0: use `hf_lrp.align` instead.

        `hf_lrp.align` makes far fewer errors and needs no contributions; a warning says so.

        Each target token is linked to one source token: that whose part of R_t(source) is largest, relative to
        its average over all steps. Words are linked if any of their tokens are. Words are what spaces part, as in
        files of alignments; where a text such as Chinese has no spaces, its pieces are words, and a warning says so.
        After `merge_subwords()`, words are numbered as there. Special tokens are left out. Target words without a
        counterpart are linked too. The contributions must be those of the target's tokens:
        `explain(..., predict="target")`.
        """
        from hf_lrp.results.alignment import align_words

        return align_words(self)

    def to_dict(self) -> dict[str, Any]:
        """Every field and every derived quantity as plain lists, numbers and strings, ready for `json.dump`.

        Numbers that JSON does not know, such as the nan of an undefined entropy, become None.
        """
        from hf_lrp.results.exporting import plain_values

        return plain_values(self)

    def to_pandas(self) -> DataFrame:
        """One row per step and input token that is known at that step.

        Columns: `step` (from 1), `predicted`, `side` (`"source"`, `"target"` or the name of a span), `position` (from
        1), `token`, `contribution`. Shares of spans are raw; those of source and target are what `start_token` says.
        """
        from hf_lrp.results.frames import shares_frame

        return shares_frame(self)

    def to_inseq(self) -> Any:
        """An `inseq.FeatureAttributionSequenceOutput`: `source_attributions` [S, T], `target_attributions` [1 + N, T].

        The first row of the target is that of the start token, or of the whole prompt of a model without an encoder.
        As in inseq, it is nan where a token is not yet written.
        """
        from hf_lrp.results.inseq_output import to_inseq

        return to_inseq(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, which replaces an old one only once all is written."""
        from hf_lrp.results.saving import save_fields, to_fields

        save_fields(path, *to_fields(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Contributions:
        """Read what `save` wrote, exactly.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is damaged, is something else, or was written by another version of the format.
        """
        from hf_lrp.results.saving import from_fields, load_fields

        values = load_fields(path)
        try:
            return cls(**from_fields(values))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} does not hold valid contributions: {error} Compute and save them again."
            ) from error

    # ---- views

    def _draw(self, place: Place) -> Figure:
        from hf_lrp.pictures.results import plot_contributions

        return plot_contributions(self, place)

    def _entries(self) -> list[Contributions]:
        return [self]

    def show(self) -> None:
        """Show the page in a notebook, elsewhere print the coloured table."""
        from hf_lrp.results.showing import show

        show([self])

    def table(self) -> TerminalTable:
        """A coloured table for the terminal, as wide as it is: `rich.print(contributions.table())`."""
        from hf_lrp.results.terminal import TerminalTable

        return TerminalTable(self)

    def __str__(self) -> str:
        from hf_lrp.results.terminal import plain_table

        return plain_table(self)

    def __repr__(self) -> str:
        return (
            f"<Contributions of {len(self.source_tokens)} source {self.level}s to {len(self)} steps, "
            f"{quantities.describe_mean(self.mean()['source_total'])}, model {self.model!r}>"
        )

    def __eq__(self, other: object) -> bool:
        """Whether all fields are the same, exactly."""
        if not isinstance(other, Contributions):
            return NotImplemented
        return all(_same(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    __hash__ = None  # type: ignore[assignment]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    return bool(a == b or (a != a and b != b))

"""The results of several sentences: a list that can also be averaged, drawn and searched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from hf_lrp.results.intervals import Estimate, bootstrap_mean
from hf_lrp.results.paged import Paged
from hf_lrp.results.plotted import Plotted
from hf_lrp.results.quantities import AVERAGED, mean_over_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from torch import Tensor

    from hf_lrp.pictures.panels import Place
    from hf_lrp.results.contributions import Contributions


@dataclass(frozen=True, eq=False)
class PositionMeans:
    """Means over sentences at each step, with intervals from drawing sentences.

    Attributes:
        steps: `[P]`, 1 to the length of the longest sentence.
        sentences: `[P]`, how many sentences have a step of this number.
        by_step: arrays `[P]` of `source_total`, `source_entropy` and `target_entropy`; nan where nothing is defined.
            R_1(source) is 1 by definition.
        overall: the same quantities, as means over sentences of their means over steps from the second on.
        parts: of prompts, by name, arrays `[P]` of raw shares, with `source` and `target`; empty for models with an
            encoder.
        overall_parts: the same, from the second step on.
    """

    steps: np.ndarray
    sentences: np.ndarray
    by_step: dict[str, Estimate]
    overall: dict[str, Estimate]
    parts: dict[str, Estimate] = field(default_factory=dict)
    overall_parts: dict[str, Estimate] = field(default_factory=dict)

    def to_pandas(self) -> DataFrame:
        """One row per step: `step`, `sentences`, and of each quantity the mean, `_low` and `_high`.

        Shares of parts of prompts follow as `raw NAME`.
        """
        from hf_lrp.results.frames import import_pandas

        columns: dict[str, np.ndarray] = {"step": self.steps, "sentences": self.sentences}
        raw = {f"raw {name}": estimate for name, estimate in self.parts.items()}
        for name, estimate in (self.by_step | raw).items():
            columns |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        return import_pandas().DataFrame(columns)


class ContributionsList(list["Contributions"], Plotted, Paged):
    """Results of a list of sources, in order: a list of `Contributions`, with a view on all of them."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Contributions: ...

    @overload
    def __getitem__(self, index: slice) -> ContributionsList: ...

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return ContributionsList(found) if isinstance(index, slice) else found

    def to_pandas(self) -> DataFrame:
        """One row per sentence and step.

        Columns: `sentence` (the index in this list, from 0), `step` (from 1), `token` (the written one), `predicted`
        (the explained one), its `probability` and `log_probability`, `source_total` (R_t(source)), `target_total`
        (R_t(target)), `source_entropy`, `target_entropy`, `start`, the raw share of the start token, and the raw share
        of each part of a prompt, by its name.
        """
        from hf_lrp.results.frames import steps_frame

        return steps_frame(self)

    def mean(self) -> PositionMeans:
        """Means over sentences at each step, and overall from step 2 on, with 95 % intervals over sentences."""
        self._require_some()
        longest = max(c.steps[-1] for c in self)
        by_step = {name: bootstrap_mean(self._values([getattr(c, name) for c in self], longest)) for name in AVERAGED}
        means = [c.mean() for c in self]
        overall = {name: bootstrap_mean(np.array([mean[name] for mean in means])) for name in AVERAGED}
        steps = np.arange(1, longest + 1)
        sentences = np.array([sum(int(step) in c.steps for c in self) for step in steps])
        return PositionMeans(steps, sentences, by_step, overall, *self._part_means(longest))

    def lowest_source(self, n: int = 5) -> ContributionsList:
        """The n results whose mean R(source), from step 2 on, is lowest, the lowest first.

        These are where the model relies most on its own words. `results.index(c)` is the number of the sentence.
        Results with step 1 alone have no mean and are left out.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}.")
        means = [(c.mean()["source_total"], i) for i, c in enumerate(self)]
        return ContributionsList(self[i] for _, i in sorted(pair for pair in means if not math.isnan(pair[0]))[:n])

    def _draw(self, place: Place) -> Figure:
        from hf_lrp.pictures.source_curves import plot_mean_curve

        self._require_some()
        return plot_mean_curve(self, place)

    def _entries(self) -> list[Contributions]:
        return self

    def show(self) -> None:
        """Show all of them in a notebook, elsewhere print their coloured tables."""
        from hf_lrp.results.showing import show

        show(self)

    def _part_means(self, longest: int) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
        """Raw shares of parts of prompts by step and overall; of those that all results have."""
        totals = [c.part_totals if c.spans else {} for c in self]
        names = [name for name in totals[0] if all(name in found for found in totals)]
        by_step = {name: bootstrap_mean(self._values([t[name] for t in totals], longest)) for name in names}
        means = {
            name: np.array([mean_over_steps(t[name], c.steps) for t, c in zip(totals, self, strict=True)])
            for name in names
        }
        return by_step, {name: bootstrap_mean(mean) for name, mean in means.items()}

    def _values(self, quantities: Sequence[Tensor], longest: int) -> np.ndarray:
        """A quantity of each sentence, `[T]`, as `[sentences, longest]`, nan where a sentence has no such step."""
        values = np.full((len(self), longest), np.nan)
        for row, c, quantity in zip(values, self, quantities, strict=True):
            row[np.array(c.steps) - 1] = quantity.double().numpy()
        return values

    def _require_some(self) -> None:
        if not self:
            raise ValueError("The list is empty: there is nothing to average or draw.")

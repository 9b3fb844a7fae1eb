"""Two results of the same source side by side: other prefixes, models, targets or methods, and their difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hf_lrp.data.naming import short_name
from hf_lrp.data.visible import visible
from hf_lrp.models.words import plain_tokens
from hf_lrp.results.paged import Paged
from hf_lrp.results.plotted import Plotted
from hf_lrp.results.quantities import AVERAGED

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from torch import Tensor

    from hf_lrp.pictures.panels import Place
    from hf_lrp.results.contributions import Contributions

_NAMING = ("model", "prefix", "predict", "method")  # what tells two results apart, besides their targets
_QUANTITIES = ("source_total", "target_total", "source_entropy", "target_entropy", "probability", "log_probability")


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Plotted, Paged):
    """`first.compare(second)`. Differences are second - first.

    Where both have the same target tokens and steps, shares are compared one by one: `source` and `target`. Where the
    targets differ, as for two translations of a sentence, steps do not match; curves and means still compare.
    """

    first: Contributions
    second: Contributions

    def __post_init__(self) -> None:
        _require_same_kind(self.first, self.second)

    @property
    def same_target(self) -> bool:
        """Whether the target tokens are the same, so that shares can be compared one by one."""
        return self.first.target_tokens == self.second.target_tokens

    @property
    def source(self) -> Tensor:
        """`[T, S]`, differences of R_t(x_i)."""
        self._require_same_target()
        return self.second.source - self.first.source

    @property
    def target(self) -> Tensor:
        """`[T, N]`, differences of R_t(y_j)."""
        self._require_same_target()
        return self.second.target - self.first.target

    @property
    def source_total(self) -> Tensor:
        """`[T]`, differences of R_t(source)."""
        self._require_same_target()
        return self.second.source_total - self.first.source_total

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two: that in which they differ, such as their prefixes or models."""
        differing = [name for name in _NAMING if getattr(self.first, name) != getattr(self.second, name)]
        if not differing:
            return "first", "second"
        short, full = (
            [self._describe(c, differing, name) for c in (self.first, self.second)] for name in (short_name, str)
        )
        first, second = short if short[0] != short[1] else full
        return first, second

    @property
    def title(self) -> str:
        """Title: what is compared, with both means of R(source)."""
        means = [c.mean()["source_total"] for c in (self.first, self.second)]
        return f"{self.names[1]} − {self.names[0]}\nmean R(source) from step 2 on {means[1]:.3f} − {means[0]:.3f}"

    @property
    def row_labels(self) -> tuple[str, ...]:
        """For each step what is explained in the first; where it is another token in the second, both: `cat | dog`.

        Where neither is the written token, that follows: `cat | dog ≠ horse`.
        """
        first, second = self.first, self.second
        tokens = plain_tokens(first.target_tokens + first.predicted_tokens + second.predicted_tokens)
        written, explained = tokens[: len(first.target_tokens)], tokens[len(first.target_tokens) :]
        rows = zip(explained[: len(first)], explained[len(first) :], first.is_written, second.is_written, strict=True)
        return tuple(
            (a if a == b else f"{a} | {b}") + ("" if one or other else f" ≠ {written[step - 1]}")
            for (a, b, one, other), step in zip(rows, first.steps, strict=True)
        )

    @property
    def means(self) -> DataFrame:
        """Means over the steps from the second on: a row per quantity, with `first`, `second` and `difference`."""
        from hf_lrp.results.frames import import_pandas

        first, second = self.first.mean(), self.second.mean()
        rows = [(first[name], second[name], second[name] - first[name]) for name in AVERAGED]
        index = list(AVERAGED)
        return import_pandas().DataFrame(rows, index=index, columns=["first", "second", "difference"])

    def to_pandas(self) -> DataFrame:
        """One row per step that both have: `step`, then `_first`, `_second` and `_difference` of each quantity.

        Quantities are `source_total`, `target_total`, `source_entropy`, `target_entropy`, `probability` and
        `log_probability`;
        `token_first` and `token_second` are the explained tokens. `raw NAME_first` and so on are the raw shares of
        parts of prompts that both have.
        """
        from hf_lrp.results.frames import import_pandas

        both = [step for step in self.first.steps if step in self.second.steps]
        columns: dict[str, list[int] | list[str] | list[float]] = {"step": both}
        sides = {"first": self.first, "second": self.second}
        rows = {side: [c.steps.index(step) for step in both] for side, c in sides.items()}
        for side, c in sides.items():
            columns[f"token_{side}"] = [c.predicted_tokens[i] for i in rows[side]]
        quantities = {side: {name: getattr(c, name) for name in _QUANTITIES} | _raw(c) for side, c in sides.items()}
        for name in (name for name in quantities["first"] if name in quantities["second"]):
            first, second = (found[name][rows[side]].double() for side, found in quantities.items())
            columns[f"{name}_first"], columns[f"{name}_second"] = first.tolist(), second.tolist()
            columns[f"{name}_difference"] = (second - first).tolist()
        return import_pandas().DataFrame(columns)

    def _draw(self, place: Place) -> Figure:
        if not self.same_target:
            from hf_lrp.pictures.source_curves import plot_side_by_side

            return plot_side_by_side(self, place)
        from hf_lrp.pictures.results import plot_difference

        return plot_difference(self, place)

    def _entries(self) -> list[Comparison]:
        return [self]

    def show(self) -> None:
        """Show the page in a notebook, elsewhere print the means side by side."""
        from hf_lrp.results.showing import show

        show([self])

    def __str__(self) -> str:
        width = max(map(len, (*self.names, "difference"))) + 2
        header = "".join(f"{name:>{width}}" for name in (*self.names, "difference"))
        lines = [f"{'mean from step 2 on':<20}{header}"]
        first, second = self.first.mean(), self.second.mean()
        for name in AVERAGED:
            numbers = (first[name], second[name], second[name] - first[name])
            lines.append(f"{name:<20}" + "".join(f"{number:>{width}.3f}" for number in numbers))
        return "\n".join(lines)

    def __repr__(self) -> str:
        same = "the same target" if self.same_target else "different targets"
        return f"<Comparison of {self.names[0]!r} and {self.names[1]!r}, {same}>"

    @staticmethod
    def _describe(c: Contributions, differing: Sequence[str], name_of: Callable[[str], str]) -> str:
        values = (name_of(getattr(c, name)) if name == "model" else str(getattr(c, name)) for name in differing)
        return visible(", ".join(values))

    def _require_same_target(self) -> None:
        if not self.same_target:
            raise ValueError(
                "The two results have different targets, so their steps do not match and shares cannot be compared "
                "one by one. Use means, to_pandas() or plot(), or explain both with the same target."
            )


def _raw(c: Contributions) -> dict[str, Tensor]:
    """Raw shares of the parts of a prompt; nothing for a model with an encoder."""
    return {f"raw {name}": total for name, total in c.part_totals.items()} if c.spans else {}


def _require_same_kind(first: Contributions, second: Contributions) -> None:
    """Raise if the two results are not of the same source, level and kind of shares."""
    if type(second) is not type(first):
        raise TypeError(f"compare takes another Contributions, got {type(second).__name__}.")
    if first.level != second.level:
        raise ValueError(
            f"One result is of {first.level}s, the other of {second.level}s: call merge_subwords() on both or neither."
        )
    if first.start_token != second.start_token:
        raise ValueError(
            "One result leaves the start token out, the other keeps it, so their shares are not of the same whole: "
            "explain both with the same start_token."
        )
    if first.source_tokens != second.source_tokens:
        words = ", or if two tokenizers split one sentence differently, words: merge_subwords() on both"
        raise ValueError(
            "The results are of different sources, so their source shares are not of the same tokens. Compare results "
            f"of one source{words if first.level == 'token' else ''}."
        )
    if first.target_tokens == second.target_tokens and first.steps != second.steps:
        raise ValueError(f"The results have other steps of the same target: {first.steps} and {second.steps}.")

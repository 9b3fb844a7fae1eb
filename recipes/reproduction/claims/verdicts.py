"""Statements of the paper with what was measured, and the verdicts on them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from claims.intervals import Interval

Verdict = Literal["holds", "does not hold", "not decided"]
FEWEST_SENTENCES = 20  # an interval over fewer is not to be trusted


class Wanted(NamedTuple):
    """The values that agree with the paper: from low to high."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if self.low == -self.high:
            return f"within ± {self.high:g}"
        return f"at most {self.high:g}" if math.isinf(self.low) else f"at least {self.low:g}"


def at_least(size: float) -> Wanted:
    """A rise, or a positive difference, of a minimum size."""
    return Wanted(low=size)


def at_most(size: float) -> Wanted:
    """A fall, or a negative difference: `at_most(-0.01)` is a fall of 0.01 or more."""
    return Wanted(high=size)


def within(size: float) -> Wanted:
    """No change that would be noticed."""
    return Wanted(-size, size)


@dataclass(frozen=True)
class Statement:
    """One number, and which values of it agree with the paper.

    It holds if the whole interval agrees, does not hold if nothing in it does, and is not decided otherwise.

    Attributes:
        text: what was measured.
        interval: over sentences and seeds.
        wanted: the values that agree, with the minimum effect as their end.
        doubt: why it cannot be decided, whatever the interval; empty if it can.
        objection: why it cannot be said to hold, whatever the interval; empty if it can.
    """

    text: str
    interval: Interval
    wanted: Wanted
    doubt: str = ""
    objection: str = ""

    @property
    def verdict(self) -> Verdict:
        """What the interval says, where it may be trusted."""
        return self._decide()[0]

    @property
    def reason(self) -> str:
        """Why it is not decided or does not hold; empty where it holds."""
        return self._decide()[1]

    def _decide(self) -> tuple[Verdict, str]:
        value, low, high, sentences, _ = self.interval
        if self.doubt:
            return "not decided", self.doubt
        if sentences < FEWEST_SENTENCES:
            return "not decided", f"{sentences} sentences can be compared; {FEWEST_SENTENCES} are needed"
        if not (math.isfinite(low) and math.isfinite(high)):
            return "not decided", "it is not defined here"
        if low > self.wanted.high or high < self.wanted.low:
            return "does not hold", f"it should be {self.wanted}"
        if low < self.wanted.low or high > self.wanted.high:
            inside = self.wanted.low <= value <= self.wanted.high
            return (
                "not decided",
                f"{'the interval' if inside else 'not the value, but the interval'} reaches across {self._end()}",
            )
        return ("not decided", self.objection) if self.objection else ("holds", "")

    def _end(self) -> str:
        _, low, high, *_ = self.interval
        return " and ".join(f"{end:g}" for end in self.wanted if low <= end <= high)


@dataclass(frozen=True)
class Claim:
    """A finding of the paper, with the statements that it is checked by."""

    name: str
    text: str
    statements: tuple[Statement, ...]

    @property
    def verdict(self) -> Verdict:
        """Holds if all statements do, does not hold if one does not."""
        verdicts = [statement.verdict for statement in self.statements]
        if "does not hold" in verdicts:
            return "does not hold"
        return "not decided" if "not decided" in verdicts else "holds"

    @property
    def reason(self) -> str:
        """Of the statements that the verdict is due to, each reason once; empty where it holds."""
        reasons = [statement.reason for statement in self.statements if statement.verdict == self.verdict]
        return "; ".join(dict.fromkeys(filter(None, reasons)))


# ---- results


def as_rows(claims: Iterable[Claim]) -> list[dict[str, object]]:
    """Claims as plain values, one row per statement; None for what is not defined."""
    return [
        {
            "claim": claim.name,
            "text": claim.text,
            "verdict": claim.verdict,
            "statement": statement.text,
            **{name: _plain(value) for name, value in statement.interval._asdict().items()},
            "wanted": str(statement.wanted),
            "statement verdict": statement.verdict,
            "reason": statement.reason,
        }
        for claim in claims
        for statement in claim.statements
    ]


def as_markdown(claims: Iterable[Claim]) -> str:
    """A table with one row per statement."""
    lines = ["| claim | | statement | measured | wanted | | because |", "| --- " * 7 + "|"]
    for claim in claims:
        for number, statement in enumerate(claim.statements):
            first = f"{claim.name} {claim.text} | **{claim.verdict}**" if number == 0 else " | "
            value, low, high, sentences, seeds = statement.interval
            count = f"{sentences} sentences, {seeds} seed{'s' if seeds > 1 else ''}"
            measured = f"{value:+.4f} [{low:+.4f}, {high:+.4f}] ({count})" if math.isfinite(value) else ""
            cells = (first, statement.text, measured, str(statement.wanted), statement.verdict, statement.reason)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None

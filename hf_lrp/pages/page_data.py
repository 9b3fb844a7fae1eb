"""Data of the page: results as plain data, the only thing between Python and the page's scripts.

Page: `entries`; `scale`, by level where the colour scale ends; `signed`, whether a share is negative.

Entry: `results`, one or two side by side; `names`, what to call them; `same`, whether both have the same target, so
that shares can be subtracted; `telling`, by level, where they differ most; `number` in the list.

Result: `model`; `prefix`; `mean`, R(source) from step 2 on; `about`, names and values; `notes`; `left_out`, whether
source and prefix sum to 1 without the start token; `start_tokens`; `contrast`; `sizes`, whether shares have signs and
their sizes sum to 1; `levels`, by `"word"` and `"token"`, or one of them.

Level:
- `source`, `target`: parts of running text, `[text, space before, special]`; `sound`: the source is times, not text;
- `steps`; `explained`: by step the explained text where it is not the written one, else None; `probability`;
- `contrasted`: by step both words that were asked about, and a note on their pieces, where words were, else None;
- `shares`; `total`, `prefix`, `start`: R(source), R(target) and the raw share of the start by step;
- `parts` of a prompt: `name`, `tokens` as above, `shares` and `total` by step, all raw;
- `usual`: mean and deviation of R(source) by step, or None; `flagged`: whether a step's word is below that, or None;
- `links`: of linked words all parts, `[source, target, strength]`, or None;
- `telling`: the row to begin with, a sentence on it with `{}` for its word, and the word, or None.

A row of `shares` holds the source's shares, then those of the target tokens that are known at that step. Shares are
whole numbers of hundred-thousandths (`UNIT`): short, and closer than any page shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from hf_lrp.data.naming import short_name
from hf_lrp.data.visible import visible
from hf_lrp.models.words import Marking, detect_marking, looks_special, running_text
from hf_lrp.pages.page_links import WordLinks, part_links
from hf_lrp.pages.telling import (
    Curve,
    Telling,
    by_word,
    is_unusual,
    may_be_spoken_of,
    most_different,
    most_telling,
    usual_z,
)
from hf_lrp.results.spans import all_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from hf_lrp.results.comparison import Comparison
    from hf_lrp.results.contributions import Contributions

UNIT = 1e-5


class UsualRange(Protocol):
    """How much a model usually depends on its source: a `hf_lrp.corpus.calibration.Calibration`."""

    def at(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of R_t(source) at these steps, nan at the first."""


class Unusual(NamedTuple):
    """`telling`: what to say of a result, by word; `words`: the number of its word, by step; `mean`, `deviation`: what
    is usual, by step, nan where not known; `flagged`: by word."""

    telling: Telling | None
    words: tuple[int, ...]
    mean: np.ndarray
    deviation: np.ndarray
    flagged: np.ndarray


def page_data(
    entries: Sequence[Contributions | Comparison],
    calibration: UsualRange | None = None,
    numbers: Sequence[int] | None = None,
    links: Sequence[WordLinks | None] = (),
) -> dict[str, Any]:
    """All entries of a page, with one colour scale.

    Args:
        entries: results, or comparisons of two.
        calibration: what is usual for the model of the results; of comparisons, of the first result's model.
        numbers: of each entry in the list; by default from 1 on.
        links: word links of each entry, None where there are none.
    """
    levels = [[_levels(c) for c in results_of(entry)] for entry in entries]
    everything = [c for results in levels for by_level in results for c in by_level.values()]
    rows = zip(entries, levels, numbers or range(1, len(entries) + 1), strict=True)
    described = [_entry(entry, found, calibration) | {"number": n} for entry, found, n in rows]
    for each, own in zip(described, links or [None] * len(entries), strict=True):
        _link(each, own)
    return {
        "entries": described,
        "scale": _scale(everything),
        "signed": any(float(min(c.source.min(), c.target.min())) < -UNIT for c in everything),
    }


def results_of(entry: Contributions | Comparison) -> tuple[Contributions, ...]:
    """One result or two. (Comparisons have pages themselves, so that their class cannot be imported here.)"""
    pair: list[Contributions] = [getattr(entry, name) for name in ("first", "second") if hasattr(entry, name)]
    return tuple(pair) or (cast("Contributions", entry),)


def _levels(c: Contributions) -> dict[str, Contributions]:
    """The result at all its levels: its own, and words where its pieces form some."""
    parts = c.source_words[-1] + 1 < len(c.source_words) or c.target_words[-1] + 1 < len(c.target_words)
    if c.level == "token" and len(c) == len(c.target_tokens) and parts:
        return {"token": c, "word": c.merge_subwords()}
    return {c.level: c}


def _entry(
    entry: Contributions | Comparison, levels: list[dict[str, Contributions]], usual: UsualRange | None
) -> dict[str, Any]:
    first, *second = results_of(entry)
    described = [_result(first, levels[0], usual)]
    if not second:
        return {"results": described, "names": [""], "same": False, "telling": None}
    # What is usual for one model is not for another.
    described.append(_result(second[0], levels[1], usual if second[0].model == first.model else None))
    comparison = first.compare(second[0])
    same, names = comparison.same_target, list(comparison.names)
    differ = {level: _difference(levels[0][level], levels[1][level], names) for level in levels[0] if same}
    return {"results": described, "names": names, "same": same, "telling": differ or None}


def _link(entry: dict[str, Any], links: WordLinks | None) -> None:
    """Adds word links to all levels of an entry's results."""
    for result in entry["results"]:
        for level in result["levels"].values():
            level["links"] = None if links is None else part_links(links, level["source"], level["target"])


def _difference(first: Contributions, second: Contributions, names: list[str]) -> list[Any] | None:
    texts = [text for text, _ in running_text(first.target_tokens, first.predicted_tokens)]
    before, after = (c.source_total.double().numpy() for c in (first, second))
    telling = most_different([texts[step - 1] for step in first.steps], before, after, names)
    return None if telling is None else list(telling)


def _result(c: Contributions, levels: dict[str, Contributions], usual: UsualRange | None) -> dict[str, Any]:
    if usual is not None and c.start_token != "exclude":
        raise ValueError(
            "A calibration describes shares without the start token, and this result keeps it: explain with "
            "start_token='exclude', or leave the calibration out."
        )
    unusual = _unusual(c, None if c.level == "word" else usual)
    described = {c.level: _level(c, unusual)}
    if c.level == "token" and "word" in levels:
        # Where shares have signs, those of pieces cancel: R(source) of a word is no mean over its pieces.
        of_words = unusual if c.sums_to_one else _unusual(levels["word"], None)
        described["word"] = _word_level(c, levels["word"], of_words)
    others = c.is_written.count(False)
    about = {
        "method": str(c.method),
        "prefix": c.prefix,
        "explained": c.predict,
        "start token": c.start_token,
        "computed in": c.dtype,
    }
    if not math.isnan(c.conservation_error):
        about["conservation error"] = f"{c.conservation_error:.1g}"
    if not c.sums_to_one:
        about["shares"] = "of both signs; their sizes sum to 1"
    marked = f"at {others} of {len(c)} steps the explained {c.level} is not the written one"
    return {
        "model": short_name(c.model),
        "prefix": c.prefix,
        "mean": _number(c.mean()["source_total"]),
        "about": [[name, value] for name, value in about.items()],
        "notes": [*c.notes, *([marked] if others else [])],
        "left_out": c.start_token == "exclude",
        "start_tokens": [text for text, _ in running_text(c.start_tokens)],
        "contrast": c.predict == "contrastive",
        "sizes": not c.sums_to_one,
        "levels": described,
    }


def _unusual(c: Contributions, usual: UsualRange | None) -> Unusual:
    """Unusual words of a result, one by one: the same for both levels."""
    parts = _parts(c.target_tokens, c.predicted_tokens)
    words = tuple(c.target_words[step - 1] for step in c.steps)
    numbers = dict.fromkeys(words)
    texts = ["".join(parts[i][0] for i, of in enumerate(c.target_words) if of == word) for word in numbers]
    total, nothing = c.source_total.double().numpy(), np.full(len(c), math.nan)
    mean, deviation = (nothing, nothing) if usual is None else usual.at(c.steps)
    z = usual_z(total, mean, deviation, words)
    flagged = is_unusual(z, texts)
    later = np.where(np.array(c.steps) > 1, total, math.nan)  # at the first step it is 1 whatever the model does
    totals = by_word(later, words)
    spoken = np.array([may_be_spoken_of(text) for text in texts]) & ~np.isnan(totals)
    curve = Curve(texts, totals, by_word(mean, words), by_word(deviation, words), spoken, z)
    return Unusual(most_telling(curve, flagged), words, mean, deviation, flagged)


def _word_level(c: Contributions, words: Contributions, unusual: Unusual) -> dict[str, Any]:
    """The words of a result of pieces; what is usual for a word is the mean over its pieces."""
    mean, deviation = (by_word(values, unusual.words) for values in (unusual.mean, unusual.deviation))
    numbers = tuple(range(len(words)))
    level = _level(words, unusual._replace(words=numbers, mean=mean, deviation=deviation))
    for side, tokens, pieces in (
        ("source", c.source_tokens, c.source_words),
        ("target", c.target_tokens, c.target_words),
    ):
        spaces = running_text(tokens, c.predicted_tokens if side == "target" else ())
        for word, part in enumerate(level[side]):
            part[1] = spaces[pieces.index(word)][1]
    return level


def _level(c: Contributions, unusual: Unusual) -> dict[str, Any]:
    source, target = _parts(c.source_tokens), _parts(c.target_tokens, c.predicted_tokens)
    rows = zip(_units(c.source), _units(c.target), _known(c), strict=True)
    total = c.source_total.double().numpy()
    known = not np.isnan(unusual.mean).all()
    usual = [[_number(m), _number(d)] for m, d in zip(unusual.mean, unusual.deviation, strict=True)]
    places = {word: place for place, word in enumerate(dict.fromkeys(unusual.words))}
    telling = unusual.telling
    if telling is not None:  # it speaks of a word: its first step
        telling = telling._replace(row=[places[word] for word in unusual.words].index(telling.row))
    prompt = all_tokens(c.spans)
    return {
        "source": source,
        "target": target,
        "sound": detect_marking(c.source_tokens) is Marking.SECONDS or _is_seconds(c),
        "steps": list(c.steps),
        "explained": _explained(c),
        "contrasted": [[visible(text) for text in each] for each in c.contrasted] or None,
        "probability": [_chance(value) for value in c.log_probability.tolist()],
        "shares": [a + b[:n] for a, b, n in rows],
        "total": [_number(value) for value in total],
        "prefix": [_number(value) for value in c.target_total.tolist()],
        "start": [_number(value) for value in c.start.tolist()],
        "parts": [
            {
                "name": name,
                "tokens": _parts(span.tokens, prompt),
                "shares": _units(span.shares),
                "total": [_number(value) for value in span.total.tolist()],
            }
            for name, span in c.spans.items()
        ],
        "usual": usual if known else None,
        "flagged": [bool(unusual.flagged[places[word]]) for word in unusual.words] if known else None,
        "telling": None if telling is None else list(telling),
    }


def _known(c: Contributions) -> list[int]:
    """By step, how many target tokens contribute; a word to itself only if it has earlier pieces."""
    known: list[int] = c.known.sum(1).tolist()
    if c.level == "token":
        return known
    return [n - (float(row[n - 1]) == 0) for n, row in zip(known, c.target, strict=True)]


def _explained(c: Contributions) -> list[str | None]:
    """By step the explained text: of a contrast always, both words; else where it is not the written one."""
    if c.predict == "contrastive":
        pairs = [token.split(" vs ", 1) for token in c.predicted_tokens]
        return [" vs ".join(text for text, _ in running_text(pair, c.target_tokens)) for pair in pairs]
    texts = running_text(c.predicted_tokens, c.target_tokens)
    return [None if same else text or "␣" for (text, _), same in zip(texts, c.is_written, strict=True)]


def _parts(tokens: Sequence[str], others: Sequence[str] = ()) -> list[list[Any]]:
    """Running text: what each token reads, whether a space is before it, whether it is no text."""
    pieces = zip(running_text(tokens, others), map(looks_special, tokens), strict=True)
    return [[text, spaced, special] for (text, spaced), special in pieces]


def _is_seconds(c: Contributions) -> bool:
    return c.level == "word" and all(token.endswith("s") and "–" in token for token in c.source_tokens)


def _units(shares: Tensor) -> list[list[int]]:
    whole: list[list[int]] = (shares.double() / UNIT).round().long().tolist()
    return whole


def _scale(results: Sequence[Contributions]) -> dict[str, float]:
    """By level, where the colours of all results end: near the largest of their own limits."""
    limits: dict[str, list[float]] = {}
    for c in results:
        limits.setdefault(c.level, []).append(c.color_limit)
    return {level: float(np.quantile(values, 0.95)) for level, values in limits.items()}


def _chance(log_probability: float) -> float | None:
    """A probability with the digits that it is shown with, however small it is."""
    return None if math.isnan(log_probability) else float(f"{math.exp(log_probability):.3g}")


def _number(value: float | None, digits: int = 5) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), digits)

"""The ends of sentences: tokens that all sentences have in common there, and how much the last source tokens are used.

With mixed lengths, relative positions hide the end of the sentence, to which the paper's figure gives most attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hf_lrp.corpus.run import Run
from hf_lrp.results.quantities import source_use

LAST = 6  # source tokens counted from the end


@dataclass(frozen=True, eq=False)
class Endings:
    """Tokens at the first and the last positions, for one prefix type.

    Attributes:
        source: by position from 1 on, the token that all sources have there; of the first and the last position, and
            empty where lengths are mixed.
        target: likewise for targets.
        last_source_use: `[n, LAST]`, source(k) -> target of the last source tokens; nan for shorter sentences.
        last_source: by place from the end (-1 is the last), the token that all sources have there.
    """

    source: dict[int, str]
    target: dict[int, str]
    last_source_use: np.ndarray
    last_source: dict[int, str]


def read_endings(run: Run, prefix: str) -> Endings:
    """Read the ends of all sentences in one pass."""
    use = np.full((run.number, LAST), np.nan)
    seen: dict[tuple[str, int], set[str | None]] = {}
    lengths: dict[str, set[int]] = {"source": set(), "target": set()}
    for row, sentence in enumerate(run.rows(prefix)):
        last = source_use(sentence.source)[-LAST:]
        use[row, LAST - len(last) :] = last
        for side, tokens in (("source", sentence.source_tokens), ("target", sentence.target_tokens)):
            lengths[side].add(len(tokens))
            for place in (0, -1):
                seen.setdefault((side, place), set()).add(tokens[place] if tokens else None)
    shared = {key: tokens.pop() for key, tokens in seen.items() if len(tokens) == 1 and run.number > 1}
    named = {key: token for key, token in shared.items() if token}
    return Endings(
        source=_at_positions("source", named, lengths["source"]),
        target=_at_positions("target", named, lengths["target"]),
        last_source_use=use,
        last_source={place: token for (side, place), token in named.items() if side == "source" and place < 0},
    )


def _at_positions(side: str, named: dict[tuple[str, int], str], lengths: set[int]) -> dict[int, str]:
    """Tokens by position, where all sentences have the same length."""
    if len(lengths) != 1:
        return {}
    (length,) = lengths
    return {place % length + 1: token for (of, place), token in named.items() if of == side}

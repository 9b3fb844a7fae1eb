"""The links of one sentence pair, with places of characters and the heads that made them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hf_lrp.links.heads import LinkHeads
from hf_lrp.links.texts import Text


@dataclass(frozen=True)
class Alignment:
    """Which words of a translation belong to which words of its source.

    Attributes:
        source, target: the texts and their words.
        links: pairs of word numbers, source and target, from 0; words may have none or several.
        strengths: how strong each link is, from 0 to 1.
        heads: the attention heads that were read.
    """

    source: Text
    target: Text
    strengths: Mapping[tuple[int, int], float]
    heads: LinkHeads = field(repr=False)

    @property
    def links(self) -> set[tuple[int, int]]:
        """Pairs of word numbers."""
        return set(self.strengths)

    def carry(self, start: int, stop: int) -> tuple[int, int] | None:
        """The part of the target that a part of the source became, as places of characters; None: nothing is linked.

        It reaches from the first to the last word that is linked to a word of the source's part.
        """
        inside = {n for n, (a, b) in enumerate(self.source.spans) if a < stop and start < b}
        places = [self.target.spans[target] for source, target in self.strengths if source in inside]
        return (min(a for a, _ in places), max(b for _, b in places)) if places else None

    def pairs(self) -> list[tuple[str, str]]:
        """The linked words themselves, in the order of the target."""
        ordered = sorted(self.strengths, key=lambda link: link[::-1])
        return [(self.source.words[source], self.target.words[target]) for source, target in ordered]

    def __str__(self) -> str:
        """The links in Pharaoh format: `0-0 1-2`."""
        return " ".join(f"{source}-{target}" for source, target in sorted(self.strengths))

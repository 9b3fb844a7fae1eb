"""Windows: which part of a sequence carries relevance, and for which steps (words: `docs/glossary.md`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Window:
    """Positions that carry relevance, and for which steps: tensors are [positions, steps, d].

    A decoder is causal: a prediction at one position sends nothing to later ones, and in the top layer only to its
    own. All steps go back together, so early positions carry many steps, late ones few.

    positions: the part of the sequence that is meant.
    lag: position i of them carries relevance only from step ``i - lag`` on; None: from all steps.
    own_step: each position carries the relevance of one step, its own; there is one column of steps.
    """

    positions: slice
    lag: int | None = None
    own_step: bool = False

    def part(self, positions: slice) -> Window:
        """Some of its positions, counted from its first one."""
        first = self.positions.start or 0
        lag = None if self.lag is None else self.lag - positions.start
        return replace(self, positions=slice(first + positions.start, first + positions.stop), lag=lag)

    def below(self) -> Window:
        """The window that self-attention spreads it to: all positions up to its last."""
        if not self.own_step:
            return self
        return Window(slice(0, self.positions.stop), lag=self.positions.start)

    def join(self, own: Tensor, spread: Tensor, reached: Window) -> Tensor:
        """Sum of two relevances of the same tensor, the second of which may cover more positions and steps."""
        if not self.own_step or reached.own_step:
            return own.add_(spread)
        first = self.positions.start
        steps = torch.arange(len(own), device=own.device)
        spread[first + steps, steps] += own[:, 0]
        return spread


WHOLE = Window(slice(None))

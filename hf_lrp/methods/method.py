"""Protocol of attribution methods: from one source and some predictions to values of source and prefix tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.models.passes import DecoderInput, Relevance
from hf_lrp.models.structure import Network, widths

# Numbers of groups from 0: of each of the encoder's positions, and of each decoder input.
Groups = tuple[Sequence[int], Sequence[int]]


class Question(NamedTuple):
    """One source, and the predictions after one or several prefixes that are to be explained.

    model: in evaluation mode, as it came; network: its structure.
    source: the encoder's inputs by name, without a batch dimension and without padding; empty without an encoder.
    positions: the encoder's positions, those of a source; of a model without an encoder, the source's in the prompt.
    given: what the decoder is given, and what of its predictions is explained.
    max_memory: bytes that may be used on top of the model.
    source_tokens: False where only the whole source's share is asked for.
    inside: whether to keep what goes through layers and heads; "pairs": also from position to position.
    unknown: ids of tokens that stand for nothing known, of the source's and of the target's vocabulary.
    group: which tokens belong together (see `units`); None: each stands alone.
    """

    model: PreTrainedModel
    network: Network
    source: Mapping[str, Tensor]
    positions: int
    given: Sequence[DecoderInput]
    max_memory: int
    source_tokens: bool = True
    inside: bool | Literal["pairs"] = False
    unknown: tuple[int, int] = (0, 0)
    group: Callable[[str], list[Groups]] | None = None

    def units(self, unit: str) -> list[Groups]:
        """For each decoder input, what belongs together: by ``"token"``, ``"word"`` or ``"part"``."""
        if unit != "token":
            assert self.group is not None
            return self.group(unit)
        encoded = range(self.positions if self.source else 0)
        return [(encoded, range(len(each.ids))) for each in self.given]


class Method(Protocol):
    """An attribution method: a frozen dataclass, whose fields are its settings.

    Attributes:
        sums_to_one: values of one step are parts of a sum, so that shares are fractions of it; else they have signs
            and no sum that means anything, and shares are fractions of the sum of their sizes.
        conserves: values are shares as they are, whose sums may miss 1 by rounding only.
    """

    sums_to_one: ClassVar[bool]
    conserves: ClassVar[bool]

    def explain(self, question: Question) -> list[Relevance]:
        """Values ``source`` [steps, positions] and ``decoder`` [steps, decoder inputs], for each decoder input.

        The model comes back as it was. Raises a ValueError, before any work, for models that the method cannot read
        and for limits that are too low.
        """


# What the allocator keeps beyond what is asked for, as a factor; what code and threads take, in bytes.
_OVERHEAD, _WORKSPACE = 1.35, 14 * 10**6


def memory_beyond_pass(question: Question, least: int) -> int:
    """Memory that a recorded pass over a question leaves; raises where it is less than ``least`` bytes."""
    network, item = question.network, question.model.dtype.itemsize
    target = max(len(each.ids) for each in question.given)
    width, widest = widths(network)
    stacks = ((network.encoder, question.positions), (network.decoder, target))
    seen = sum(len(stack.layers) * length for stack, length in stacks if stack is not None)
    logits = 3 * target * len(network.head.weight)
    taken = int(_OVERHEAD * item * (seen * (8 * width + 2 * widest) + logits)) + _WORKSPACE
    if question.max_memory < taken + least:
        raise ValueError(
            f"max_memory (by default half of what is free) is {question.max_memory / 1e6:.3g} MB, but to explain a "
            f"sentence of {question.positions} source and {target} target tokens this method needs about "
            f"{(taken + least) / 1e6:.3g} MB. Give at least max_memory='{math.ceil((taken + least) / 1e6)}MB', or "
            "shorter sentences."
        )
    return question.max_memory - taken

"""Attention heads that link target words to source words, at which step, and where they are kept.

A head's weights at a step can belong to the token that the decoder reads there (its input) or to the token that it
predicts there. In most layers a word is linked while it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.links.extraction import DEFAULT, Extraction, link_strengths
from hf_lrp.links.learned import count_coefficients, learned_strengths
from hf_lrp.models.structure import Attention

Step: TypeAlias = Literal["reads", "predicts"]
STEPS: tuple[Step, Step] = ("reads", "predicts")


class Head(NamedTuple):
    """A head of a layer, both counted from 0, and whether its weights are those of the token it reads or predicts."""

    layer: int
    head: int
    step: Step = "reads"

    def __str__(self) -> str:
        return f"layer {self.layer + 1} head {self.head + 1}, at the step that {self.step} the word"


@dataclass(frozen=True)
class LinkHeads:
    """The heads that make a model's links.

    Attributes:
        heads: counted from 0.
        found: how they were found: "agreement", "gold", "generation_config" or "given".
        sentences: on how many sentence pairs, where that is known.
        weights: how much each counts.
        how: how links are read from strengths.
        learned: coefficients by which strengths are probabilities that gold links taught; none: strengths are shares.
    """

    heads: tuple[Head, ...]
    found: str = "given"
    sentences: int | None = None
    weights: tuple[float, ...] = ()
    how: Extraction = DEFAULT
    learned: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.heads:
            raise ValueError("Links need at least one attention head.")
        if len(set(self.heads)) < len(self.heads):
            raise ValueError(f"A head is named twice among {[tuple(head) for head in self.heads]}.")
        weights = self.weights or (1.0,) * len(self.heads)
        if len(weights) != len(self.heads) or min(weights) <= 0:
            raise ValueError(f"{len(self.heads)} heads need as many weights above 0, got {weights}.")
        if self.learned and len(self.learned) != count_coefficients(len(self.heads)):
            raise ValueError(
                f"{len(self.heads)} heads need {count_coefficients(len(self.heads))} coefficients or none, "
                f"got {len(self.learned)}."
            )
        object.__setattr__(self, "weights", tuple(float(weight) for weight in weights))
        object.__setattr__(self, "learned", tuple(float(each) for each in self.learned))

    def combine(self, weights: Tensor) -> Tensor:
        """All heads together, [...] of [heads, ...]."""
        return torch.tensordot(torch.tensor(self.weights), weights.float(), 1)

    def strengths(self, weights: Tensor) -> Tensor:
        """How strong each link is, from 0 to 1: [target words, source words], of each head's [heads, ...]."""
        combined = self.combine(weights)
        if self.learned:
            return learned_strengths(weights, combined, self.learned)
        return link_strengths(combined)

    def __str__(self) -> str:
        on = "" if self.sentences is None else f" on {self.sentences} pairs"
        names = "; ".join(map(str, self.heads))
        return f"{names} (found by {self.found}{on})"

    def save(self, model: PreTrainedModel) -> None:
        """Write them into the model's generation config, with which `save_pretrained` keeps them.

        `alignment_heads` are pairs of layer and head, as transformers has them for Whisper; `alignment_steps` says of
        each which token its weights belong to, `alignment_weights` how much it counts,
        `alignment_thresholds` how links are read from them, and `alignment_coefficients` what gold links taught.
        """
        config: Any = model.generation_config
        config.alignment_heads = [[head.layer, head.head] for head in self.heads]
        config.alignment_steps = [head.step for head in self.heads]
        config.alignment_weights = [round(weight, 4) for weight in self.weights]
        config.alignment_thresholds = asdict(self.how)
        config.alignment_coefficients = [round(each, 6) for each in self.learned]
        config._from_model_config = False  # or it is made anew when it is loaded


def saved_heads(model: PreTrainedModel) -> LinkHeads | None:
    """The heads that a model's generation config names, or None.

    Without `alignment_steps`, weights belong to the token that is predicted, as for Whisper.
    """
    config: Any = getattr(model, "generation_config", None)
    pairs = getattr(config, "alignment_heads", None)
    if not pairs:
        return None
    steps = getattr(config, "alignment_steps", None) or ["predicts"] * len(pairs)
    try:
        heads = tuple(Head(int(layer), int(head), step) for (layer, head), step in zip(pairs, steps, strict=True))
        if any(head.step not in STEPS for head in heads):
            raise ValueError(f"steps are {STEPS[0]!r} or {STEPS[1]!r}")
        weights = tuple(getattr(config, "alignment_weights", None) or ())
        how = Extraction(**(getattr(config, "alignment_thresholds", None) or {}))
        learned = tuple(getattr(config, "alignment_coefficients", None) or ())
        return LinkHeads(heads, "generation_config", weights=weights, how=how, learned=learned)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"generation_config.alignment_heads and what stands beside it cannot be read ({error}): give "
            "heads=..., or set alignment_heads to None to find heads anew."
        ) from error


def heads_to_dict(heads: LinkHeads) -> dict[str, Any]:
    """Link heads as JSON keeps them."""
    return {**asdict(heads), "heads": [list(head) for head in heads.heads]}


def heads_from_dict(content: Mapping[str, Any]) -> LinkHeads:
    """The link heads that `heads_to_dict` was given."""
    read = {"heads": tuple(Head(*head) for head in content["heads"])}
    read |= {name: tuple(content[name]) for name in ("weights", "learned")}
    return LinkHeads(**{**content, **read, "how": Extraction(**content["how"])})


def all_heads(blocks: Sequence[Attention]) -> tuple[Head, ...]:
    """Every head of these layers at both steps: the candidates."""
    return tuple(
        Head(layer, head, step)
        for layer, block in enumerate(blocks)
        for head in range(block.q.heads)
        for step in STEPS
    )


def require_heads(heads: Sequence[Head], blocks: Sequence[Attention]) -> None:
    """Raise where a model lacks one of these heads."""
    for head in heads:
        if not (0 <= head.layer < len(blocks) and 0 <= head.head < blocks[head.layer].q.heads):
            raise ValueError(
                f"The model has no {head}: it has {len(blocks)} layers with {blocks[0].q.heads} heads. Numbers count "
                "from 0 in Python and in generation_config."
            )

"""Rotary positions as tensors: by position, the features of a pair are turned by an angle."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """``y_j = cos_j x_j + sin_j x_partner(j)``, for each token.

    cos: [tokens, d]; sin: the same, with the sign of the partner's term; partner: [d].
    """

    cos: Tensor
    sin: Tensor
    partner: Tensor

    def turn(self, x: Tensor) -> Tensor:
        """[tokens, d] -> [tokens, d]"""
        return self.cos * x + self.sin * x[:, self.partner]


def of_all_heads(rotation: Rotation, heads: int) -> Rotation:
    """The rotation of heads side by side, from that of one."""
    width = len(rotation.partner)
    starts = torch.arange(heads, device=rotation.partner.device) * width
    partner = (starts[:, None] + rotation.partner).flatten()
    return Rotation(rotation.cos.repeat(1, heads), rotation.sin.repeat(1, heads), partner)

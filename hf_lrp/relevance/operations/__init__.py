"""Operations: how the relevance of their outputs goes back to their inputs.

Everything here works on plain tensors and knows no model. A rule (`hf_lrp.relevance.rules`) shares an output's
relevance out to its inputs by what they contribute, ``z_ij``. The contributions of each operation are those of Voita
et al. 2021, section 3, and what the same first-order expansion gives for operations that the paper's model lacks:

* linear: ``w_ji x_i + b_j / n``; logit: the same for one row of the output layer; convolution: for each window,
* layer norm: ``J_ji x_i + b_j / n`` with its full Jacobian J,
* RMS norm: ``J_ji x_i`` with its full Jacobian, see `rms_norm`,
* rotary positions: part of the linear layer or norm before them, see `rotation`,
* residual ``x + u``: ``x_i`` and ``u_i``, with parallel blocks three terms,
* product ``u * v``: ``u_i v_i`` from either factor, see `gated`,
* attention: its first-order expansion in queries, keys and values, see `attention`.

Totals are kept within a token (within a window for convolutions, within heads and over all heads for attention).

Shapes: relevance is ``[tokens, steps, features]``: all predictions ("steps") that are explained go back together, as
many right-hand sides of the same redistribution.
"""

from hf_lrp.models.rotation import Rotation
from hf_lrp.relevance.operations.attention_core import Core, attention
from hf_lrp.relevance.operations.attention_pairs import Pairs, attention_pairs
from hf_lrp.relevance.operations.joins import residual, sum_of
from hf_lrp.relevance.operations.linear_maps import convolution, gated, linear, logit
from hf_lrp.relevance.operations.norms import layer_norm, rms_norm
from hf_lrp.relevance.operations.rotation import rotated_linear, rotated_norm

__all__ = [
    "Core",
    "Pairs",
    "Rotation",
    "attention",
    "attention_pairs",
    "convolution",
    "gated",
    "layer_norm",
    "linear",
    "logit",
    "residual",
    "rms_norm",
    "rotated_linear",
    "rotated_norm",
    "sum_of",
]

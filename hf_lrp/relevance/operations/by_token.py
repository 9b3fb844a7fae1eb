"""Equation (1) for operations that work on single tokens, whose contributions are written block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hf_lrp.relevance.rules import Rule, conserve

# Contributions are built block by block. A block of this many elements stays in the cache of one CPU core, where
# building, summing and multiplying cost several times less than from memory.
CPU_BLOCK = 2**17
GPU_BLOCK = 2**26

# Writes the contributions of some tokens to a tensor z: [tokens, outputs, inputs].
Writer = Callable[[slice, Tensor], object]


def share_bias(rule: Rule, bias: Tensor, inputs: int) -> tuple[Tensor, Tensor | None]:
    """Bias that each input has, and bias that stands as an input of its own.

    An equal share would break the proportion of relevance and activation that rules which detach live on: for them
    the bias is one more input, whose relevance `conserve` gives to the others.
    """
    return (torch.zeros_like(bias), bias) if rule.detaches else (bias / inputs, None)


def redistribute(
    rule: Rule,
    build: Callable[[slice], Writer],
    constant: Tensor | None,
    relevance: Tensor,
    inputs: int,
    lag: int | None,
) -> Tensor:
    """Equation (1) for operations on single tokens whose contributions ``build(outputs)(tokens, z)`` writes to z.

    constant: [outputs] or [tokens, outputs], a contribution that belongs to no input.
    relevance: [tokens, steps, outputs] -> [tokens, steps, inputs]; z: [tokens, outputs, inputs] of the block.
    """
    tokens, steps, outputs = relevance.shape
    parts = rule.parts
    constant = None if constant is None else constant.expand(tokens, outputs)
    result = relevance.new_empty(tokens, steps, inputs) if lag is None else relevance.new_zeros(tokens, steps, inputs)
    block = _block_shape(outputs, inputs, relevance.device)
    buffer = relevance.new_empty(min(tokens, block.tokens), block.rows, inputs)
    chunks = _chunks(relevance, result, block, lag)
    for number, row in enumerate(range(0, outputs, block.rows)):
        rows = slice(row, min(row + block.rows, outputs))
        write = build(rows)
        for chunk in chunks:
            sent, z = chunk.sent[number], buffer
            if sent.shape != chunk.share.shape or len(sent) != len(buffer):
                z = buffer[: len(sent), : rows.stop - row]
            for part in parts:
                write(chunk.tokens, z)
                output = z.sum(-1) if part.of_sign else None
                part.phi_(z)
                total = z.sum(-1)
                if constant is not None:
                    alone = constant[chunk.tokens, rows]
                    total += part.phi(alone)
                    output = None if output is None else output + alone
                share = part.divide(sent, total, output, chunk.share if sent.shape == chunk.share.shape else None)
                chunk.received.baddbmm_(share, z, beta=0 if row == 0 and part is parts[0] else 1)
    for chunk in chunks:
        if chunk.steps.start:
            result[chunk.tokens, chunk.steps] = chunk.received
    conserve(rule, [result], relevance.sum(-1, keepdim=True))
    return result


class _Chunk(NamedTuple):
    """Tokens that are processed together, and the steps from which they carry relevance.

    sent: their relevance by blocks of outputs; received: that of their inputs; share: memory to divide in.
    """

    tokens: slice
    steps: slice
    sent: tuple[Tensor, ...]
    received: Tensor
    share: Tensor


def _chunks(relevance: Tensor, result: Tensor, block: _Block, lag: int | None) -> list[_Chunk]:
    tokens, steps, _ = relevance.shape
    memory = relevance.new_empty(min(tokens, block.tokens) * steps * block.rows)
    chunks = []
    for start in range(0, tokens, block.tokens):
        chunk = slice(start, min(start + block.tokens, tokens))
        live = slice(0 if lag is None else max(0, start - lag), steps)
        received = result[chunk] if live.start == 0 else result[chunk, live].clone()  # contiguous
        sent = relevance[chunk, live].split(block.rows, -1)
        chunks.append(_Chunk(chunk, live, sent, received, memory[: sent[0].numel()].view_as(sent[0])))
    return chunks


class _Block(NamedTuple):
    rows: int
    tokens: int


def _block_shape(outputs: int, inputs: int, device: torch.device) -> _Block:
    """How many outputs and how many tokens to build at a time."""
    cores, size = (torch.get_num_threads(), CPU_BLOCK) if device.type == "cpu" else (1, GPU_BLOCK)
    rows = max(1, min(outputs, size // inputs))
    return _Block(rows, cores * max(2, size // (rows * inputs)))  # at least two each, for fewer calls

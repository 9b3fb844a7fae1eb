"""Log-probabilities of many candidates of a source, with gradients, where equal beginnings are computed once.

The candidates of a source are the paths of a tree: a node is a beginning, and an edge is a token that follows it. The
decoder reads a tree as one row, each node seeing only the beginnings it continues, and gives the next token's
distribution at each node. Samples of a trained model have much in common, so that there are far fewer nodes than
tokens; and a source's keys and values serve all candidates of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from hf_lrp.models.configs import position_limit, require_start_token
from hf_lrp.training.minimum_risk.candidates import never_drawn

_ROW = 96  # nodes of a row, unless one candidate has more: longer rows share more, shorter ones attend to less
_EVEN = 0.9  # within a chunk, the shortest row has at least this share of the longest one's nodes,
_SMALL = 512  # unless the chunk has fewer nodes than this
_PARTS = 4  # if not all fits in memory, this share of it is for the chunk that is computed again


class Tree(NamedTuple):
    """Candidates of one source, as a row of the decoder. Node 0 is the empty beginning.

    ``inputs``, ``depths`` and ``parents`` of each node (the root is its own parent); ``edges``: a node and the token
    that follows it; ``paths``: the edges of each candidate; ``numbers``: its place among the source's candidates.
    """

    source: int
    inputs: list[int]
    depths: list[int]
    parents: list[int]
    edges: list[tuple[int, int]]
    paths: list[list[int]]
    numbers: list[int]


class Scores(NamedTuple):
    """Log-probabilities of candidates, their sources, and their places among the source's candidates, each [K]."""

    log_probabilities: Tensor
    source: Tensor
    number: Tensor


def score_candidates(
    model: PreTrainedModel, states: Tensor, mask: Tensor, candidates: Sequence[Sequence[Tensor]], *, chunk_tokens: int
) -> Scores:
    """Score every candidate but each source's first.

    ``states`` [sources, S, d] of the encoder with their ``mask`` [sources, S]; ``candidates``: for each source token
    ids [T]. Activations of at most ``chunk_tokens`` nodes are kept; those of further ones are computed again in the
    backward pass, a chunk at a time: memory grows no further, and gradients stay the same. In training mode, dropout
    is drawn once for each node, and not for each candidate that shares it.
    """
    shared = _can_share(model)
    limit = min(_ROW, position_limit(model) or _ROW, chunk_tokens) if shared else 0
    trees = [tree for source, rows in enumerate(candidates) for tree in grow_trees(source, rows, model, limit)]
    chunks, left = list(split_trees(trees, chunk_tokens)), chunk_tokens
    if sum(map(_size, chunks)) > chunk_tokens:
        part = chunk_tokens // _PARTS
        chunks, left = list(split_trees(trees, part)), chunk_tokens - part
    results = []
    for chunk in chunks:
        left -= _size(chunk)
        arguments = (model, states, mask, chunk, shared)
        if left >= 0:
            results.append(score_chunk(*arguments))
        else:  # keeps no activations, but computes them again, with the same dropout, in the backward pass
            results.append(checkpoint(score_chunk, *arguments, use_reentrant=False))
    places = [(tree.source, number) for chunk in chunks for tree in chunk for number in tree.numbers]
    source, number = torch.tensor(places, device=states.device, dtype=torch.long).view(-1, 2).unbind(1)
    return Scores(torch.cat([states.new_zeros(0), *results]), source, number)


def _can_share(model: PreTrainedModel) -> bool:
    """Whether nodes can be told their depth and what they see; if not, each candidate is a row of its own."""
    positions = isinstance(getattr(model.get_decoder(), "embed_positions", None), nn.Module)
    # older architectures, without a choice of attention, make their own masks
    return positions and model._supports_sdpa and model.config._attn_implementation in ("eager", "sdpa")


def grow_trees(source: int, candidates: Sequence[Tensor], model: PreTrainedModel, limit: int) -> Iterator[Tree]:
    """Trees of at most ``limit`` nodes, or of one candidate, of all candidates but the first.

    In the order of their ids, what a candidate shares with any earlier one it shares with the last one.
    """
    order = sorted((ids.tolist(), number) for number, ids in enumerate(candidates) if number > 0)
    tree: Tree | None = None
    before: tuple[list[int], ...] = ([], [], [])  # ids, nodes and edges of the last candidate
    for ids, number in order:
        common = _common(ids, before[0])
        nodes, edges = before[1][: common + 1], before[2][:common]
        if tree is None or len(tree.inputs) + len(ids) - len(nodes) > limit:
            if tree is not None:
                yield tree
            tree = Tree(source, [require_start_token(model)], [0], [0], [], [], [])
            nodes, edges = [0], []
        for depth in range(len(nodes), len(ids)):
            tree.inputs.append(ids[depth - 1])
            tree.depths.append(depth)
            tree.parents.append(nodes[-1])
            nodes.append(len(tree.inputs) - 1)
        for depth in range(len(edges), len(ids)):
            tree.edges.append((nodes[depth], ids[depth]))
            edges.append(len(tree.edges) - 1)
        tree.paths.append(edges)
        tree.numbers.append(number)
        before = (ids, nodes, edges)
    if tree is not None:
        yield tree


def _common(first: list[int], second: list[int]) -> int:
    """The number of tokens with which both begin."""
    same = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        same += 1
    return same


def split_trees(trees: Sequence[Tree], chunk_tokens: int) -> Iterator[list[Tree]]:
    """Chunks of at most so many nodes, padding included, from the largest tree to the smallest."""
    chunk: list[Tree] = []
    for tree in sorted(trees, key=lambda tree: len(tree.inputs), reverse=True):
        if chunk:
            longest = len(chunk[0].inputs)
            padded = len(tree.inputs) < _EVEN * longest and len(chunk) * longest >= _SMALL
            if padded or (len(chunk) + 1) * longest > chunk_tokens:
                yield chunk
                chunk = []
        chunk.append(tree)
    if chunk:
        yield chunk


def _size(chunk: Sequence[Tree]) -> int:
    """Its nodes, padding included."""
    return len(chunk) * len(chunk[0].inputs)


def score_chunk(model: PreTrainedModel, states: Tensor, mask: Tensor, trees: Sequence[Tree], shared: bool) -> Tensor:
    """Log-probabilities of the candidates of all trees, in their order."""
    source = torch.tensor([tree.source for tree in trees], device=states.device)
    inputs, depths, parents = (
        pad_sequence([torch.tensor(values) for values in rows], batch_first=True, padding_value=padding)
        for rows, padding in (
            ([tree.inputs for tree in trees], model.config.pad_token_id or 0),
            ([tree.depths for tree in trees], 0),
            ([tree.parents for tree in trees], 0),
        )
    )
    if shared:
        additive = model.config._attn_implementation == "eager"
        visible = _visible(depths, parents, additive=additive, dtype=states.dtype)
        options = {"decoder_attention_mask": visible.to(states.device)}
    else:
        # nothing reads source ids if there are encoder states, but without any FSMT lets tokens see the later ones
        options = {"input_ids": mask[source]}
    with _positions(model, depths) if shared else nullcontext():
        output = cast(Any, model)(
            encoder_outputs=(states[source],),
            attention_mask=mask[source],
            decoder_input_ids=inputs.to(states.device),
            use_cache=False,
            **options,
        )
    length = inputs.shape[1]
    edges = [(row * length + node, token) for row, tree in enumerate(trees) for node, token in tree.edges]
    node, token = torch.tensor(edges, device=states.device).unbind(1)
    found = edge_log_probabilities(output.logits.flatten(0, 1), node, token, never_drawn(model))
    return torch.cat([found, found.new_zeros(1)])[_paths(trees).to(states.device)].sum(-1)


@contextmanager
def _positions(model: PreTrainedModel, depths: Tensor) -> Iterator[None]:
    """The decoder embeds each node's depth [rows, nodes] as its position, and not its place in the row."""

    def choose(module: nn.Module, arguments: Any, embedded: Tensor) -> Tensor:
        rows, nodes = depths.shape
        embedded = embedded.reshape(-1, *embedded.shape[-2:]).expand(rows, -1, -1)
        if embedded.shape[1] != nodes:
            raise ValueError(
                f"The decoder's embed_positions ({type(module).__name__}) returned {embedded.shape[1]} positions for "
                f"{nodes} tokens, so this model's candidates cannot be scored."
            )
        return embedded[torch.arange(rows, device=embedded.device)[:, None], depths.to(embedded.device)]

    handle = cast(Any, model.get_decoder()).embed_positions.register_forward_hook(choose)
    try:
        yield
    finally:
        handle.remove()


def _visible(depths: Tensor, parents: Tensor, *, additive: bool, dtype: torch.dtype) -> Tensor:
    """Mask of what each node sees, [rows, 1, nodes, nodes]: itself and the nodes above it.

    True where it sees, or, if ``additive``, 0 there and the lowest number elsewhere.
    """
    rows, nodes = depths.shape
    mask = torch.eye(nodes, dtype=torch.bool).repeat(rows, 1, 1)
    for depth in range(1, int(depths.max()) + 1):
        row, node = (depths == depth).nonzero(as_tuple=True)
        mask[row, node] |= mask[row, parents[row, node]]
    if additive:
        return torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)[:, None]
    return mask[:, None]


def _paths(trees: Sequence[Tree]) -> Tensor:
    """The edges of each candidate among those of all trees, [candidates, T]; padded with the number of edges."""
    paths, edges = [], 0
    for tree in trees:
        paths += [torch.tensor(path) + edges for path in tree.paths]
        edges += len(tree.edges)
    return pad_sequence(paths, batch_first=True, padding_value=edges)


def edge_log_probabilities(logits: Tensor, node: Tensor, token: Tensor, excluded: int | None) -> Tensor:
    """Log-probability of each token [E] at its node [E], by logits [nodes, V], at least in float32.

    ``excluded``: a token that has no probability, as it is never drawn either.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return cast(Tensor, _LogProbabilities.apply(logits, node, token, excluded))


class _LogProbabilities(torch.autograd.Function):
    """As `log_softmax` and indexing, but with one tensor as large as the logits instead of two in the forward pass,
    and one instead of two in the backward pass: nothing else in a step is as large."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, node: Tensor, token: Tensor, excluded: int | None) -> Tensor:
        total = logits.logsumexp(-1)
        if excluded is not None:  # log(Σ - e^x) = log Σ + log(1 - e^(x - log Σ)), without another copy of the logits
            total = total + torch.log(-torch.expm1(logits[:, excluded] - total))
        ctx.save_for_backward(logits, total, node, token)
        ctx.excluded = excluded
        return logits[node, token] - total[node]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        logits, total, node, token = ctx.saved_tensors
        out = torch.zeros_like(total).index_add_(0, node, gradients[0])  # through each node
        result = (logits - total[:, None]).exp_().mul_(-out[:, None])
        if ctx.excluded is not None:
            result[:, ctx.excluded] = 0.0
        return result.index_put_((node, token), gradients[0], accumulate=True), None, None, None

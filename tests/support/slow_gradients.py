"""Gradients again, slowly: autograd through the whole model, one call for each step."""

from typing import Any

import torch
from torch import Tensor, nn

from hf_lrp.methods.method import Question


def slow_gradients(question: Question, explained: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """By source inputs and decoder embeddings, [T, n, features], and these inputs, [n, features].

    Features of sound are [positions, 2 bins]. explained: ids [T], or pairs whose difference is explained.
    """
    model, given = question.model, question.given[0]
    leaves: dict[str, Tensor] = {}

    def hook(side: str, ids: Tensor) -> Any:
        def swap(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
            wanted = isinstance(args[0], Tensor) and args[0].flatten().tolist() == ids.tolist()
            if side in leaves or not wanted:
                return None
            leaves[side] = output.detach().clone().requires_grad_()
            return leaves[side]

        return swap

    inputs: dict[str, Any] = {"use_cache": False}
    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    sides = {"decoder": given.ids}
    if not question.source:
        inputs["input_ids"] = given.ids[None]
    else:
        inputs["decoder_input_ids"] = given.ids[None]
        if "input_ids" in question.source:
            sides["source"] = question.source["input_ids"]
            inputs["input_ids"] = question.source["input_ids"][None]
        else:
            leaves["source"] = question.source["input_features"][None].clone().requires_grad_()
            inputs["input_features"] = leaves["source"]
    hooks = [module.register_forward_hook(hook(side, ids)) for side, ids in sides.items() for module in embeddings]
    logits = model(**inputs).logits[0, given.steps]
    for one in hooks:
        one.remove()
    chosen = logits.gather(1, explained.reshape(len(logits), -1))
    values = chosen[:, 0] - chosen[:, 1] if explained.dim() == 2 else chosen[:, 0]
    names = [name for name in ("source", "decoder") if name in leaves]
    rows = [torch.autograd.grad(value, [leaves[name] for name in names], retain_graph=True) for value in values]
    found = {name: torch.stack([row[i] for row in rows]) for i, name in enumerate(names)}

    def shaped(name: str, tensor: Tensor) -> Tensor:
        if name == "source" and "input_features" in question.source:
            bins, frames = tensor.shape[-2:]
            pairs = tensor.reshape(-1, bins, frames // 2, 2)
            return torch.stack([torch.cat([pair[..., 0].T, pair[..., 1].T], -1) for pair in pairs])
        return tensor.flatten(1, -2) if tensor.dim() == 4 else tensor

    results = []
    for name in ("source", "decoder"):
        if name not in found:
            results.append((torch.zeros(len(values), 0, 1), torch.zeros(1, 0, 1)))
            continue
        leaf = leaves[name].detach()
        leaf = leaf.transpose(0, 1) if model.config.model_type == "fsmt" and leaf.shape[1] == 1 else leaf
        results.append((shaped(name, found[name].view(len(values), *leaf.shape[-2:])), shaped(name, leaf)))
    (of_source, source), (of_decoder, decoder) = results
    return of_source, of_decoder, source[0], decoder[0]

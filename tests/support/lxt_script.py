"""Relevance by LXT, which changes classes of a whole process: `python lxt_script.py NAME OUT`, in one of its own.

LXT 2.1 was written for transformers 4. What it imports for BERT is gone, and its table of attention functions lacks a
method that version 5 calls; both are stood in for. Written: x times its gradient at the lowest layer's input, [T, D].
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import MagicMock

import torch
import transformers.pytorch_utils as gone
from safetensors.torch import save_file
from tiny_decoders import DECODERS, tiny_decoder
from tiny_models import random_ids
from tiny_questions import PROMPT

for name in ("apply_chunking_to_forward", "find_pruneable_heads_and_indices", "prune_linear_layer"):
    if not hasattr(gone, name):
        setattr(gone, name, None)

if find_spec("torchvision") is None:
    for name in ("torchvision", "torchvision.models", "torchvision.models.vision_transformer"):
        sys.modules[name] = MagicMock()

from lxt.efficient import monkey_patch  # noqa: E402


class Functions(dict):
    """Attention functions by name."""

    def get_interface(self, name: str, default: Any) -> Any:
        return self.get(name, default)


def main(name: str, out: str) -> None:
    family = DECODERS[name][0].removesuffix("_text")
    module = import_module(f"transformers.models.{family}.modeling_{family}")
    monkey_patch(module)
    module.ALL_ATTENTION_FUNCTIONS = Functions(module.ALL_ATTENTION_FUNCTIONS)
    model = tiny_decoder(name)
    model.set_attn_implementation("eager")
    entered: list[torch.Tensor] = []
    layers = next(m for m in model.modules() if type(m).__name__ == "ModuleList")

    def keep(layer: Any, args: Any, options: Any) -> None:
        entered.append(args[0] if args else options["hidden_states"])
        entered[0].retain_grad()

    layers[0].register_forward_pre_hook(keep, with_kwargs=True)
    ids = random_ids(7, seed=3)[None]
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, use_cache=False).logits[0, PROMPT - 1 :]
    rows = []
    for step in logits:
        entered[0].grad = None
        step.max().backward(retain_graph=True)
        rows.append((entered[0] * entered[0].grad)[0].sum(-1).detach())
    save_file({"relevance": torch.stack(rows)}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])

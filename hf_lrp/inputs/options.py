"""Options of explain: what they may be, and what a model must be like for them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from transformers import GenerationConfig, PreTrainedModel

from hf_lrp.inputs.ids import PREDICT
from hf_lrp.inputs.memory import require_whole
from hf_lrp.methods.lrp import LRP
from hf_lrp.methods.method import Method
from hf_lrp.relevance.rules import Rule
from hf_lrp.results.prefix_types import PREFIXES


def check_options(prefix: Any, predict: Any, start_token: Any, batch_size: Any, seed: Any) -> None:
    """Checks of options before a model is loaded."""
    if prefix is not None and prefix not in PREFIXES:
        raise ValueError(f"prefix must be one of {', '.join(PREFIXES)}, got {prefix!r}. Pass a text as target.")
    if predict is None or (isinstance(predict, str) and predict not in ("top1", "target")):
        raise ValueError(f"{PREDICT}, got {predict!r}.")
    if start_token not in ("exclude", "keep"):
        raise ValueError(f"start_token must be 'exclude' or 'keep', got {start_token!r}.")
    if batch_size is not None and require_whole("batch_size", batch_size) < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    if not 0 <= require_whole("seed", seed) < 2**63:
        raise ValueError(f"seed must be between 0 and 2**63 - 1, got {seed}.")


def read_method(method: Any, rule: Any) -> Method:
    """The method that is meant by two options, of which the second is the rule of LRP."""
    if method is None:
        return LRP() if rule is None else LRP(rule)
    if rule is not None:
        raise ValueError(f"method and rule are both given: rule={rule} is short for method=LRP({rule}). Give one.")
    if isinstance(method, Rule):
        raise TypeError(f"method must be a method such as ALTI(), got a rule: pass rule={method}.")
    if isinstance(method, type) or not callable(getattr(method, "explain", None)):
        raise TypeError(f"method must be a method such as ALTI() or LRP(), got {method!r}.")
    checked: Method = method
    return checked


def check_source_tokens(method: Method, source_tokens: bool) -> None:
    """Only LRP saves work where the source counts as one."""
    if not source_tokens and not isinstance(method, LRP):
        raise ValueError(f"source_tokens=False saves time with LRP only: leave it out with {method}.")


def check_inside_option(inside: Any, source_tokens: bool, method: Method) -> None:
    """Option `inside`: refused where the inside of a model cannot be kept."""
    if inside not in (True, False) and inside != "pairs":
        raise ValueError(f"inside must be True, False or 'pairs', got {inside!r}.")
    if not inside:
        return
    if not isinstance(method, LRP):
        raise ValueError(f"Only LRP passes through layers and heads, so {method} has no inside: leave inside out.")
    if not source_tokens:
        raise ValueError("inside needs the way through the encoder, which source_tokens=False leaves out: drop one.")
    if inside == "pairs" and not method.rule.keeps_sign:
        raise ValueError(
            f"inside='pairs' is for rules that keep the sign of relevance, such as AlphaBeta(1, 0): use inside=True "
            f"with {method.rule}."
        )


def check_prefix_targets(targets: Any) -> None:
    """The targets of `explain_prefixes`, by prefix type."""
    if not isinstance(targets, Mapping) or not targets:
        raise ValueError(
            "targets must give the targets of each prefix type, such as {'reference': [...], 'model': None}, "
            f"got {targets!r:.80}."
        )
    missing = [prefix for prefix, target in targets.items() if target is None and prefix != "model"]
    if missing:
        raise ValueError(f"targets[{missing[0]!r}] is None, but only 'model' can be generated: pass one per source.")


def check_spelling(options: Mapping[str, Any], model: PreTrainedModel, names: Iterable[str]) -> None:
    """Raise a TypeError for what `generate` does not know and what looks like one of these names of arguments."""
    known = {*GenerationConfig().to_dict(), *inspect.signature(getattr(model, "generate", check_use)).parameters}
    for option in options.keys() - known:
        if meant := difflib.get_close_matches(option, names, 1):
            raise TypeError(f"Unknown arguments: {option}. Did you mean {meant[0]}?")


def check_use(prefix: str, pool: Any, generate_options: dict[str, Any]) -> None:
    """Options that are of no use with this kind of prefix are refused."""
    unused = sorted(generate_options.keys() - {"forced_bos_token_id"})
    if unused and prefix != "model":
        raise TypeError(
            f"Unknown arguments: {', '.join(unused)}. (Options of `generate` other than forced_bos_token_id can be "
            "given with prefix='model' only.)"
        )
    if pool is not None and prefix != "random":
        raise ValueError(f"pool is for prefix='random', but prefix is {prefix!r}.")


def check_generation(options: Mapping[str, Any], vocabulary_size: int) -> None:
    """Checks of options that `generate` would answer with an error of torch, or take for another token."""
    beams = options.get("num_beams")
    if beams is not None and require_whole("num_beams", beams) < 1:
        raise ValueError(f"num_beams must be at least 1, got {beams}.")
    for name in ("forced_bos_token_id", "decoder_start_token_id"):
        token = options.get(name)
        if token is None:
            continue
        if not isinstance(token, (int, np.integer)) or isinstance(token, bool) or not 0 <= token < vocabulary_size:
            raise ValueError(
                f"{name} must be a token id of the target's vocabulary, 0 to {vocabulary_size - 1}, got {token!r}. "
                "tokenizer.convert_tokens_to_ids gives that of a language token."
            )


def require_no_forced_tokens(options: Mapping[str, Any]) -> None:
    """Raise for tokens that only the decoder of an encoder-decoder model is prompted with."""
    for name in ("forced_bos_token_id", "decoder_start_token_id"):
        if options.get(name) is not None:
            raise ValueError(f"{name} is for models with an encoder: write at the end of the prompt what comes first.")


def require_evaluation_mode(model: PreTrainedModel) -> None:
    if any(module.training for module in model.modules()):
        raise ValueError(
            "The model is in training mode, where dropout makes every forward pass different. Call model.eval() first."
        )


def require_generate(model: PreTrainedModel) -> None:
    if not model.can_generate():
        raise TypeError(
            f"{type(model).__name__} has no generate method, so it has no prefix of its own: pass a target."
        )


def require_no_prompt(model: PreTrainedModel, prompt: Any) -> None:
    """Raise where a prompt is given for a model that has an encoder."""
    if prompt is not None:
        raise ValueError(f"{type(model).__name__} has an encoder for its source: prompt is for models without one.")

"""Contributions of a fixed sample while a model trains."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, TrainerCallback

from hf_lrp.data.files import write_atomically
from hf_lrp.explaining.explainer import explain
from hf_lrp.models.adapters import merge_adapters
from hf_lrp.results.contributions import Contributions
from hf_lrp.results.prefix_types import PREFIXES, PrefixName
from hf_lrp.results.quantities import defined_mean
from hf_lrp.training.minimum_risk.candidates import evaluating
from hf_lrp.training.sharding import require_whole_parameters


class ContributionCallback(TrainerCallback):
    """Logs R(source) and the entropies of source and target contributions on a fixed sample, by prefix type.

    Values go to whatever the Trainer reports to, as `contributions/<prefix>/<quantity>`, and to a JSON-lines file for
    the figure of training stages. After resuming, lines of steps that are trained again are replaced. Contributions
    are computed in float32, whatever training runs in; adapters are merged in a copy.

    Args:
        trainer: the trainer whose model is looked at.
        sources, targets: the sample, texts or token ids.
        every: steps between two looks; there is also one before the first step and one after the last.
        prefixes: prefix types.
        path: the JSON-lines file; default: `contributions.jsonl` in the trainer's output folder.
        source_tokens: False leaves the entropy of the source out, which takes about half the time.
    """

    def __init__(
        self,
        trainer: Any,
        sources: Sequence[Any],
        targets: Sequence[Any],
        *,
        every: int = 500,
        prefixes: Sequence[PrefixName] = PREFIXES,
        path: Path | None = None,
        source_tokens: bool = True,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}.")
        if len(sources) != len(targets) or len(sources) < 2:
            raise ValueError(
                f"The sample needs at least two sentence pairs; got {len(sources)} sources, {len(targets)} targets."
            )
        require_whole_parameters(trainer, "Looking at contributions while training")
        self._trainer, self._every, self._prefixes = trainer, every, tuple(prefixes)
        self._sources, self._targets, self._source_tokens = list(sources), list(targets), source_tokens
        self._latest: int | None = None  # the step of the latest look
        self._path = Path(trainer.args.output_dir) / "contributions.jsonl" if path is None else path

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self._keep_until(state.global_step)
        if state.global_step == 0:
            self._look(state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self._every == 0 or state.global_step == state.max_steps:
            self._look(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if control.should_training_stop and self._latest != state.global_step:  # stopped early
            self._look(state, control)

    def _look(self, state: Any, control: Any) -> None:
        values = self._measure() if state.is_world_process_zero else {}
        if state.is_world_process_zero:
            self._write([*self._lines(), {"step": state.global_step, "epoch": state.epoch or 0.0, **values}])
        should_log = control.should_log
        self._trainer.log({f"contributions/{name}": value for name, value in values.items()})
        control.should_log = should_log  # this step's loss is still to be logged
        self._latest = state.global_step

    def _measure(self) -> dict[str, float]:
        """By prefix type and quantity, averages over sentences of averages over steps from the second on."""
        model, tokenizer = self._trainer.model, self._trainer.processing_class
        results = {}
        with evaluating(model), _without_autocast(model), torch.random.fork_rng():
            model = merge_adapters(model)
            for prefix in self._prefixes:
                targets = None if prefix == "model" else self._targets
                options: dict[str, Any] = {"num_beams": 1} if prefix == "model" else {}
                options |= {"source_tokens": self._source_tokens}
                results[prefix] = explain(model, tokenizer, self._sources, targets, prefix=prefix, **options)
        quantities = ("source_total", *(("source_entropy",) if self._source_tokens else ()), "target_entropy")
        return {f"{prefix}/{name}": v for prefix, r in results.items() for name, v in _means(r, quantities).items()}

    def _keep_until(self, step: int) -> None:
        lines = self._lines()
        if any(line["step"] > step for line in lines):
            self._write([line for line in lines if line["step"] <= step])

    def _lines(self) -> list[dict[str, float]]:
        if not self._path.is_file():
            return []
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]

    def _write(self, lines: list[dict[str, float]]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, "".join(json.dumps(line) + "\n" for line in lines).encode())


@contextmanager
def _without_autocast(model: PreTrainedModel) -> Iterator[None]:
    """The model's own forward pass inside, not that of mixed precision, which Accelerate puts on the model itself."""
    wrapped: dict[str, Any] = {
        name: vars(model).pop(name) for name in ("forward", "_original_forward") if name in vars(model)
    }
    try:
        with torch.autocast(model.device.type, enabled=False):
            yield
    finally:
        vars(model).update(wrapped)


def _means(results: Sequence[Contributions], quantities: Sequence[str]) -> dict[str, float]:
    means = [c.mean() for c in results]
    found = {name: float(defined_mean(np.array([mean[name] for mean in means]))) for name in quantities}
    return {name: value for name, value in found.items() if not math.isnan(value)}

"""Error rates of word links by ALTI+ and by attention, layer by layer and of all layers: where do they link?

    python recipes/referee/link_layers.py --place opus-mt-zh-en=FOLDER --place links-zh-en=FILE ... --output OUT

The published figures of ALTI+ for German-English are of one layer's cross-attention, read where the decoder reads a
word, and of contributions through the whole model. Takes the options of referee.py; writes OUT/link_layers.json: by
subject, reading and step, the error rate over all pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from judgement.measures import alignment_error_rate
from referee import benches_of, read_options
from trials.bench import Bench
from trials.contestants import explain
from trials.links import STEPS, GoldPairs

from hf_lrp.data.json_files import write_json
from hf_lrp.methods import ALTI, Attention, Method
from hf_lrp.models.exchange import read_plain_network


def main(arguments: list[str] | None = None) -> None:
    """Measure all subjects that have a place and gold links."""
    args = read_options(__doc__ or "", arguments)
    benches = [bench for bench in benches_of(args) if bench.subject.gold is not None]
    write_json(args.output / "link_layers.json", {bench.subject.name: measure(bench) for bench in benches})


def measure(bench: Bench) -> dict[str, dict[str, float]]:
    """By reading, the error rate of each step."""
    subject, gold = bench.subject, GoldPairs(bench.subject)
    rows: dict[str, list[Any]] = {}
    for number in range(len(gold.pairs)):
        text, target = gold.texts(number)
        for name, method in _readings(subject.explainer.model).items():
            result = explain(subject.explainer, method, text, target, subject.prompt)
            rows.setdefault(name, []).append(gold.count(number, result.source))
    everything = np.arange(len(gold.pairs))
    return {
        name: {step: alignment_error_rate()([one[step] for one in found])(everything) for step in STEPS}
        for name, found in rows.items()
    }


def _readings(model: Any) -> dict[str, Method]:
    """ALTI+ and attention, of each layer and of all."""
    network = read_plain_network(model)
    found: dict[str, Method] = {"ALTI+, all layers": ALTI(), "attention, all layers": Attention()}
    for number in range(len(network.decoder.layers)):
        found[f"ALTI+, layer {number + 1}"] = ALTI(layer=number)
        heads = tuple((number, head) for head in range(model.config.decoder_attention_heads))
        found[f"attention, layer {number + 1}"] = Attention(heads=heads)
    return found


if __name__ == "__main__":
    main()

"""How much a translation model's predictions depend on the source, as an `evaluate` metric."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate
import numpy as np

import hf_lrp

_DESCRIPTION = """
The share of the source sentence, as opposed to the prefix that is already written, in each prediction of a translation
model, by layer-wise relevance propagation (Voita, Sennrich and Titov, 2021); and over how many tokens the
contributions of source and prefix spread, as entropies. It describes a model on given translations; it is no measure
of their quality.
"""

_CITATION = """
@inproceedings{voita-etal-2021-analyzing,
    title = "Analyzing the Source and Target Contributions to Predictions in Neural Machine Translation",
    author = "Voita, Elena and Sennrich, Rico and Titov, Ivan",
    booktitle = "Proceedings of the 59th Annual Meeting of the Association for Computational Linguistics",
    year = "2021",
    url = "https://aclanthology.org/2021.acl-long.91",
}
"""

_INPUTS = """
Args:
    predictions: translations, as text.
    sources: source sentences, as text, one per translation.
    model: an encoder-decoder model in evaluation mode, or the folder or Hub id of one.
    tokenizer: the model's tokenizer; needed where `model` is not a name.
    predict: "top1" explains the most probable token of each step (the paper), "target" the translation's own.
    progress: show a progress bar.
    source_tokens: False leaves source_entropy out, which takes about half the time.
Returns:
    source_contribution: mean of R_t(source), between 0 and 1.
    source_entropy: mean entropy of the source tokens' contributions, in nats.
    target_entropy: mean entropy of the prefix tokens' contributions, in nats.
    Means are over the steps of a sentence from the second on, then over sentences: at the first step there is no
    prefix, and R(source) is always 1.
Examples:
    >>> metric = evaluate.load(path)
    >>> metric.compute(predictions=["Le chat dort."], sources=["The cat sleeps."], model="path/to/model")
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _INPUTS)
class SourceContribution(evaluate.Metric):
    """R(source) and entropies of contributions, for a model and translations."""

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": text, "sources": text}),
            reference_urls=["https://aclanthology.org/2021.acl-long.91"],
        )

    def _compute(
        self,
        predictions: list[str],
        sources: list[str],
        model: Any = None,
        tokenizer: Any = None,
        predict: str = "top1",
        progress: bool = False,
        source_tokens: bool = True,
    ) -> dict[str, float]:
        from hf_lrp.models.loading import load_checkpoint

        if model is None or (tokenizer is None and not isinstance(model, str)):
            raise ValueError("Give the model to explain: model=..., tokenizer=..., or its folder or Hub id as model.")
        if isinstance(model, str):
            model, own_tokenizer = load_checkpoint(model)
            tokenizer = tokenizer or own_tokenizer
        results = hf_lrp.explain(
            model,
            tokenizer,
            list(sources),
            list(predictions),
            predict=predict,
            progress=progress,
            source_tokens=source_tokens,
        )
        values = {"source_contribution": _mean([result.source_total for result in results])}
        if source_tokens:
            values["source_entropy"] = _mean([result.source_entropy for result in results])
        return values | {"target_entropy": _mean([result.target_entropy for result in results])}


def _mean(curves: list[Any]) -> float:
    """The mean over sentences of the means over steps; nan if nothing is defined, as for one-token translations."""
    from hf_lrp.results.quantities import defined_mean, mean_over_steps

    return float(defined_mean(np.array([mean_over_steps(curve) for curve in curves])))

"""BLEU and chrF of translations of held-out sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers import EvalPrediction, PreTrainedTokenizerBase

from hf_lrp.models.configs import IGNORED_LABEL


def corpus_scores(translations: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Corpus `bleu` and `chrf` by sacrebleu, out of 100, and the `signature` of BLEU."""
    try:
        import sacrebleu
    except ImportError as error:
        raise ImportError('BLEU and chrF come from sacrebleu: install the extra "train" of hf-lrp.') from error
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    return {
        "bleu": bleu.corpus_score(translations, [references]).score,
        "chrf": chrf.corpus_score(translations, [references]).score,
        "signature": str(bleu.get_signature()),
    }


class TranslationScores:
    """BLEU and chrF as `compute_metrics` of a trainer with `predict_with_generate`: `eval_bleu`, `eval_chrf`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Scores of generated ids [sentences, T] against labels [sentences, T], both padded."""
        written = prediction.predictions
        texts = [
            self._decode(ids) for ids in (written[0] if isinstance(written, tuple) else written, prediction.label_ids)
        ]
        scores = corpus_scores(*texts)
        return {name: scores[name] for name in ("bleu", "chrf")}

    def _decode(self, ids: Any) -> list[str]:
        rows = np.where(np.asarray(ids) == IGNORED_LABEL, self._tokenizer.pad_token_id, ids)
        return [text.strip() for text in self._tokenizer.batch_decode(rows, skip_special_tokens=True)]

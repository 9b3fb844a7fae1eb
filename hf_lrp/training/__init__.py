"""Training of translation models: maximum likelihood, word dropout, minimum risk."""

from typing import TYPE_CHECKING

from hf_lrp.lazy import lazy_names

if TYPE_CHECKING:
    from hf_lrp.data.pairs import hold_out, load_pairs, nested_subset
    from hf_lrp.models.checkpoints import last_whole_checkpoint, latest_checkpoints
    from hf_lrp.training.arguments import TranslationTrainingArguments
    from hf_lrp.training.averaging import average_checkpoints
    from hf_lrp.training.encoding import encode_pairs
    from hf_lrp.training.minimum_risk.arguments import MinimumRiskTrainingArguments
    from hf_lrp.training.minimum_risk.risks import Risk, TextRisk, negative_sentence_bleu
    from hf_lrp.training.minimum_risk.trainer import MinimumRiskTrainer
    from hf_lrp.training.monitoring import ContributionCallback
    from hf_lrp.training.scores import TranslationScores
    from hf_lrp.training.tokenization import train_tokenizer, translation_config
    from hf_lrp.training.trainer import TranslationTrainer, is_finished

__all__ = [
    "ContributionCallback",
    "MinimumRiskTrainer",
    "MinimumRiskTrainingArguments",
    "Risk",
    "TextRisk",
    "TranslationScores",
    "TranslationTrainer",
    "TranslationTrainingArguments",
    "average_checkpoints",
    "encode_pairs",
    "hold_out",
    "is_finished",
    "last_whole_checkpoint",
    "latest_checkpoints",
    "load_pairs",
    "negative_sentence_bleu",
    "nested_subset",
    "train_tokenizer",
    "translation_config",
]

# Imported on first use, with torch and transformers.
_MODULES = {
    "ContributionCallback": "training.monitoring",
    "MinimumRiskTrainer": "training.minimum_risk.trainer",
    "MinimumRiskTrainingArguments": "training.minimum_risk.arguments",
    "Risk": "training.minimum_risk.risks",
    "TextRisk": "training.minimum_risk.risks",
    "TranslationScores": "training.scores",
    "TranslationTrainer": "training.trainer",
    "TranslationTrainingArguments": "training.arguments",
    "average_checkpoints": "training.averaging",
    "encode_pairs": "training.encoding",
    "hold_out": "data.pairs",
    "is_finished": "training.trainer",
    "last_whole_checkpoint": "models.checkpoints",
    "latest_checkpoints": "models.checkpoints",
    "load_pairs": "data.pairs",
    "negative_sentence_bleu": "training.minimum_risk.risks",
    "nested_subset": "data.pairs",
    "train_tokenizer": "training.tokenization",
    "translation_config": "training.tokenization",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)

"""A word-level tokenizer for the vocabulary of the tiny models: 40 ids, eos 1, padding 39."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

WORDS = "the a cat dog house street sees eats is was big small red blue in on and not he she they we it Peter".split()


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Splits at spaces and appends the end of the sentence."""
    vocabulary = {"<unk>": 0, "</s>": 1, "<pad>": 39} | {f"▁{word}": i for i, word in enumerate(WORDS, 2)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", eos_token="</s>", pad_token="<pad>", model_max_length=32
    )

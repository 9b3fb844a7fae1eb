"""A tokenizer for decoder-only models: one token per word or mark."""

from tiny_models import VOCABULARY
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = "first </s> <pad> cat dog the write it a b : ; = < > user me".split()


def word_tokenizer(chat_template: str | None = None) -> PreTrainedTokenizerFast:
    """Words of `WORDS` and no others; as many tokens as the tiny models have."""
    known = [*WORDS, *(f"word{i}" for i in range(len(WORDS), VOCABULARY))]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="first"))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated")]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", pad_token="<pad>", unk_token="first")
    tokenizer.chat_template = chat_template
    return tokenizer

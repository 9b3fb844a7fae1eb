"""What is measured: a model in the size of the paper's, and sentences of random tokens. Nothing of hf_lrp."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

VOCABULARY = 32_000
BART_LIKE = ("marian", "bart", "plbart", "blenderbot-small", "pegasus", "mbart", "m2m_100", "blenderbot")
OTHERS = ("fsmt", "t5", "mt5", "umt5")


def transformer_base(family: str = "marian") -> PreTrainedModel:
    """Random weights in the size of the paper's model, with biases that are not zero."""
    torch.manual_seed(0)
    stacks = {"layers": 6, "ffn_dim": 2048, "attention_heads": 8}
    names = {
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in stacks.items()},
        **{"max_position_embeddings": 512, "activation_function": "relu", "scale_embedding": True, "dropout": 0.0},
        **{"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY, "langs": ["en", "fr"]},  # of FSMT
        **{"num_layers": 6, "num_decoder_layers": 6, "d_ff": 2048, "num_heads": 8, "d_kv": 64},  # of T5
    }
    tokens = {"pad_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 0, "bos_token_id": 0}
    known = AutoConfig.for_model(family).to_dict()
    sizes = {name: size for name, size in names.items() if name in known}
    config = AutoConfig.for_model(family, vocab_size=VOCABULARY, d_model=512, **tokens, **sizes)
    model = AutoModelForSeq2SeqLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, 0.02)
    return model.eval()


def load_model(checkpoint: str | None) -> PreTrainedModel:
    """Transformer base, or a checkpoint in float32."""
    if checkpoint is None:
        return transformer_base()
    return AutoModelForSeq2SeqLM.from_pretrained(checkpoint, dtype=torch.float32, trust_remote_code=False).eval()


def random_sentence(length: int, seed: int) -> Tensor:
    """Ids [length] from the lower part of the vocabulary, where special tokens are few."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(10, VOCABULARY - 10, (length,), generator=generator)


def random_text(tokenizer: PreTrainedTokenizerBase, length: int, seed: int) -> tuple[str, Tensor]:
    """A text that the tokenizer takes apart into exactly ``length`` ids, and those ids."""
    pieces = [piece[1:] for piece in tokenizer.get_vocab() if piece.startswith("▁")]
    words = [piece for piece in pieces if piece.isascii() and piece.isalpha()][:5000]
    whole = [word for word, ids in zip(words, tokenizer(words).input_ids, strict=True) if len(ids) == 2]
    drawn = torch.randint(len(whole), (length - 1,), generator=torch.Generator().manual_seed(seed)).tolist()
    text = " ".join(whole[i] for i in drawn)
    return text, torch.tensor(tokenizer(text).input_ids)

"""Vocabularies of translation models: training them, and model configurations that fit them."""

from __future__ import annotations

import io
import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    MarianConfig,
    MarianTokenizer,
    PegasusConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    Pairs: TypeAlias = Dataset | IterableDataset

PAD, EOS, UNK = SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>")  # their ids are 0, 1, 2 in every vocabulary
CHARACTER_COVERAGE = 0.99999  # of the text; rarer characters are unknown
_FOLDERS: list[TemporaryDirectory] = []  # Marian's tokenizer reads its files again whenever it is copied


def train_tokenizer(pairs: Pairs, vocab_size: int, *, joint: bool = True) -> PreTrainedTokenizerBase:
    """A BPE tokenizer with at most `vocab_size` pieces, for both languages (`joint`) or for each of them.

    Text is normalised (NFC, one kind of space and of apostrophe), `▁` marks a space before a piece, punctuation
    stays apart from words. A sentence ends with `</s>`; padding also starts the decoder, as Marian has it.
    The same pairs give the same files; `save_pretrained` writes them, `AutoTokenizer` reads them.

    With `joint=False`, `tokenizer(text=...)` and `tokenizer(text_target=...)` use a vocabulary each, and decoding that
    of the target. No tokenizer made of the `tokenizers` library has two vocabularies, so this is Marian's own
    tokenizer, whose pieces are sentencepiece's; its BPE splits at the same places.
    """
    if joint:
        return _joint_tokenizer(pairs, vocab_size)
    return _separate_tokenizer(pairs, vocab_size)


def translation_config(
    tokenizer: PreTrainedTokenizerBase,
    *,
    d_model: int = 512,
    layers: int = 6,
    heads: int = 8,
    ffn_dim: int = 2048,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    activation_dropout: float = 0.0,
    norm: Literal["post", "pre"] = "post",
    max_length: int = 512,
) -> MarianConfig | PegasusConfig:
    """A Transformer of the paper's kind for this tokenizer: of base size unless told otherwise, with ReLU.

    `layers` and `heads` are those of the encoder and again of the decoder; `max_length` is the number of positions.
    The decoder's embeddings are those of the output, and with a joint vocabulary also those of the encoder.
    `norm="post"` has layer norms after each residual sum, as Marian's classes; `"pre"` before each block, and at the
    end of both stacks, as Pegasus's. `AutoModelForSeq2SeqLM.from_config` makes a model of either.
    """
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    if pad is None or eos is None:
        raise ValueError("The tokenizer needs a padding token and an end-of-sentence token.")
    if d_model % heads or d_model % 2:
        raise ValueError(f"d_model={d_model} must be even, and a multiple of heads={heads}.")
    if norm not in ("post", "pre"):
        raise ValueError(f"norm must be 'post' or 'pre', got {norm!r}.")
    shared: dict[str, Any] = dict(
        tie_word_embeddings=True,
        d_model=d_model,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=ffn_dim,
        decoder_ffn_dim=ffn_dim,
        activation_function="relu",
        dropout=dropout,
        attention_dropout=attention_dropout,
        activation_dropout=activation_dropout,
        scale_embedding=True,
        init_std=d_model**-0.5,  # scaled embeddings start as large as the sinusoidal positions
        max_position_embeddings=max_length,
        pad_token_id=pad,
        eos_token_id=eos,
        decoder_start_token_id=pad,
        forced_eos_token_id=eos,
    )
    separate = getattr(tokenizer, "separate_vocabs", False)
    if norm == "pre":
        if separate:
            raise ValueError(
                "Pre-norm models, of Pegasus's classes, have one vocabulary: train a joint tokenizer (joint=True)."
            )
        return PegasusConfig(vocab_size=len(tokenizer), **shared)
    sizes = [len(tokenizer.encoder), len(tokenizer.target_encoder)] if separate else [len(tokenizer)] * 2
    return MarianConfig(
        vocab_size=sizes[0],
        decoder_vocab_size=sizes[1],
        share_encoder_decoder_embeddings=not separate,
        **shared,
    )


def _texts(pairs: Pairs, sides: Sequence[str]) -> Iterator[str]:
    for batch in pairs.iter(batch_size=1000):
        for side in sides:
            yield from (text for text in batch[side] if text)


def _joint_tokenizer(pairs: Pairs, vocab_size: int) -> PreTrainedTokenizerFast:
    sides = ("source", "target")
    backend = Tokenizer(models.BPE(unk_token=UNK))
    backend.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace(Regex(r"[\s\u00a0\u2009\u202f]+"), " "),
            normalizers.Replace("’", "'"),
            normalizers.Strip(),
        ]
    )
    word_or_mark = Regex(r"▁?(?:[\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}▁])")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Split(word_or_mark, "isolated")]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    alphabet = _alphabet(_texts(pairs, sides), backend.normalizer, vocab_size)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),  # left to itself, the trainer chooses among equally rare characters at random
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    backend.train_from_iterator(_texts(pairs, sides), trainer)
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A $B {EOS}", special_tokens=[(EOS, backend.token_to_id(EOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=EOS,
        unk_token=UNK,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,  # French has a space before ? and !
    )


def _alphabet(texts: Iterator[str], normalizer: Any, vocab_size: int) -> list[str]:
    """The most frequent characters that make up the text but for a tiny share, and the mark of a space."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    counts.pop(" ", None)
    if not counts:
        raise ValueError("There is no text to train a tokenizer on.")
    left, enough = counts.total(), (1 - CHARACTER_COVERAGE) * counts.total()
    kept = {"▁"}
    for char, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if left <= enough:
            break
        kept.add(char)
        left -= count
    if len(kept) + len(SPECIAL_TOKENS) > vocab_size:
        raise ValueError(f"vocab_size={vocab_size} is too small: the text has {len(kept)} characters to distinguish.")
    return sorted(kept)


def _separate_tokenizer(pairs: Pairs, vocab_size: int) -> MarianTokenizer:
    folder = TemporaryDirectory(prefix="hf-lrp-tokenizer-")
    _FOLDERS.append(folder)
    files = {}
    for side, vocabulary in (("source", "vocab"), ("target", "target_vocab")):
        model, pieces = _sentencepiece(_texts(pairs, [side]), vocab_size)
        files[side], files[vocabulary] = Path(folder.name, f"{side}.spm"), Path(folder.name, f"{vocabulary}.json")
        files[side].write_bytes(model)
        files[vocabulary].write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}), encoding="utf-8")
    return MarianTokenizer(
        source_spm=str(files["source"]),
        target_spm=str(files["target"]),
        vocab=str(files["vocab"]),
        target_vocab_file=str(files["target_vocab"]),
        separate_vocabs=True,
        clean_up_tokenization_spaces=False,
    )


def _sentencepiece(texts: Iterator[str], vocab_size: int) -> tuple[bytes, list[str]]:
    """A sentencepiece model and its pieces in the order of their ids."""
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError("One vocabulary per side needs sentencepiece: pip install sentencepiece") from error
    model = io.BytesIO()
    with TemporaryDirectory() as folder:
        rules = Path(folder, "rules".ljust(200 - len(folder.encode()), "_"))
        rules.write_text(_normalisation_rules(), encoding="ascii")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=texts,
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=CHARACTER_COVERAGE,
            normalization_rule_tsv=str(rules),
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            max_sentence_length=2**20,
            minloglevel=2,
        )
    # the model names the file that its rules came from: the same name for the same files wherever it is trained
    content = model.getvalue().replace(str(rules).encode(), b"rules".ljust(len(str(rules).encode()), b"_"))
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    return content, [processor.id_to_piece(i) for i in range(len(processor))]


def _normalisation_rules() -> str:
    """NFC, one kind of space and of apostrophe, as sentencepiece reads it: code points, tab, code points."""
    rules = {"’": "'"}
    for char in map(chr, range(sys.maxunicode + 1)):
        composed, decomposed = unicodedata.normalize("NFC", char), unicodedata.normalize("NFD", char)
        if decomposed != composed and not "가" <= char <= "힣":  # Korean has 11,172, and is written composed
            rules[decomposed] = composed
        if composed != char:
            rules[char] = composed
        if char.isspace():
            rules[char] = " "
    del rules[" "]
    sides = ([" ".join(f"{ord(char):X}" for char in side) for side in rule] for rule in sorted(rules.items()))
    return "".join(f"{before}\t{after}\n" for before, after in sides)

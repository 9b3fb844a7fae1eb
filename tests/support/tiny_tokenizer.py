"""Tiny tokenizers: one for the vocabulary of the tiny models, and those of families that decorate their texts."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.models.mbart import tokenization_mbart
from transformers.models.mbart50 import tokenization_mbart50
from transformers.models.whisper.tokenization_whisper import LANGUAGES

WORDS = "the a cat dog house street sees eats is was big small red blue in on and not he she they we it Peter".split()
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Splits at spaces and appends the end of the sentence: 40 ids, eos 1, padding 39."""
    vocabulary = {"<unk>": 0, "</s>": 1, "<pad>": 39} | {f"▁{word}": i for i, word in enumerate(WORDS, 2)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", eos_token="</s>", pad_token="<pad>", model_max_length=32
    )


def marian(folder: Path, *, separate: bool = False) -> PreTrainedTokenizerBase:
    """`X </s>`, with pieces of sources and targets cut in different ways, and one or two vocabularies."""
    files = [_sentencepiece(folder, "source", 60), _sentencepiece(folder, "target", 40)]
    both = [sentencepiece.SentencePieceProcessor(model_file=file) for file in files]
    source, target = ([model.id_to_piece(i) for i in range(3, len(model))] for model in both)
    for name, pieces in (("vocab", [*source, *(() if separate else target)]), ("target_vocab", target[::-1])):
        numbered = dict.fromkeys(["</s>", "<unk>", *pieces, "<pad>"])
        (folder / f"{name}.json").write_text(json.dumps({piece: i for i, piece in enumerate(numbered)}))
    options = {"separate_vocabs": True, "target_vocab_file": str(folder / "target_vocab.json")} if separate else {}
    return transformers.MarianTokenizer(*files, str(folder / "vocab.json"), **options)


def bart() -> PreTrainedTokenizerBase:
    """`<s> X </s>`."""
    return transformers.BartTokenizer(**_bpe((*FAIRSEQ, "<mask>"), "Ġ", first_marked=False))


def mbart25(tgt_lang: str | None = "fr_XX") -> PreTrainedTokenizerBase:
    """`X </s> [language]` on both sides."""
    vocabulary = _unigram(FAIRSEQ, (*tokenization_mbart.FAIRSEQ_LANGUAGE_CODES, "<mask>"))
    return transformers.MBartTokenizer(vocab=vocabulary, src_lang="en_XX", tgt_lang=tgt_lang)


def mbart50(tgt_lang: str | None = "fr_XX") -> PreTrainedTokenizerBase:
    """`[language] X </s>` on both sides, as of the next two."""
    vocabulary = _unigram(FAIRSEQ, (*tokenization_mbart50.FAIRSEQ_LANGUAGE_CODES, "<mask>"))
    return transformers.MBart50Tokenizer(vocab=vocabulary, src_lang="en_XX", tgt_lang=tgt_lang)


def nllb(tgt_lang: str | None = "fra_Latn") -> PreTrainedTokenizerBase:
    languages = ["eng_Latn", "fra_Latn", "deu_Latn"]
    return transformers.NllbTokenizer(
        **_bpe(FAIRSEQ), src_lang="eng_Latn", tgt_lang=tgt_lang, extra_special_tokens=languages
    )


def m2m100(folder: Path, tgt_lang: str | None = "de") -> PreTrainedTokenizerBase:
    model = _sentencepiece(folder)
    pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    vocabulary = [*FAIRSEQ, *(pieces.id_to_piece(i) for i in range(3, len(pieces)))]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
    languages = {"src_lang": "en", "tgt_lang": tgt_lang, "language_codes": "wmt21"}
    return transformers.M2M100Tokenizer(str(folder / "vocab.json"), model, **languages)


def plbart(folder: Path, tgt_lang: str | None = "en_XX") -> PreTrainedTokenizerBase:
    """`X </s> [language]` on both sides."""
    return transformers.PLBartTokenizer(_sentencepiece(folder), src_lang="python", tgt_lang=tgt_lang)


def seamless() -> PreTrainedTokenizerBase:
    """`[language] X </s>`, and `</s> [language] X </s>` for targets."""
    languages = ["__eng__", "__fra__", "__deu__"]
    return transformers.SeamlessM4TTokenizer(
        **_bpe(("<pad>", "<unk>", "<s>", "</s>")), src_lang="eng", tgt_lang="fra", additional_special_tokens=languages
    )


def t5() -> PreTrainedTokenizerBase:
    """`X </s>`, and sentinels, which are special but no language tokens."""
    return transformers.T5Tokenizer(vocab=_unigram(("<pad>", "</s>", "<unk>"), ()), extra_ids=3)


def fsmt(folder: Path) -> PreTrainedTokenizerBase:
    """`X </s>`, with two vocabularies that share no id but those of special tokens."""
    pieces = [*(f"{word}</w>" for word in WORDS), *sorted({char for word in WORDS for char in word})]
    merges = [merge for word in WORDS for merge in _merges([*word[:-1], f"{word[-1]}</w>"])]
    for name, order in (("src", pieces), ("tgt", ["unused", *reversed(pieces)])):
        numbered = {piece: i for i, piece in enumerate((*FAIRSEQ, *order))}
        (folder / f"{name}.json").write_text(json.dumps(numbered))
    (folder / "merges.txt").write_text("".join(f"{a} {b} 1\n" for a, b in dict.fromkeys(merges)))
    files = [str(folder / name) for name in ("src.json", "tgt.json", "merges.txt")]
    return transformers.FSMTTokenizer(["en", "de"], *files)


def whisper(**options: Any) -> PreTrainedTokenizerBase:
    """`<|startoftranscript|> [language] [task] <|notimestamps|> X <|endoftext|>`, then one time of 0.02 s each."""
    languages = [f"<|{language}|>" for language in LANGUAGES]
    tasks = ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    special = ["<|startoftranscript|>", *languages, *tasks]
    tokenizer = transformers.WhisperTokenizer(
        **_bpe(("<|endoftext|>",), "Ġ", first_marked=False),
        pad_token="<|endoftext|>",
        additional_special_tokens=special,
    )
    tokenizer.add_tokens([f"<|{0.02 * i:.2f}|>" for i in range(11)])
    tokenizer.set_prefix_tokens(**options)
    return tokenizer


def _unigram(first: Sequence[str], last: Sequence[str]) -> list[tuple[str, float]]:
    words = [(f"▁{word}", -1.0 - i / 100) for i, word in enumerate(WORDS)]
    return [*((token, 0.0) for token in first), *words, ("▁", -9.0), *((token, 0.0) for token in last)]


def _bpe(special: Sequence[str], space: str = "▁", first_marked: bool = True) -> dict[str, Any]:
    """Vocabulary and merges that make one token of each word of WORDS."""
    spellings = [[space, *word] for word in WORDS] + ([] if first_marked else [list(word) for word in WORDS])
    merges = list(dict.fromkeys(merge for pieces in spellings for merge in _merges(pieces)))
    pieces = [*sorted({piece for spelling in spellings for piece in spelling}), *(a + b for a, b in merges)]
    return {"vocab": {piece: i for i, piece in enumerate(dict.fromkeys([*special, *pieces]))}, "merges": merges}


def _merges(pieces: Sequence[str]) -> list[tuple[str, str]]:
    return [("".join(pieces[:n]), pieces[n]) for n in range(1, len(pieces))]


def _sentencepiece(folder: Path, name: str = "s", size: int = 60) -> str:
    sentences = iter([" ".join(WORDS)] * 20)
    options = {"vocab_size": size, "model_type": "bpe", "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=sentences, model_prefix=str(folder / name), **options)
    return str(folder / f"{name}.model")

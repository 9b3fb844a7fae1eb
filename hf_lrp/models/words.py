"""Sub-word pieces: which of them form a word, and how they are shown to a reader.

Tokenizers mark words in one of five ways, told apart by looking at the tokens of the sentence. Positions of a sound
are named by their times, such as `0.02s`; their "words" are seconds, such as `0–1s`.

| marking | example | used by |
| --- | --- | --- |
| `▁` before a word | `▁Hel`, `lo` | SentencePiece: Marian, T5, mBART, M2M100, NLLB |
| `Ġ` before a word, bytes as characters | `ĠHel`, `lo` | GPT-2 style: BART |
| `</w>` after a word | `Hel`, `lo</w>` | FSMT, XLM |
| `@@` after a piece that goes on | `Hel@@`, `lo` | subword-nmt, fairseq |
| `##` before a piece that goes on | `Hel`, `##lo` | WordPiece: BERT |
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from enum import Enum
from functools import cache
from itertools import pairwise

from hf_lrp.data.visible import visible

WORD_START = "▁"
_AGAINST = " vs "  # between the tokens of a contrastive pair
_TIME = re.compile(r"\d+\.\d\ds")
_APOSTROPHES_AND_HYPHENS = frozenset("'`-\u2019\u02bc\uff07\u00b4\u2010\u2011\u05be")
# How the Unicode names of characters start that are written without spaces between words.
_UNSPACED_SCRIPTS = (
    *("CJK ", "IDEOGRAPHIC ", "HIRAGANA ", "KATAKANA", "HALFWIDTH KATAKANA ", "BOPOMOFO "),
    *("THAI ", "LAO ", "KHMER ", "MYANMAR "),
)


# How tokenizers write what is no text: </s>, [SEP], __en__, en_XX, eng_Latn; but <0x0A> is a byte, and <unk> was text.
_SPECIAL = re.compile(r"<(?!0x|unk).*>|\[(?!UNK).+\]|__\w+__|[a-z]{2,3}_[A-Z]\w+")


class Marking(Enum):
    """How a tokenizer marks where words start or end."""

    SENTENCEPIECE = "▁"
    BYTE_LEVEL = "Ġ"
    WORD_END = "</w>"
    CONTINUES = "@@"
    WORDPIECE = "##"
    SECONDS = "s"
    NONE = ""


def detect_marking(tokens: Sequence[str]) -> Marking:
    """The marking that the tokens of a sentence show; `Marking.NONE` where there is no sign of any."""
    if tokens and all(_TIME.fullmatch(token) for token in tokens):
        return Marking.SECONDS
    for marking in (Marking.SENTENCEPIECE, Marking.BYTE_LEVEL, Marking.WORDPIECE):
        if any(token.startswith(marking.value) for token in tokens):
            return marking
    for marking in (Marking.WORD_END, Marking.CONTINUES):
        if any(token.endswith(marking.value) and token != marking.value for token in tokens):
            return marking
    return Marking.NONE


def looks_special(token: str) -> bool:
    """Whether a token reads like the end of a sentence, a language token or the like, where only its text is known."""
    return _SPECIAL.fullmatch(token) is not None


def group_words(tokens: Sequence[str], special: Sequence[bool]) -> tuple[int, ...]:
    """The index of the word that each token belongs to: starts at 0 and never decreases.

    A special token, a token that starts with a character of a script written without spaces (Chinese,
    Japanese, Thai, ...) and a token of sentence punctuation are words of their own. Apostrophes, hyphens and
    the point in `3.5` stay in their word. A `▁` that stands alone belongs to the word after it. Tokens
    without any marking are words of their own: without markers nothing tells where a word ends.
    """
    if len(tokens) != len(special):
        raise ValueError(f"{len(tokens)} tokens but {len(special)} flags for special tokens; give one flag per token.")
    marking = detect_marking([token for token, is_special in zip(tokens, special, strict=True) if not is_special])
    texts = [without_marking(token, marking) for token in tokens]
    alone = [is_special or _is_word_alone(texts, i) for i, is_special in enumerate(special)]
    words: list[int] = []
    for i, token in enumerate(tokens):
        if i == 0:
            words.append(0)
            continue
        if tokens[i - 1] == marking.value and marking in (Marking.SENTENCEPIECE, Marking.BYTE_LEVEL):
            joins = not special[i] and not token.startswith(marking.value)
        else:
            joins = not alone[i] and not alone[i - 1] and _continues(tokens[i - 1], token, marking)
        words.append(words[-1] + (not joins))
    return tuple(words)


def group_at_spaces(tokens: Sequence[str], special: Sequence[bool]) -> tuple[int | None, ...]:
    """The number of the word that each token belongs to, where words are what spaces part; None for special tokens.

    Other than in `group_words`, punctuation and pieces of Chinese or Thai stay in the word that they are written in:
    words are numbered as in files of text with spaces between all words. Tokens without any marking are words of
    their own. Where `lacks_spaces`, nothing tells words apart but pieces, and words are those of `group_words`.
    """
    if lacks_spaces(tokens, special):
        numbers = {word: n for n, word in enumerate(_text_words(tokens, special))}
        grouped = zip(group_words(tokens, special), special, strict=True)
        return tuple(None if is_special else numbers[word] for word, is_special in grouped)
    return _split_at_spaces(tokens, special)


def lacks_spaces(tokens: Sequence[str], special: Sequence[bool]) -> bool:
    """Whether a text of a script such as Chinese is written without spaces between its words.

    Texts that were cut into words have few pieces in each: more than three on average are no word.
    """
    at_spaces = _split_at_spaces(tokens, special)
    texts = [token for token, is_special in zip(tokens, special, strict=True) if not is_special]
    marking = detect_marking(texts)
    unspaced = [
        word
        for token, word in zip(tokens, at_spaces, strict=True)
        if word is not None and is_unspaced(without_marking(token, marking))
    ]
    parts = len({word for word in at_spaces if word is not None})
    return len(unspaced) > 3 * len(set(unspaced)) or (parts == 1 and len(unspaced) > 1)


def _text_words(tokens: Sequence[str], special: Sequence[bool]) -> list[int]:
    """The words of `group_words` that are no special tokens, in order."""
    words = group_words(tokens, special)
    return list(dict.fromkeys(word for word, is_special in zip(words, special, strict=True) if not is_special))


def _split_at_spaces(tokens: Sequence[str], special: Sequence[bool]) -> tuple[int | None, ...]:
    texts = [token for token, is_special in zip(tokens, special, strict=True) if not is_special]
    marking = detect_marking(texts)
    number, word = -1, ""
    previous: str | None = None
    words: list[int | None] = []
    for token, is_special in zip(tokens, special, strict=True):
        if is_special:
            words.append(None)
            continue
        starts = previous is None or not _continues(previous, token, marking)
        if starts and (word or number < 0):  # a `▁` that stands alone is no word, but the start of one
            number, word = number + 1, ""
        word += without_marking(token, marking)
        words.append(number)
        previous = token
    return tuple(words)


def join_words(tokens: Sequence[str], words: Sequence[int], marking: Marking) -> tuple[str, ...]:
    """The text of each word, given the word that each token belongs to."""
    pieces: list[list[str]] = [[] for _ in range(words[-1] + 1)]
    for token, word in zip(tokens, words, strict=True):
        pieces[word].append(token)
    return tuple(_join_pieces(word, marking) for word in pieces)


def join_predicted(
    predicted: Sequence[str], written: Sequence[str], words: Sequence[int], marking: Marking
) -> tuple[str, ...]:
    """The predictions within each target word, as text.

    A piece is predicted after the pieces that are written, so it goes on with the prediction before it only where
    that is what was written; else the two stand apart: `gare / que`.
    """
    texts = [""] * (words[-1] + 1)
    for word in range(len(texts)):
        places = [i for i, other in enumerate(words) if other == word]
        runs = [places[:1]]
        for before, place in pairwise(places):
            if predicted[before] == written[before]:
                runs[-1].append(place)
            else:
                runs.append([place])
        texts[word] = " / ".join(_join_pieces([predicted[i] for i in run], marking) for run in runs)
    return tuple(texts)


def _join_pieces(pieces: Sequence[str], marking: Marking) -> str:
    """The pieces of one word as a reader writes it, without markers; a lone `▁` stays what it is."""
    if marking is Marking.SECONDS:
        second = int(float(pieces[0].removesuffix(marking.value)))
        return f"{second}–{second + 1}s"
    if marking is Marking.BYTE_LEVEL:
        joined = _decode_bytes("".join(pieces))
    elif marking in (Marking.SENTENCEPIECE, Marking.WORD_END):
        joined = "".join(pieces).replace(marking.value, " ")
    else:
        joined = "".join(without_marking(piece, marking) for piece in pieces)
    return " ".join(joined.split()) or "".join(pieces)


def display_tokens(tokens: Sequence[str]) -> tuple[str, ...]:
    """Tokens as tables and plots show them, one label per token.

    `▁` marks the start of a word, whether the tokenizer writes `▁` or `Ġ`, and the end of a word where it
    writes `</w>`. The characters that stand for bytes in GPT-2 style tokens are decoded where they form text.
    `##`, `@@` and byte tokens such as `<0x0A>` stay. Control and direction characters become escapes, an empty token
    `∅`.
    """
    marking = detect_marking(tokens)
    return tuple(visible(_readable(token, marking)) or "∅" for token in tokens)


def plain_tokens(tokens: Sequence[str], others: Sequence[str] = ()) -> tuple[str, ...]:
    """Tokens as pictures for readers show them, one label per token: their text, without the marks of words.

    `others` are tokens of the same tokenizer that help to tell its marks. A mark that stands alone is a space, `␣`.
    Byte tokens such as `<0x0A>` stay, and characters that would act become escapes, as in `display_tokens`. Of a
    contrastive pair, `▁bank vs ▁shore`, both tokens are shown like that.
    """
    marking = detect_marking([*tokens, *others])
    pairs = [(token, [without_marking(part, marking) for part in token.split(_AGAINST)]) for token in tokens]
    texts = [(token, visible(_AGAINST.join(parts))) for token, parts in pairs]
    return tuple(text or ("␣" if token else "∅") for token, text in texts)


def running_text(tokens: Sequence[str], others: Sequence[str] = ()) -> tuple[tuple[str, bool], ...]:
    """Each token as a part of a text that is read: its text without markers, and whether a space stands before it.

    Special tokens stand apart. Where tokens have no markers, as words do, spaces are where they usually are. `others`
    are tokens of the same tokenizer that help to tell its markers. Empty is the text of a lone `▁`.
    """
    marking = detect_marking([*tokens, *others])
    texts = [visible(without_marking(token, marking)) for token in tokens]
    letters = marking is Marking.NONE and all(len(token) == 1 for token in tokens if not looks_special(token))
    apart = [True, *(_is_apart(a, b, marking, letters) for a, b in pairwise(tokens))]
    return tuple(zip(texts, apart, strict=False))


def _is_apart(before: str, token: str, marking: Marking, letters: bool) -> bool:
    """Whether a space stands between two tokens; `letters`: tokens are single letters, which form a word."""
    if looks_special(before) or looks_special(token):
        return True
    if letters:
        return False
    if marking is not Marking.NONE:
        return not _continues(before, token, marking)
    closes = all(unicodedata.category(char) in ("Pe", "Pf", "Po") for char in token)
    return not (closes or (is_unspaced(token) and is_unspaced(before[-1:])))


def _readable(token: str, marking: Marking) -> str:
    if marking is Marking.BYTE_LEVEL:
        text = without_marking(token, marking)
        return WORD_START + text if token.startswith(marking.value) else text
    if marking is Marking.WORD_END and token.endswith(marking.value):
        return token.removesuffix(marking.value) + WORD_START
    return token


def without_marking(token: str, marking: Marking) -> str:
    """The token without its marker, and as text where it is written in bytes."""
    match marking:
        case Marking.SENTENCEPIECE | Marking.WORDPIECE:
            return token.removeprefix(marking.value)
        case Marking.BYTE_LEVEL:
            return _decode_bytes(token.removeprefix(marking.value))
        case Marking.WORD_END | Marking.CONTINUES:
            return token.removesuffix(marking.value)
    return token


def _continues(previous: str, token: str, marking: Marking) -> bool:
    """Whether `token` goes on with the word of `previous`, by their markers alone."""
    match marking:
        case Marking.SENTENCEPIECE | Marking.BYTE_LEVEL:
            return not token.startswith(marking.value)
        case Marking.WORD_END:
            return not previous.endswith(marking.value)
        case Marking.CONTINUES:
            return previous.endswith(marking.value)
        case Marking.WORDPIECE:
            return token.startswith(marking.value)
    return False


def is_unspaced(text: str) -> bool:
    """Whether a piece starts with a character of a script that is written without spaces between words."""
    return bool(text) and unicodedata.name(text[0], "").startswith(_UNSPACED_SCRIPTS)


def _is_word_alone(texts: Sequence[str], i: int) -> bool:
    text = texts[i]
    if is_unspaced(text):
        return True
    if not text or not all(unicodedata.category(char).startswith("P") for char in text):
        return False
    if _APOSTROPHES_AND_HYPHENS.issuperset(text):
        return False
    inside_number = 0 < i < len(texts) - 1 and texts[i - 1][-1:].isdigit() and texts[i + 1][:1].isdigit()
    return not (text in ".,:" and inside_number)


@cache
def _byte_of_character() -> dict[str, int]:
    """GPT-2's map: printable Latin-1 stands for itself, the other bytes are characters from U+0100 on."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _decode_bytes(text: str) -> str:
    """Text of a GPT-2 style token; what is no complete UTF-8, such as half a character, stays as it is."""
    table = _byte_of_character()
    try:
        return bytes(table[char] for char in text).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return text

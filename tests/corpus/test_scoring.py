"""Scores of translations against a model's own."""

import pytest
from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer

from hf_lrp.corpus.own_translations import OwnTranslations
from hf_lrp.corpus.scoring import score_corpus, score_pairs
from hf_lrp.corpus.support import Measures, measure_pairs
from hf_lrp.links.heads import Head
from hf_lrp.links.weights import HeadReader

HEADS = (Head(0, 1, "reads"), Head(1, 0, "predicts"))
PAIRS = [
    ("the cat sees the dog .", "the dog eats ."),
    ("he eats", "a house"),
    ("she was in the house", "the cat is big"),
]


def test_ranks_and_flags_are_those_of_the_own_translations() -> None:
    reader = HeadReader(tiny_model("marian"), tiny_tokenizer())
    supports = measure_pairs(reader, reader.read(*map(list, zip(*PAIRS, strict=True))), HEADS, Measures())
    words = sorted(value for one in supports for value in one.source.values)
    tokens = sorted(value for one in supports for value in one.target.values)
    values = {
        "coverage": tuple(sorted(one.coverage for one in supports)),
        "log_probability": tuple(sorted(one.log_probability for one in supports)),
        "source_word": tuple(words),
        "target_word": tuple(tokens),
    }
    own = OwnTranslations(values, Measures(), HEADS, 12, model="m", weights="w", sources="s", kept=1.0)
    scores = score_pairs(reader, PAIRS, own, rarity=0.3)
    assert sorted(score.coverage_rank for score in scores) == pytest.approx([0, 1 / 3, 2 / 3])
    flagged = 0
    for (source, translation), score, one in zip(PAIRS, scores, supports, strict=True):
        assert score.coverage_rank == sum(value < one.coverage for value in values["coverage"]) / 3
        assert score.log_probability_rank == sum(v < one.log_probability for v in values["log_probability"]) / 3
        for text, found, measured, usual, rarity in (
            (source, score.source_words, one.source, words, 0.3),
            (translation, score.target_words, one.target, tokens, 0.075),
        ):
            for word, value in zip(found, measured.values, strict=True):
                rank = sum(other < value for other in usual) / len(usual)
                assert (word.value, word.rank) == (value, pytest.approx(rank))
                assert word.flagged == (rank < rarity and word.text != ".")
                assert text[slice(*word.span)] == word.text
                flagged += word.flagged
    assert flagged


@pytest.mark.parametrize(
    ("out", "pairs", "message"),
    [
        ("scores.csv", [("a", "b")], "must end with .tsv or .jsonl"),
        ("scores.tsv", [("a", "b"), ("a", " ")], "Pair 2 has an empty side"),
    ],
)
def test_what_cannot_be_scored_is_said_before_any_work(tmp_path, out, pairs, message):
    with pytest.raises(ValueError, match=message):
        score_corpus(None, None, pairs, tmp_path / out)
    with pytest.raises(ValueError, match="rarity is a share of words"):
        score_corpus(None, None, [("a", "b")], tmp_path / "scores.tsv", rarity=2)
    assert not list(tmp_path.iterdir())

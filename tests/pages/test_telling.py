"""The sentence on the most telling place."""

import numpy as np
import pytest
import scipy.stats

from hf_lrp.pages.telling import Curve, is_unusual, most_different, most_telling, stands_out, usual_z

WORDS = ("Le", "chat", "dort", "sur", "le", "lit")
NAN = np.nan


def tell(total, mean=None, deviation=0.05, counts=None):
    total, spread = np.array(total), np.full(6, deviation)
    known = np.full(6, NAN) if mean is None else np.array([NAN, *[mean] * 5])
    chosen = np.array([False, *[True] * 5]) if counts is None else np.array(counts, dtype=bool)
    z = usual_z(total, known, spread, range(6))
    return most_telling(Curve(WORDS, total, known, spread, chosen, z), is_unusual(z, WORDS))


def test_without_a_calibration_a_place_that_stands_out_is_named():
    row, sentence, word = tell([0.7, 0.72, 0.3, 0.7, 0.71, 0.69], counts=[True] * 6)
    assert (row, word) == (2, "dort")
    assert (
        sentence == "The source counts least at “{}”: R(source) is 0.30, against 0.70 on average at the other words."
    )


def test_without_a_calibration_what_the_spread_explains_does_not_stand_out():
    row, sentence, word = tell([0.83, 0.79, 0.75, 0.8, 0.77, 0.81], counts=[True] * 6)
    assert (row, word) == (2, "dort")
    assert sentence.startswith("Nothing stands out: R(source) is lowest at “{}”, 0.75, against 0.80 on average")
    assert tell([1, 0.7, 0.1, 0.7, 0.7, 0.7]).sentence.startswith("Nothing stands out")  # four others show no spread


def test_what_stands_out_agrees_with_the_distribution():
    others = np.array([0.71, 0.69, 0.73, 0.7, 0.68, 0.72, 0.7])
    spread = others.std(ddof=1) * np.sqrt(1 + 1 / 7)
    limit = others.mean() - spread * scipy.stats.t.ppf(1 - 0.05 / 8, 6)
    assert stands_out(limit - 1e-6, others) and not stands_out(limit + 1e-6, others)


def test_alike_words_rarely_stand_out():
    rng = np.random.default_rng(0)
    rows = [np.sort(rng.normal(0.7, 0.05, size=9)) for _ in range(2000)]
    assert 0.02 < np.mean([stands_out(row[0], row[1:]) for row in rows]) < 0.07


def test_one_low_word_is_named():
    row, sentence, word = tell([1, 0.6, 0.4, 0.6, 0.6, 0.6], mean=0.62)
    assert (row, word) == (2, "dort")
    assert sentence.startswith("At “{}” the model relies more than usual on its own words: R(source) is 0.40, against")
    assert sentence.endswith("against 0.62 ± 0.05 as usual.")


def test_a_low_rest_is_named_by_its_first_word():
    row, sentence, word = tell([1, 0.6, 0.6, 0.3, 0.32, 0.31], mean=0.62)
    assert (row, word) == (3, "sur")
    assert sentence == (
        "From “{}” on the model relies on its own words: R(source) is 0.31, against 0.62 ± 0.05 as usual."
    )
    assert tell([1, 0.3, 0.3, 0.3, 0.3, 0.3], mean=0.62).row == 1
    assert tell([1, 0.6, 0.6, 0.6, 0.32, 0.31], mean=0.62).sentence.startswith("At ")  # two words


def test_a_usual_translation_is_called_usual():
    row, sentence, _ = tell([1, 0.6, 0.58, 0.62, 0.6, 0.6], mean=0.62)
    assert row == 2 and sentence.startswith("Nothing stands out: the source counts as usual throughout. ")


@pytest.mark.parametrize(("low", "flagged"), [(0.515, True), (0.525, False)])
def test_the_sentence_names_a_word_where_there_are_flags(low, flagged):
    total, mean, deviation = np.array([1, low, low, 0.6, 0.6]), np.array([NAN, *[0.62] * 4]), np.full(5, 0.05)
    z = usual_z(total, mean, deviation, (0, 1, 1, 2, 3))
    assert is_unusual(z, WORDS[:4]).tolist() == [False, flagged, False, False]
    words = (
        np.array([1, low, 0.6, 0.6]),
        np.array([NAN, *[0.62] * 3]),
        np.full(4, 0.05),
        np.array([False, *[True] * 3]),
    )
    assert most_telling(Curve(WORDS[:4], *words, z), is_unusual(z, WORDS[:4])).sentence.startswith("At ") == flagged


def test_punctuation_and_special_tokens_are_not_flagged():
    z = np.array([-5.0, -5.0, NAN, -5.0, -1.9, -2.1])
    assert is_unusual(z, ["chat", ".", "dort", "</s>", "lit", "3"]).tolist() == [True, *[False] * 4, True]


def test_nothing_is_said_of_words_that_do_not_count():
    assert tell([1, 0.1, 0.7, 0.6, 0.5, 0.6], counts=[0, 0, 1, 1, 1, 1]).row == 4
    assert tell([1] * 6, counts=[0] * 6) is None
    assert tell([1] * 6, counts=[0, 0, 1, 0, 0, 0]) is None


def test_the_largest_difference():
    first, second = np.array([1, 0.7, 0.6]), np.array([1, 0.68, 0.66])
    row, sentence, word = most_different(WORDS, first, second, ("a", "b"))
    assert (row, word) == (2, "dort") and "0.600 (a) and 0.660 (b)" in sentence
    assert most_different(WORDS, first, first, ("a", "b")) is None

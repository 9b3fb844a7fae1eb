"""The sentence on the most telling place."""

import numpy as np

from hf_lrp.pages.telling import Curve, most_different, most_telling

WORDS = ("Le", "chat", "dort", "sur", "le", "lit")


def curve(total, mean=None, deviation=0.05, counts=None):
    known = np.full(6, np.nan) if mean is None else np.array([np.nan, *[mean] * 5])
    chosen = np.array([False, *[True] * 5]) if counts is None else np.array(counts)
    return Curve(WORDS, np.array(total), chosen, known, np.full(6, deviation))


def test_without_a_calibration_the_lowest_place_is_named():
    row, sentence, word = most_telling(curve([1, 0.7, 0.3, 0.6, 0.7, 0.8]))
    assert (row, word) == (2, "dort")
    assert (
        sentence == "The source counts least at “{}”: R(source) is 0.30, against 0.70 on average at the other words."
    )


def test_one_low_word_is_named():
    row, sentence, word = most_telling(curve([1, 0.6, 0.4, 0.6, 0.6, 0.6], mean=0.62))
    assert (row, word) == (2, "dort")
    assert sentence.startswith("At “{}” the model relies more than usual on its own words: R(source) is 0.40, against")
    assert sentence.endswith("against 0.62 ± 0.05 as usual.")


def test_a_low_rest_is_named_by_its_first_word():
    row, sentence, word = most_telling(curve([1, 0.6, 0.6, 0.3, 0.32, 0.31], mean=0.62))
    assert (row, word) == (3, "sur")
    assert sentence == (
        "From “{}” on the model relies on its own words: R(source) is 0.31, against 0.62 ± 0.05 as usual."
    )
    assert most_telling(curve([1, 0.3, 0.3, 0.3, 0.3, 0.3], mean=0.62)).row == 1
    assert most_telling(curve([1, 0.6, 0.6, 0.6, 0.32, 0.31], mean=0.62)).sentence.startswith("At ")  # two words


def test_a_usual_translation_is_called_usual():
    row, sentence, _ = most_telling(curve([1, 0.6, 0.58, 0.62, 0.6, 0.6], mean=0.62))
    assert row == 2 and sentence.startswith("The source counts as usual throughout. ")


def test_nothing_is_said_of_words_that_do_not_count():
    assert most_telling(curve([1, 0.1, 0.7, 0.6, 0.5, 0.6], counts=[0, 0, 1, 1, 1, 1])).row == 4
    assert most_telling(curve([1] * 6, counts=[0] * 6)) is None
    assert most_telling(curve([1] * 6, counts=[0, 0, 1, 0, 0, 0])) is None


def test_the_largest_difference():
    first, second = np.array([1, 0.7, 0.6]), np.array([1, 0.68, 0.66])
    row, sentence, word = most_different(WORDS, first, second, ("a", "b"))
    assert (row, word) == (2, "dort") and "0.600 (a) and 0.660 (b)" in sentence
    assert most_different(WORDS, first, first, ("a", "b")) is None

"""Risks: sentence BLEU on ids against a literal version and sacrebleu; metrics on decoded text."""

import random
from types import SimpleNamespace

import evaluate
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER
from slow_minimum_risk import slow_sentence_bleu
from tiny_tokenizer import tiny_tokenizer

from hf_lrp.training.minimum_risk.risks import TextRisk, negative_sentence_bleu

# Few different tokens, so that n-grams repeat and must be clipped.
SENTENCES = st.lists(st.integers(2, 6), max_size=12)

CAT, DOG = "the cat sees a dog", "a dog sees the cat"


@given(st.lists(SENTENCES, max_size=4), st.lists(st.integers(2, 6), min_size=1, max_size=12))
def test_bleu_equals_the_literal_version(candidates, reference):
    expected = [-slow_sentence_bleu(candidate, reference) for candidate in candidates]
    assert negative_sentence_bleu(candidates, reference) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("effective_order", [True, False])
def test_bleu_equals_sacrebleu(effective_order):
    metric = BLEU(smooth_method="add-k", smooth_value=1, effective_order=effective_order, tokenize="none")
    rng = random.Random(0)
    for _ in range(200):
        candidate, reference = ([rng.randrange(2, 9) for _ in range(rng.randrange(1, 15))] for _ in range(2))
        score = metric.sentence_score(" ".join(map(str, candidate)), [" ".join(map(str, reference))]).score
        assert negative_sentence_bleu([candidate], reference)[0] == pytest.approx(-score / 100, abs=1e-9)


def test_bleu_at_its_ends():
    assert negative_sentence_bleu([[5, 6, 7, 8, 9], [5], [], [2, 3]], [5, 6, 7, 8, 9])[0] == -1.0
    assert negative_sentence_bleu([[], [2, 3]], [5, 6, 7]) == [0.0, 0.0]


def test_bleu_counts_a_repeated_token_as_often_as_the_reference_has_it():
    # 1-grams 2 of 4, 2-grams (1 + 1) of (3 + 1), 3-grams (0 + 1) of (2 + 1), 4-grams (0 + 1) of (1 + 1)
    assert negative_sentence_bleu([[7, 7, 7, 7]], [7, 7, 8]) == pytest.approx([-((0.5 * 0.5 / 3 / 2) ** 0.25)])


def ids(text):
    return tiny_tokenizer()(text)["input_ids"][:-1]


def test_chrf_is_that_of_the_decoded_text():
    risks = TextRisk.chrf(tiny_tokenizer())([ids(CAT), ids(DOG)], ids(CAT))
    tokenizer = tiny_tokenizer()
    expected = CHRF().sentence_score(tokenizer.decode(ids(DOG)), [tokenizer.decode(ids(CAT))]).score
    assert 0 < expected < 100
    assert risks == pytest.approx([-1.0, -expected / 100])


def test_special_tokens_are_not_part_of_the_text():
    risk = TextRisk.chrf(tiny_tokenizer())
    assert risk([[*ids(CAT), 1, 39]], [*ids(CAT), 1]) == pytest.approx([-1.0])


def test_sacrebleu_metrics_and_error_rates():
    bleu = TextRisk(tiny_tokenizer(), BLEU(effective_order=True))([ids(CAT), ids(DOG)], ids(CAT))
    assert bleu[0] == pytest.approx(-1.0) and -1 < bleu[1] < 0
    ter = TextRisk(tiny_tokenizer(), TER())([ids(CAT), ids(DOG)], ids(CAT))
    assert ter[0] == 0 and ter[1] > 0  # lower is better already


MODULE = """
import datasets
import evaluate


class {name}(evaluate.Metric):
    def _info(self):
        features = datasets.Features({{"predictions": datasets.Value("string"), "references": {references}}})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        reference = references[0] if isinstance(references[0], str) else references[0][0]
        words = predictions[0].split()
        return {{"{key}": sum(word in reference.split() for word in words) / len(words) * {scale}{more}}}
"""


def _class_name(name):
    """evaluate takes a module's name from its class: WER is "wer", SharedWords "shared_words"."""
    return name.title().replace("_", "")


@pytest.fixture
def load_module(tmp_path):
    """Writes a metric module, which returns the share of words that are in the reference, and loads it."""

    def load(name, key, *, references='datasets.Value("string")', scale=1.0, more=""):
        file = tmp_path / name / f"{name}.py"
        file.parent.mkdir()
        file.write_text(MODULE.format(name=_class_name(name), references=references, key=key, scale=scale, more=more))
        return evaluate.load(str(file.parent), cache_dir=str(tmp_path / "cache"), experiment_id=name)

    return load


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("shared_words", {"key": "shared_words"}),
        ("named_otherwise", {"key": "share"}),
        ("out_of_hundred", {"key": "score", "scale": 100.0, "more": ', "precisions": [1.0]'}),
        ("many_references", {"key": "share", "references": 'datasets.Sequence(datasets.Value("string"))'}),
    ],
)
def test_evaluate_modules(load_module, name, options):
    risk = TextRisk(tiny_tokenizer(), load_module(name, **options))
    assert risk([ids("the cat"), ids("the house")], ids("the cat is big")) == pytest.approx([-1.0, -0.5])


def test_evaluate_error_rates_keep_their_sign(load_module):
    risk = TextRisk(tiny_tokenizer(), load_module("wer", "wer"))
    assert risk([ids("the house")], ids("the cat")) == pytest.approx([0.5])


def test_unclear_results_and_unknown_metrics_name_the_remedy(load_module):
    unclear = TextRisk(tiny_tokenizer(), load_module("several", "first", more=', "second": 1.0'))
    with pytest.raises(ValueError, match=r"\['first', 'second'\].*function that takes \(candidates, reference\)"):
        unclear([ids("the house")], ids("the cat"))
    with pytest.raises(TypeError, match=r"sacrebleu.metrics.CHRF\(\).*evaluate.load.*function that takes"):
        TextRisk(tiny_tokenizer(), SimpleNamespace(name="accuracy"))


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ([2, 3, 4, 5, 6], 1.0),
        ([2, 3, 9, 9, 9], (2 / 5 * 1 / 4 * 0.1 / 3 * 0.1 / 2) ** 0.25),
        ([2, 3], (1 * 1 * 0.1 * 0.1) ** 0.25 * 2.718281828459045 ** (1 - 5 / 2)),
        ([9, 9], 0.0),
    ],
)
def test_smoothing_of_the_released_code(candidate, expected):
    found = negative_sentence_bleu([candidate], [2, 3, 4, 5, 6], smoothing="released")
    assert found == [pytest.approx(-expected, abs=1e-12)]

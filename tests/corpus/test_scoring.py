"""Scores of translations against a model's own."""

import pytest
import torch
from example_contributions import make_contributions

from hf_lrp.corpus.calibration import Calibration
from hf_lrp.corpus.scoring import score_corpus, score_translation

NAMES = {"model": "m", "weights": "w", "sources": "s"}


def calibration_of(mean, deviation) -> Calibration:
    return Calibration(mean=tuple(mean), deviation=tuple(deviation), sentences=10, kept=1.0, **NAMES)


def test_a_score_agrees_with_a_slow_version():
    c = make_contributions(predict="target", seed=2)  # ▁Le ▁chat ▁dor t . </s>
    calibration = calibration_of([0.8, 0.7, 0.6, 0.5], [0.1, 0.2, 0.1, 0.2])
    totals = [sum(row) for row in c.source.tolist()]
    z = [(totals[t] - calibration.mean[min(t, 4) - 1]) / calibration.deviation[min(t, 4) - 1] for t in range(1, 6)]
    scored = score_translation(c, calibration, threshold=0.0)
    assert scored.score == pytest.approx(sum(z) / 5, rel=1e-5)
    assert scored.source_total == pytest.approx(sum(totals[1:]) / 5, rel=1e-5)
    assert scored.log_probability == pytest.approx(sum(c.log_probability.tolist()) / 6, rel=1e-5)
    assert scored.words == ("Le", "chat", "dort", ".")
    assert scored.z[0] is None
    assert scored.z[1:] == pytest.approx([z[0], (z[1] + z[2]) / 2, z[3]], rel=1e-5)
    assert scored.flagged == (False, *(value < 0 for value in scored.z[1:3]), False)  # no punctuation
    assert any(scored.flagged) and not all(scored.flagged[1:3])


def test_tiny_probabilities_count_with_their_logarithms():
    log_probability = torch.tensor([-1.0, -2.0, -3.0, -200.0, -300.0, -400.0])
    c = make_contributions(predict="target", log_probability=log_probability)
    scored = score_translation(c, calibration_of([0.5], [0.1]), threshold=0.0)
    assert scored.log_probability == pytest.approx(-151)


def test_a_translation_of_one_token_has_no_score():
    c = make_contributions(("▁a",), ("▁x",), predict="target")
    scored = score_translation(c, calibration_of([0.5], [0.1]), threshold=-2.0)
    assert scored.score is None and scored.source_total is None and scored.flagged == (False,)


@pytest.mark.parametrize("changes", [{"predict": "top1"}, {"predict": "target", "level": "word"}])
def test_other_contributions_are_refused(changes):
    with pytest.raises(ValueError, match="predict='target'"):
        score_translation(make_contributions(**changes), calibration_of([0.5], [0.1]), threshold=-2.0)


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
    assert not list(tmp_path.iterdir())

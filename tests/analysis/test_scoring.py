"""Scores against a model's own translations, their calibration, and the journal of unfinished work."""

import json
import math
import statistics

import numpy as np
import pytest
import torch
from example_contributions import make_contributions
from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer
from tokenizers import decoders

from hf_lrp import explain
from hf_lrp.analysis.run.journal import Journal
from hf_lrp.analysis.scoring import Calibration, calibrate, score_translation, translate_and_measure

NAMES = {"model": "m", "weights": "w", "sources": "s"}


def rows_of(curves, kept=True):
    return [{"curve": list(curve), "kept": kept} for curve in curves]


def calibration_of(mean, deviation) -> Calibration:
    return Calibration(mean=tuple(mean), deviation=tuple(deviation), sentences=10, kept=1.0, **NAMES)


# ---- calibration


def test_positions_with_enough_values_have_their_own_mean():
    rng = np.random.default_rng(0)
    curves = [[1.0, *rng.uniform(0.4, 0.9, size=3)] for _ in range(30)]
    calibration = calibrate(rows_of(curves), **NAMES)
    for t in (1, 2, 3):
        values = [curve[t] for curve in curves]
        assert calibration.mean[t - 1] == pytest.approx(statistics.mean(values))
        assert calibration.deviation[t - 1] == pytest.approx(statistics.stdev(values))
    assert len(calibration.mean) == 3 and calibration.sentences == 30


def test_neighbouring_positions_are_pooled_where_values_are_few():
    # 20 sentences, the steps after the first: 20 + 20 values make a pool; 20 + 10 another; 5 are left for the last one
    rng = np.random.default_rng(1)
    curves = [[1.0, *rng.uniform(size=3 + (n < 10) + (n < 5))] for n in range(20)]
    calibration = calibrate(rows_of(curves), **NAMES)
    first = [curve[t] for curve in curves for t in (1, 2)]
    second = [value for curve in curves for value in curve[3:]]
    assert calibration.mean == pytest.approx([statistics.mean(first)] * 2 + [statistics.mean(second)] * 3)
    assert calibration.deviation == pytest.approx([statistics.stdev(first)] * 2 + [statistics.stdev(second)] * 3)


def test_too_little_to_calibrate_on_is_refused():
    with pytest.raises(ValueError, match="9 sentences with 90 tokens are too few.*at least 10"):
        calibrate(rows_of([[1.0] + [0.5] * 9] * 9), **NAMES)
    with pytest.raises(ValueError, match="12 sentences with 12 tokens are too few"):
        calibrate(rows_of([[1.0]] * 12), **NAMES)


def test_z_scores_of_a_hand_computed_example():
    calibration = calibration_of([0.8, 0.6], [0.1, 0.2])
    z = calibration.z_scores([1.0, 0.9, 0.2, 0.8])
    assert math.isnan(z[0])
    assert z[1:] == pytest.approx([1.0, -2.0, 1.0])  # the last position stands for all later ones


def test_a_calibration_is_read_as_written(tmp_path):
    calibration = calibration_of([0.1 + 0.2, 0.6], [0.1, 1 / 3])
    calibration.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == calibration


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "other"}', '{"format": "hf_lrp.calibration"}'])
def test_another_file_is_no_calibration(tmp_path, content):
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(ValueError, match="c.json is no calibration"):
        Calibration.load(tmp_path / "c.json")


def test_own_translations_are_measured_once(tmp_path, monkeypatch):
    model, tokenizer = tiny_model("marian", max_position_embeddings=32), tiny_tokenizer()
    model.generation_config.max_length = 6
    sources = ["the cat sees the dog", "he eats", "she was in the house"]
    journal = Journal(tmp_path / "j", {})
    translate_and_measure(model, tokenizer, sources[:2], journal)
    expected = explain(model, tokenizer, sources, predict="target")
    started = []
    monkeypatch.setattr(
        "hf_lrp.explaining.explain.explain", lambda *args, **kw: started.append(args[2]) or explain(*args, **kw)
    )
    translate_and_measure(model, tokenizer, sources, journal)
    assert started == [sources[2:]]
    for row, contributions in zip(journal.rows, expected, strict=True):
        assert row["curve"] == pytest.approx(contributions.source_total.tolist(), abs=1e-5)


def test_a_tokenizer_that_splits_otherwise_is_noticed(tmp_path, monkeypatch):
    model, tokenizer = tiny_model("marian", max_position_embeddings=32), tiny_tokenizer()
    tokenizer.backend_tokenizer.decoder = decoders.Metaspace()
    written = [[2, 4, 1], [0, 4, 1]]  # the second has an unknown word, which its text does not keep
    results = [explain(model, tokenizer, "the cat", torch.tensor(ids), predict="target") for ids in written]
    monkeypatch.setattr("hf_lrp.explaining.explain.explain", lambda *_, **options: results)
    journal = Journal(tmp_path / "j", {})
    translate_and_measure(model, tokenizer, ["the cat", "the dog"], journal)
    assert [row["kept"] for row in journal.rows] == [True, False]


# ---- scores


def test_a_score_agrees_with_a_slow_version():
    c = make_contributions(predict="target", seed=2)  # ▁Le ▁chat ▁dor t . </s>
    calibration = calibration_of([0.8, 0.7, 0.6, 0.5], [0.1, 0.2, 0.1, 0.2])
    totals = [sum(row) for row in c.source.tolist()]
    z = [(totals[t] - calibration.mean[min(t, 4) - 1]) / calibration.deviation[min(t, 4) - 1] for t in range(1, 6)]
    scored = score_translation(c, calibration, threshold=0.0)
    assert scored.score == pytest.approx(sum(z) / 5, rel=1e-5)
    assert scored.source_total == pytest.approx(sum(totals[1:]) / 5, rel=1e-5)
    assert scored.log_probability == pytest.approx(sum(math.log(p) for p in c.probability.tolist()) / 6, rel=1e-5)
    assert scored.words == ("Le", "chat", "dort", ".")
    assert scored.z[0] is None
    assert scored.z[1:] == pytest.approx([z[0], (z[1] + z[2]) / 2, z[3]], rel=1e-5)
    assert scored.flagged == (False, *(value < 0 for value in scored.z[1:]))
    assert any(scored.flagged) and not all(scored.flagged[1:])


def test_a_translation_of_one_token_has_no_score():
    c = make_contributions(("▁a",), ("▁x",), predict="target")
    scored = score_translation(c, calibration_of([0.5], [0.1]), threshold=-2.0)
    assert scored.score is None and scored.source_total is None and scored.flagged == (False,)


@pytest.mark.parametrize("changes", [{"predict": "top1"}, {"predict": "target", "level": "word"}])
def test_other_contributions_are_refused(changes):
    with pytest.raises(ValueError, match="predict='target'"):
        score_translation(make_contributions(**changes), calibration_of([0.5], [0.1]), threshold=-2.0)


# ---- journal


def test_a_journal_goes_on_and_drops_a_line_cut_short(tmp_path):
    path = tmp_path / "j"
    Journal(path, {"model": "a"}).append({"n": 1, "text": "é"})
    with path.open("ab") as file:
        file.write(b'{"n": 2, "te')
    journal = Journal(path, {"model": "a"})
    assert journal.rows == [{"n": 1, "text": "é"}]
    journal.append({"n": 3})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"model": "a"}, *journal.rows]
    assert Journal(path, {"model": "a"}).rows == journal.rows
    journal.remove()
    assert not path.exists()


def test_a_journal_of_other_settings_is_refused(tmp_path):
    Journal(tmp_path / "j", {"model": "a", "data": 1}).append({})
    before = (tmp_path / "j").read_bytes()
    with pytest.raises(ValueError, match=r"other settings \(model\): remove it"):
        Journal(tmp_path / "j", {"model": "b", "data": 1})
    assert (tmp_path / "j").read_bytes() == before


def test_a_damaged_journal_is_named(tmp_path):
    (tmp_path / "j").write_text("nonsense\n")
    with pytest.raises(ValueError, match="j is damaged: remove it"):
        Journal(tmp_path / "j", {})

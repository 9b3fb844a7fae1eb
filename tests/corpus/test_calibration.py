"""How much a model usually depends on its source: means and deviations, files, and translations measured once."""

import json
import math
import statistics

import numpy as np
import pytest
import torch
from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer
from tokenizers import decoders

from hf_lrp import ContributionsList, Explainer, explain
from hf_lrp.corpus.calibration import Calibration, calibrate, translate_and_measure
from hf_lrp.corpus.journal import Journal

NAMES = {"model": "m", "weights": "w", "sources": "s"}


def rows_of(curves, kept=True):
    return [{"curve": list(curve), "kept": kept} for curve in curves]


def calibration_of(mean, deviation) -> Calibration:
    return Calibration(mean=tuple(mean), deviation=tuple(deviation), sentences=10, kept=1.0, **NAMES)


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


def test_the_last_position_stands_for_all_later_ones():
    mean, deviation = calibration_of([0.8, 0.6], [0.1, 0.2]).at([1, 2, 3, 4])
    assert math.isnan(mean[0]) and math.isnan(deviation[0])
    assert mean[1:].tolist() == [0.8, 0.6, 0.6] and deviation[1:].tolist() == [0.1, 0.2, 0.2]


def test_a_calibration_is_read_as_written(tmp_path):
    calibration = calibration_of([0.1 + 0.2, 0.6], [0.1, 1 / 3])
    calibration.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == calibration


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "other"}', '{"format": "hf_lrp.calibration"}'])
def test_another_file_is_no_calibration(tmp_path, content):
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(ValueError, match="c.json is not a range of R"):
        Calibration.load(tmp_path / "c.json")


def test_own_translations_are_measured_once(tmp_path, monkeypatch):
    model, tokenizer = tiny_model("marian", max_position_embeddings=32), tiny_tokenizer()
    model.generation_config.max_length = 6
    sources = ["the cat sees the dog", "he eats", "she was in the house"]
    journal = Journal(tmp_path / "j", {})
    translate_and_measure(model, tokenizer, sources[:2], journal)
    expected = explain(model, tokenizer, sources, predict="target")
    started = []
    own = Explainer.explain
    monkeypatch.setattr(Explainer, "explain", lambda *args, **kw: started.append(args[1]) or own(*args, **kw))
    translate_and_measure(model, tokenizer, sources, journal)
    assert started == [sources[2:]]
    for row, contributions in zip(journal.rows, expected, strict=True):
        assert row["curve"] == pytest.approx(contributions.source_total.tolist(), abs=1e-5)


def test_a_tokenizer_that_splits_otherwise_is_noticed(tmp_path, monkeypatch):
    model, tokenizer = tiny_model("marian", max_position_embeddings=32), tiny_tokenizer()
    tokenizer.backend_tokenizer.decoder = decoders.Metaspace()
    written = [[2, 4, 1], [0, 4, 1]]  # the second has an unknown word, which its text does not keep
    results = [explain(model, tokenizer, "the cat", torch.tensor(ids), predict="target") for ids in written]
    monkeypatch.setattr(Explainer, "explain", lambda *_, **options: ContributionsList(results))
    journal = Journal(tmp_path / "j", {})
    translate_and_measure(model, tokenizer, ["the cat", "the dog"], journal)
    assert [row["kept"] for row in journal.rows] == [True, False]


GOOD = {"format": "hf_lrp.calibration", "mean": [0.8], "deviation": [0.1], "sentences": 10, "kept": 1.0, **NAMES}


@pytest.mark.parametrize(
    "changes",
    [
        {"mean": [], "deviation": []},
        {"mean": [0.8, 0.7]},
        {"deviation": [0.0]},
        {"deviation": [-0.1]},
        {"mean": [None]},
        {"mean": ["x"]},
        {"sentences": 0},
        {"kept": 2},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_calibration_that_flags_everything_or_nothing_is_refused(tmp_path, changes):
    (tmp_path / "c.json").write_text(json.dumps(GOOD))
    assert Calibration.load(tmp_path / "c.json").mean == (0.8,)
    (tmp_path / "c.json").write_text(json.dumps(GOOD | changes))
    with pytest.raises(ValueError, match="c.json is not a range of R.*: give its .source-share.json"):
        Calibration.load(tmp_path / "c.json")


@pytest.mark.parametrize("mean", ["[" * 100_000, "1" + "0" * 400, "1e400", "NaN", "[-Infinity]"])
def test_numbers_that_no_float_holds_are_refused(tmp_path, mean):
    (tmp_path / "c.json").write_text(json.dumps(GOOD).replace("[0.8]", mean))
    with pytest.raises(ValueError, match="c.json is not a range of R"):
        Calibration.load(tmp_path / "c.json")


def test_a_model_that_never_differs_cannot_be_calibrated():
    with pytest.raises(ValueError, match="the same in all translations"):
        calibrate(rows_of([[1.0] + [0.5] * 4] * 20), **NAMES)

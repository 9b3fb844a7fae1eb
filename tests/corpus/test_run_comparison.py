"""Runs together: means and paired differences, what is refused, and the files."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from changed_run import write_again
from example_run import write_run

from hf_lrp.corpus.manifest import RunError
from hf_lrp.corpus.run import Run
from hf_lrp.corpus.run_comparison import (
    Difference,
    check_comparable,
    compare,
    comparison_json,
    differences_csv,
    means_csv,
    measure,
    open_runs,
)
from hf_lrp.data.json_files import write_json
from hf_lrp.results.intervals import Estimate

TOKENIZER = {"tokenizer": {"class": "Other", "sha256": "1" * 64}}


def write_weakened(folder, run: Run, share: float) -> Run:
    """A run in which the source counts for less: `share` of what it had, from the second step on."""
    sentences = []
    for sentence in run.rows("reference"):
        source, target = sentence.source.copy(), sentence.target.copy()
        source[1:] *= share
        target[1:] *= ((1 - source[1:].sum(1)) / target[1:].sum(1))[:, None]
        sentences.append(replace(sentence, source=source, target=target))
    return write_again(folder, run, sentences, label="weak", prefixes=["reference"])


def open_and_measure(*runs: Run):
    return [measure(run, run.name) for run in runs]


def read(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


class TestMeans:
    def test_a_difference_by_hand(self, tmp_path):
        run = write_run(tmp_path / "run", number=8, label="base")
        comparison = compare(open_and_measure(run, write_weakened(tmp_path / "weak", run, 0.75)))
        totals = np.mean([s.source.astype(float).sum(1)[1:].mean() for s in run.rows("reference")])
        found = {(mean.run, mean.prefix, mean.quantity): mean.estimate for mean in comparison.mean_estimates}
        assert found["base", "reference", "source_total"].value == pytest.approx(totals, abs=1e-7)
        (difference,) = [item for item in comparison.difference_estimates if item.quantity == "source_total"]
        assert (difference.run, difference.baseline, difference.prefix) == ("weak", "base", "reference")
        assert difference.estimate.value == pytest.approx(-0.25 * totals, abs=1e-6)
        assert difference.excludes_zero
        table = comparison.differences.set_index(["run", "prefix", "quantity"])
        assert table.loc[("weak", "reference", "source_total"), "difference"] == difference.estimate.value
        assert list(comparison.means.columns) == ["run", "prefix", "quantity", "sentences", "mean", "low", "high"]
        assert len(comparison.means) == len(comparison.mean_estimates)
        # Each side's distribution is as it was.
        entropies = [item for item in comparison.difference_estimates if item.quantity.endswith("entropy")]
        assert len(entropies) == 2
        assert all(abs(item.estimate.value) < 1e-6 for item in entropies)

    @pytest.mark.parametrize(("low", "high", "excludes"), [(0.1, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False)])
    def test_whether_an_interval_excludes_0(self, low, high, excludes):
        assert Difference("b", "a", "model", "source_total", 3, Estimate(0, low, high)).excludes_zero is excludes

    def test_accuracy_only_where_the_prefix_is_correct(self, tmp_path):
        comparison = compare(open_and_measure(write_run(tmp_path)))
        assert {mean.prefix for mean in comparison.mean_estimates if mean.quantity == "accuracy"} == {"reference"}
        assert comparison.difference_estimates == ()


class TestRefused:
    def test_the_same_folder_twice(self, tmp_path):
        write_run(tmp_path / "a")
        with pytest.raises(RunError, match="listed twice"):
            open_runs([tmp_path / "a", tmp_path / "a" / ".." / "a"])

    def test_a_copy_of_a_run(self, tmp_path):
        write_run(tmp_path / "a", label="a")
        write_run(tmp_path / "b", label="b")
        with pytest.raises(RunError, match="same results: give one of them"):
            open_runs([tmp_path / "a", tmp_path / "b"])

    def test_equal_labels(self, tmp_path):
        folders = [tmp_path / "x" / "run", tmp_path / "y" / "run"]
        for seed, folder in enumerate(folders):
            write_run(folder, seed=seed)
        with pytest.raises(ValueError, match="'run': tell them apart with --labels"):
            open_runs(folders)
        assert [label for _, label in open_runs(folders, ["one", "two"])] == ["one", "two"]

    def test_a_run_that_is_not_finished(self, tmp_path):
        manifest = write_run(tmp_path).manifest
        write_json(tmp_path / "manifest.json", manifest | {"shards": None})
        with pytest.raises(RunError, match="not finished"):
            open_runs([tmp_path])

    def test_a_damaged_run(self, tmp_path):
        write_run(tmp_path)
        (tmp_path / "shards" / "00000.parquet").write_bytes(b"PAR1")
        with pytest.raises(RunError, match="is damaged: start the same"):
            open_runs([tmp_path])

    def test_other_lengths(self, tmp_path):
        runs = open_and_measure(write_run(tmp_path / "a"), write_run(tmp_path / "b", lengths=(4, 6)))
        with pytest.raises(RunError, match="4 source and 5 target tokens, and 4 source and 6 target tokens"):
            check_comparable(runs)

    def test_mixed_with_equal_lengths(self, tmp_path):
        runs = open_and_measure(write_run(tmp_path / "a"), write_run(tmp_path / "b", lengths=None))
        with pytest.raises(RunError, match="and mixed lengths"):
            check_comparable(runs)

    def test_other_sentences(self, tmp_path):
        selection = {"number": 6, "lengths": [4, 5], "seed": 0, "other": "2"}
        other = write_run(tmp_path / "b", seed=1, selection=selection)
        with pytest.raises(RunError, match="hold different sentences: evaluate both on the same data"):
            check_comparable(open_and_measure(write_run(tmp_path / "a"), other))

    def test_the_same_sentences_asked_for_in_another_way_are_fine(self, tmp_path):
        selection = {"number": 6, "lengths": [4, 5], "seed": 0, "other": "2"}
        assert (
            check_comparable(
                open_and_measure(write_run(tmp_path / "a"), write_run(tmp_path / "b", selection=selection))
            )
            == []
        )

    def test_fewer_sentences(self, tmp_path):
        runs = open_and_measure(write_run(tmp_path / "a"), write_run(tmp_path / "b", number=4))
        with pytest.raises(RunError, match="hold different sentences"):
            compare(runs)

    def test_other_tokenizers_of_equal_lengths(self, tmp_path):
        runs = open_and_measure(write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=1, **TOKENIZER))
        with pytest.raises(RunError, match="different tokenizers.*mixed lengths"):
            check_comparable(runs)

    def test_other_tokenizers_on_another_corpus(self, tmp_path):
        selection = {"number": 6, "lengths": None, "corpus": {"sha256": "3" * 64}, "other": "2"}
        other = write_run(tmp_path / "b", lengths=None, selection=selection, **TOKENIZER)
        with pytest.raises(RunError, match="different sentences"):
            check_comparable(open_and_measure(write_run(tmp_path / "a", lengths=None), other))

    def test_no_prefix_type_in_common(self, tmp_path):
        runs = open_and_measure(
            write_run(tmp_path / "a", prefixes=["model"]), write_run(tmp_path / "b", prefixes=["random"])
        )
        with pytest.raises(RunError, match="same --prefix"):
            check_comparable(runs)


class TestNotes:
    def test_other_tokenizers_of_mixed_lengths(self, tmp_path):
        runs = open_and_measure(
            write_run(tmp_path / "a", lengths=None), write_run(tmp_path / "b", lengths=None, **TOKENIZER)
        )
        (note,) = check_comparable(runs)
        assert "entropies depend on the number of tokens" in note

    def test_other_settings(self, tmp_path):
        alti = {"name": "ALTI", "settings": {}}
        runs = open_and_measure(write_run(tmp_path / "a"), write_run(tmp_path / "b", method=alti, seed=3))
        rule, seed = check_comparable(runs)
        assert "differ in method: LRP(rule=AlphaBeta(alpha=1.0, beta=0.0)) and ALTI()" in rule
        assert "differ in seed: 0 and 3" in seed


class TestFiles:
    def test_tables(self, tmp_path):
        comparison = compare(open_and_measure(write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=1)))
        means, differences = read(means_csv(comparison)), read(differences_csv(comparison))
        assert len(means) == 2 * (4 + 3 + 3)
        assert len(differences) == 4 + 3 + 3
        row, first = means[0], comparison.mean_estimates[0]
        assert (row["run"], row["prefix"], row["quantity"], row["sentences"]) == (
            "a",
            "reference",
            "source_total",
            "6",
        )
        assert float(row["high"]) == pytest.approx(first.estimate.high, rel=1e-7)
        assert {row["excludes_zero"] for row in differences} <= {"True", "False"}

    def test_json_has_settings_and_no_nan(self, tmp_path):
        run = write_run(tmp_path, lengths=(3, 1), number=2)  # one step: nothing but the source
        content = json.loads(comparison_json(compare(open_and_measure(run))))
        assert content["runs"][0]["settings"]["model"] == "m"
        assert "shards" not in content["runs"][0]["settings"]
        totals = [mean["estimate"]["value"] for mean in content["means"] if mean["quantity"] == "source_total"]
        assert totals == [None, None, None]

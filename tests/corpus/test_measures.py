"""Quantities against examples by hand and slow float64 versions written from the formulas."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from changed_run import change_run, sharpen, write_sentences
from example_run import make_sentence, write_run

from hf_lrp.corpus.manifest import RunError
from hf_lrp.corpus.measures import (
    BINS,
    DIVERGENCE,
    bin_positions,
    by_position,
    influence_divergence,
    overall,
    paired_change,
    paired_difference,
    read_table,
    source_positions,
)
from hf_lrp.corpus.shards import Row
from hf_lrp.results.quantities import QUANTITIES, source_use

NAN = math.nan


# ---- steps


def slow_quantities(sentence: Row) -> dict[str, list[float]]:
    """Each quantity at each step, from the formulas, one number at a time."""
    steps, positions = sentence.source.shape
    values: dict[str, list[float]] = {name: [] for name in QUANTITIES}
    for t in range(steps):
        source = [float(sentence.source[t, i]) for i in range(positions)]
        target = [float(sentence.target[t, j]) for j in range(t)]
        total, prefix = math.fsum(source), math.fsum(target)
        values["source_total"].append(total if t else NAN)
        values["source_entropy"].append(-math.fsum(r / total * math.log(r / total) for r in source))
        values["target_entropy"].append(-math.fsum(r / prefix * math.log(r / prefix) for r in target) if t else NAN)
        values["accuracy"].append(float(sentence.correct[t]))
    return values


@pytest.mark.parametrize("length", [1, 2, 7, 10, 13, 23, 100])
def test_bins_of_relative_positions(length: int) -> None:
    values = np.random.default_rng(0).random(length)
    values[length // 2] = NAN
    expected = []
    for b in range(1, BINS + 1):
        inside = [t for t in range(1, length + 1) if (b - 1) * length < BINS * t <= b * length]
        known = [values[t - 1] for t in inside if not math.isnan(values[t - 1])]
        expected.append(sum(known) / len(known) if known else NAN)
    np.testing.assert_allclose(bin_positions(values), expected, rtol=1e-12)


# ---- tables


def test_table_of_equal_lengths_equals_the_slow_version(tmp_path: Path) -> None:
    run = write_run(tmp_path, number=6, lengths=(4, 5))
    for prefix in run.prefixes:
        table = read_table(run, prefix)
        assert (table.relative, table.prefix, list(table.positions)) == (False, prefix, [1, 2, 3, 4, 5])
        assert list(table.pairs) == [0, 10, 20, 30, 40, 50]
        slow = [slow_quantities(sentence) for sentence in run.rows(prefix)]
        for name in QUANTITIES:
            expected = np.array([values[name] for values in slow])
            np.testing.assert_allclose(table.values[name], expected, rtol=1e-9)
            np.testing.assert_allclose(table.means[name], np.nanmean(expected[:, 1:], axis=1), rtol=1e-9)


def test_table_of_mixed_lengths_has_bins_and_means_over_steps(tmp_path: Path) -> None:
    run = write_run(tmp_path, number=7, lengths=None)
    table = read_table(run, "reference")
    assert table.relative
    np.testing.assert_allclose(table.positions, np.arange(0.05, 1, 0.1))
    np.testing.assert_allclose(table.source_axis, np.arange(0.05, 1, 0.1))
    for row, sentence in enumerate(run.rows("reference")):
        for name, steps in slow_quantities(sentence).items():
            np.testing.assert_allclose(table.values[name][row], bin_positions(np.array(steps)), rtol=1e-9)
            assert table.means[name][row] == pytest.approx(np.nanmean(steps[1:]), rel=1e-9)
        use = source_use(sentence.source)
        np.testing.assert_array_equal(table.source_position[row], bin_positions(use))


def test_own_translations_of_other_lengths_have_no_value_after_their_end(tmp_path: Path) -> None:
    lengths = [(4, 3), (4, 5), (4, 8)]
    sentences = [make_sentence(n, "model", lengths=size) for n, size in enumerate(lengths)]
    table = read_table(write_sentences(tmp_path, sentences), "model")
    assert (~np.isnan(table.values["accuracy"])).sum(axis=1).tolist() == [3, 5, 5]
    for row, sentence in enumerate(sentences):
        assert table.means["accuracy"][row] == pytest.approx(sentence.correct[1:].mean())  # of all but the first


def test_one_step_has_no_means(tmp_path: Path) -> None:
    run = write_run(tmp_path, lengths=(3, 1), number=2)
    table = read_table(run, "reference")
    for name in QUANTITIES:  # means leave the first step out
        assert np.isnan(table.means[name]).all() and np.isnan(overall(table, name).value)
    assert not np.isnan(table.values["source_entropy"]).any()


# ---- estimates


def test_estimates_are_means_over_sentences(tmp_path: Path) -> None:
    table = read_table(write_run(tmp_path, number=9), "reference")
    for name in QUANTITIES:
        positions, total = by_position(table, name), overall(table, name)
        defined = slice(1 if name in ("source_total", "target_entropy") else 0, None)
        np.testing.assert_allclose(positions.value[defined], table.values[name].mean(axis=0)[defined])
        assert total.value == pytest.approx(table.means[name].mean())
        assert total.low < total.value < total.high
        assert (positions.low[defined] <= positions.value[defined]).all()
    use = source_positions(table)
    np.testing.assert_allclose(use.value, table.source_position.mean(axis=0))
    assert use.value.mean() == pytest.approx(1, abs=1e-6)


def test_difference_is_paired_by_sentence_whatever_the_order(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", number=4)
    sentences = list(run.rows("reference"))
    backwards = write_sentences(tmp_path / "b", [sharpen(sentence) for sentence in reversed(sentences)])
    before, after = read_table(run, "reference"), read_table(backwards, "reference")
    expected = after.values["source_entropy"][::-1] - before.values["source_entropy"]
    positions, total = paired_difference(after, before, "source_entropy")
    np.testing.assert_allclose(positions.value, expected.mean(axis=0), rtol=1e-9)
    assert total.value == pytest.approx(expected[:, 1:].mean())
    change, total_change = paired_change(before, after, "source_entropy")
    np.testing.assert_allclose(change.value, np.abs(expected).mean(axis=0), rtol=1e-9)
    assert total_change.value == pytest.approx(np.abs(expected[:, 1:]).mean())


def test_pairing_shows_effects_that_two_separate_intervals_hide(tmp_path: Path) -> None:
    table = read_table(write_run(tmp_path, number=30), "reference")
    shifted = replace(table, means={"source_total": table.means["source_total"] + 1e-3})
    separate = overall(shifted, "source_total"), overall(table, "source_total")
    assert separate[0].low < separate[1].high
    difference = paired_difference(replace(shifted, values=table.values), table, "source_total")[1]
    assert 0 < difference.low <= difference.value == pytest.approx(1e-3)


def test_runs_of_other_sentences_are_refused(tmp_path: Path) -> None:
    few = read_table(write_run(tmp_path / "few", number=3, label="few"), "reference")
    many = read_table(write_run(tmp_path / "many", number=5, label="many"), "reference")
    with pytest.raises(RunError, match="'few' and 'many': 0 of 3 sentences.* 2 of 5 .*Evaluate both on the same"):
        paired_difference(few, many, "accuracy")
    longer = read_table(write_run(tmp_path / "longer", number=3, lengths=(4, 6)), "reference")
    with pytest.raises(RunError, match="other lengths"):
        paired_change(few, longer, "accuracy")


# ---- divergence


def test_divergence_of_runs_equals_the_slow_version(tmp_path: Path) -> None:
    run = write_run(tmp_path / "training", number=5)
    final = change_run(run, tmp_path / "final", sharpen)
    table = influence_divergence(run, final, "reference")
    for row, (ours, theirs) in enumerate(zip(run.rows("reference"), final.rows("reference"), strict=True)):
        for t in range(5):
            p = [float(r) for r in [*theirs.source[t], *theirs.target[t, :t]]]
            q = [float(r) for r in [*ours.source[t], *ours.target[t, :t]]]
            slow = math.fsum(a / sum(p) * math.log(a / sum(p) / (b / sum(q))) for a, b in zip(p, q, strict=True))
            assert table.values[DIVERGENCE][row, t] == pytest.approx(slow, rel=1e-6)
    assert overall(table, DIVERGENCE).value == pytest.approx(table.values[DIVERGENCE][:, 1:].mean())
    assert by_position(table, DIVERGENCE).value.min() > 0


def test_divergence_to_itself_is_0(tmp_path: Path) -> None:
    run = write_run(tmp_path, lengths=None)
    assert overall(influence_divergence(run, run, "random"), DIVERGENCE) == (0, 0, 0)


def test_divergence_of_other_tokens_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")

    def rewrite(sentence: Row) -> Row:
        return replace(sentence, target_ids=sentence.target_ids + 1)

    for prefix, remedy in (("model", "with reference or random prefixes"), ("reference", "same tokenizer")):
        other = change_run(run, tmp_path / prefix, rewrite, prefix)
        with pytest.raises(RunError, match=f"target tokens of pair 0 differ.*{remedy}"):
            influence_divergence(run, other, prefix)
    fewer = write_run(tmp_path / "fewer", number=3)
    with pytest.raises(RunError, match="different sentences"):
        influence_divergence(run, fewer, "reference")

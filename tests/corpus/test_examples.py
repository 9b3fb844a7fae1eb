"""Sentences of runs that reports show."""

import dataclasses

import pytest
from example_run import write_run, write_shards

from hf_lrp.corpus.examples import choose_examples
from hf_lrp.corpus.run_comparison import measure
from hf_lrp.results.comparison import Comparison


def test_examples_are_the_stored_results_named_as_the_run(tmp_path):
    run = write_run(tmp_path / "a", number=3, prefixes=("model",))
    examples = choose_examples([measure(run, "base")])
    assert examples.numbers == [1, 2, 3]
    for number, c in enumerate(examples.entries):
        assert c == dataclasses.replace(run[number], model="base")
    assert [c.mean()["source_total"] for c in run] == pytest.approx(
        measure(run, "").tables["model"].means["source_total"]
    )


def test_runs_of_the_same_sentences_stand_side_by_side(tmp_path):
    first = write_run(tmp_path / "a", number=4, prefixes=("reference",))
    turned = [dataclasses.replace(s, source=s.source[:, ::-1].copy()) for s in first.rows("reference")]
    settings = {name: value for name, value in first.manifest.items() if name not in ("shards", "metrics")}
    second = write_shards(tmp_path / "b", settings, [turned])
    examples = choose_examples([measure(first, "a"), measure(second, "b")])
    assert examples.numbers == [1, 2, 3, 4]
    assert all(isinstance(entry, Comparison) and entry.same_target for entry in examples.entries)
    assert examples.entries[0].names == ("a", "b")
    assert examples.caption == "4 sentences where R(source) of b differs most from a, reference prefixes."


def test_runs_without_a_common_prefix_type_have_no_examples(tmp_path):
    runs = [write_run(tmp_path / prefix, number=3, prefixes=(prefix,)) for prefix in ("reference", "model")]
    assert choose_examples([measure(run, run.name) for run in runs]) is None

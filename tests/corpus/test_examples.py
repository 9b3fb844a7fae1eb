"""Sentences of runs that reports show."""

import dataclasses

import pytest
from example_run import write_run, write_shards

from hf_lrp.corpus.examples import as_contributions, choose_examples
from hf_lrp.corpus.run_comparison import measure
from hf_lrp.results.comparison import Comparison


def test_a_stored_sentence_is_a_result_again(tmp_path):
    run = measure(write_run(tmp_path / "a", number=3), "base")
    sentence = next(run.run.sentences("model"))
    c = as_contributions(sentence, run)
    assert c.source.numpy() == pytest.approx(sentence.source) and c.target.numpy() == pytest.approx(sentence.target)
    assert (c.model, c.prefix, c.source_tokens) == ("base", "model", sentence.source_tokens)
    assert c.mean()["source_total"] == pytest.approx(run.tables["model"].means["source_total"][0])
    assert c.is_written == tuple(sentence.correct)


def test_runs_of_the_same_sentences_stand_side_by_side(tmp_path):
    first = write_run(tmp_path / "a", number=4, prefixes=("reference",))
    turned = [dataclasses.replace(s, source=s.source[:, ::-1].copy()) for s in first.sentences("reference")]
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


def test_parts_of_prompts_are_kept(tmp_path):
    run = measure(write_run(tmp_path / "a", number=3), "base")
    sentence = next(run.run.sentences("reference"))
    c = as_contributions(dataclasses.replace(sentence, spans={"instruction": sentence.start}), run)
    assert c.spans["instruction"].total.numpy() == pytest.approx(sentence.start)

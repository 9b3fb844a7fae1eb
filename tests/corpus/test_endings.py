"""The ends of sentences: names of tokens and use of the last source tokens."""

from dataclasses import replace

import numpy as np
from changed_run import write_again
from example_run import make_sentence, write_run

from hf_lrp.corpus.endings import LAST, read_endings
from hf_lrp.corpus.run import Run
from hf_lrp.results.quantities import source_use


def write_with_eos(folder, lengths) -> Run:
    """Sentences of these lengths that end with EOS on both sides, and start with a language token on the source's."""
    run = write_run(folder, number=len(lengths), prefixes=["reference"])
    sentences = []
    for number, length in enumerate(lengths):
        made = make_sentence(number, lengths=length)
        source, target = ("__en__", *made.source_tokens[1:-1], "</s>"), (*made.target_tokens[:-1], "</s>")
        sentences.append(replace(made, source_tokens=source, target_tokens=target))
    return write_again(folder, run, sentences)


def test_tokens_that_all_sentences_have_at_a_position(tmp_path):
    endings = read_endings(write_with_eos(tmp_path, [(4, 5)] * 3), "reference")
    assert endings.source == {1: "__en__", 4: "</s>"}
    assert endings.target == {5: "</s>"}
    assert endings.last_source == {-1: "</s>"}


def test_mixed_lengths_have_names_from_the_end_only(tmp_path):
    endings = read_endings(write_with_eos(tmp_path, [(4, 5), (3, 6), (9, 9)]), "reference")
    assert (endings.source, endings.target) == ({}, {})
    assert endings.last_source == {-1: "</s>"}


def test_different_tokens_have_no_name(tmp_path):
    endings = read_endings(write_run(tmp_path), "model")
    assert (endings.source, endings.target, endings.last_source) == ({}, {}, {})


def test_use_of_the_last_source_tokens(tmp_path):
    run = write_with_eos(tmp_path, [(4, 5), (3, 6), (9, 9)])
    use = read_endings(run, "reference").last_source_use
    assert np.isnan(use).sum(axis=1).tolist() == [LAST - 4, LAST - 3, 0]
    for row, sentence in zip(use, run.rows("reference"), strict=True):
        np.testing.assert_array_equal(row[~np.isnan(row)], source_use(sentence.source)[-LAST:])

"""What error_signals.py counts: clauses, marked spans, AUROC, and one small run."""

import json

import numpy as np
import pytest
from error_signal_cases import Case, cut_clause, mqm_cases
from error_signal_figures import auroc, interval
from error_signals import main

HEADER = "system\tdoc\tdoc_id\tseg_id\trater\tsource\ttarget\tcategory\tseverity\n"


def test_the_last_clause_is_cut_away():
    text = "He came home, sat down, and read the paper."
    assert cut_clause(text, ", ") == ("He came home, sat down.", "and read the paper", 24)
    assert text[24:].startswith("and read")
    assert cut_clause("He came home.", ", ") is None
    assert cut_clause("He came home, no.", ", ") is None  # a clause of two letters


def test_marked_spans_are_those_of_the_plain_text(tmp_path):
    path = tmp_path / "mqm.tsv"
    rows = [
        ("a", "talk.1", "0", "a <v>b</v> c <v>d</v>", "x y", "Accuracy/Omission", "Major"),
        ("a", "talk.1", "0", "a b c d", "x <v>y</v>", "Accuracy/Mistranslation", "Minor"),
        ("b", "talk.2", "0", "a b c d", "x y", "No-error", "No-error"),
    ]
    path.write_text(HEADER + "".join(f"{r[0]}\t{r[1]}\t1\t{r[2]}\tr\t" + "\t".join(r[3:]) + "\n" for r in rows))
    cases = {(case.kind, case.cluster): case for case in mqm_cases(path)}
    omission = cases["omission", "talk.1 0"]
    assert omission.source == "a b c d" and [omission.source[slice(*m)] for m in omission.marks] == ["b", "d"]
    assert omission.chosen
    assert cases["mistranslation", "talk.1 0"].marks == ((2, 3),)
    assert cases["sentence", "talk.1 0"].about == {"system": "a", "omission": True, "major": True, "clean": False}
    assert ("sentence", "talk.2 0") not in cases  # not every third segment


def test_auroc_agrees_with_counting_pairs():
    rng = np.random.default_rng(0)
    values, positive = rng.integers(0, 5, size=60).astype(float), rng.random(60) < 0.4
    weights = rng.integers(0, 3, size=60).astype(float)
    wins = total = 0.0
    for v, w in zip(values[positive], weights[positive], strict=True):
        for other, u in zip(values[~positive], weights[~positive], strict=True):
            wins += w * u * ((v > other) + 0.5 * (v == other))
            total += w * u
    assert auroc(values, positive, weights) == pytest.approx(wins / total)
    assert interval([("a", values, positive)])["interval"] == [interval([("a", values, positive)])["auroc"]] * 2
    assert interval([("a", values, np.zeros(60, bool))])["auroc"] is None


def test_a_small_run_goes_on_and_keeps_no_sentence(tmp_path, capsys):
    sentences = [f"The {a} is red, and the {b} is big." for a in ("car", "house", "dog") for b in ("cat", "tree")]
    (tmp_path / "pairs.tsv").write_text("".join(f"{s}\tLa chose est là.\n" for s in sentences))
    arguments = ["--data", str(tmp_path / "pairs.tsv"), "--output", str(tmp_path / "run"), "--slow", "1"]
    main(arguments)
    first = (tmp_path / "run" / "results.json").read_text()
    main(arguments)
    assert (tmp_path / "run" / "results.json").read_text() == first
    results = json.loads(first)
    assert results["left out, by token"]["made omission"]["coverage"]["positive"] > 0
    assert results["reading"]["chosen on"] == "made omission" and len(results["heads"]) == 8
    assert set(results["let go of the source"]) == {"all", "of usual length", "where R(source) is known"}
    assert not any(sentence in first for sentence in sentences)
    assert Case("own", "0", True, "a", "b").as_dict()["marks"] == ()

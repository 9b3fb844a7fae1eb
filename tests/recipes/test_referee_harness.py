"""The referee as a whole on the embedded model, with a method of one's own; errors, costs, the page."""

import json
from pathlib import Path

import costs
import numpy as np
import pytest
import referee
import referee_page
from error_signal_cases import Case
from judgement.questions import BASELINE, QUESTIONS
from trials import errors, links
from trials.contestants import METHODS
from trials.sentences import translate
from trials.subjects import Subject

import hf_lrp
from hf_lrp.models.loading import EMBEDDED_MODEL

SOURCES = (
    "She came home, and the children slept in the garden.",
    "The old man is reading a book about cats.",
    "He was tired, but he read the whole newspaper.",
    "My sister has bought a red car this week.",
    "I like the city, but I live near the sea.",
    "They want to see the film again tomorrow.",
)
HEADER = "system\tdoc\tdoc_id\tseg_id\trater\tsource\ttarget\tcategory\tseverity\n"
OWN = '''
from dataclasses import dataclass

from hf_lrp.methods import Attention


@dataclass(frozen=True)
class LastLayer(Attention):
    """The last layer's first head."""

    heads: tuple = ((2, 0),)
'''


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options for a study of the embedded model on a few sentences, and a method of one's own to import."""
    (tmp_path / "sources.txt").write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    pairs = [("She has a red car .", "Elle a une voiture rouge .", "0-0 1-1 2-2 3-4 4-3 5-5")] * 4
    (tmp_path / "links.tsv").write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    rows = (
        (seg, "I <v>really</v> like the city.", "J'aime <v>beaucoup</v> la ville.", kind)
        for seg in "012"
        for kind in ("Omission", "Addition")
    )
    written = "".join(f"a\ttalk\t1\t{seg}\tr\t{s}\t{t}\tAccuracy/{kind}\tMajor\n" for seg, s, t, kind in rows)
    (tmp_path / "mqm.tsv").write_text(HEADER + written, encoding="utf-8")
    (tmp_path / "aligner.txt").write_text("0-0 1-1 2-2 3-4 4-3 5-5\n" * 3 + "0-1\n", encoding="utf-8")
    settings = "model: own, data: sources, gold: links, errors: mqm, sentences: 6, shortest: 5"
    settings += ", aligners: {nearly perfect: aligner, without a place: nowhere}"
    (tmp_path / "study.yaml").write_text(f"tiny: {{{settings}}}\n", encoding="utf-8")
    (tmp_path / "my_module.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    places = {"own": EMBEDDED_MODEL, **{name: tmp_path / f"{name}.tsv" for name in ("links", "mqm")}}
    places |= {"sources": tmp_path / "sources.txt", "aligner": tmp_path / "aligner.txt"}
    options = [part for name, path in places.items() for part in ("--place", f"{name}={path}")]
    return [*options, "--study", str(tmp_path / "study.yaml"), "--output", str(tmp_path / "out")]


def check_everything(study: list[str], chosen: list[str], tmp_path: Path) -> dict:
    """All questions are answered for all methods; a second run finds nothing to do."""
    arguments = [*study, "--method", "mine=my_module:LastLayer"]
    referee.main(arguments)
    (answers,) = json.loads((tmp_path / "out" / "answers.json").read_text(encoding="utf-8")).values()
    assert set(answers) == {question.name for question in QUESTIONS}
    for name, found in answers.items():
        assert {*chosen, "mine"} - {"attention"} <= set(found["standings"]), name
        assert found["winner"] is None  # a handful of sentences decide nothing
    again = tmp_path / "out" / "answers.json"
    again.unlink()
    referee.main([*arguments, "--decide"])
    assert json.loads(again.read_text(encoding="utf-8")) == {"tiny": answers}
    kept = {"another": {"tokens": {}}, "tiny": {name: {} if name == "links" else answers[name] for name in answers}}
    again.write_text(json.dumps(kept), encoding="utf-8")
    referee.main([*arguments, "--decide", "--question", "links"])
    assert json.loads(again.read_text(encoding="utf-8")) == {"another": {"tokens": {}}, "tiny": answers}
    again.unlink()
    files = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.jsonl")}
    referee.main(arguments)
    assert files == {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.jsonl")}
    return answers


def test_a_method_of_one_s_own_enters_the_table(study: list[str], tmp_path: Path, capsys, monkeypatch) -> None:
    cheap = {name: METHODS[name] for name in (BASELINE, "attention")}
    monkeypatch.setattr(referee, "METHODS", cheap)
    answers = check_everything(study, list(cheap), tmp_path)
    assert "mine" in capsys.readouterr().out
    assert links.PURPOSE_BUILT in answers["links"]["standings"]
    assert answers["links"]["standings"][links.PURPOSE_BUILT]["figure"][0] < 0.35
    # of two pairs of the test half, all six links are found of the first, and a wrong one of the second
    assert answers["links"]["standings"]["nearly perfect"]["figure"][0] == pytest.approx(1 - 12 / (7 + 12))
    assert answers["links"]["beside"]["nearly perfect"][0] < 0
    assert "without a place" not in answers["links"]["standings"]
    assert errors.PURPOSE_BUILT in answers["left-out"]["standings"]
    # weights of attention reach the prefix whatever it says, so that R(source) means nothing
    assert "attention" not in answers["without-support"]["standings"]


@pytest.mark.slow
def test_all_methods_answer_all_questions(study: list[str], tmp_path: Path) -> None:
    answers = check_everything(study, list(METHODS), tmp_path)
    costs.main(study)
    page = tmp_path / "page.md"
    names = ("answers", "costs", *(question.name for question in QUESTIONS))
    page.write_text("".join(f"<!-- table {name} -->\n<!-- end -->\n" for name in names), encoding="utf-8")
    referee_page.main(
        ["--results", str(tmp_path / "out"), "--page", str(page), "--picture", str(tmp_path / "referee.png")]
    )
    written = page.read_text(encoding="utf-8")
    for method in METHODS:
        asked = sum(method in found["standings"] for found in answers.values())
        assert asked >= len(answers) - 3  # attention has no R(source)
        assert (
            written.count(f"| {referee_page.name_of(method)} |") == asked + 1
        )  # a row of each question, and of costs
    assert (tmp_path / "referee.png").stat().st_size > 10_000


def test_links_of_other_pairs_are_refused(study: list[str], tmp_path: Path) -> None:
    (tmp_path / "aligner.txt").write_text("0-0\n" * 3, encoding="utf-8")
    subject = Subject("tiny", str(EMBEDDED_MODEL), "", gold=str(tmp_path / "links.tsv"))
    with pytest.raises(SystemExit, match="has 3 lines, but the gold file 4"):
        links.GoldPairs(subject).by_aligner(tmp_path / "aligner.txt")


# ---- errors


def test_kinds_take_turns_and_segments_come_once(study: list[str], tmp_path: Path) -> None:
    subject = Subject("tiny", str(EMBEDDED_MODEL), str(tmp_path / "sources.txt"), errors=str(tmp_path / "mqm.tsv"))
    cases = errors.find_cases(subject)
    kinds = [case["kind"] for case in cases]
    assert kinds == [*errors.KINDS.values()] * 3
    omission = cases[0]
    ((start, stop),) = omission["marks"]
    assert omission["source"][start:stop] == "and the children slept in the garden"
    marked = [case for case in cases if case["kind"] == "omission"]
    assert len({case["cluster"] for case in marked}) == len(marked) == 3


def test_scores_are_a_result_s_and_marks_those_of_the_words() -> None:
    model, tokenizer = hf_lrp.load()
    case = Case("made omission", "0", True, "The cat sleeps, I think.", "Le chat dort.", ((16, 23),))
    other = Case("made addition", "0", True, "The cat sleeps.", "Le chat dort, je crois.", ((14, 22),))
    subject = Subject("tiny", str(EMBEDDED_MODEL), "")
    read = errors.CasesRead(subject, [case.as_dict(), other.as_dict()])
    for number, side in ((0, "source"), (1, "target")):
        text, target = read.texts(number)
        result = hf_lrp.explain(model, tokenizer, text, target, predict="target")
        row = read.ask(number, result)
        tokens = result.source_tokens if side == "source" else result.target_tokens
        spoken = [place for place, token in enumerate(tokens) if any(map(str.isalnum, token)) and "<" not in token]
        scores = -result.source.amax(0) if side == "source" else -result.source_total
        assert row["score"] == pytest.approx(scores[spoken].tolist(), abs=1e-6)
        marked = "".join(tokens[place] for place, mark in zip(spoken, row["marked"], strict=True) if mark)
        assert marked.replace("▁", " ").strip() == ("I think" if number == 0 else "je crois")
    subject.explainer.model.generation_config.alignment_heads = None
    beside = dict(read.purpose_built(SOURCES, translate(subject, SOURCES)))
    assert beside.keys() == {0, 1}
    for row in beside.values():
        assert len(row["score"]) == len(row["marked"]) and np.isfinite(row["score"]).all()


def test_a_method_is_named_with_its_place(study: list[str]) -> None:
    for given, message in (("mine", "NAME=package.module:ATTRIBUTE"), ("mine=my_module:None_", "has no None_")):
        with pytest.raises(SystemExit, match=message):
            referee.main([*study, "--method", given])

"""What is usual in a model's own translations: ranks, files, and translations made once."""

import json
import math
from pathlib import Path

import pytest
from tiny_models import tiny_model
from tiny_tokenizer import tiny_tokenizer

from hf_lrp import explain
from hf_lrp.corpus import own_translations
from hf_lrp.corpus.own_translations import NAMES, OwnTranslations, load_or_measure, require_own
from hf_lrp.corpus.support import Measures
from hf_lrp.links.heads import Head, LinkHeads
from hf_lrp.links.weights import HeadReader

SOURCES = [f"the {a} is in the {b}" for a in ("cat", "dog", "house", "street") for b in ("house", "street", "big")]


HEADS = (Head(0, 1, "reads"), Head(1, 0, "predicts"))


def reader_of_tiny_model() -> HeadReader:
    model = tiny_model("marian", max_position_embeddings=32)
    model.generation_config.max_length = 6
    LinkHeads(HEADS).save(model)  # in a random model, no heads agree
    return HeadReader(model, tiny_tokenizer())


def own_of(**changes: object) -> OwnTranslations:
    values = dict.fromkeys(NAMES, (0.1, 0.2, 0.2, 0.4))
    plain = dict(values=values, measures=Measures(), heads=(Head(0, 1, "reads"),), sentences=12, kept=1.0)
    return OwnTranslations(**(plain | {"model": "m", "weights": "w", "sources": "s"} | changes))


def test_a_rank_is_the_share_that_is_lower() -> None:
    own = own_of()
    ranks = [own.rank("coverage", value) for value in (0.0, 0.1, 0.2, 0.3, 0.5)]
    assert ranks == [0.0, 0.0, 0.25, 0.75, 1.0]


def test_what_is_usual_is_read_as_written(tmp_path: Path) -> None:
    own = own_of(measures=Measures(ratio=True), heads=(Head(0, 1, "reads"), Head(1, 2, "predicts")))
    own.save(tmp_path / "c.json")
    assert OwnTranslations.load(tmp_path / "c.json") == own


@pytest.mark.parametrize(
    "changes",
    [
        {"values": {}},
        {"values": {name: [] for name in NAMES}},
        {"values": {name: [0.2, 0.1] for name in NAMES}},
        {"values": {name: [math.nan] for name in NAMES}},
        {"heads": []},
        {"heads": [[1]]},
        {"measures": {"other": True}},
        {"sentences": 0},
        {"kept": 2},
        {"unknown": 1},
        {"format": "hf_lrp.calibration"},
    ],
    ids=str,
)
def test_another_file_is_refused(tmp_path: Path, changes: dict) -> None:
    own_of().save(tmp_path / "c.json")
    content = json.loads((tmp_path / "c.json").read_text())
    (tmp_path / "c.json").write_text(json.dumps(content | changes))
    with pytest.raises(ValueError, match=r"c.json is not a calibration .*: give another file, or sentences"):
        OwnTranslations.load(tmp_path / "c.json")


def test_translations_are_those_of_the_model_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, path = reader_of_tiny_model(), tmp_path / "c.json"
    own = load_or_measure(reader, SOURCES, path, Measures())
    logs = [
        c.log_probability.mean().item() for c in explain(reader.model, tiny_tokenizer(), SOURCES, predict="target")
    ]
    assert own.values["log_probability"] == pytest.approx(sorted(logs), abs=1e-4)
    assert own.heads == HEADS
    assert own.sentences == len(SOURCES) == len(own.values["coverage"])
    assert all(0 < value < 1 for value in own.values["coverage"])
    assert len(own.values["source_word"]) == sum(len(source.split()) for source in SOURCES)
    monkeypatch.setattr(own_translations, "_translate", lambda *_: pytest.fail("translated again"))
    assert load_or_measure(reader, SOURCES, path, Measures()) == own
    assert not list(tmp_path.glob("*.partial"))


def test_an_interrupted_calibration_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of_tiny_model()
    whole = load_or_measure(reader, SOURCES, tmp_path / "a.json", Measures())
    monkeypatch.setattr(own_translations, "_BATCH", 5)
    append, appended = own_translations.Journal.append, []

    def limited(self: own_translations.Journal, row: dict) -> None:
        if len(appended) == 7:
            raise KeyboardInterrupt
        appended.append(row)
        append(self, row)

    monkeypatch.setattr(own_translations.Journal, "append", limited)
    with pytest.raises(KeyboardInterrupt):
        load_or_measure(reader, SOURCES, tmp_path / "b.json", Measures())
    monkeypatch.setattr(own_translations.Journal, "append", append)
    found = load_or_measure(reader, SOURCES, tmp_path / "b.json", Measures())
    assert found.sentences == 12
    assert found.values["coverage"] == pytest.approx(whole.values["coverage"], abs=1e-5)


def test_too_few_sentences_are_refused(tmp_path: Path) -> None:
    reader = reader_of_tiny_model()
    with pytest.raises(ValueError, match=r"3 translations are too few .* at least 10"):
        load_or_measure(reader, SOURCES[:3], tmp_path / "c.json", Measures())


def test_what_was_measured_otherwise_is_refused() -> None:
    with pytest.raises(ValueError, match="of words by coverage and log-probability, not by erasure and log-prob"):
        require_own(
            own_of(weights=own_translations.hash_weights(model := tiny_model())), model, Measures(erasure=True)
        )
    with pytest.raises(ValueError, match="with other weights"):
        require_own(own_of(), model, Measures())
    with pytest.raises(ValueError, match="another prompt"):
        require_own(own_of(prompt={"template": "x"}), model, Measures())

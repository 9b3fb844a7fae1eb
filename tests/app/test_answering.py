"""Answers are what `explain` gives, within limits; errors are told without what is not a visitor's business."""

from pathlib import Path

import pytest
import torch
from tiny_checkpoint import save_checkpoint
from tiny_decoders import tiny_decoder
from word_tokenizer import word_tokenizer

from hf_lrp import explain, load
from hf_lrp.app.answering import answer, describe_failure
from hf_lrp.app.models import EMBEDDED, Models
from hf_lrp.app.questions import Limits, Question

SOURCE, TARGET = "Where is the station?", "Où est la gare ?"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("models")
    tiny_decoder("llama").save_pretrained(folder / "decoder")
    word_tokenizer().save_pretrained(folder / "decoder")
    return Models([None, str(save_checkpoint(folder / "cats")), str(folder / "decoder")], kept=3)


@pytest.mark.parametrize(
    ("question", "options"),
    [
        (Question(SOURCE, "not read"), {}),
        (Question(SOURCE, TARGET, "reference"), {"target": TARGET}),
        (Question(SOURCE, prefix="random", unrelated="Il pleut."), {"prefix": "random", "pool": ["Il pleut."]}),
        (
            Question(SOURCE, TARGET, "reference", word="gare", other="banque"),
            {"target": TARGET, "predict": {"gare": "banque"}},
        ),
    ],
)
def test_answers_are_what_explain_gives(models: Models, question: Question, options: dict[str, object]) -> None:
    found = answer(question, EMBEDDED, models, Limits())
    model, tokenizer = load()
    expected = explain(model, tokenizer, SOURCE, **options)  # type: ignore[arg-type]
    assert torch.equal(found.result.source, expected.source) and torch.equal(found.result.target, expected.target)
    assert found.result.prefix == expected.prefix and found.result.model == EMBEDDED
    written = {"reference": TARGET, "random": "Il pleut."}.get(question.prefix)
    assert found.text == (written or tokenizer.decode(expected.target_ids, skip_special_tokens=True))


def test_models_without_an_encoder_are_asked_with_a_prompt(models: Models) -> None:
    question = Question("the cat", "a dog", "reference", prompt="write : {source} =")
    result = answer(question, "decoder", models, Limits()).result
    assert result.source_tokens == ("the", "cat") and result.spans["template"].tokens == (":", "=")
    assert (
        answer(Question("the cat", prompt="{source}"), "cats", models, Limits()).result.spans == {}
    )  # has an encoder


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        (Question("cat " * 9), "The source has 9 tokens; this app takes up to 8"),
        (Question("cat", "dog " * 10, "reference"), "The target has 10 tokens"),
        (Question("cat", prefix="random", unrelated="dog\n" + "dog " * 11), "unrelated sentence has 11 tokens"),
        (Question("cat", prompt="a {source} " + "b " * 40), "The prompt has .* tokens; this app takes up to 32"),
    ],
)
def test_long_texts_are_refused(models: Models, question: Question, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        answer(question, "decoder", models, Limits(tokens=8))


def test_what_a_model_writes_is_limited(models: Models) -> None:
    question = Question("I would like a cup of coffee.")
    assert len(answer(question, EMBEDDED, models, Limits(tokens=9)).result) > 8
    assert len(answer(Question("I like coffee."), EMBEDDED, models, Limits(tokens=5)).result) <= 5
    assert len(answer(Question("the cat"), "cats", models, Limits()).result) <= 12  # its checkpoint says so


def test_memory_is_limited(models: Models) -> None:
    with pytest.raises(ValueError, match="max_memory"):
        answer(Question(SOURCE), EMBEDDED, models, Limits(memory="1KB"))


def test_errors_are_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert describe_failure(ValueError("two\nlines \x1b[31m")) == "two lines \\x1b[31m"
    assert describe_failure(MemoryError()).startswith("This needs more memory")
    assert describe_failure(RuntimeError("DefaultCPUAllocator: can't allocate memory")).startswith("This needs more")
    assert capsys.readouterr().err == ""
    told = describe_failure(FileNotFoundError(Path("/srv/secret")))
    assert told == "The app failed (FileNotFoundError). Where it runs, its terminal says more."
    assert "/srv/secret" in capsys.readouterr().err

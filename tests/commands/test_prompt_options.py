"""`--prompt` and `--part`: commands with models without an encoder."""

import json
import random
from pathlib import Path

import pytest
from tiny_decoders import tiny_decoder
from word_tokenizer import word_tokenizer

from hf_lrp import Contributions, Prompt, explain
from hf_lrp.commands.cli import main
from hf_lrp.corpus import Run
from hf_lrp.corpus.timeline import Timeline
from hf_lrp.models.loading import load_checkpoint

CHAT = "{% for m in messages %}< {{ m.role }} > {{ m.content }} {% endfor %}< me > "
WORDS = "cat dog the it a b".split()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for step in (100, 200):
        tiny_decoder(seed=step).save_pretrained(folder / f"checkpoint-{step}")
        word_tokenizer(CHAT).save_pretrained(folder / f"checkpoint-{step}")
    return folder


@pytest.fixture
def model(models: Path) -> str:
    return str(models / "checkpoint-100")


@pytest.fixture
def data(tmp_path: Path) -> str:
    draw = random.Random(0)
    lines = ("\t".join(" ".join(draw.choices(WORDS, k=draw.randint(2, 4))) for _ in range(2)) for _ in range(16))
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "pairs.tsv")


def test_a_template_with_parts(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "examples.txt").write_text("a b\nb a\n")
    prompt = ["--prompt", r"{hint} :\n{examples}\n{source} =", "--part", "hint=write it"]
    prompt += ["--part", f"examples=@{tmp_path / 'examples.txt'}"]
    saved, png = tmp_path / "c.safetensors", tmp_path / "c.png"
    texts = ["--source", "cat dog", "--target", "the dog"]
    assert main(["explain", model, *texts, *prompt, "--save", str(saved), "--png", str(png)]) == 0
    parts = {"hint": "write it", "examples": "a b\nb a"}
    template = "{hint} :\n{examples}\n{source} ="
    expected = explain(*load_checkpoint(model), "cat dog", "the dog", prompt=Prompt(template, parts))
    assert Contributions.load(saved) == expected
    assert "raw shares" in capsys.readouterr().out and png.stat().st_size > 5000


def test_chat_messages_and_the_default(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messages = [{"role": "user", "content": "write {source}"}]
    (tmp_path / "chat.json").write_text(json.dumps(messages))
    texts = ["--source", "cat dog", "--target", "the dog", "--json", "-"]
    assert main(["explain", model, *texts, "--prompt", f"@{tmp_path / 'chat.json'}"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["spans"]["template"]["tokens"] == ["user", ">", "write", "<", "me", ">"]
    assert written["target_tokens"] == ["the", "dog", "</s>"]
    assert main(["explain", model, *texts[:-2], "--json", str(tmp_path / "default.json")]) == 0
    assert json.loads((tmp_path / "default.json").read_text())["source_tokens"] == ["cat", "dog"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", "write it"], "has no {source}"),
        (["--prompt", "{a} {source}"], "has {a}, but nothing to put there"),
        (["--prompt", "@missing.txt"], "missing.txt: No such file"),
        (["--prompt", "@missing.json"], "missing.json"),
    ],
)
def test_prompts_that_cannot_be_used(
    model: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", model, "--source", "cat", *options]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--part", "a=b"], "--part is for a --prompt"),
        (["--prompt", "{source}", "--part", "b"], "is not NAME=TEXT"),
        (["--prompt", "{a} {source}", "--part", "a=b", "--part", "a=c"], "names a part twice"),
    ],
)
def test_options_that_do_not_go_together(
    model: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["explain", model, "--source", "cat", *options])
    assert message in capsys.readouterr().err


def test_a_corpus_is_analyzed_compared_and_drawn(
    models: Path, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--lengths", "mixed", "--number", "10", "--prompt", "write it : {source} ="]
    options += ["--prefix", "reference"]
    runs = [str(tmp_path / f"run-{step}") for step in (100, 200)]
    for step, run in zip((100, 200), runs, strict=True):
        assert main(["analyze", str(models / f"checkpoint-{step}"), *options, "--out", run]) == 0
    printed = capsys.readouterr().out
    assert "Raw shares of the parts of the prompt" in printed and "first token" in printed
    assert Run.open(runs[0]).manifest["prompt"]["template"] == "write it : {source} ="
    assert main(["compare", *runs, "--out", str(tmp_path / "comparison")]) == 0
    assert "share of template" in capsys.readouterr().out
    assert "share of template" in (tmp_path / "comparison" / "report.html").read_text()
    assert main(["figures", runs[0], "--out", str(tmp_path / "figures")]) == 0
    assert (tmp_path / "figures" / "12-parts-of-the-prompt.png").stat().st_size > 5000
    changed = [option.replace("write it : ", "") for option in options]
    assert main(["analyze", str(models / "checkpoint-100"), *changed, "--out", runs[0]]) == 1
    assert "prompt is another" in capsys.readouterr().err


def test_scores_and_timelines(
    models: Path, model: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = ["--prompt", "write it : {source} ="]
    assert main(["score", model, "--data", data, "--out", str(tmp_path / "scores.tsv"), *prompt]) == 0
    assert len((tmp_path / "scores.tsv").read_text().splitlines()) == 17
    folders = [str(models / f"checkpoint-{step}") for step in (100, 200)]
    out = tmp_path / "timeline"
    options = ["--data", data, "--lengths", "mixed", "--number", "6", "--out", str(out)]
    assert main(["timeline", *folders, *options, *prompt]) == 0
    timeline = Timeline.load(out)
    assert timeline.overall["share of template"].value.shape == (2,)
    assert "change of share of source" in (out / "timeline.csv").read_text()

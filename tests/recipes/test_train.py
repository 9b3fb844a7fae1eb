"""Every training recipe, end to end, on a corpus that the project makes itself."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import draw_training
import pytest
from toy_corpus import toy_pairs
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_lrp import explain

RECIPES = Path(__file__).parents[2] / "recipes" / "training"
SMALL = {
    "data.config": "null",
    "data.test": 6,
    "data.validation": 6,
    "tokenizer.vocab_size": 300,
    "model.max_length": 32,  # an untrained model writes up to that
    "model.d_model": 16,
    "model.layers": 1,
    "model.heads": 2,
    "model.ffn_dim": 24,
    "training.source_tokens": 400,
    "training.device_tokens": 200,
    "training.max_steps": 4,
    "training.save_steps": 2,
    "training.eval_steps": 2,
    "training.logging_steps": 1,
    "training.candidates": 3,
    "training.use_cpu": "true",
    "training.report_to": "none",
    "training.disable_tqdm": "true",
    "training.dataloader_pin_memory": "false",
    "contributions.every": 2,
    "contributions.sentences": 2,
}


@pytest.fixture(scope="module")
def recipe() -> Any:
    spec = importlib.util.spec_from_file_location("train_recipe", RECIPES / "train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "toy.tsv"
    path.write_text("".join(f"{english}\t{french}\n" for english, french in short_pairs()), encoding="utf-8")
    return path


def short_pairs() -> list[tuple[str, str]]:
    return [pair for pair in toy_pairs(900, seed=1) if len(pair[0].split()) <= 6][:200]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def train(recipe: Any, config: str, corpus: Path | list[Path], output: Path, **settings: Any) -> dict[str, Any]:
    changes = SMALL | settings
    if config.startswith("wmt14"):
        changes |= {"data.subset": 150}
    options = [option for name, value in changes.items() for option in ("--set", f"{name}={value}")]
    path = RECIPES / "configs" / f"{config}.yaml"
    data = [str(file) for file in ([corpus] if isinstance(corpus, Path) else corpus)]
    recipe.main([str(path), "--data", *data, "--output", str(output), *options])
    return json.loads((output / "results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("corpus_name", ["tatoeba-mini", "wmt14-en-fr"])
@pytest.mark.parametrize("kind", ["base", "wd-source", "wd-target", "mrt"])
def test_a_recipe_runs_from_text_to_scores(recipe: Any, corpus: Path, runs: Path, corpus_name: str, kind: str) -> None:
    name = f"{corpus_name}-{kind}"
    settings = {}
    if kind == "mrt":
        start = runs / f"{corpus_name}-base" / "averaged"
        if not start.exists():
            train(recipe, f"{corpus_name}-base", corpus, start.parent)
        settings["start_from"] = start
    results = train(recipe, name, corpus, runs / name, **settings)
    assert results["sentences"] == 6 and 0 <= results["bleu"] <= 100
    lines = (runs / name / "contributions.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 2, 4]
    averaged = runs / name / "averaged"
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(averaged), AutoTokenizer.from_pretrained(averaged)
    result = explain(model.eval(), tokenizer, *short_pairs()[0])
    assert result.conservation_error <= 1e-5


@pytest.mark.parametrize("start_from", [False, True])
def test_the_attention_of_a_config_is_used(recipe: Any, corpus: Path, tmp_path: Path, start_from: bool) -> None:
    config = recipe.read_config(RECIPES / "configs" / "own-pairs-base.yaml")
    settings = [f"{name}={value}" for name, value in SMALL.items()] + ["attention=eager", f"data.path={corpus}"]
    if start_from:
        train(recipe, "own-pairs-base", corpus, tmp_path / "base")
        settings.append(f"start_from={tmp_path / 'base' / 'averaged'}")
    trainer, _, _ = recipe.prepare(recipe.with_settings(config, settings), tmp_path / "run")
    assert trainer.model.config._attn_implementation == "eager"


def test_two_files_of_parallel_lines(recipe: Any, corpus: Path, tmp_path: Path) -> None:
    """Also as the three commands of docs/training.md have it: likelihood, minimum risk, a picture of both."""
    lines = [line.split("\t") for line in corpus.read_text(encoding="utf-8").splitlines()]
    files = [tmp_path / "train.en", tmp_path / "train.fr"]
    for file, side in zip(files, zip(*lines, strict=True), strict=True):
        file.write_text("\n".join(side) + "\n", encoding="utf-8")
    train(recipe, "own-pairs-base", files, tmp_path / "base")
    train(recipe, "own-pairs-mrt", corpus, tmp_path / "mrt", start_from=tmp_path / "base" / "averaged")
    draw_training.main([str(tmp_path / "base"), str(tmp_path / "mrt"), "--output", str(tmp_path / "training.png")])
    assert (tmp_path / "training.png").stat().st_size > 0


def test_a_recipe_trains_what_the_released_scripts_train(recipe: Any, corpus: Path, runs: Path) -> None:
    train(recipe, "wmt14-en-fr-released", corpus, runs / "released")
    model = AutoModelForSeq2SeqLM.from_pretrained(runs / "released" / "averaged")
    assert type(model).__name__ == "PegasusForConditionalGeneration"
    assert (model.config.attention_dropout, model.config.activation_dropout) == (0.1, 0.1)
    state = json.loads((runs / "released" / "checkpoint-4" / "trainer_state.json").read_text())
    assert any("eval_bleu" in log for log in state["log_history"])  # translations are scored while it trains
    start = {"start_from": runs / "released" / "averaged"}
    results = train(recipe, "wmt14-en-fr-released-mrt", corpus, runs / "released-mrt", **start)
    assert results["sentences"] == 6


def test_settings_are_read_as_yaml_1_2_has_them(recipe: Any, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    changed = recipe.with_settings(
        {}, ["training.eval_strategy=no", "training.learning_rate=1e-5", "a.b=true", "a.c=7"]
    )
    assert changed == {"training": {"eval_strategy": "no", "learning_rate": 1e-5}, "a": {"b": True, "c": 7}}
    settings = {"eval_strategy": "no", "use_cpu": True, "candidates": 7}
    trainer, arguments = recipe.prepare_arguments({"training": settings}, tmp_path)
    assert trainer.__name__ == "TranslationTrainer" and arguments.eval_strategy == "no"
    assert "Not used by objective mle: candidates." in capsys.readouterr().out
    with pytest.raises(SystemExit, match="Unknown settings of training: candidate."):
        recipe.prepare_arguments({"training": {"candidate": 7}}, tmp_path)
    with pytest.raises(SystemExit, match="must be one of mle, mrt, got 'ml'"):
        recipe.prepare_arguments({"training": {"objective": "ml"}}, tmp_path)


def test_a_recipe_trains_on_a_stream(recipe: Any, corpus: Path, runs: Path, capsys: pytest.CaptureFixture) -> None:
    """A subset needs to know of how many pairs."""
    settings = {"data.streaming": "true", "training.stream_buffer": 60, "data.subset": 150}
    with pytest.raises(SystemExit, match="error: .* `total`"):
        train(recipe, "tatoeba-mini-base", corpus, runs / "stream", **settings)
    results = train(recipe, "tatoeba-mini-base", corpus, runs / "stream", **settings, **{"data.total": 188})
    assert results["sentences"] == 6
    assert json.loads((runs / "stream" / "checkpoint-4" / "stream.json").read_text())["step"] == 4
    assert "In the last pass over the stream: " in capsys.readouterr().out


def test_a_finished_run_is_not_trained_again(recipe: Any, corpus: Path, runs: Path) -> None:
    first = train(recipe, "tatoeba-mini-base", corpus, runs / "again")
    weights = (runs / "again" / "checkpoint-4" / "model.safetensors").stat().st_mtime_ns
    assert train(recipe, "tatoeba-mini-base", corpus, runs / "again") == first
    assert (runs / "again" / "checkpoint-4" / "model.safetensors").stat().st_mtime_ns == weights


def test_configs_build_on_each_other(recipe: Any) -> None:
    config = recipe.read_config(RECIPES / "configs" / "wmt14-en-fr-mrt.yaml")
    assert config["model"]["d_model"] == 512 and config["training"]["candidates"] == 50
    assert config["training"]["schedule_scale"] is None
    changed = recipe.with_settings(config, ["training.candidates=7", "model.d_model=64"])
    assert (changed["training"]["candidates"], changed["model"]["d_model"], changed["model"]["layers"]) == (7, 64, 6)


def test_bad_configs(recipe: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"There is no config .*tatoeba-mini-base\.yaml"):
        recipe.read_config(tmp_path / "none.yaml")
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(SystemExit, match=r"broken\.yaml is not valid YAML"):
        recipe.read_config(tmp_path / "broken.yaml")
    with pytest.raises(SystemExit, match="--set takes section.name=value, got 'training'"):
        recipe.with_settings({}, ["training"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.tset=3", "Unknown settings of data: tset; known are config, "),
        ("model.norms=pre", "Unknown settings of model: norms; known are .*norm"),
        ("trainng.max_steps=3", "Unknown setting or section 'trainng' in the config; known are attention, average, "),
        ("training.output_dir=x", "Unknown settings of training: output_dir"),
        ("training.device_tokens=0", "error: device_tokens .* must be positive"),
        ("data.test=6000", "error: .* are too few to hold out 6,000 for testing"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_used(recipe: Any, corpus: Path, tmp_path: Path, setting: str, message: str) -> None:
    """One line says why, before anything is trained."""
    config = str(RECIPES / "configs" / "own-pairs-base.yaml")
    with pytest.raises(SystemExit, match=message):
        recipe.main([config, "--data", str(corpus), "--output", str(tmp_path / "run"), "--set", setting])
    assert not list(tmp_path.glob("run/*"))

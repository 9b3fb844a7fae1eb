"""All analyses of the paper from one command, in the smallest size there is."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import paper
import pytest
import train
from filelock import FileLock
from study import Corpus, Training, read_study
from study_results import KeptResults
from toy_corpus import toy_pairs

from hf_lrp.commands.cli import build_parser
from hf_lrp.data.json_files import write_json

FEW = ("data.test=40", "data.validation=9", "tokenizer.vocab_size=160")
STUDIES = Path(paper.__file__).parent / "studies"
NAMES = sorted(path.stem for path in STUDIES.glob("*.yaml"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file of pairs."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{english}\t{french}\n" for english, french in toy_pairs(300, seed=1)), encoding="utf-8")
    return path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would be run; a training leaves the files that others wait for."""
    noted: list[list[str]] = []

    def note(command: list[str], check: bool) -> object:
        noted.append(list(command))
        if "--output" in command:
            folder = Path(command[command.index("--output") + 1])
            (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
            (folder / "results.json").write_text("{}")
        for kind, file in (("analyze", "metrics.json"), ("timeline", "timeline.json")):
            if kind in command:
                Path(command[command.index("--out") + 1], file).touch()
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(paper.subprocess, "run", note)
    return noted


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_a_command_that_is_understood(name: str, data: Path, commands: list[list[str]]) -> None:
    for corpus in read_study(STUDIES / f"{name}.yaml"):
        commands.clear()
        steps = paper.Reproduction(paper.shortened(corpus, 100), data.parent / "paper", data, None)
        assert paper.reproduce(steps.corpus, steps, ("train", "evaluate", "report"))
        trainings = [command for command in commands if command[1].endswith("train.py")]
        others = [command[3:] for command in commands if command[1:3] == ["-m", "hf_lrp"]]
        assert len(trainings) + len(others) == len(commands)
        assert len(trainings) == len(list(steps.corpus.trainings()))
        for command in trainings:
            settings = [value for flag, value in pairwise(command) if flag == "--set"]
            config = train.with_settings(train.read_config(Path(command[2])), settings)
            assert config["data"]["path"] == str(data)
            assert ("start_from" in config) == ("mrt" in Path(command[2]).stem)
        names = [build_parser().parse_args(command).command for command in others]
        baselines = 1 if corpus.checkpoint else len(corpus.seeds)
        further = bool(corpus.checkpoint) + (len(corpus.lengths) - 1) * baselines
        further -= len({*corpus.timelines} - {*corpus.curves})
        assert names.count("analyze") == len(trainings) + further  # a baseline on all kinds of lengths
        assert names.count("timeline") == len(corpus.timelines)
        assert names.count("compare") == 1 + bool(corpus.objectives) + bool(corpus.amounts) + len(corpus.timelines)


def test_models_are_named_and_start_where_they_should() -> None:
    corpus = Corpus(
        "c", "c.tsv", "mini", seeds=(1, 2), objectives=("mrt",), amounts={50: ("a.b=1",)}, timelines=("base",)
    )
    found = {training.name: training for training in corpus.trainings()}
    assert list(found) == ["c/base-seed1", "c/mrt-seed1", "c/base-seed2", "c/mrt-seed2", "c/50-pairs-seed1"]
    assert found["c/mrt-seed2"].starts_from == "c/base-seed2" and found["c/base-seed2"].starts_from is None
    assert "training.seed=2" in found["c/base-seed2"].settings
    assert "training.save_total_limit=null" in found["c/base-seed1"].settings
    amount = found["c/50-pairs-seed1"]
    assert amount.config == "mini-base" and {"a.b=1", "data.subset=50"} <= set(amount.settings)


def test_amounts_are_compared_in_their_order(data: Path, commands: list[list[str]]) -> None:
    corpus = Corpus("c", "c.tsv", "tatoeba-mini", settings=FEW, amounts={900: (), 50: ()})
    steps = paper.Reproduction(corpus, data.parent / "paper", data, None)
    for training in corpus.trainings():
        steps.run(training, "auto").mkdir(parents=True)
    steps.report()
    compared = next(command for command in commands if "--growth" in command)
    assert compared[compared.index("--labels") + 1 :] == ["50 pairs", "251 pairs", "900 pairs"]  # 300 - 40 - 9
    folders = compared[compared.index("compare") + 1 : compared.index("--out")]
    kinds = [Path(folder).name.removesuffix("-seed1-auto") for folder in folders]
    assert kinds == ["50-pairs", "base", "900-pairs"]


def test_what_another_process_works_on_is_passed_over(
    data: Path, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = Corpus("toy", "toy.tsv", "tatoeba-mini", settings=FEW, seeds=(1, 2), objectives=("mrt",))
    steps = paper.Reproduction(corpus, data.parent / "paper", data, None)
    first = steps.model("toy/base-seed1")
    first.mkdir(parents=True)
    with FileLock(first.parent / ".base-seed1.step.lock"):
        assert not paper.reproduce(corpus, steps, ("train",))
    assert capsys.readouterr().err.count("Passed over") == 2  # minimum risk starts from the first model
    assert [Path(command[command.index("--output") + 1]).name for command in commands] == ["base-seed2", "mrt-seed2"]
    assert paper.reproduce(corpus, steps, ("train",)) and len(commands) == 4
    tokenizers = {steps.model(f"toy/base-seed{seed}") / "tokenizer" / "tokenizer.json" for seed in corpus.seeds}
    assert len({path.read_bytes() for path in tokenizers}) == 1
    commands.clear()
    assert paper.reproduce(corpus, steps, ("train",)) and commands == []  # all done


def test_a_model_whose_results_are_kept_is_not_trained_again(data: Path, commands: list[list[str]]) -> None:
    corpus = Corpus("toy", "toy.tsv", "tatoeba-mini", settings=FEW, objectives=("wd-source", "mrt"), lengths=("auto",))
    kept = KeptResults(corpus, data.parent / "kept")
    kept.folder.mkdir(parents=True)
    steps = paper.Reproduction(corpus, data.parent / "paper", data, None, kept.folder.parent)

    def keep(training: Training) -> None:
        config = train.read_config(paper.TRAINING / "configs" / f"{training.config}.yaml")
        config = train.with_settings(config, [*training.settings, "data.path=elsewhere.tsv"])
        del config["data"]["path"]
        config.pop("start_from", None)
        write_json(kept.training(training.short_name), {"config": config})
        kept.evaluation(training.short_name, "auto").touch()

    def trained() -> list[str]:
        commands.clear()
        shutil.rmtree(steps.folder, ignore_errors=True)
        assert paper.reproduce(corpus, steps, ("train", "evaluate", "report"))
        return [Path(command[command.index("--output") + 1]).name for command in commands if "--output" in command]

    base, source, risk = corpus.trainings()
    keep(base)
    keep(source)
    assert trained() == ["base-seed1", "mrt-seed1"]  # which starts from the baseline
    keep(risk)
    assert trained() == [] and commands == []  # nor are pages made of evaluations that are not here
    kept.evaluation("wd-source-seed1", "auto").unlink()
    assert trained() == ["wd-source-seed1"]
    keep(replace(source, settings=(*source.settings, "training.max_steps=9")))
    assert trained() == ["wd-source-seed1"]  # its results are those of other settings


def test_results_are_kept_model_by_model(
    data: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What says of which settings they are is written last: until then, results count as missing."""
    corpus = Corpus("toy", "toy.tsv", "tatoeba-mini", settings=FEW, objectives=("wd-source",), timelines=("base",))
    steps = paper.Reproduction(corpus, data.parent / "paper", data, None)
    measured = type("Measured", (), {"write": lambda self, path: commands.append(["keep", path.name])})()
    monkeypatch.setattr(paper, "measure_run", lambda run: measured)
    monkeypatch.setattr(paper, "Run", type("Runs", (), {"open": staticmethod(lambda folder: folder)}))
    monkeypatch.setattr(KeptResults, "write_timeline", lambda self, kind, runs: commands.append(["keep", kind]))
    monkeypatch.setattr(
        KeptResults, "write_training", lambda self, training, *_: commands.append(["keep", training.short_name])
    )
    assert paper.reproduce(corpus, steps, ("train", "evaluate", "export"))
    done = [command[1] if command[0] == "keep" else Path(command[1]).name + command[3] for command in commands]
    done = [name if "--output" not in name else "train" for name in done]
    assert done == [
        *("train", "-manalyze", "-manalyze", "-mtimeline"),
        *("base-seed1-auto.parquet", "base-seed1-mixed.parquet", "base", "base-seed1"),
        *("train", "-manalyze", "wd-source-seed1-auto.parquet", "wd-source-seed1"),
    ]


def test_a_model_that_is_not_trained_is_not_evaluated(
    data: Path, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = Corpus("toy", "toy.tsv", "tatoeba-mini", settings=FEW, timelines=("base",))
    steps = paper.Reproduction(corpus, data.parent / "paper", data, None)
    assert not paper.reproduce(corpus, steps, ("evaluate", "report"))
    assert commands == [] and capsys.readouterr().err.count("toy/base-seed1 is not trained yet") == 1


def test_a_failing_step_ends_the_reproduction(data: Path) -> None:
    corpus = Corpus("toy", "toy.tsv", "tatoeba-mini", settings=(*FEW, "training.objective=none"))
    with pytest.raises(SystemExit, match="failed"):
        paper.reproduce(corpus, paper.Reproduction(corpus, data.parent / "paper", data, None), ("train",))


def test_too_few_pairs_are_an_error_that_says_so(data: Path) -> None:
    corpus = Corpus("toy", "toy.tsv", "tatoeba-mini")
    with pytest.raises(SystemExit, match="error: 300 distinct source sentences are too few to hold out 6,000"):
        paper.reproduce(corpus, paper.Reproduction(corpus, data.parent / "paper", data, None), ("train",))


def test_errors_of_study_files(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no study 'none'\. Known: small, toy"):
        read_study(STUDIES / "none.yaml")
    (tmp_path / "bad.yaml").write_text("toy: {data: a, configs: b, sizes: 3}")
    with pytest.raises(SystemExit, match="toy has unknown keys sizes; known: amount_seeds"):
        read_study(tmp_path / "bad.yaml")


@pytest.mark.slow
def test_a_tiny_reproduction(data: Path) -> None:
    output = data.parent / "paper"
    arguments = ["toy", "--data", str(data), "--output", str(output), "--dry-run", "150"]
    paper.main(arguments)
    content = json.loads((output / "claims" / "toy.json").read_text())
    assert {row["claim"] for row in content["claims"]} == {f"C{number}" for number in range(1, 16)}
    assert {row["model"] for row in content["models"]} == {
        *(f"{kind}-seed1" for kind in ("base", "wd-source", "wd-target", "mrt", "75-pairs", "50-pairs"))
    }
    for report in ("model", "objectives", "data", "training-base"):
        assert (output / "reports" / "toy" / report / "report.html").stat().st_size > 10_000
    for figure in ("model-auto", "objectives-model", "objectives-random", "minimum-risk", "training-base"):
        assert (output / "figures" / "toy" / f"{figure}.png").stat().st_size > 10_000
    before = (output / "claims" / "toy.json").read_bytes()
    paper.main(arguments)
    assert (output / "claims" / "toy.json").read_bytes() == before
    # what is kept is all that deciding and drawing need
    kept = data.parent / "kept"
    (output / "results").rename(kept)
    again = data.parent / "again"
    paper.main(
        [
            *arguments[:1],
            "--dry-run",
            "150",
            "--results",
            str(kept),
            "--stages",
            "decide",
            "draw",
            "--data",
            str(data),
            "--output",
            str(again),
        ]
    )
    assert (again / "claims" / "toy.json").read_bytes() == before
    assert (again / "figures" / "toy" / "model-auto.png").is_file()

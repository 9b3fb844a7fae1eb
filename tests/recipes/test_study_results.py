"""What is kept of a study decides as much as the evaluations themselves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import claims
import example_run
import numpy as np
import pytest
from claims.results import QUANTITIES
from example_run import make_sentence, write_run
from study import Corpus
from study_figures import charts_of_study
from study_results import KeptResults

from hf_lrp.corpus.manifest import RunError
from hf_lrp.corpus.run import Run
from hf_lrp.corpus.shards import Row
from hf_lrp.data.json_files import write_json

CORPUS = Corpus(
    "c", "c.tsv", "mini", objectives=("wd-source", "wd-target", "mrt"), timelines=("base",), lengths=("auto",)
)


def numbers(found: list[claims.Claim]) -> list[float]:
    return [number for claim in found for statement in claim.statements for number in statement.interval]


def checkpoint(folder: Path, step: int) -> Run:
    """The same tokens as at other steps, with other shares."""

    def made(number: int, prefix: str, **options: Any) -> Row:
        shares = make_sentence(number, prefix, **options | {"seed": step})
        return replace(make_sentence(number, prefix, **options), source=shares.source, target=shares.target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example_run, "make_sentence", made)
        return write_run(folder, number=24, lengths=(9, 12))


@pytest.mark.parametrize("lengths", [(9, 12), None])
def test_results_are_read_as_they_were_written(tmp_path: Path, lengths: tuple[int, int] | None) -> None:
    results = claims.measure_run(write_run(tmp_path / "run", number=24, lengths=lengths))
    results.write(tmp_path / "kept" / "run.parquet")
    kept = claims.Results.read(tmp_path / "kept" / "run.parquet")
    assert kept.name == results.name and kept.about == results.about and kept.number == 24
    for prefix in ("reference", "model", "random"):
        for name in QUANTITIES:
            for ours, theirs in zip(results.prefix(prefix)[name], kept.prefix(prefix)[name], strict=True):
                np.testing.assert_allclose(theirs, ours, rtol=0, atol=6e-4 if name == "source_use" else 6e-5)
    np.testing.assert_allclose(
        numbers(claims.check_model({1: kept})), numbers(claims.check_model({1: results})), rtol=0, atol=2e-3
    )


def test_checkpoints_keep_their_divergence_from_the_last_one(tmp_path: Path) -> None:
    runs = {step: checkpoint(tmp_path / f"{step}", step) for step in (100, 200, 400)}
    kept = KeptResults(CORPUS, tmp_path / "kept")
    kept.write_timeline("base", runs)
    found = kept.checkpoints("base")
    assert list(found) == [100, 200, 400]
    assert found[400].divergence is not None and np.abs(found[400].divergence).max() < 1e-6
    assert found[100].divergence is not None and found[100].divergence.min() > 0
    np.testing.assert_allclose(
        numbers(claims.check_training({1: found})), numbers(claims.check_training({1: runs})), rtol=0.02, atol=1e-3
    )
    assert [chart.stem for chart in charts_of_study(kept)] == ["training-base", "positions-base"]


def test_a_part_of_the_models_decides_what_it_can(tmp_path: Path) -> None:
    kept = KeptResults(CORPUS, tmp_path)
    assert kept.decide() == {} and len(kept.missing) == 5
    for kind in ("base", "wd-target"):
        run = write_run(tmp_path / "runs" / kind, number=24, lengths=(9, 12))
        claims.measure_run(run).write(kept.evaluation(f"{kind}-seed1", "auto"))
    found = kept.decide()
    assert list(found) == ["9 source and 12 target tokens", "objectives"]
    assert kept.missing == ["wd-source-seed1", "mrt-seed1", "timeline of base"]
    by_text = {statement.text: statement for claim in found["objectives"] for statement in claim.statements}
    assert by_text["R(source), minimum risk - baseline"].reason == "no model: minimum risk"
    assert by_text["R(source), target word dropout - baseline"].reason.startswith("one seed")
    assert [chart.stem for chart in charts_of_study(kept)] == ["model-auto", "objectives-model", "objectives-random"]
    kept.corpus = replace(CORPUS, curves=("base", "wd-target"))
    assert list(kept.decide())[:2] == ["9 source and 12 target tokens", "wd-target, 9 source and 12 target tokens"]
    assert [chart.stem for chart in charts_of_study(kept)][:2] == ["model-auto", "model-wd-target-auto"]


def test_the_baseline_is_one_of_the_amounts_of_data(tmp_path: Path) -> None:
    kept = KeptResults(replace(CORPUS, objectives=(), amounts={50: (), 800: ()}, amount_seeds=(1, 2)), tmp_path)
    kept.folder.mkdir()
    for seed in (1, 2):
        write_json(kept.training(f"base-seed{seed}"), {"kind": "base", "pairs": 200, "losses": [], "risks": []})
    for name in ("50-pairs-seed1", "base-seed1", "800-pairs-seed1", "800-pairs-seed2"):
        run = write_run(tmp_path / "runs" / name, number=24, lengths=(9, 12))
        claims.measure_run(run).write(kept.evaluation(name, "auto"))
    assert {pairs: list(seeds) for pairs, seeds in kept.amounts().items()} == {50: [1], 200: [1], 800: [1, 2]}
    chart = next(chart for chart in charts_of_study(kept) if chart.stem == "data")
    for panel in chart.panels:
        assert [curve.label for curve in panel.curves] == ["50 pairs", "200 pairs", "800 pairs"]
        assert all(curve.x[0] == 2 for curve in panel.curves)  # from the second step on
    claim = kept.decide()["data"][0]
    assert {statement.reason for statement in claim.statements} == {"not converged: 200 pairs"}


def test_what_was_kept_of_trainings_says_whether_they_converged(tmp_path: Path) -> None:
    kept = KeptResults(CORPUS, tmp_path)
    kept.folder.mkdir()
    score = {"bleu": 20.0, "chrf": 40.0, "sentences": 100, "updates": 500}
    falling, flat = (
        [[100 * n, loss] for n, loss in enumerate(losses, 1)] for losses in ([5, 4, 3, 2, 1], [5, 2, 2, 2, 2])
    )
    write_json(kept.training("base-seed1"), {"kind": "base", "losses": falling, "risks": [], **score})
    write_json(kept.training("wd-source-seed1"), {"kind": "wd-source", "losses": flat, "risks": [], **score})
    write_json(
        kept.training("mrt-seed1"), {"kind": "mrt", "losses": flat, "risks": [[50, -0.3], [100, -0.35]], **score}
    )
    assert {row["model"]: row["converged"] for row in kept.models()} == {
        "base-seed1": False,
        "wd-source-seed1": True,
        "mrt-seed1": True,
    }


def test_other_files_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table({"prefix": ["reference"]}), tmp_path / "other.parquet")
    with pytest.raises(RunError, match="holds no results"):
        claims.Results.read(tmp_path / "other.parquet")

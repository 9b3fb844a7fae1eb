"""The picture of trainings has a line for each run and prefix type that was logged."""

import json
from pathlib import Path

import pytest
from draw_training import draw, main


def write_run(folder: Path, *prefixes: str) -> Path:
    folder.mkdir()
    lines = [
        {"step": step} | {f"{prefix}/{name}": 0.5 + step / 100 for prefix in prefixes for name in names}
        for step in (0, 10, 20)
        for names in [("source_total", "source_entropy", "target_entropy")]
    ]
    (folder / "contributions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_lines_of_all_runs(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "base", "reference", "model"), write_run(tmp_path / "mrt", "model")]
    figure = draw(runs)
    for panel in figure.axes:
        labels = [line.get_label() for line in panel.get_lines()]
        assert labels == ["base, reference prefixes", "base, model prefixes", "mrt, model prefixes"]
        assert panel.get_lines()[0].get_xydata().tolist() == [[0, 0.5], [10, 0.6], [20, 0.7]]
    main([*map(str, runs), "--output", str(tmp_path / "a.png")])
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_contributions(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no contributions.jsonl"):
        draw([tmp_path])

"""Damage to every kind of file that the package writes: read as written, or an error that says what is wrong."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from changed_run import change_run, sharpen
from example_contributions import make_contributions
from example_run import write_run
from fuzzing import assert_says_what_to_do, numbers_of_cases, try_cases
from hypothesis import strategies as st

from hf_lrp import Contributions
from hf_lrp.corpus import Run
from hf_lrp.corpus.calibration import Calibration
from hf_lrp.corpus.timeline import Timeline, measure_timeline


class Kind(NamedTuple):
    """How files of a kind are written into a folder, and what is read from them, comparable with ==."""

    write: Callable[[Path], object]
    read: Callable[[Path], Any]


def read_contributions(folder: Path) -> Any:
    return Contributions.load(folder / "result.safetensors").to_dict()


def read_run(folder: Path) -> Any:
    run = Run.open(folder)
    rows = [s for prefix in run.prefixes for s in run.rows(prefix)]
    return [run.prefixes, run.metrics, [(s.prefix, s.pair, s.source.tolist(), s.target_tokens) for s in rows]]


def read_timeline(folder: Path) -> Any:
    timeline = Timeline.load(folder)
    return [timeline.steps.tolist(), {name: np.nan_to_num(e.value).tolist() for name, e in timeline.overall.items()}]


def write_timeline(folder: Path) -> None:
    runs = folder.with_name("runs")
    first = write_run(runs / "step-1", number=3, prefixes=["reference"])
    measure_timeline({1: first, 2: change_run(first, runs / "step-2", sharpen)}, "reference").save(folder)


CALIBRATION = Calibration((0.8, 0.7), (0.1, 0.2), 20, "tiny", "0" * 64, "1" * 64, 0.9, {"num_beams": 2})
KINDS = {
    "contributions": Kind(lambda folder: make_contributions().save(folder / "result.safetensors"), read_contributions),
    "run": Kind(lambda folder: write_run(folder, number=5), read_run),
    "timeline": Kind(write_timeline, read_timeline),
    "calibration": Kind(
        lambda folder: CALIBRATION.save(folder / "calibration.json"),
        lambda folder: Calibration.load(folder / "calibration.json"),
    ),
}
places = st.floats(0, 1, exclude_max=True)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
)


def cut(content: bytes, place: float, _: Any) -> bytes:
    return content[: int(place * len(content))]


def flip(content: bytes, place: float, value: Any) -> bytes:
    at = int(place * len(content))
    return content[:at] + bytes([content[at] ^ (1 << len(str(value)) % 8)]) + content[at + 1 :]


def repeat(content: bytes, place: float, _: Any) -> bytes:
    return content + content[int(place * len(content)) :]


def nest(content: bytes, *_: Any) -> bytes:
    return b"[" * 100_000 + content


def change_value(content: bytes, place: float, value: Any) -> bytes:
    """Replace or drop an entry of a JSON file, wherever it is."""
    try:
        tree = json.loads(content)
    except ValueError:
        return flip(content, place, value)
    nodes = [tree]
    for node in nodes:
        children = node.values() if isinstance(node, dict) else node
        nodes += [child for child in children if isinstance(child, (dict, list)) and child]
    node = nodes[int(place * len(nodes))]
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    key = keys[int(place * 1e6) % len(keys)]
    if value is None:
        del node[key]
    else:
        node[key] = value
    return json.dumps(tree).encode()


damages = st.sampled_from([cut, flip, repeat, nest, change_value])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cases", numbers_of_cases(40, 1500))
def test_damage_is_noticed(tmp_path: Path, kind: str, cases: int) -> None:
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    whole.mkdir()
    KINDS[kind].write(whole)
    expected = KINDS[kind].read(whole)
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.suffix != ".lock")
    refused = []

    def check(file: Path, damage: Callable[..., bytes], place: float, value: Any) -> None:
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(whole, damaged)
        (damaged / file).write_bytes(damage((whole / file).read_bytes(), place, value))
        try:
            found = KINDS[kind].read(damaged)
        except (ValueError, OSError) as error:
            assert_says_what_to_do(error)
            refused.append(file)
        else:
            # checksums cover runs and results; in other files, what could be meant is believed
            assert kind in ("timeline", "calibration") or same(found, expected)

    try_cases(check, cases, st.sampled_from(files), damages, places, values)
    assert len(refused) > cases / 4


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return torch.equal(found, expected)
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    return (
        bool(np.array_equal(found, expected, equal_nan=True))
        if isinstance(expected, np.ndarray)
        else found == expected
    )

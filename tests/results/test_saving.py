"""Files of contributions: everything in them, exactly, or a message that says what is wrong."""

import dataclasses
import json
import math
import os

import pytest
import torch
from example_contributions import make_contributions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from hf_lrp.results.contributions import Contributions
from hf_lrp.results.saving import FILE_FORMAT, save_fields


@pytest.mark.parametrize("described", [{"model": "x"}, {"unknown": 1}, [1]])
def test_files_that_lack_something_are_refused(tmp_path, described):
    path = tmp_path / "a.safetensors"
    save_fields(path, {"source": torch.zeros(1, 1)}, described)
    with pytest.raises(ValueError, match=r"a\.safetensors does not hold valid contributions: .* again"):
        Contributions.load(path)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    source=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1, max_size=5),
    target=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1, max_size=5),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
)
def test_files_hold_everything_exactly(tmp_path, source, target, dtype):
    contributions = make_contributions(source, target)
    contributions = dataclasses.replace(contributions, source=contributions.source.to(dtype), notes=("ünï\n", '"'))
    contributions.save(tmp_path / "a.safetensors")
    assert Contributions.load(str(tmp_path / "a.safetensors")) == contributions


def test_undefined_numbers_survive_a_file(tmp_path):
    contributions = make_contributions(
        conservation_error=math.nan, logits=torch.tensor([math.nan, math.inf, 1, 2, 3, 4])
    )
    contributions.save(tmp_path / "a.safetensors")
    assert Contributions.load(tmp_path / "a.safetensors") == contributions


def test_a_file_is_safetensors_with_a_description(tmp_path):
    path = tmp_path / "a.safetensors"
    make_contributions().merge_subwords().save(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    assert (metadata["format"], metadata["version"]) == (FILE_FORMAT, "4")
    assert json.loads(metadata["description"])["level"] == "word"
    assert load_file(path)["source"].shape == (5, 4)


def test_saving_leaves_the_old_file_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    make_contributions().save(path)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        make_contributions(seed=1).save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]
    assert Contributions.load(path) == make_contributions()


def test_missing_files_and_directories(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.safetensors does not exist; check the path"):
        Contributions.load(tmp_path / "nothing.safetensors")
    with pytest.raises(ValueError, match="is not a file"):
        Contributions.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"step,source\n1,0.9\n", b"\x80\x04pickle", bytes(4000)])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "other.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"other\.bin is truncated, damaged or not a safetensors file .* save again"):
        Contributions.load(path)


def test_a_models_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(3)}, path, {"format": "pt"})
    with pytest.raises(ValueError, match=r"model\.safetensors is a safetensors file, but not of contributions"):
        Contributions.load(path)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="but not of contributions"):
        Contributions.load(path)


@pytest.mark.parametrize(("version", "remedy"), [("2", "compute and save it again"), ("5", "install a newer hf_lrp")])
def test_other_versions_of_the_format_are_refused(tmp_path, version, remedy):
    path = tmp_path / "a.safetensors"
    make_contributions().save(path)
    path.write_bytes(path.read_bytes().replace(b'"version":"4"', f'"version":"{version}"'.encode()))
    with pytest.raises(ValueError, match=rf"a\.safetensors has format version {version}, .* version 4; {remedy}"):
        Contributions.load(path)


def test_tiny_probabilities_survive_a_file(tmp_path):
    contributions = make_contributions(log_probability=torch.tensor([-1e-9, -1.0, -90.0, -110.0, -500.0, -1e5]))
    contributions.save(tmp_path / "a.safetensors")
    loaded = Contributions.load(tmp_path / "a.safetensors")
    assert torch.equal(loaded.log_probability, contributions.log_probability)
    assert loaded.probability.tolist()[3:] == [0, 0, 0] and loaded[4].log_probability == -500
    assert loaded.merge_subwords().log_probability[2] == -200
    described = loaded.to_dict()
    assert described["log_probability"][3] == -110 and described["probability"][1] == pytest.approx(0.3679, abs=1e-4)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.sampled_from([None, *range(8)]))
def test_damaged_files_are_refused(tmp_path, place, bit):
    path = tmp_path / "a.safetensors"
    if not path.exists():
        make_contributions(model="ü 模型").save(path)
    content = bytearray(path.read_bytes())
    position = int(place * len(content))
    if bit is None:
        content = content[:position]
    else:
        content[position] ^= 1 << bit
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged\.safetensors "):
        Contributions.load(damaged)

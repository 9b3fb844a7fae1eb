"""The result: immutability, derived quantities, word level, files."""

import copy
import dataclasses
import json
import math
import os
import pickle
import sys

import pytest
import torch
from example_contributions import FRENCH, make_contributions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from hf_lrp.result.contributions import FILE_FORMAT, Contributions

WRITES = {
    "setitem": lambda tensor: tensor.__setitem__((0, 0), 9.0),
    "add_": lambda tensor: tensor.add_(1),
    "view": lambda tensor: tensor[0].fill_(9.0),
    "out": lambda tensor: torch.add(tensor, 1, out=tensor),
    "transpose_": lambda tensor: tensor.t_(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_writing_in_place_is_refused_and_changes_nothing(write):
    contributions, untouched = make_contributions(), make_contributions()
    with pytest.raises(RuntimeError, match="inference"):
        write(contributions.source)
    assert contributions == untouched


def test_no_way_in_changes_what_is_kept():
    given_source = make_contributions().source.clone()
    contributions, untouched = make_contributions(source=given_source), make_contributions()
    given_source.zero_()
    contributions.source.numpy().fill(9.0)
    contributions.source.data.fill_(9.0)
    with torch.inference_mode():
        contributions.source.fill_(9.0)
    assert contributions == untouched
    with pytest.raises(dataclasses.FrozenInstanceError):
        contributions.model = "other"
    with pytest.raises(TypeError):
        hash(contributions)


def test_tensors_can_be_read_and_copied_like_any_other():
    contributions = make_contributions()
    assert contributions.source[1, 2] == contributions.source.numpy()[1, 2]
    assert torch.equal(contributions.source * 2 - contributions.source, contributions.source)
    weights = contributions.source.clone().requires_grad_()
    (weights**2).sum().backward()
    assert torch.equal(weights.grad, 2 * contributions.source)
    for twin in (
        copy.deepcopy(contributions),
        copy.copy(contributions),
        pickle.loads(pickle.dumps(contributions)),
    ):
        assert twin == contributions
        with pytest.raises(RuntimeError, match="inference"):
            twin.source[0, 0] = 9.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"source": torch.zeros(5, 6)},
            r"source must have shape \[6, 5\] for 5 source and 6 target tokens, got \[5, 6\]",
        ),
        ({"target": torch.ones(6, 6)}, "target must be lower triangular"),
        ({"target": torch.eye(6)}, "target must be lower triangular"),
        (
            {"start": torch.zeros(6, dtype=torch.long)},
            "start must be a floating point tensor, got torch.int64",
        ),
        (
            {"target_ids": torch.zeros(6)},
            "target_ids must be an integer tensor, got torch.float32",
        ),
        ({"predicted_ids": torch.zeros(6, 3, dtype=torch.long)}, r"predicted_ids must have shape \[6, 2\]"),
        ({"logits": [1.0] * 6}, "logits must be a tensor, got list"),
        ({"predicted_tokens": ("a",)}, "predicted_tokens must have 6 entries, got 1"),
        ({"source_words": (0, 1, 3, 4, 5)}, "source_words must start at 0"),
        ({"target_words": (1, 1, 2, 2, 3, 4)}, "target_words must start at 0"),
        ({"prefix": "gold"}, "prefix must be one of reference, model, random, got 'gold'"),
        ({"source_tokens": ()}, "at least one source and one target token"),
    ],
)
def test_bad_fields_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_contributions(**changes)


def test_equality_is_exact():
    contributions = make_contributions()
    assert contributions == make_contributions()
    assert contributions != make_contributions(seed=1)
    assert contributions != make_contributions(model="other")
    assert contributions != make_contributions(source=contributions.source.double())
    source = contributions.source.clone()
    source[3, 3] = torch.nextafter(source[3, 3], torch.tensor(1.0))
    assert contributions != make_contributions(source=source)
    assert contributions != "contributions"


def test_totals_and_entropies():
    source = torch.tensor([[0.5, 0.5], [0.4, 0.4], [0.7, 0.0]])
    target = torch.tensor([[0.0, 0.0, 0.0], [0.2, 0.0, 0.0], [0.2, 0.1, 0.0]])
    contributions = make_contributions(("a", "b"), ("c", "d", "e"), source=source, target=target)
    torch.testing.assert_close(contributions.source_total, torch.tensor([1.0, 0.8, 0.7]))
    torch.testing.assert_close(contributions.target_total, torch.tensor([0.0, 0.2, 0.3]))
    torch.testing.assert_close(contributions.source_entropy, torch.tensor([math.log(2), math.log(2), 0.0]))
    of_thirds = math.log(3) - 2 / 3 * math.log(2)
    torch.testing.assert_close(contributions.target_entropy, torch.tensor([0.0, 0.0, of_thirds]))
    assert contributions.target_entropy.signbit().sum() == 0


def test_entropy_is_computed_in_double_precision():
    shares = torch.full((1, 3000), 0.1 / 3000)
    contributions = make_contributions(["x"] * 3000, ["y"], source=shares)
    assert contributions.source_entropy.dtype == torch.float32
    assert contributions.source_entropy.item() == pytest.approx(math.log(3000), rel=6e-8)


def test_entropy_of_negative_shares_is_nan():
    source = torch.tensor([[1.5, -0.5], [0.5, 0.5]])
    contributions = make_contributions(("a", "b"), ("c", "d"), source=source)
    assert contributions.source_entropy.isnan().tolist() == [True, False]
    assert not contributions.target_entropy.isnan().any()
    json.dumps(contributions.to_dict(), allow_nan=False)


def test_merging_by_hand():
    source = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.2], [0.1, 0.2, 0.3]])
    target = torch.tensor([[0.0, 0.0, 0.0], [0.4, 0.0, 0.0], [0.3, 0.1, 0.0]])
    contributions = make_contributions(
        ("▁sleep", "s", "</s>"),
        ("▁dor", "t", "</s>"),
        source=source,
        target=target,
        probability=torch.tensor([0.5, 0.5, 0.9]),
    )
    words = contributions.merge_subwords()
    assert words.source_tokens == ("sleeps", "</s>")
    assert words.target_tokens == words.predicted_tokens == ("dort", "</s>")
    torch.testing.assert_close(words.source, torch.tensor([[0.65, 0.15], [0.3, 0.3]]))
    torch.testing.assert_close(words.target, torch.tensor([[0.2, 0.0], [0.4, 0.0]]))
    torch.testing.assert_close(words.probability, torch.tensor([0.25, 0.9]))
    torch.testing.assert_close(words.logits[0], contributions.logits[:2].mean())
    assert words.source_ids.tolist() == [0, 2]
    assert words.level == "word"
    assert contributions.level == "token"


def test_contrastive_pairs_survive_merging():
    pairs = torch.arange(12).reshape(6, 2)
    merged = make_contributions(predicted_ids=pairs, predict="contrastive").merge_subwords()
    assert merged.predicted_ids.tolist() == [[0, 1], [2, 3], [4, 5], [8, 9], [10, 11]]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_merging_keeps_sums_and_is_idempotent(data):
    piece = st.sampled_from(["▁a", "b", "▁", "。", ".", "我", "'", "</s>"])
    source = data.draw(st.lists(piece, min_size=1, max_size=9))
    target = data.draw(st.lists(piece, min_size=1, max_size=9))
    contributions = make_contributions(source, target, seed=data.draw(st.integers(0, 1000)))
    words = contributions.merge_subwords()
    sums = words.source.sum(1) + words.target.sum(1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    for of_words, of_tokens in (
        (words.source_total, contributions.source_total),
        (words.target_total, contributions.target_total),
        (words.start, contributions.start),
    ):
        groups = torch.tensor(contributions.target_words)
        means = [of_tokens[groups == word].mean() for word in range(len(words.target_tokens))]
        torch.testing.assert_close(of_words, torch.stack(means))
    assert not words.target.triu(1).any()
    assert words.merge_subwords() == words


def test_to_dict_holds_everything_as_json():
    contributions = make_contributions()
    values = json.loads(json.dumps(contributions.to_dict(), allow_nan=False))
    assert values["source"] == contributions.source.tolist()
    assert values["target_tokens"] == list(FRENCH)
    assert values["source_total"] == contributions.source_total.tolist()
    fields = {field.name for field in dataclasses.fields(Contributions)}
    assert set(values) == fields | {"source_total", "target_total", "source_entropy", "target_entropy"}


def test_to_pandas_has_one_row_per_step_and_known_input():
    pytest.importorskip("pandas")
    contributions = make_contributions()
    frame = contributions.to_pandas()
    assert list(frame.columns) == ["step", "predicted", "side", "position", "token", "contribution"]
    assert len(frame) == 6 * 5 + 6 * 5 / 2
    row = frame[(frame.step == 3) & (frame.side == "target") & (frame.position == 2)].iloc[0]
    assert (row.predicted, row.token) == ("t", "▁dor")
    assert row.contribution == contributions.target[3, 2].item()
    assert frame.groupby("step").contribution.sum().tolist() == pytest.approx([1.0] * 6)
    assert len(contributions.merge_subwords().to_pandas()) == 5 * 4 + 5 * 6 / 2


def test_to_pandas_says_how_to_get_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        make_contributions().to_pandas()


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
    loaded = Contributions.load(str(tmp_path / "a.safetensors"))
    assert loaded == contributions
    with pytest.raises(RuntimeError, match="inference"):
        loaded.source[0, 0] = 9.0


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
    assert (metadata["format"], metadata["version"]) == (FILE_FORMAT, "1")
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
    with pytest.raises(ValueError, match=r"other\.bin is truncated, damaged or no safetensors file .* save again"):
        Contributions.load(path)


def test_a_models_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(3)}, path, {"format": "pt"})
    with pytest.raises(ValueError, match=r"model\.safetensors is a safetensors file, but not of contributions"):
        Contributions.load(path)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="but not of contributions"):
        Contributions.load(path)


def test_a_newer_version_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    make_contributions().save(path)
    path.write_bytes(path.read_bytes().replace(b'"version":"1"', b'"version":"2"'))
    with pytest.raises(ValueError, match=r"a\.safetensors has format version 2, .* reads up to 1; upgrade"):
        Contributions.load(path)


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


def test_text_for_a_shell():
    assert repr(make_contributions()).startswith("<Contributions of 5 source tokens to 6 steps, mean R(source) 0.")

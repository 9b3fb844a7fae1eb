"""The result: its fields, derived quantities, steps and other forms."""

import copy
import dataclasses
import json
import math
import pickle
import sys

import pytest
import torch
from example_contributions import FRENCH, make_contributions
from page_reader import read_page

from hf_lrp.results.contributions import Contributions


def test_fields_cannot_be_replaced_and_what_was_given_is_copied():
    given_source = make_contributions().source.clone()
    contributions, untouched = make_contributions(source=given_source), make_contributions()
    given_source.zero_()
    assert contributions == untouched
    with pytest.raises(dataclasses.FrozenInstanceError):
        contributions.model = "other"
    with pytest.raises(TypeError):
        hash(contributions)


def test_reading_an_attribute_copies_nothing():
    contributions = make_contributions()
    assert contributions.source is contributions.source
    assert contributions.source.data_ptr() == contributions.source.data_ptr()


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_tensors_are_ordinary_and_take_part_in_autograd(mode):
    with mode():
        made = make_contributions()
        contributions = make_contributions(source=made.source * 1, logits=made.logits + 0)
    tensors = [value for value in vars(contributions).values() if isinstance(value, torch.Tensor)]
    assert len(tensors) == 9
    assert not any(tensor.is_inference() or tensor.requires_grad for tensor in tensors)
    weights = torch.ones(5, requires_grad=True)
    (contributions.source @ weights).sum().backward()
    torch.testing.assert_close(weights.grad, contributions.source.sum(0))


def test_tensors_of_a_graph_are_detached():
    source = make_contributions().source.requires_grad_()
    assert not make_contributions(source=source * 1).source.requires_grad


def test_copies_are_equal():
    contributions = make_contributions()
    for twin in (
        copy.deepcopy(contributions),
        copy.copy(contributions),
        pickle.loads(pickle.dumps(contributions)),
    ):
        assert twin == contributions


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
        ({"steps": (1, 2)}, "predicted_tokens must have 2 entries, got 6"),
        ({"steps": (1, 3, 2, 4, 5, 6)}, "steps must be ascending numbers from 1 to 6"),
        ({"steps": (2, 3, 4, 5, 6, 7)}, "steps must be ascending numbers from 1 to 6"),
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
    torch.testing.assert_close(contributions.target_entropy, torch.tensor([math.nan, 0.0, of_thirds]), equal_nan=True)
    assert not contributions.target_entropy[1:].signbit().any()


def test_entropy_is_computed_in_double_precision():
    shares = torch.full((1, 3000), 0.1 / 3000)
    contributions = make_contributions(["x"] * 3000, ["y"], source=shares)
    assert contributions.source_entropy.dtype == torch.float32
    assert contributions.source_entropy.item() == pytest.approx(math.log(3000), rel=6e-8)


def test_entropy_of_negative_shares_is_nan():
    source = torch.tensor([[1.5, -0.5], [0.5, 0.5]])
    contributions = make_contributions(("a", "b"), ("c", "d"), source=source)
    assert contributions.source_entropy.isnan().tolist() == [True, False]
    assert contributions.target_entropy.isnan().tolist() == [True, False]
    json.dumps(contributions.to_dict(), allow_nan=False)


def test_to_dict_holds_everything_as_json():
    contributions = make_contributions()
    values = json.loads(json.dumps(contributions.to_dict(), allow_nan=False))
    assert values["source"] == contributions.source.tolist()
    assert values["target_tokens"] == list(FRENCH)
    assert values["source_total"] == contributions.source_total.tolist()
    fields = {field.name for field in dataclasses.fields(Contributions)}
    derived = {"probability", "source_total", "target_total", "source_entropy", "target_entropy"}
    assert set(values) == fields | derived


def test_to_pandas_has_one_row_per_step_and_known_input():
    pytest.importorskip("pandas")
    contributions = make_contributions()
    frame = contributions.to_pandas()
    assert list(frame.columns) == ["step", "predicted", "side", "position", "token", "contribution"]
    assert len(frame) == 6 * 5 + 6 * 5 / 2
    assert (frame.step.min(), frame.step.max(), frame.position.min()) == (1, 6, 1)
    row = frame[(frame.step == 4) & (frame.side == "target") & (frame.position == 3)].iloc[0]
    assert (row.predicted, row.token) == ("t", "▁dor")
    assert row.contribution == contributions.target[3, 2].item()
    assert frame.groupby("step").contribution.sum().tolist() == pytest.approx([1.0] * 6)
    assert len(contributions.merge_subwords().to_pandas()) == 5 * 4 + 5 * 6 / 2


def test_to_pandas_says_how_to_get_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        make_contributions().to_pandas()


def test_text_for_a_shell():
    assert repr(make_contributions()).startswith(
        "<Contributions of 5 source tokens to 6 steps, mean R(source) from step 2 on 0."
    )


def test_a_number_of_largest_shares_is_positive() -> None:
    for n in (0, -1):
        with pytest.raises(ValueError, match=f"n must be at least 1, got {n}"):
            make_contributions()[2].top_source(n)


def test_means_leave_out_step_1():
    contributions = make_contributions()
    mean = contributions.mean()
    assert mean["source_total"] == pytest.approx(contributions.source_total[1:].mean().item())
    assert mean["source_entropy"] == pytest.approx(contributions.source_entropy[1:].mean().item())
    assert mean["target_entropy"] == pytest.approx(contributions.target_entropy[1:].mean().item())
    assert all(map(math.isnan, make_contributions(("a",), ("b",)).mean().values()))
    assert "from step 2 on undefined" in repr(make_contributions(("a",), ("b",)))


class TestSteps:
    def test_a_step_shows_one_prediction(self):
        c = make_contributions()
        step = c[3]
        assert (step.number, step.token, step.predicted_token, step.is_written) == (4, "t", "t", True)
        assert step.probability == c.probability[3].item() and step.logit == c.logits[3].item()
        assert step.prefix_tokens == FRENCH[:3]
        assert torch.equal(step.source, c.source[3]) and torch.equal(step.target, c.target[3, :3])
        assert step.source_total == pytest.approx(step.source.sum().item())
        assert step.source_total + step.target_total == pytest.approx(1)
        assert repr(step).startswith("<Step 4: 't', probability 0.")

    def test_they_are_counted_iterated_and_indexed_like_a_sequence(self):
        c = make_contributions()
        assert len(c) == 6
        assert [step.number for step in c] == [1, 2, 3, 4, 5, 6]
        assert c[-1].predicted_token == "</s>"
        for outside in (6, -7):
            with pytest.raises(IndexError, match=r"no step at index -?\d: there are 6 steps"):
                c[outside]

    def test_largest_shares_come_first(self):
        c = make_contributions()
        shares = [share for _, share in c[5].top_source()]
        assert shares == sorted(c.source[5].tolist(), reverse=True)
        assert c[5].top_target(2)[0] == (FRENCH[c.target[5].argmax()], c.target[5].max().item())

    def test_a_slice_is_a_result_with_fewer_steps(self):
        c = make_contributions()
        part = c[2:5]
        assert part.steps == (3, 4, 5) and len(part) == 3
        assert torch.equal(part.source, c.source[2:5]) and torch.equal(part.target, c.target[2:5])
        assert part.predicted_tokens == FRENCH[2:5] and part.target_tokens == FRENCH
        assert [step.number for step in part] == [3, 4, 5]
        assert part[0].prefix_tokens == c[2].prefix_tokens
        assert part.mean()["source_total"] == pytest.approx(c.source_total[2:5].mean().item())
        assert c[:2].mean()["source_total"] == pytest.approx(c.source_total[1].item())
        assert part[1:].steps == (4, 5) and c[::2].steps == (1, 3, 5) and c[:] == c
        with pytest.raises(IndexError, match="the slice holds none of the 6 steps"):
            c[6:]

    def test_a_slice_can_be_shown_and_saved(self, tmp_path):
        part = make_contributions()[2:5]
        assert "3 of 6 steps" in str(part)
        assert "   3 ▁dor" in str(part) and "   2 ▁chat" not in str(part)
        assert read_page(part.to_html())["entries"][0]["results"][0]["levels"]["token"]["steps"] == [3, 4, 5]
        assert len(part.plot().axes[0].get_yticklabels()) == 3
        assert sorted(set(part.to_pandas().step)) == [3, 4, 5]
        part.save(tmp_path / "a.safetensors")
        assert Contributions.load(tmp_path / "a.safetensors") == part

    def test_words_have_steps_too(self):
        words = make_contributions().merge_subwords()
        assert len(words) == 5
        assert words[2].prefix_tokens == ("Le", "chat", "dort")
        assert words[1:3].target[1, 2] == words.target[2, 2]

    def test_steps_that_may_cut_words_are_not_merged(self):
        with pytest.raises(ValueError, match="3 of 6 steps, which may cut words: call merge_subwords"):
            make_contributions()[2:5].merge_subwords()


class TestMarks:
    @pytest.fixture
    def other(self):
        """The third prediction is not the third token of the target."""
        ids = torch.arange(6) + 100
        ids[2] = 7
        return make_contributions(predicted_ids=ids, predicted_tokens=(*FRENCH[:2], "▁man", *FRENCH[3:]))

    def test_steps_say_whether_the_explained_token_is_the_written_one(self, other):
        assert other.is_written == (True, True, False, True, True, True)
        assert all(make_contributions().is_written)
        assert repr(other[2]).startswith("<Step 3: '▁man' (written: '▁dor'), ")
        pairs = torch.stack([other.predicted_ids, other.target_ids], 1)
        contrast = dataclasses.replace(other, predicted_ids=pairs, predict="contrastive")
        assert contrast.is_written == other.is_written
        assert other.merge_subwords().is_written == (True, True, False, True, True)

    def test_table_page_and_picture_mark_them(self, other):
        assert "   3 ▁man≠▁dor" in str(other)
        assert "≠: at 1 of 6 steps the explained token is not the written one" in str(other)
        (result,) = read_page(other.to_html())["entries"][0]["results"]
        assert result["levels"]["token"]["explained"] == [None, None, "man", None, None, None]
        assert result["levels"]["word"]["explained"] == [None, None, "man / t", None, None]
        assert result["notes"][-1] == "at 1 of 6 steps the explained token is not the written one"
        labels = [label.get_text() for label in other.plot().axes[0].get_yticklabels()]
        assert labels == ["Le", "chat", "man ≠ dor", "t", ".", "</s>"]

    def test_nothing_is_marked_where_they_agree(self):
        c = make_contributions()
        assert "≠" not in str(c) + "".join(c.row_labels)
        (result,) = read_page(c.to_html())["entries"][0]["results"]
        assert not any(result["levels"]["token"]["explained"])


def test_a_page_can_be_written(tmp_path):
    c = make_contributions()
    assert c.to_html(tmp_path / "page.html") is None
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == c.to_html()

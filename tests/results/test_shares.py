"""Shares of methods other than LRP: their own values, their signs, and what is made of them."""

import dataclasses
import json
import math

import pytest
import torch
from example_contributions import FRENCH, make_contributions

from hf_lrp.results.contributions import Contributions
from hf_lrp.results.inside import Inside
from hf_lrp.results.shares import to_shares
from hf_lrp.results.spans import Span
from hf_lrp.results.used_method import UsedMethod

SOURCE = torch.tensor([[3.0, -1.0], [0.5, 0.5], [0.0, 0.0]])
TARGET = torch.tensor([[0.0, 0.0, 0.0], [-2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
START = torch.tensor([1.0, -1.0, 0.0])


def signed(start_token: str = "exclude", **changes) -> Contributions:
    """The values above, as a method of signs makes a result of them."""
    source, target, start, scale = to_shares(SOURCE, TARGET, START, sums_to_one=False)
    if start_token == "exclude":
        kept = (1 - start.abs())[:, None]
        source, target = source / kept, target / kept
    values = dict(source=source, target=target, start=start, scale=scale, sums_to_one=False, start_token=start_token)
    return make_contributions(("▁a", "▁b"), ("▁c", "d", "</s>"), **(values | changes))


def test_values_with_a_sum_are_divided_by_it():
    source, target, start, scale = to_shares(SOURCE, TARGET, START, sums_to_one=True)
    assert scale.tolist() == [3, -2, 0]
    assert source.tolist() == [[1, pytest.approx(-1 / 3)], [-0.25, -0.25], [0, 0]]
    assert target[1].tolist() == [1, 0, 0]
    assert start.tolist() == [pytest.approx(1 / 3), 0.5, 0]


def test_values_of_both_signs_are_divided_by_their_sizes():
    source, target, start, scale = to_shares(SOURCE, TARGET, START, sums_to_one=False)
    assert scale.tolist() == [5, 4, 0]
    assert source[0].tolist() == pytest.approx([0.6, -0.2])
    assert target[1, 0].item() == -0.5
    assert start[:2].tolist() == pytest.approx([0.2, -0.25])


@pytest.mark.parametrize("start_token", ["exclude", "keep"])
def test_raw_values_come_back(start_token):
    raw = signed(start_token).raw
    torch.testing.assert_close(raw.source, SOURCE)
    torch.testing.assert_close(raw.target, TARGET)
    torch.testing.assert_close(raw.start, START)


def test_totals_and_entropies_of_signed_shares_count_sizes():
    c = signed()
    assert c.source_total[:2].tolist() == pytest.approx([1.0, 1 / 3])
    assert c.target_total[:2].tolist() == pytest.approx([0.0, 2 / 3])
    assert c.source_entropy[0].item() == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert c.part_totals["start"][0].item() == pytest.approx(0.2)
    assert sum(abs(total[0].item()) for total in c.part_totals.values()) == pytest.approx(1.0)


def test_raw_shares_of_lrp_have_the_start_in_them_again():
    c = make_contributions()
    torch.testing.assert_close(c.raw.source, c.source * 0.97)
    torch.testing.assert_close(c.raw.start, c.start)


def test_raw_values_of_spans():
    spans = {"prompt": Span(("a",), torch.full((3, 1), 0.1))}
    assert signed(spans=spans).raw.spans["prompt"][:, 0].tolist() == pytest.approx([0.5, 0.4, 0])


def test_words_have_raw_values_only_where_their_pieces_have_one_scale():
    with pytest.raises(ValueError, match="before merge_subwords"):
        _ = signed().merge_subwords().raw
    source, start = torch.tensor([[0.4, 0.6], [0.4, 0.2], [0.5, 0.0]]), torch.tensor([0.2, 0.2, -0.5])
    target = torch.tensor([[0.0, 0.0, 0.0], [0.4, 0.0, 0.0], [0.2, 0.3, 0.0]])
    c = signed(source=source, target=target, start=start, scale=torch.tensor([2.0, 2.0, 5.0]))
    words = c.merge_subwords()
    assert words.scale.tolist() == pytest.approx([2, 5])
    assert words.raw.target[1, 0].item() == pytest.approx(c.raw.target[2, :2].sum().item())


@pytest.mark.parametrize("start_token", ["exclude", "keep"])
def test_sizes_of_words_sum_to_one_though_pieces_cancel_and_raw_values_stay(start_token):
    c = signed(start_token, source_words=(0, 0), target_words=(0, 1, 2))
    words = c.merge_subwords()
    own = words.start.abs() if start_token == "keep" else 0
    sizes = words.source.abs().sum(1) + words.target.abs().sum(1) + own
    torch.testing.assert_close(sizes[:2], torch.ones(2))
    torch.testing.assert_close(words.raw.source, SOURCE.sum(1, keepdim=True))
    torch.testing.assert_close(words.raw.target, TARGET)
    torch.testing.assert_close(words.raw.start, START)


def test_steps_keep_their_scale_and_inside():
    c = signed(inside=Inside({"heads": torch.arange(6.0).reshape(3, 2)}))
    assert c[1:].scale.tolist() == [4, 0]
    assert c[1:].inside["heads"].tolist() == [[2, 3], [4, 5]]
    assert c.merge_subwords().inside["heads"].tolist() == [[1, 2], [4, 5]]  # the mean of the first word's two pieces
    with pytest.raises(ValueError, match=r"inside\['heads'\] must have 3 rows"):
        signed(inside=Inside({"heads": torch.zeros(2, 2)}))


def test_files_and_dictionaries_have_method_scale_and_inside(tmp_path):
    method = UsedMethod("Attention", {"heads": [1, 2], "layer": None})
    c = signed(method=method, inside=Inside({"heads": torch.ones(3, 2)}), conservation_error=math.nan)
    c.save(tmp_path / "a")
    loaded = Contributions.load(tmp_path / "a")
    assert loaded == c
    assert str(loaded.method) == "Attention(heads=[1, 2], layer=None)"
    plain = json.loads(json.dumps(c.to_dict(), allow_nan=False))
    assert plain["method"] == {"name": "Attention", "settings": {"heads": [1, 2], "layer": None}}
    assert plain["inside"]["heads"][0] == [1, 1] and plain["conservation_error"] is None
    assert loaded != dataclasses.replace(c, inside=None)


def test_views_say_that_shares_have_signs():
    c = signed(conservation_error=math.nan)
    assert "shares of both signs whose sizes sum to 1" in " ".join(str(c).split())
    assert "-12%" in str(signed("keep")) or "-20%" in str(signed("keep"))
    assert "of both signs; their sizes sum to 1" in c.to_html()


def test_a_result_needs_a_method():
    with pytest.raises(ValueError, match="method must be a UsedMethod"):
        make_contributions(method="LRP")
    with pytest.raises(ValueError, match="a method is a name and its settings"):
        UsedMethod("LRP", "epsilon")


def test_methods_are_told_by_their_fields():
    @dataclasses.dataclass(frozen=True)
    class ALTI:
        layers: tuple[int, ...] = (1, 2)
        rule: object = dataclasses.field(default_factory=lambda: FRENCH[0])

    assert UsedMethod.of(ALTI()).to_plain() == {"name": "ALTI", "settings": {"layers": [1, 2], "rule": "▁Le"}}

"""Two results side by side."""

import io

import numpy as np
import pytest
import torch
from example_contributions import ENGLISH, FRENCH, make_contributions
from matplotlib.figure import Figure

from hf_lrp.results.contributions import Contributions
from hf_lrp.results.spans import Span

OTHER = ("▁Un", "▁chat", "▁fait", "▁do", "do", "</s>", "</s>")


def draw(figure) -> None:
    figure.savefig(io.BytesIO(), format="png", dpi=40)


@pytest.fixture
def pair():
    return make_contributions(), make_contributions(seed=1, prefix="random")


def test_differences_are_second_minus_first(pair):
    comparison = pair[0].compare(pair[1])
    assert torch.equal(comparison.source, pair[1].source - pair[0].source)
    assert torch.equal(comparison.target, pair[1].target - pair[0].target)
    torch.testing.assert_close(comparison.source_total, comparison.source.sum(1), rtol=0, atol=1e-6)
    assert comparison.names == ("model", "random")
    assert repr(comparison) == "<Comparison of 'model' and 'random', the same target>"


def test_means_leave_out_step_1(pair):
    pytest.importorskip("pandas")
    means = pair[0].compare(pair[1]).means
    assert list(means.columns) == ["first", "second", "difference"]
    assert list(means.index) == ["source_total", "source_entropy", "target_entropy"]
    first, second = (c.source_total[1:].mean().item() for c in pair)
    assert means.loc["source_total"].tolist() == pytest.approx([first, second, second - first], abs=1e-6)
    assert f"{second - first:.3f}" in str(pair[0].compare(pair[1]))


def test_a_table_has_a_row_per_step(pair):
    pytest.importorskip("pandas")
    frame = pair[0].compare(pair[1]).to_pandas()
    assert frame.step.tolist() == [1, 2, 3, 4, 5, 6]
    assert frame.source_total_second[3] == pytest.approx(pair[1].source_total[3].item())
    assert frame.source_total_difference[0] == pytest.approx(0, abs=1e-6)


def test_the_picture_shows_the_difference_and_both_curves(pair):
    comparison = pair[0].compare(pair[1])
    figure = comparison.plot()
    draw(figure)
    source, prefix, curves, _bar = figure.axes
    np.testing.assert_array_equal(source.images[0].get_array(), comparison.source.double())
    assert source.images[0].norm.vmin == -source.images[0].norm.vmax
    assert np.ma.getmaskarray(prefix.images[0].get_array()).sum() == 15
    assert [line.get_label() for line in curves.lines] == ["model", "random"]


def test_rows_name_both_tokens_where_predictions_differ():
    other = make_contributions(seed=1, predicted_tokens=("▁La", *FRENCH[1:]))
    assert make_contributions().compare(other).row_labels[:2] == ("Le | La", "chat")


def test_rows_say_what_is_written_where_neither_predicts_it():
    ids = torch.tensor([7, 101, 102, 103, 104, 105])
    first = make_contributions(predicted_tokens=("▁La", *FRENCH[1:]), predicted_ids=ids)
    second = make_contributions(
        seed=1, predicted_tokens=("▁Un", *FRENCH[1:]), predicted_ids=ids + 1 - (ids > 7).long()
    )
    assert first.compare(second).row_labels[:2] == ("La | Un ≠ Le", "chat")
    assert first.compare(first).row_labels[0] == "La ≠ Le"


def test_models_are_named_without_their_paths_unless_only_paths_tell_them_apart():
    first, second, third = (make_contributions(model=f"/runs/{name}") for name in ("a/best", "b/best", "b/last"))
    assert first.compare(third).names == ("best", "last")
    assert first.compare(second).names == ("/runs/a/best", "/runs/b/best")


def test_parts_of_a_prompt_are_compared_by_token_or_by_their_totals():
    def with_spans(share: float, example: tuple[str, ...]) -> Contributions:
        spans = {"note": ("▁Tra", "ns", "late"), "examples": example}
        shares = {name: Span(tokens, torch.full((6, len(tokens)), share)) for name, tokens in spans.items()}
        return make_contributions(spans=shares)

    figure = with_spans(0.01, ("a", "b")).compare(with_spans(0.03, ("a", "b", "c"))).plot()
    note, examples = (axes.images[0].get_array() for axes in figure.axes[:2])
    np.testing.assert_allclose(note, np.full((6, 3), 0.02), rtol=1e-5)
    np.testing.assert_allclose(examples, np.full((6, 1), 0.07), rtol=1e-5)
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == ["examples"]


class TestOtherTargets:
    @pytest.fixture
    def comparison(self):
        return make_contributions().compare(make_contributions(ENGLISH, OTHER, prefix="reference"))

    def test_shares_are_not_compared_one_by_one(self, comparison):
        assert not comparison.same_target
        for name in ("source", "target", "source_total"):
            with pytest.raises(ValueError, match="different targets, so their steps do not match"):
                getattr(comparison, name)

    def test_curves_and_means_are(self, comparison):
        pytest.importorskip("pandas")
        assert comparison.to_pandas().step.tolist() == [1, 2, 3, 4, 5, 6]
        assert comparison.means.notna().all(axis=None)

    def test_the_picture_shows_both(self, comparison):
        figure = comparison.plot()
        draw(figure)
        use, curves = figure.axes
        assert [line.get_xdata().tolist() for line in curves.lines] == [[2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 7]]
        assert [np.mean(line.get_ydata()) for line in use.lines] == pytest.approx([1, 1])


def test_pictures_fit_into_given_axes(pair):
    figure = Figure(figsize=(12, 8), layout="constrained")
    upper, lower = figure.subplots(2)
    assert pair[0].compare(pair[1]).plot(ax=upper, title="both") is figure
    make_contributions().compare(make_contributions(ENGLISH, OTHER)).plot(ax=lower)
    assert upper.get_title() == "both"
    draw(figure)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (make_contributions(("▁The", "▁dog", "</s>")), "of different sources, .* merge_subwords\\(\\) on both"),
        (make_contributions().merge_subwords(), "One result is of tokens, the other of words"),
        (make_contributions(start_token="keep"), "explain both with the same start_token"),
        (make_contributions()[2:5], "other steps of the same target"),
    ],
)
def test_results_that_do_not_belong_together(other, message):
    with pytest.raises(ValueError, match=message):
        make_contributions().compare(other)


def test_other_things_cannot_be_compared():
    with pytest.raises(TypeError, match="compare takes another Contributions, got list"):
        make_contributions().compare([make_contributions()])


def test_tokenizers_that_split_differently_compare_by_words():
    first = make_contributions(("▁sleep", "s", "</s>"), FRENCH)
    second = make_contributions(("▁sl", "eeps", "</s>"), FRENCH, model="other/en-fr")
    with pytest.raises(ValueError, match="of different sources"):
        first.compare(second)
    comparison = first.merge_subwords().compare(second.merge_subwords())
    assert comparison.names == ("made-up/en-fr", "other/en-fr")
    assert comparison.source.shape == (5, 2)

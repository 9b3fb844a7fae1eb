"""The results of several sentences."""

import io

import numpy as np
import pytest
from example_contributions import make_contributions
from page_reader import read_page

from hf_lrp.results.collection import ContributionsList
from hf_lrp.results.intervals import bootstrap_mean


@pytest.fixture
def results() -> ContributionsList:
    short = make_contributions(("▁a", "</s>"), ("▁b", "</s>"), seed=3)
    return ContributionsList([make_contributions(), make_contributions(seed=1), short])


def test_it_is_a_list_and_slices_are_too(results):
    assert isinstance(results, list) and len(results) == 3
    assert results == list(results)
    assert results[1] is list(results)[1]
    assert isinstance(results[1:], ContributionsList) and results[1:] == [results[1], results[2]]


def test_a_table_has_a_row_per_sentence_and_step(results):
    pytest.importorskip("pandas")
    frame = results.to_pandas()
    assert list(frame.columns) == [
        *("sentence", "step", "token", "predicted", "probability", "log_probability"),
        *("source_total", "target_total", "source_entropy", "target_entropy", "start"),
    ]
    assert len(frame) == 6 + 6 + 2
    row = frame[(frame.sentence == 1) & (frame.step == 4)].iloc[0]
    assert row.token == "t"
    assert row.source_total == results[1].source_total[3].item()
    assert row.probability == results[1].probability[3].item()
    assert row.log_probability == results[1].log_probability[3].item()
    assert frame[frame.step == 1].target_entropy.isna().all()


def test_means_by_step_are_over_the_sentences_that_have_it(results):
    means = results.mean()
    assert means.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert means.sentences.tolist() == [3, 3, 2, 2, 2, 2]
    second = np.mean([c.source_total[1].item() for c in results])
    assert means.by_step["source_total"].value[1] == pytest.approx(second)
    assert means.by_step["source_total"].value[0] == pytest.approx(1)
    fifth = [c.source_entropy[4].item() for c in results[:2]]
    assert means.by_step["source_entropy"].value[4] == pytest.approx(np.mean(fifth))
    assert np.isnan(means.by_step["target_entropy"].value[0])


def test_overall_means_leave_out_step_1(results):
    overall = results.mean().overall["source_total"]
    each = np.array([c.source_total[1:].double().mean().item() for c in results])
    assert overall == pytest.approx(bootstrap_mean(each), abs=1e-7)
    assert overall.low <= overall.value <= overall.high


def test_means_as_a_table(results):
    pytest.importorskip("pandas")
    frame = results.mean().to_pandas()
    assert list(frame.columns[:5]) == ["step", "sentences", "source_total", "source_total_low", "source_total_high"]
    assert len(frame) == 6


def test_lowest_source_comes_first_and_single_steps_have_no_mean(results):
    results.append(make_contributions(("▁a",), ("</s>",)))
    means = [c.mean()["source_total"] for c in results[:3]]
    lowest = results.lowest_source(2)
    assert isinstance(lowest, ContributionsList)
    assert [results.index(c) for c in lowest] == np.argsort(means)[:2].tolist()
    assert len(results.lowest_source(10)) == 3
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        results.lowest_source(0)


def test_the_picture_starts_at_step_2(results):
    figure = results.plot(figsize=(5, 3))
    assert tuple(figure.get_size_inches()) == (5, 3)
    (axes,) = figure.axes
    assert min(line.get_xdata().min() for line in axes.lines) == 2
    assert len(axes.lines) == len(results) + 1
    assert figure.get_suptitle().startswith("3 sentences: mean R(source) from step 2 on 0.")
    figure.savefig(io.BytesIO(), format="png", dpi=40)


def test_one_page_for_all(results, tmp_path):
    assert len(read_page(results.to_html())["entries"]) == 3
    results.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == results.to_html()


def test_nothing_cannot_be_averaged_or_drawn():
    for ask in (ContributionsList().mean, ContributionsList().plot):
        with pytest.raises(ValueError, match="The list is empty"):
            ask()

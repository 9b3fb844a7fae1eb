"""Data of the figures of training."""

import numpy as np
import pytest

from hf_lrp.corpus.measures import DIVERGENCE
from hf_lrp.corpus.stages import Stages
from hf_lrp.corpus.timeline import CHANGE, STAGED, Timeline
from hf_lrp.corpus.training_charts import charts_of_timeline, find_stages_of
from hf_lrp.results.intervals import Estimate
from hf_lrp.results.quantities import QUANTITIES

STEPS = np.array([100, 200, 400, 800])


def make_timeline(
    prefix: str = "reference", first_end: float | None = 200, second_end: float | None = 400
) -> Timeline:
    """Four checkpoints and five positions; nothing has changed at the first."""
    names = [*QUANTITIES, *(CHANGE + name for name in QUANTITIES)]
    if prefix != "model":
        names += [DIVERGENCE, CHANGE + DIVERGENCE]

    def estimate(name: str, shape: tuple[int, ...]) -> Estimate:
        value = np.random.default_rng(len(name)).random(shape)
        if name.startswith(CHANGE):
            value[0] = np.nan
        return Estimate(value, value - 0.1, value + 0.1)

    reason = "" if second_end else "the rise has not slowed down" if first_end else "it only falls"
    stages = dict.fromkeys(STAGED, Stages(None, None, np.nan, np.nan, 0.01, "it only falls"))
    stages["source_entropy"] = Stages(first_end, second_end, 0.5, 0.3, 0.01, reason)
    return Timeline(
        prefix=prefix,
        steps=STEPS,
        folders=tuple(f"step-{step:06d}" for step in STEPS),
        number=7,
        relative=False,
        positions=np.arange(1, 6),
        overall={name: estimate(name, (4,)) for name in names},
        by_position={name: estimate(name, (4, 5)) for name in names},
        stages=stages,
        names={5: "</s>"},
    )


def test_figures_of_training():
    timeline = make_timeline()
    charts = {chart.stem.split("-")[0]: chart for chart in charts_of_timeline(timeline, "base")}
    assert list(charts) == ["7", "8", "9", "10", "11"]
    assert [panel.name for panel in charts["7"].panels] == [DIVERGENCE, *STAGED]
    np.testing.assert_array_equal(charts["7"].panels[1].curves[0].low, timeline.overall["source_total"].low)
    assert [panel.name for panel in charts["8"].panels] == ["source_entropy", "target_entropy"]
    last = charts["9"].panels[0].curves[-1]
    assert (last.step, last.x.tolist()) == (800, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(last.value, timeline.by_position["accuracy"].value[-1])
    assert [panel.name for panel in charts["11"].panels] == [DIVERGENCE, *STAGED, "accuracy"]
    assert all(
        panel.named_positions == ((5.0, "</s>"),) for number in ("8", "9", "10") for panel in charts[number].panels
    )
    assert all(
        "base, reference prefixes, 7 sentences. Bands: 95% bootstrap intervals" in chart.line
        for chart in charts.values()
    )


def test_the_first_checkpoint_has_not_changed():
    chart = charts_of_timeline(make_timeline(), "base")[3]
    assert [panel.name for panel in chart.panels] == [CHANGE + "source_total", CHANGE + DIVERGENCE]
    assert [(curve.step, bool(np.isnan(curve.value).all())) for curve in chart.panels[0].curves] == [
        (100, True),
        (200, False),
        (400, False),
        (800, False),
    ]


def test_own_prefixes_have_neither_divergence_nor_accuracy():
    charts = charts_of_timeline(make_timeline("model"), "base")
    assert [chart.stem.split("-")[0] for chart in charts] == ["7", "8", "10", "11"]
    assert [panel.name for panel in charts[0].panels] == list(STAGED)


@pytest.mark.parametrize(
    ("ends", "bounds", "told"),
    [
        ((200.0, 400.0), [(100, 200), (200, 400), (400, 800)], "turning points of entropy of source contributions."),
        ((200.0, None), [(100, 200), (200, 800)], "No third stage: the rise has not slowed down."),
        ((None, None), [(100, 800)], "No stages were found in source contribution: it only falls."),
    ],
)
def test_stages(ends, bounds, told):
    stages, about = find_stages_of(make_timeline("reference", *ends))
    assert [(stage.start, stage.end) for stage in stages] == bounds
    assert told in about

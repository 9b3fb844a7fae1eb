"""Figures: what they show, how they look in print, and that the same data give the same files."""

import io
import re
from dataclasses import replace
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from example_charts import STAGES, STEPS, make_chart, make_curve
from matplotlib import font_manager
from matplotlib._pylab_helpers import Gcf
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Annotation

from hf_lrp.pictures.by_position import EDGE
from hf_lrp.pictures.charts import Chart, Panel, Stage
from hf_lrp.pictures.figures import draw, write_figure
from hf_lrp.pictures.look import COLUMN, PAGE, curve_style, save
from hf_lrp.pictures.update_axes import is_logarithmic, short_number

KINDS = ("curves", "growth", "checkpoints", "steps", "timeline")


def luminance(color) -> float:
    return float(np.dot(to_rgb(color), (0.2126, 0.7152, 0.0722)))


def arrows(figure: Figure) -> list[tuple[float, float]]:
    """Heights at which arrows begin and end."""
    found = [text for axes in figure.axes for text in axes.texts if isinstance(text, Annotation) and text.arrow_patch]
    return [(text.xyann[1], text.xy[1]) for text in found]


def lines_of(axes: Axes) -> list:
    """The curves, without the edges of their bands."""
    return [line for line in axes.lines if line.get_label() != EDGE]


def written(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_each_kind(kind, tmp_path):
    chart = make_chart(kind)
    contents = write_figure(chart, tmp_path / "new")
    assert {path.suffix for path in (tmp_path / "new").iterdir()} == {".pdf", ".svg", ".png", ".csv"}
    assert all((tmp_path / "new" / f"{chart.stem}.{suffix}").read_bytes() == contents[suffix] for suffix in contents)
    height, width, _ = imread(io.BytesIO(contents["png"])).shape
    assert width >= 200 * (COLUMN if kind == "timeline" else PAGE) - 1
    assert height > 200
    assert b"/FontFile2" in contents["pdf"]  # TrueType fonts, embedded
    assert not re.search(rb"CreationDate|ModDate|/Type3", contents["pdf"])
    assert b"<dc:date>" not in contents["svg"]
    assert not Gcf.figs


def test_the_same_data_give_the_same_bytes(tmp_path):
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9, "axes.grid": False}):
        first = write_figure(make_chart(), tmp_path)
    assert write_figure(make_chart(), tmp_path) == first


def test_lines_bands_and_labels():
    chart = make_chart()
    figure = draw(chart)
    axes = figure.axes[1]
    for line, band, curve in zip(lines_of(axes), axes.collections, chart.panels[1].curves, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), curve.value)
        assert band.get_paths()[0].get_extents().y1 == pytest.approx(np.nanmax(curve.high))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("position", "source entropy")
    assert axes.get_title(loc="left") == "(b) source_entropy"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]
    assert figure.get_figwidth() == PAGE


def test_one_panel_fits_into_a_column():
    chart = Chart("1", "", (Panel("x", "x", "position", (make_curve("m", range(1, 24)),)),))
    figure = draw(chart)
    assert figure.get_figwidth() == COLUMN
    assert figure.legends == []
    assert figure.axes[0].get_title(loc="left") == ""
    figure.draw_without_rendering()
    extents = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(extents))


def test_text_is_never_smaller_than_6_5_points():
    for kind in KINDS:
        figure = draw(replace(make_chart(kind), line="m, 40 sentences."))
        assert min(text.get_fontsize() for text in figure.findobj(matplotlib.text.Text) if text.get_text()) >= 6.5


@pytest.mark.parametrize("kind", KINDS)
def test_the_line_below_a_figure_is_whole_and_takes_nothing_from_the_panels(kind):
    line = " ".join(["Helsinki-NLP/opus-mt-zh-en, reference prefixes, 1,000 sentences."] * 3)
    plain, figure = (draw(replace(make_chart(kind), line=line), line=shown) for shown in (False, True))
    assert plain.get_supxlabel() == "" and figure.get_supxlabel().replace("\n", " ") == line
    for drawn in (plain, figure):
        drawn.draw_without_rendering()
    (text,) = (found for found in figure.findobj(matplotlib.text.Text) if found.get_text() == figure.get_supxlabel())
    extent, page = text.get_window_extent(), figure.bbox
    assert extent.x0 >= 0 and extent.y0 >= 0 and extent.x1 <= page.x1
    assert all(axes.get_tightbbox().y0 >= extent.y1 - 1 for axes in figure.axes)
    heights = [drawn.axes[0].get_window_extent().height for drawn in (plain, figure)]
    assert heights[1] == pytest.approx(heights[0], rel=0.1)


def test_neighbouring_curves_differ_without_colours():
    styles = [curve_style(n) for n in range(12)]
    assert len({(str(style["linestyle"]), style["marker"]) for style in styles}) == 12
    greys = [luminance(style["color"]) for style in styles]
    assert all(abs(grey - other) > 0.05 for grey, other in pairwise(greys))


def test_labels_are_drawn_literally():
    labels = ("$x_{", "_hidden", "<b>&amp;", "a\\b")
    figure = draw(make_chart(labels=labels))
    assert tuple(text.get_text() for text in figure.legends[0].get_texts()) == labels
    assert save(figure, "svg").startswith(b"<?xml")


def test_characters_without_a_font_become_code_points(monkeypatch):
    shipped = [face for face in font_manager.fontManager.ttflist if face.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", shipped)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda *_, **__: [])
    with pytest.warns(UserWarning, match="No installed font"):
        figure = draw(make_chart(labels=("我", "b")))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["U+6211", "b"]


def test_a_title_that_repeats_its_axis_is_left_out():
    chart = make_chart()
    first, second = chart.panels
    figure = draw(replace(chart, panels=(replace(first, title=first.label), second)))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["(a)", "(b) source_entropy"]


def test_panels_below_each_other_name_their_axis_once():
    figure = draw(make_chart(columns=1))
    assert figure.get_figwidth() == COLUMN
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "position"]
    figure.draw_without_rendering()
    shown = [[label.get_text() for label in axes.get_xticklabels() if label.get_visible()] for axes in figure.axes]
    assert shown == [[], ["1", "2", "3", "4", "5", "6", "7"]]


def test_named_positions_stand_on_the_axis():
    panel = replace(make_chart().panels[0], named_positions=((7.0, "</s>"),))
    axes = draw(Chart("1", "", (panel,))).axes[0]
    assert dict(zip(axes.get_xticks(), (t.get_text() for t in axes.get_xticklabels()), strict=True))[7.0] == "</s>"


def test_relative_positions_go_from_0_to_1():
    curve = make_curve("m", np.arange(0.05, 1, 0.1))
    assert draw(Chart("1", "", (Panel("x", "x", "position", (curve,)),))).axes[0].get_xlim() == (0, 1)


def test_differences_have_a_line_at_0():
    panel = replace(make_chart().panels[0], is_difference=True)
    assert any(set(line.get_ydata()) == {0} for line in draw(Chart("1", "", (panel,))).axes[0].lines)


class TestGrowth:
    def test_arrows_lead_from_the_first_to_the_last(self):
        found = arrows(draw(make_chart("growth")))
        assert len(found) >= 6
        assert all(end - start == pytest.approx(0.2) for start, end in found)

    def test_no_arrows_where_intervals_overlap(self):
        curves = tuple(make_curve(label, range(1, 8), level, width=0.2) for label, level in (("a", 0.4), ("b", 0.6)))
        chart = Chart("6", "", (Panel("x", "x", "position", curves),), kind="growth")
        assert arrows(draw(chart)) == []

    def test_from_pale_to_dark(self):
        colors = [line.get_color() for line in lines_of(draw(make_chart("growth")).axes[0])]
        assert luminance(colors[0]) > luminance(colors[1]) > luminance(colors[2])


class TestTraining:
    def test_stages_are_parted_and_named_once(self):
        figure = draw(make_chart("steps", columns=1))
        for axes in figure.axes:
            assert [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 2] == [300, 3000]
        assert written(figure) == ["stage 1", "stage 2", "stage 3"]

    def test_a_stage_too_short_for_its_name_has_its_number(self):
        stages = (Stage("stage 1", 0, 3000), Stage("stage 2", 3000, 4000), Stage("stage 3", 4000, 9000))
        assert written(draw(make_chart("steps", columns=1, stages=stages))) == ["stage 1", "2", "3"]

    def test_no_stages_no_lines(self):
        figure = draw(make_chart("steps", stages=STAGES[:1]))
        assert [len(lines_of(axes)) for axes in figure.axes] == [1, 1]
        assert written(figure) == []

    def test_checkpoints_get_darker_with_their_steps(self):
        figure = draw(make_chart("checkpoints"))
        shades = [luminance(line.get_color()) for line in lines_of(figure.axes[0])]
        assert len(shades) == len(STEPS)
        assert shades == sorted(shades, reverse=True)
        assert figure.axes[-1].get_ylabel() == "training step"

    def test_first_and_last_checkpoints_have_intervals(self):
        axes = draw(make_chart("checkpoints")).axes[0]
        assert len(axes.collections) == 2

    def test_the_timeline_names_stages_and_writes_values_where_they_end(self):
        texts = written(draw(make_chart("timeline")))
        # No value at the first step; then 0.48 at step 100, 0.46 at 300, 0.42 at 3000, 0.4 at 9000.
        assert texts == ["stage 1", "stage 2", "stage 3", *["0.480", "0.460", "0.420", "0.400"] * 2]

    def test_steps_of_the_timeline_are_logarithmic_and_fill_its_width(self):
        figure = draw(make_chart("timeline"))
        assert figure.get_figwidth() == COLUMN
        axes = figure.axes[-1]
        assert axes.get_xscale() == "symlog"
        figure.draw_without_rendering()
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "100", "200", "500", "1k", "2k", "5k"]
        places = axes.transAxes.inverted().transform(axes.transData.transform([[step, 0.4] for step in STEPS]))[:, 0]
        assert 0 < places[0] < 0.05 and 0.95 < places[-1] < 1
        assert np.diff(places).max() < 0.35


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_defined_where_there_is_one_step(kind):
    chart = make_chart(kind)
    nothing = np.full(1, np.nan)
    panels = tuple(
        replace(
            panel, curves=tuple(replace(c, x=c.x[:1], value=nothing, low=nothing, high=nothing) for c in panel.curves)
        )
        for panel in chart.panels
    )
    figure = draw(replace(chart, panels=panels))
    assert len(figure.axes) >= 2
    assert arrows(figure) == []


@pytest.mark.parametrize(
    ("steps", "logarithmic"),
    [
        ([100, 200, 300, 400, 2000], True),
        ([100, 200, 300, 400], False),
        ([1000, 4000, 7000, 10000, 13000], True),
        ([0, 10, 100, 1000, 10000], True),
        ([1, 100], False),
    ],
)
def test_scale_of_steps(steps, logarithmic):
    assert is_logarithmic(steps) is logarithmic


def test_short_numbers():
    assert [short_number(n) for n in (0, 500, 1000, 57000, 1_500_000)] == ["0", "500", "1k", "57k", "1.5m"]

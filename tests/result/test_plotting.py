"""The figure: what it shows, at which size, and with which fonts."""

import io
import warnings

import numpy as np
import pytest
import torch
from example_contributions import make_contributions
from matplotlib import font_manager
from matplotlib._pylab_helpers import Gcf
from matplotlib.figure import Figure

CHINESE = ("▁", "我们", "看", "书", "。", "</s>")
ARABIC = ("▁كيف", "▁حال", "ك", "؟", "</s>")


def draw(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    return buffer.getvalue()


def texts(axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.fixture
def no_other_fonts(monkeypatch):
    """A machine that has only the fonts that come with matplotlib."""
    shipped = [face for face in font_manager.fontManager.ttflist if face.name.startswith("DejaVu")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", shipped)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda *_, **__: [])


def test_the_figure_shows_the_shares_and_the_curve():
    contributions = make_contributions()
    figure = contributions.plot()
    assert draw(figure).startswith(b"\x89PNG")
    source, prefix, curve, _bar = figure.axes
    np.testing.assert_array_equal(source.images[0].get_array(), contributions.source.double())
    shown = prefix.images[0].get_array()
    assert np.ma.getmaskarray(shown).tolist() == np.triu(np.ones((6, 6), dtype=bool)).tolist()
    np.testing.assert_array_equal(curve.lines[0].get_xdata(), contributions.source_total.double())
    assert texts(source.xaxis) == ["▁The", "▁cat", "▁sleep", "s", "</s>"]
    assert texts(prefix.xaxis) == texts(source.yaxis) == ["▁Le", "▁chat", "▁dor", "t", ".", "</s>"]
    assert texts(curve.yaxis) == ["1", "2", "3", "4", "5", "6"]
    assert source.get_ylim() == prefix.get_ylim() == curve.get_ylim()


def test_both_blocks_share_one_scale():
    figure = make_contributions().plot()
    source, prefix = (axes.images[0] for axes in figure.axes[:2])
    assert source.norm is prefix.norm
    assert (source.norm.vmin, source.cmap.name) == (0, "Blues")


def test_negative_shares_get_a_symmetric_scale():
    shares = make_contributions().source.clone()
    shares[2, 2] = -0.4
    image = make_contributions(source=shares).plot().axes[0].images[0]
    assert image.norm.vmin == -image.norm.vmax
    assert image.cmap.name == "PuOr_r"


def test_words_show_the_diagonal():
    prefix = make_contributions().merge_subwords().plot().axes[1]
    assert np.ma.getmaskarray(prefix.images[0].get_array()).tolist() == np.triu(np.ones((5, 5), bool), 1).tolist()


@pytest.mark.parametrize("length", [1, 5, 60])
def test_labels_neither_overlap_nor_shrink(length):
    tokens = [f"▁word{i}" for i in range(length)]
    figure = make_contributions(tokens, tokens).plot()
    draw(figure)
    source = figure.axes[0]
    height = source.get_window_extent().height / length
    size = source.get_yticklabels()[0].get_fontsize()
    assert size >= 6.5
    assert height / figure.dpi * 72 >= size


def test_pyplot_knows_nothing_of_the_figure():
    draw(make_contributions().plot())
    assert not Gcf.figs


def test_a_notebook_gets_a_picture():
    assert make_contributions().plot()._repr_png_().startswith(b"\x89PNG")


def test_drawing_into_a_given_figure():
    figure = Figure(layout="constrained", figsize=(12, 8))
    upper, lower = figure.subfigures(2, 1)
    assert make_contributions().plot(upper) is upper
    make_contributions(seed=1).plot(lower, title="another")
    assert len(figure.axes) == 8
    assert lower.get_suptitle() == "another"
    draw(figure)


def test_tokens_are_drawn_literally():
    odd = ("$x$", "a_b^{c", "\\frac", "%", "$\\bad{$", "</s>")
    figure = make_contributions(odd, odd, model="$model_{").plot()
    draw(figure)
    labels = [*figure.axes[0].get_xticklabels(), *figure.axes[0].get_yticklabels()]
    assert [label.get_text() for label in labels] == [*odd, *odd]
    assert not any(label.get_parse_math() for label in labels)


def test_arabic_is_drawn_without_complaints(no_other_fonts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(make_contributions(ARABIC, ARABIC).plot())


def test_characters_without_a_font_become_code_points(no_other_fonts):
    with pytest.warns(UserWarning, match="fonts-noto-cjk") as caught:
        figure = make_contributions(CHINESE, ("▁We", "▁read", "</s>")).plot()
    assert len(caught) == 1
    assert texts(figure.axes[0].xaxis) == ["▁", "U+6211·4EEC", "U+770B", "U+4E66", "U+3002", "</s>"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(figure)


def test_chinese_is_drawn_where_a_font_has_it():
    installed = {face.name for face in font_manager.fontManager.ttflist}
    if "Noto Sans CJK SC" not in installed:
        pytest.skip("needs Noto Sans CJK")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = make_contributions(CHINESE, ("▁We", "▁read", "</s>")).plot()
        draw(figure)
    assert texts(figure.axes[0].xaxis) == list(CHINESE)


def test_fonts_installed_later_are_found(no_other_fonts, monkeypatch):
    added = []
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda *_, **__: ["new.ttf"])
    monkeypatch.setattr(font_manager.fontManager, "addfont", added.append)
    with pytest.warns(UserWarning, match="No installed font"):
        make_contributions(CHINESE).plot()
    assert added == ["new.ttf"]


def test_half_precision_can_be_drawn():
    shares = make_contributions().source.to(torch.bfloat16)
    draw(make_contributions(source=shares).plot())


def test_size_and_colours_can_be_chosen():
    figure = make_contributions().plot(figsize=(11, 6), cmap="Greens")
    assert tuple(figure.get_size_inches()) == (11, 6)
    assert {axes.images[0].cmap.name for axes in figure.axes[:2]} == {"Greens"}


def test_drawing_into_given_axes():
    figure = Figure(layout="constrained", figsize=(14, 5))
    left, right = figure.subplots(1, 2)
    assert make_contributions().plot(ax=left, title="here") is figure
    right.plot([1, 2])
    draw(figure)
    assert left.get_title() == "here"
    source, prefix, curve, _bar = left.child_axes
    assert texts(source.yaxis) == ["▁Le", "▁chat", "▁dor", "t", ".", "</s>"]
    inside = left.get_window_extent()
    for axes in (source, prefix, curve):
        assert inside.x0 - 1 <= axes.get_window_extent().x0 and axes.get_window_extent().x1 <= inside.x1 + 1


def test_one_place_to_draw():
    figure = Figure()
    with pytest.raises(ValueError, match="Give one of figure, ax and figsize"):
        make_contributions().plot(figure, figsize=(3, 3))
    with pytest.raises(ValueError, match="Give one of figure, ax and figsize"):
        make_contributions().plot(ax=figure.subplots(), figsize=(3, 3))

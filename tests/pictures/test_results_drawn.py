"""The figure: what it shows, at which size, and with which fonts."""

import io
import warnings

import numpy as np
import pytest
import torch
from example_contributions import FRENCH, make_contributions
from matplotlib import font_manager
from matplotlib._pylab_helpers import Gcf
from matplotlib.figure import Figure
from matplotlib.text import Text

from hf_lrp.results.spans import Span

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
    source, prefix, curve, *bars = figure.axes
    assert len(bars) == 2  # the source's colours and the prefix's
    assert [axes.images[0].cmap.name for axes in (source, prefix)] == ["Blues", "Oranges"]  # as on pages
    np.testing.assert_array_equal(source.images[0].get_array(), contributions.source.double())
    shown = prefix.images[0].get_array()
    assert np.ma.getmaskarray(shown).tolist() == np.triu(np.ones((6, 6), dtype=bool))[:, :5].tolist()
    np.testing.assert_array_equal(curve.lines[0].get_xdata(), contributions.source_total.double())
    assert texts(source.xaxis) == ["The", "cat", "sleep", "s", "</s>"]
    assert texts(source.yaxis) == ["Le", "chat", "dor", "t", ".", "</s>"]
    assert texts(prefix.xaxis) == ["Le", "chat", "dor", "t", "."]
    assert texts(curve.yaxis) == ["1", "2", "3", "4", "5", "6"]
    assert source.get_ylim() == prefix.get_ylim() == curve.get_ylim()


def test_one_step_has_no_prefix():
    names = [axes.get_xlabel() for axes in make_contributions()[:1].plot().axes]
    assert names == ["source tokens", "R(source)", ""]


def test_rows_are_marked_where_the_explained_token_is_not_the_written_one():
    other = make_contributions(
        predicted_tokens=("▁La", *FRENCH[1:]), predicted_ids=torch.tensor([7, 101, 102, 103, 104, 105])
    )
    figure = other.plot()
    first, second, *_ = figure.axes[0].get_yticklabels()
    assert first.get_text() == "La ≠ Le"
    assert first.get_color() != second.get_color()
    assert "predicted\n(≠ written)" in [text.get_text() for text in figure.texts]


def test_the_title_has_the_name_of_a_model_and_not_its_path():
    figure = make_contributions(model="/home/somebody/models/opus-mt-en-de").plot()
    assert figure.get_suptitle().startswith("opus-mt-en-de: mean R(source) from step 2 on")
    assert make_contributions().plot(title="").get_suptitle() == ""


def visible_texts(figure) -> list:
    """All texts that a reader sees, with what they take of the picture."""
    figure.draw_without_rendering()
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    boxes = [text.get_window_extent() for text in found]
    return [(text, box) for text, box in zip(found, boxes, strict=True) if box.width and box.height]


@pytest.mark.parametrize(
    ("source", "target", "width"),
    [
        (1, 1, None),
        (1, 1, 3.3),
        (5, 6, None),
        (10, 11, 3.3),
        (10, 11, 6.9),
        (30, 25, None),
        (69, 38, None),
        (69, 38, 3.3),
    ],
)
def test_nothing_overlaps_or_leaves_the_picture(source, target, width):
    tokens = [f"▁{'word' * (i % 3)}{i}" for i in range(69)]
    figure = make_contributions(tokens[:source], tokens[:target]).plot(width=width)
    assert figure.get_figwidth() == (width or figure.get_figwidth()) <= 6.9
    seen = visible_texts(figure)
    assert all(text.get_fontsize() >= 4.9 for text, _ in seen)
    low, high = (np.array([getattr(box, end) for _, box in seen]) for end in ("min", "max"))
    assert low.min() >= -1 and (high <= figure.bbox.max + 1).all()
    shared = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)  # [n, n, 2], pixels
    both = np.argwhere(np.triu(shared.min(axis=2) > 2.5, 1))  # boxes of text are a little higher than its letters
    assert [(seen[a][0].get_text(), seen[b][0].get_text()) for a, b in both] == []


def test_all_tokens_of_long_sentences_are_labelled_on_a_page():
    tokens = [f"▁w{i}" for i in range(69)]
    source, prefix, *_ = make_contributions(tokens, tokens[:38]).plot().axes
    assert (len(texts(source.xaxis)), len(texts(prefix.xaxis)), len(texts(source.yaxis))) == (69, 37, 38)
    assert source.get_position().y0 > prefix.get_position().y1  # below each other
    assert min(label.get_fontsize() for label in source.get_xticklabels()) >= 5.5


def test_large_shares_differ_in_colour():
    """With many tokens the largest shares are few; a scale that ends below them would show one shade."""
    shares = torch.full((30, 60), 0.001)
    shares[range(30), range(30)] = torch.linspace(0.2, 0.5, 30)
    c = make_contributions([f"s{i}" for i in range(60)], [f"t{i}" for i in range(30)], source=shares)
    image = c.plot().axes[0].images[0]
    shades = image.cmap(image.norm([0.001, 0.2, 0.35, 0.5]))[:, :3].sum(axis=1)
    assert (np.diff(shades) < -0.2).all()


def test_parts_of_a_prompt_have_blocks_of_their_own():
    parts = {"first token": 1, "instruction": 5, "examples": 40, "template": 3}
    spans = {name: Span([f"▁{name[0]}{i}" for i in range(n)], torch.rand(6, n) / n) for name, n in parts.items()}
    figure = make_contributions(spans=spans).plot()
    seen = [(axes.get_xlabel(), texts(axes.xaxis)) for axes in figure.axes[:6]]
    assert seen[:4] == [
        ("", ["first token"]),
        ("instruction", ["i0", "i1", "i2", "i3", "i4"]),
        ("", ["examples (40)"]),
        ("template", ["t0", "t1", "t2"]),
    ]
    assert [name for name, _ in seen[4:]] == ["source tokens", "prefix tokens"]
    shown = figure.axes[2].images[0].get_array()
    np.testing.assert_allclose(shown[:, 0], spans["examples"].total.double(), rtol=1e-6)
    assert "parts of the prompt: of all tokens" in figure.get_suptitle()


def test_a_kept_start_token_is_a_column():
    figure = make_contributions(start_token="keep").plot()
    assert texts(figure.axes[0].xaxis) == ["start"]
    np.testing.assert_allclose(figure.axes[0].images[0].get_array()[:, 0], 0.03, rtol=1e-6)


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


def test_pyplot_knows_nothing_of_the_figure():
    draw(make_contributions().plot())
    assert not Gcf.figs


def test_a_notebook_gets_a_picture():
    assert make_contributions().plot()._repr_png_().startswith(b"\x89PNG")


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
    assert texts(figure.axes[0].xaxis) == ["␣", "U+6211·4EEC", "U+770B", "U+4E66", "U+3002", "</s>"]
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
    assert texts(figure.axes[0].xaxis) == ["␣", *CHINESE[1:]]


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
    source, prefix, curve, *_bars = left.child_axes
    assert texts(source.yaxis) == ["Le", "chat", "dor", "t", ".", "</s>"]
    inside = left.get_window_extent()
    for axes in (source, prefix, curve):
        assert inside.x0 - 1 <= axes.get_window_extent().x0 and axes.get_window_extent().x1 <= inside.x1 + 1


def test_one_place_to_draw():
    figure = Figure()
    with pytest.raises(ValueError, match="Give one of ax, figsize and width"):
        make_contributions().plot(ax=figure.subplots(), figsize=(3, 3))
    with pytest.raises(ValueError, match="Give one of ax, figsize and width"):
        make_contributions().plot(width=3.3, figsize=(3, 3))
    with pytest.raises(ValueError, match="width is in inches"):
        make_contributions().plot(width=-1)

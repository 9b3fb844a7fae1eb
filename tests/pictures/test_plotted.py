"""Results, lists and comparisons take the same options for their pictures."""

from typing import Any

import pytest
from example_contributions import ENGLISH, make_contributions
from matplotlib.figure import Figure

from hf_lrp.results.collection import ContributionsList

RESULTS = {
    "result": make_contributions(),
    "list": ContributionsList([make_contributions(), make_contributions(seed=1)]),
    "difference": make_contributions().compare(make_contributions(seed=1, prefix="random")),
    "two targets": make_contributions().compare(make_contributions(ENGLISH, ("▁Un", "▁chat", "</s>"))),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
class TestOptions:
    def test_a_width_gives_the_height_that_fits(self, result: Any) -> None:
        figure = result.plot(width=3.3, title="")
        assert figure.get_figwidth() == 3.3
        assert figure.get_figheight() > 1
        assert figure.get_suptitle() == ""

    def test_a_size_is_kept(self, result: Any) -> None:
        assert tuple(result.plot(figsize=(5, 4), title="mine").get_size_inches()) == (5, 4)

    def test_axes_are_drawn_into(self, result: Any) -> None:
        figure = Figure(figsize=(8, 8))
        upper, lower = figure.subplots(2)
        assert result.plot(ax=upper) is figure  # the whole one, which can be saved
        assert upper.child_axes and not lower.child_axes

    def test_colours_are_taken_by_heat_maps_and_do_not_disturb_others(self, result: Any) -> None:
        images = [image for axes in result.plot(cmap="Greens").axes for image in axes.images]
        assert {image.cmap.name for image in images} <= {"Greens"}

    def test_an_unknown_option_is_refused(self, result: Any) -> None:
        with pytest.raises(TypeError, match="titel"):
            result.plot(titel="x")

"""The page of a comparison: self-contained, escaped, and complete."""

import base64
import dataclasses
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from example_run import write_run
from page_reader import read_page

from hf_lrp.corpus.report import Picture, render_report
from hf_lrp.corpus.run_comparison import Difference, compare, measure
from hf_lrp.results.intervals import Estimate

ODD = '<script>alert(1)</script> & "x"'
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'


class Page(HTMLParser):
    """Tags with their attributes, all text, and cells of tables as class and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.cells: list[tuple[str | None, str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "td":
            self.cells.append((dict(attrs).get("class"), ""))

    def handle_data(self, data):
        self.text += data
        if self.cells and self.tags[-1][0] in ("td", "span"):
            self.cells[-1] = (self.cells[-1][0], self.cells[-1][1] + data.strip("\n"))


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    folder = tmp_path_factory.mktemp("runs")
    runs = [
        measure(write_run(folder / "a", label="base", model=ODD, number=3), "base"),
        measure(write_run(folder / "b", label=ODD, seed=1, number=3), ODD),
    ]
    return Page(render_report(compare(runs), [Picture("a/1", f"What {ODD} shows.", SVG)]))


def test_nothing_is_loaded_and_nothing_else_runs(page):
    names = {tag for tag, _ in page.tags}
    assert not names & {"link", "iframe", "object", "form"}
    assert [attributes.get("type") for tag, attributes in page.tags if tag == "script"] == ["application/json", None]
    links = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert links == ["data:image/svg+xml;base64," + base64.b64encode(SVG).decode()]
    policy = next(attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_texts_of_users_are_shown_as_they_are(page):
    assert page.text.count(ODD) >= 5  # title, heading, tables, settings, caption
    image = next(attributes for tag, attributes in page.tags if tag == "img")
    assert image["alt"] == f"What {ODD} shows."


def test_examples_are_where_the_runs_differ_most(tmp_path):
    runs = [
        measure(write_run(tmp_path / name, label=name, seed=seed, number=30), name)
        for name, seed in (("a", 0), ("b", 1))
    ]
    entries = read_page(render_report(compare(runs), []))["entries"]
    means = [run.tables["reference"].means["source_total"] for run in runs]
    largest = np.argsort(-np.abs(means[1] - means[0]))[:10]
    assert sorted(entry["number"] for entry in entries) == sorted(largest + 1)
    first = entries[0]["results"][0]
    assert first["model"] == "a" and first["mean"] == pytest.approx(means[0][entries[0]["number"] - 1], abs=1e-5)


def test_examples_of_one_run_are_the_lowest(tmp_path):
    run = measure(write_run(tmp_path / "a", number=30), "a")
    entries = read_page(render_report(compare([run]), []))["entries"]
    lowest = sorted(run.tables["reference"].means["source_total"])[:10]
    assert sorted(entry["results"][0]["mean"] for entry in entries) == pytest.approx(lowest, abs=1e-5)


def test_tables(page):
    assert "Differences to base" in page.text
    assert len(re.findall(r"[+-]\d\.\d{3} \[[+-]\d\.\d{3}, [+-]\d\.\d{3}\]", page.text)) == 4 + 3 + 3
    assert "differ in seed: 0 and 1" in page.text


def test_only_differences_beyond_zero_are_marked(tmp_path):
    runs = [measure(write_run(tmp_path / name, label=name, number=3, prefixes=["reference"]), name) for name in "ab"]
    comparison = compare(runs)  # the same shares: all differences are 0
    nan = float("nan")
    given = {
        "source_total": Estimate(0.25, 0.125, 0.5),
        "source_entropy": Estimate(-0.25, -0.5, -0.125),
        "target_entropy": Estimate(nan, nan, nan),
        "accuracy": Estimate(0.0002, 0.0001, 0.0003),  # beyond zero, but not in the digits that are shown
        "Examples": Estimate(0.25, nan, nan),
        "Instruction": Estimate(0.25, -0.125, 0.5),
    }
    made_up = tuple(Difference("b", "a", "reference", name, 3, estimate) for name, estimate in given.items())
    plain = Page(render_report(comparison, []))
    marked = Page(render_report(dataclasses.replace(comparison, difference_estimates=made_up), []))
    expected = [
        ("clear", "+0.250 [+0.125, +0.500]"),
        ("clear", "-0.250 [-0.500, -0.125]"),
        (None, "–"),
        (None, "+0.000 [+0.000, +0.000]"),
        (None, "+0.250"),
        (None, "+0.250 [-0.125, +0.500]"),
    ]
    means = 2 * 4  # runs and quantities
    assert marked.cells[means : means + 6] == expected
    assert plain.cells[means : means + 4] == [(None, "+0.000 [+0.000, +0.000]")] * 4
    assert all(mark is None for mark, _ in marked.cells[:means])


def test_settings_that_differ_are_marked(page):
    marked = [attributes for tag, attributes in page.tags if tag == "tr" and attributes.get("class") == "differs"]
    assert len(marked) == 4  # label, model, seed, seed of the selection
    assert "tokenizer.class" in page.text
    assert "AlphaBeta(alpha=1.0, beta=0.0)" in page.text
    assert ".parquet" not in page.text

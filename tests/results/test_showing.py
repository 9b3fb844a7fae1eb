"""Showing results in a terminal and in a notebook."""

import sys
from types import SimpleNamespace

from example_contributions import make_contributions

from hf_lrp.results.collection import ContributionsList


def test_a_terminal_gets_the_table(capsys):
    make_contributions().show()
    text = capsys.readouterr().out
    assert "mean R(source) from step 2 on" in text and "▁chat" in text


def test_lists_show_all(capsys):
    ContributionsList([make_contributions(), make_contributions(model="other")]).show()
    text = capsys.readouterr().out
    assert text.index("made-up/en-fr") < text.index("other:")


def test_a_notebook_gets_the_page(monkeypatch, capsys):
    shown = []
    display = SimpleNamespace(HTML=lambda text: text, display=shown.append)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1)))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    make_contributions().show()
    assert shown == [make_contributions()._repr_html_()]
    results = ContributionsList([make_contributions(), make_contributions(seed=1)])
    results.show()
    assert shown[1:] == [results._repr_html_()]
    assert capsys.readouterr().out == ""

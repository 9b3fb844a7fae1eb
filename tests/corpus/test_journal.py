"""The journal of unfinished work."""

import json

import pytest

from hf_lrp.corpus.journal import Journal


def test_a_journal_goes_on_and_drops_a_line_cut_short(tmp_path):
    path = tmp_path / "j"
    Journal(path, {"model": "a"}).append({"n": 1, "text": "é"})
    with path.open("ab") as file:
        file.write(b'{"n": 2, "te')
    journal = Journal(path, {"model": "a"})
    assert journal.rows == [{"n": 1, "text": "é"}]
    journal.append({"n": 3})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"model": "a"}, *journal.rows]
    assert Journal(path, {"model": "a"}).rows == journal.rows
    journal.remove()
    assert not path.exists()


def test_a_journal_of_other_settings_is_refused(tmp_path):
    Journal(tmp_path / "j", {"model": "a", "data": 1}).append({})
    before = (tmp_path / "j").read_bytes()
    with pytest.raises(ValueError, match=r"other settings \(model\): remove it"):
        Journal(tmp_path / "j", {"model": "b", "data": 1})
    assert (tmp_path / "j").read_bytes() == before


@pytest.mark.parametrize("content", ["nonsense\n", "[]\n", "{}\n1\n", "[" * 100_000 + "\n", '{"a": 1e400}\n'])
def test_a_damaged_journal_is_named(tmp_path, content):
    (tmp_path / "j").write_text(content)
    with pytest.raises(ValueError, match=r"j is damaged \(.*\): remove it"):
        Journal(tmp_path / "j", {})

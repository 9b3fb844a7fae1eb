"""Output files: whole or not there, checked before the work."""

import pytest

from hf_lrp.data.files import prepare_destination, remove_leftovers, write_atomically


@pytest.mark.parametrize("name", ["a" * 240, "é" * 127, "x"])
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path, name):
    prepare_destination(tmp_path / name)
    write_atomically(tmp_path / name, b"content")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_longer_name_is_refused_before_the_work(tmp_path):
    with pytest.raises(OSError, match="cannot write .*: File name too long"):
        prepare_destination(tmp_path / ("a" * 256))


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"a/b/c.txt cannot be written: there is no folder .*a/b\. Create it"):
        write_atomically(tmp_path / "a" / "b" / "c.txt", b"content")
    assert not list(tmp_path.iterdir())


def test_leftovers_of_a_file_go_and_others_stay(tmp_path):
    hexes = "0123456789abcdef" * 2
    kept = ["manifest.json", f".other.json.{hexes}", ".manifest.json.bak", f"manifest.json.{hexes}"]
    for name in (*kept, f".manifest.json.{hexes}"):
        (tmp_path / name).write_bytes(b"")
    remove_leftovers(tmp_path, "manifest.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)

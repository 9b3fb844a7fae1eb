"""JSON that would surprise a reader is refused with a ValueError."""

import math

import pytest

from hf_lrp.data.json_files import parse_json, read_json, write_json


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("1" + "0" * 400, "too large"),
        ("1" + "0" * 5000, "too large"),
        ("-9300000000000000000", "too large"),
        ("1e400", "too large"),
        ("NaN", "not JSON"),
        ("-Infinity", "not JSON"),
        ("{", "Expecting"),
        (b"\xff\xfe\x00", "decode"),
    ],
)
def test_surprises_are_refused(content, reason):
    with pytest.raises(ValueError, match=reason):
        parse_json(content)


def test_numbers_that_arrays_hold_are_read():
    assert parse_json("[9223372036854775807, -1, 1e-400, 0.1]") == [2**63 - 1, -1, 0.0, 0.1]


def test_written_content_is_read_back(tmp_path):
    write_json(tmp_path / "a.json", {"é": [1, None]})
    assert read_json(tmp_path / "a.json") == {"é": [1, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "b.json", math.nan)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]

"""Sentence pairs: reading, holding out, subsets, encoding."""

import json
import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import datasets
import pytest
from datasets import Dataset, DatasetInfo, Features, IterableDataset, Translation
from tiny_tokenizer import tiny_tokenizer

from hf_lrp.data.pairs import hold_out, load_pairs, nested_subset, source_key
from hf_lrp.training.encoding import encode_pairs
from hf_lrp.training.tokenization import train_tokenizer

ROWS = [("The cat", "Le chat"), ('A "quoted" dog', 'Un "chien'), ("NA", "null"), ("It’s\u2028odd", "C'est\x0bbizarre")]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


def tsv(path: Path, rows: list[tuple[str, str]]) -> str:
    return write(path, "".join(f"{source}\t{target}\n" for source, target in rows))


def texts(pairs: Dataset | IterableDataset) -> list[tuple[str, str]]:
    return [(row["source"], row["target"]) for row in pairs]


def numbers(pairs: Dataset | IterableDataset) -> list[int]:
    return [row["example"] for row in pairs]


def many(number: int = 400) -> list[tuple[str, str]]:
    """Sentences of the tiny tokenizer's words; every fourth source comes again with another target."""
    rng = random.Random(1)
    words = "cat dog house street big small red blue he she they we it Peter".split()
    rows = {
        " ".join(rng.choices(words, k=rng.randint(3, 9))): " ".join(rng.choices(words, k=5)) for _ in range(number)
    }
    first = list(rows.items())
    return first + [(source.upper() + ".", target + " cat") for source, target in first[::4]]


@pytest.mark.parametrize("streaming", [False, True])
def test_every_kind_of_file_gives_the_same_pairs(tmp_path, streaming):
    named = [{"en": source, "fr": target, "id": 7} for source, target in ROWS]
    nested = [{"translation": {"en": source, "fr": target}, "score": 0.5} for source, target in ROWS]
    Dataset.from_list(named).to_parquet(tmp_path / "a.parquet")
    Dataset.from_list(nested).to_parquet(tmp_path / "b.parquet")
    given = [
        tsv(tmp_path / "a.tsv", ROWS),
        write(tmp_path / "b.tsv", "\ufeff" + "\r\n".join(f"{a}\t{b}\tCC-BY\tmore" for a, b in ROWS) + "\r\n\r\n"),
        write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in named)),
        write(tmp_path / "b.jsonl", "".join(json.dumps(row) + "\n" for row in nested)),
        write(tmp_path / "a.json", json.dumps(named)),
        tmp_path / "a.parquet",
        tmp_path / "b.parquet",
        [tsv(tmp_path / "1.tsv", ROWS[:1]), tsv(tmp_path / "2.tsv", ROWS[1:])],
        (
            write(tmp_path / "t.en", "\n".join(a for a, _ in ROWS)),
            write(tmp_path / "t.fr", "\n".join(b for _, b in ROWS)),
        ),
    ]
    for data in given:
        pairs = load_pairs(data, source="en", target="fr", streaming=streaming)
        assert isinstance(pairs, IterableDataset if streaming else Dataset)
        assert texts(pairs) == ROWS, data
        assert numbers(pairs) == [0, 1, 2, 3], data
        assert set(next(iter(pairs))) == {"source", "target", "example"}


@pytest.mark.parametrize("streaming", [False, True])
def test_datasets_of_the_hub(monkeypatch, streaming):
    rows = [{"translation": {"fr": target, "en": source}} for source, target in ROWS]
    table = Dataset.from_list(rows, features=Features(translation=Translation(["fr", "en"])), split="train")
    info = DatasetInfo(splits=[{"name": "train", "num_examples": len(ROWS)}])
    stream = IterableDataset(table.to_iterable_dataset()._ex_iterable, info=info, split=table.split)
    calls = []

    def load_dataset(*arguments, **options):
        calls.append((arguments, options))
        return stream if streaming else table

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    pairs = load_pairs("wmt/wmt14", source="en", target="fr", config="fr-en", split="train", streaming=streaming)
    assert calls == [(("wmt/wmt14", "fr-en"), {"split": "train", "streaming": streaming})]
    assert texts(pairs) == ROWS
    assert set(numbers(nested_subset(pairs, 3, seed=1))) < {0, 1, 2, 3}


def test_a_dataset_that_the_hub_does_not_have(monkeypatch):
    def load_dataset(*arguments, **options):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        FileNotFoundError, match="no/such is not a file here, and not found on the Hub either: Couldn't"
    ):
        load_pairs("no/such")


def test_columns_can_be_swapped(tmp_path):
    data = write(tmp_path / "a.jsonl", json.dumps({"target": "Le chat", "source": "The cat"}) + "\n")
    assert texts(load_pairs(data, source="target", target="source")) == [("Le chat", "The cat")]


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "a.tsv"
    load_pairs(tsv(path, ROWS))
    assert texts(load_pairs(tsv(path, ROWS[:2]))) == ROWS[:2]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({"a.tsv": "a\tb\n\nno tab\n"}, ValueError, r"a\.tsv, line 3 has no tab.*separated by a tab"),
        ({"a.tsv": "\n"}, ValueError, r"a\.tsv is empty"),
        ({"a.jsonl": '{"en": "a", "de": "b"}\n'}, ValueError, r"no column 'fr', only 'en', 'de'.*`source`"),
        ({"a.jsonl": '{"translation": {"en": "a"}}\n'}, ValueError, r"no language 'fr', only 'en'"),
        ({"a.jsonl": '{"en": 1, "fr": "b"}\n'}, ValueError, r"'en' holds int, not text"),
        ({"a.txt": "a\n"}, ValueError, r"a\.txt: unknown kind of file.*\.tsv.*two plain text files"),
        ({"a.tsv": "a\tb\n", "b.json": "[]"}, ValueError, r"files of different kinds"),
        ({"a.en": "a\nb\n", "a.fr": "a\n"}, ValueError, r"a\.fr has 1 lines and .*a\.en has more"),
        ({"a.en": "a\n", "a.fr": "a\nb\n"}, ValueError, r"a\.en has 1 lines and .*a\.fr has more"),
        ({"a.en": "", "a.fr": ""}, ValueError, r"a\.fr are empty"),
    ],
)
def test_errors_name_the_problem(tmp_path, streaming, files, error, message):
    data = [write(tmp_path / name, text) for name, text in files.items()]
    with pytest.raises(error, match=message):
        list(load_pairs(data, source="en", target="fr", streaming=streaming))


def test_names_that_are_no_files():
    with pytest.raises(FileNotFoundError, match=r"No such file: missing\.tsv"):
        load_pairs("missing.tsv")
    with pytest.raises(FileNotFoundError, match=r"\./folder is not a file"):
        load_pairs("./folder")
    with pytest.raises(ValueError, match="empty list"):
        load_pairs([])


def test_text_in_another_encoding(tmp_path):
    (tmp_path / "a.tsv").write_bytes("summer\tété\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"a\.tsv is not UTF-8.*iconv"):
        load_pairs(tmp_path / "a.tsv")


def test_held_out_sources_are_in_no_other_set(tmp_path):
    rows = many()
    sets = hold_out(load_pairs(tsv(tmp_path / "a.tsv", rows)), test=30, validation=20)
    keys = [{source_key(source) for source, _ in texts(part)} for part in sets]
    assert [len(part) for part in sets[1:]] == [20, 30] == [len(found) for found in keys[1:]]
    assert not (keys[0] & keys[1] or keys[0] & keys[2] or keys[1] & keys[2])
    assert set.union(*keys) == {source_key(source) for source, _ in rows}
    first = {}
    for source, target in rows:
        first.setdefault(source_key(source), (source, target))
    assert all(pair == first[source_key(pair[0])] for part in sets[1:] for pair in texts(part))


def test_the_order_of_the_file_changes_no_split(tmp_path):
    rows = many()
    shuffled = random.Random(2).sample(rows, len(rows))
    splits = [hold_out(load_pairs(tsv(tmp_path / f"{n}.tsv", r)), 30, 20) for n, r in enumerate((rows, shuffled))]
    for a, b in zip(*splits, strict=True):
        assert {source_key(source) for source in a["source"]} == {source_key(source) for source in b["source"]}
    assert list(map(source_key, splits[0][2]["source"])) == list(map(source_key, splits[1][2]["source"]))


def test_a_stream_is_held_out_alike(tmp_path):
    data = tsv(tmp_path / "a.tsv", many())
    for table, stream in zip(
        hold_out(load_pairs(data), 30, 20), hold_out(load_pairs(data, streaming=True), 30, 20), strict=True
    ):
        assert list(table) == list(stream)


@pytest.mark.parametrize("streaming", [False, True])
def test_too_few_to_hold_out(tmp_path, streaming):
    pairs = load_pairs(tsv(tmp_path / "a.tsv", ROWS + ROWS), streaming=streaming)
    with pytest.raises(ValueError, match="4 distinct source sentences are too few to hold out 2 .* and 2 "):
        hold_out(pairs, test=2, validation=2)
    assert [len(list(part)) for part in hold_out(pairs, test=2, validation=1)] == [2, 1, 2]


def test_subsets_nest_and_have_their_size(tmp_path):
    pairs = load_pairs(tsv(tmp_path / "a.tsv", many()))
    subsets = [numbers(nested_subset(pairs, size, seed=3)) for size in (10, 50, 200, len(pairs))]
    assert [len(subset) for subset in subsets] == [10, 50, 200, len(pairs)]
    assert all(set(small) <= set(large) for small, large in pairwise(subsets))
    assert all(subset == sorted(subset) for subset in subsets)
    other = numbers(nested_subset(pairs, 50, seed=4))
    assert 0 < len(set(other) & set(subsets[1])) < 25  # 5 expected of independent subsets
    with pytest.raises(ValueError, match="there are"):
        nested_subset(pairs, len(pairs) + 1, seed=3)


def test_subsets_of_a_stream_nest(tmp_path):
    data = tsv(tmp_path / "a.tsv", many())
    stream, total = load_pairs(data, streaming=True), len(load_pairs(data))
    small, large = (numbers(nested_subset(stream, size, seed=3, total=total)) for size in (100, 300))
    assert set(small) < set(large)
    assert abs(len(small) - 100) < 30 and abs(len(large) - 300) < 50
    inside = set(numbers(nested_subset(load_pairs(data), 100, seed=3)))
    assert inside <= set(small) or set(small) <= inside  # the same order, cut elsewhere
    with pytest.raises(ValueError, match="`total`"):
        nested_subset(stream, 100, seed=3)


DROPPED = [
    ("the cat", "he sees"),
    ("", "he sees"),
    ("the cat", " "),
    ("the cat sees the dog in the street", "it is not big and it is not small and red"),
    ("cat", "he sees the big red dog"),
    ("the cat", "he sees"),
    ("the dog", "he sees"),
]


@pytest.mark.parametrize("streaming", [False, True])
def test_what_is_left_out_and_why(tmp_path, streaming):
    pairs = load_pairs(tsv(tmp_path / "a.tsv", DROPPED), streaming=streaming)
    encoded, report = encode_pairs(pairs, tiny_tokenizer(), max_length=9, max_ratio=3.0)
    for _ in range(2):  # a second pass over a stream starts afresh
        rows = list(encoded)
        assert [row["example"] for row in rows] == [0, 6]
        counts = {"read": 7, "kept": 2, "empty": 2, "too_long": 1, "bad_ratio": 1, "duplicate": 1}
        assert json.loads(json.dumps(report.to_dict())) == counts | {"max_length": 9, "max_ratio": 3.0}
    assert rows[0] == {
        "input_ids": [2, 4, 1],
        "labels": [20, 8, 1],
        "example": 0,
        "source_length": 3,
        "target_length": 3,
    }
    assert "2 of 7 pairs kept" in str(report)
    assert "           1  a side has more than 9 tokens" in str(report)
    assert "           1  a side is more than 3 times as long as the other" in str(report)


def test_a_report_names_only_reasons_that_occurred(tmp_path):
    pairs = load_pairs(tsv(tmp_path / "a.tsv", DROPPED))
    reports = [encode_pairs(pairs.select(rows), tiny_tokenizer())[1] for rows in ([0, 6], [0, 5, 6])]
    assert str(reports[0]) == "2 of 2 pairs kept."
    assert str(reports[1]) == "2 of 3 pairs kept. Left out:\n           1  the same pair came before"


def test_a_stream_is_read_lazily(tmp_path):
    encoded, report = encode_pairs(load_pairs(tsv(tmp_path / "a.tsv", DROPPED), streaming=True), tiny_tokenizer())
    assert report.read == 0
    assert next(iter(encoded))["example"] == 0
    assert report.read == 1


def test_a_stream_continues_where_it_was(tmp_path):
    rows = many()
    pairs = load_pairs(tsv(tmp_path / "a.tsv", rows[:50] + rows), streaming=True)
    encoded, _ = encode_pairs(pairs, tiny_tokenizer())
    complete = numbers(encoded)
    iterator = iter(encoded)
    read = [next(iterator)["example"] for _ in range(60)]
    state = encoded.state_dict()
    again, _ = encode_pairs(pairs, tiny_tokenizer())
    again.load_state_dict(state)
    assert read + numbers(again) == complete
    assert len(complete) < len(rows) + 50


def test_processes_change_nothing(tmp_path):
    pairs = load_pairs(tsv(tmp_path / "a.tsv", many() + many()))
    train = hold_out(pairs, 30, 20)[0]
    for tokenizer in (tiny_tokenizer(), train_tokenizer(train, 60, joint=False)):
        alone, report = encode_pairs(train, tokenizer, workers=1)
        alone = list(alone)
        train.cleanup_cache_files()
        shared, again = encode_pairs(train, tokenizer, workers=2)
        assert list(shared) == alone and report == again
        assert len(set(shared["example"])) == len(shared) == report.kept < len(train)


def test_numbers_and_ends_are_required(tmp_path):
    pairs = load_pairs(tsv(tmp_path / "a.tsv", ROWS))
    with pytest.raises(ValueError, match="no column 'example': read them with load_pairs"):
        encode_pairs(pairs.remove_columns("example"), tiny_tokenizer())
    with pytest.raises(ValueError, match="not unique"):
        encode_pairs(datasets.concatenate_datasets([pairs, pairs]), tiny_tokenizer())
    endless = tiny_tokenizer()
    endless.backend_tokenizer.post_processor = type(tiny_tokenizer().backend_tokenizer.post_processor)("$A")
    with pytest.raises(ValueError, match="does not mark the end"):
        encode_pairs(pairs, endless)
    with pytest.raises(ValueError, match="No pair is left"):
        encode_pairs(pairs, tiny_tokenizer(), max_length=1)


PROGRAM = """
import sys
from transformers import AutoTokenizer
from hf_lrp.training.encoding import encode_pairs
from hf_lrp.data.pairs import hold_out, load_pairs, nested_subset
data, *folders = sys.argv[1:]
train = nested_subset(hold_out(load_pairs(data), 30, 20)[0], 200, seed=1)
for folder in folders:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoded, report = encode_pairs(train, tokenizer, max_length=50, workers=2)
    tokenizer(["a cat", "a"], padding=True, truncation=True, max_length=2)
    assert encode_pairs(train, tokenizer, max_length=50, workers=2)[1] == report
    print(list(encoded), report)
"""


def test_a_second_run_finds_everything_in_the_cache(tmp_path):
    data = tsv(tmp_path / "a.tsv", many())
    folders = [str(tmp_path / kind) for kind in ("joint", "separate")]
    for folder in folders:
        train_tokenizer(load_pairs(data), 60, joint=folder.endswith("joint")).save_pretrained(folder)
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "shared"), "HF_HUB_OFFLINE": "1"}

    def run() -> tuple[str, set[tuple[str, int]]]:
        command = [sys.executable, "-c", PROGRAM, data, *folders]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        files = tmp_path.joinpath("shared").rglob("*.arrow")
        return result.stdout, {(file.name, file.stat().st_mtime_ns) for file in files}

    assert run() == run()


def test_other_settings_are_encoded_anew(tmp_path):
    train = load_pairs(tsv(tmp_path / "a.tsv", many()))

    def encode(max_length: int) -> set[Path]:
        encode_pairs(train, tiny_tokenizer(), max_length=max_length, workers=2)
        return set(tmp_path.joinpath("cache").rglob("*.arrow"))

    first, other = encode(30), encode(20)
    assert len(other - first) == 2  # by two processes; the rest as before
    assert first < other

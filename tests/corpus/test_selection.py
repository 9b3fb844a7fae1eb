"""Evaluation sets: which pairs are chosen, and what is said where there are none."""

import json
from collections import Counter

import pytest

from hf_lrp.corpus import RunError
from hf_lrp.corpus.selection import Pair, Request, Selection, describe_corpus, select_pairs
from hf_lrp.data.pairs import load_pairs

# Words and the end of the sentence: 2,2 once, 3,3 four times, 3,4 three times, 5,3 once.
CORPUS = [
    ("a b", "x y"),
    ("c d", "x y z"),
    ("a", "x"),
    ("e f", "x y"),
    ("g h", "x y"),
    ("a b", "z z"),
    ("e f", "x y z"),
    ("i j k l", "x y"),
    ("m n", "z y z"),
    (" ", "x y"),
    ("o p", ""),
]


def count_words(sources, targets):
    for source, target in zip(sources, targets, strict=True):
        assert source.strip() and target.strip()
        yield len(source.split()) + 1, len(target.split()) + 1


def select(pairs=CORPUS, lengths="auto", number=100, seed=0, longest=None) -> Selection:
    return select_pairs(pairs, count_words, Request(lengths, number, seed, longest))


def numbers(selection: Selection) -> list[int]:
    return [pair.number for pair in selection.pairs]


@pytest.mark.filterwarnings("ignore:hf_lrp. the corpus has")
class TestChoice:
    def test_auto_takes_the_most_frequent_lengths(self):
        selection = select(number=4)
        assert selection.lengths == (3, 3) and numbers(selection) == [0, 3, 4, 5]
        assert selection.pairs[1] == Pair(3, "e f", "x y", 3, 3)

    def test_given_lengths(self):
        assert numbers(select(lengths=(3, 4))) == [1, 6, 8]

    def test_mixed_lengths_come_from_short_to_long(self):
        selection = select(lengths=None)
        assert selection.lengths is None and numbers(selection) == [2, 0, 3, 4, 5, 7, 1, 6, 8]

    def test_longest_leaves_longer_pairs_out(self):
        assert numbers(select(lengths=None, longest=3)) == [2, 0, 3, 4, 5]
        assert select(CORPUS[1:3] + CORPUS[6:9], longest=3).lengths == (2, 2)

    def test_of_equally_frequent_lengths_the_longer_are_taken(self):
        assert select(CORPUS[:2], number=1).lengths == (3, 4)

    @pytest.mark.parametrize(("number", "frequent", "mixed"), [(1000, 99, True), (1000, 100, False), (50, 50, False)])
    def test_auto_goes_over_to_mixed_lengths_where_few_pairs_have_the_same(self, number, frequent, mixed):
        pairs = [("a b", "x y")] * frequent + [("a", "x " * n) for n in range(1, 10)]
        if mixed:
            with pytest.warns(UserWarning, match="only 99 of 108 pairs have the most frequent lengths, 3 source"):
                assert select(pairs, number=number).lengths is None
        else:
            assert select(pairs, number=number).lengths == (3, 3)


def test_number_of_them_is_drawn_by_seed():
    first = numbers(select(number=2, seed=0))
    assert len(first) == 2 and set(first) < {0, 3, 4, 5} and first == sorted(first)
    assert numbers(select(number=2, seed=0)) == first
    drawn = Counter(tuple(numbers(select(number=2, seed=seed))) for seed in range(60))
    assert len(drawn) == 6


def test_too_few_pairs_are_all_taken_and_said():
    with pytest.warns(UserWarning, match="4 pairs with 3 source and 3 target tokens, fewer than the 5 asked for"):
        assert len(select(lengths=(3, 3), number=5).pairs) == 4


def test_what_is_read_from_files_keeps_its_numbers(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{s}\t{t}\n" for s, t in CORPUS))
    table, stream = load_pairs(path), load_pairs(path, streaming=True)
    plain = select(number=3)
    assert select(table, number=3) == plain == select(stream, number=3)
    odd = table.select([1, 3, 5, 7])  # a part of the corpus
    assert numbers(select(odd, number=2)) == [3, 5]
    unnumbered = table.remove_columns("example").select([1, 3, 5, 7])
    assert numbers(select(unnumbered, number=2)) == [1, 2]
    assert describe_corpus(table) == describe_corpus(stream) == describe_corpus(CORPUS) == plain.corpus
    assert plain.corpus["pairs"] == 11


def test_corpus_is_known_by_its_texts():
    assert describe_corpus(CORPUS[:1]) != describe_corpus([("a", "b x y")])
    assert describe_corpus(CORPUS) != describe_corpus(CORPUS[::-1])


@pytest.mark.parametrize("lengths", ["auto", (3, 4), None])
def test_saved_selection_is_read_back(tmp_path, lengths):
    selection = select([*CORPUS, ('"é\n', "\u2028 x")], lengths=lengths, number=3, longest=9)
    (tmp_path / "selection.json").write_bytes(selection.encode())
    assert Selection.load(tmp_path / "selection.json") == selection
    content = json.loads(selection.encode())
    assert content["request"]["seed"] == 0 and len(content["pairs"]) == 3
    assert content["fields"] == ["number", "source", "target", "source_length", "target_length"]


def test_lengths_that_no_pair_has_name_the_most_frequent():
    with pytest.raises(RunError, match=r"20 source and 23 target.*3,3 \(4\), 3,4 \(3\), 5,3 \(1\), 2,2 \(1\).*'auto'"):
        select(lengths=(20, 23))
    with pytest.raises(RunError, match=r"at most 1 tokens on each side.*3,3 \(4\)"):
        select(lengths=None, longest=1)


def test_nothing_to_choose_from():
    with pytest.raises(RunError, match="corpus is empty: give data"):
        select([])
    with pytest.raises(RunError, match="All 2 pairs of the corpus have an empty side"):
        select(CORPUS[-2:])


def test_missing_columns_are_named(tmp_path):
    table = load_pairs(_write_json(tmp_path), source="en", target="fr").rename_column("source", "en")
    with pytest.raises(RunError, match="no column 'source', only 'en', 'target', 'example'.*load_pairs"):
        select(table)


def _write_json(folder):
    path = folder / "pairs.jsonl"
    path.write_text(json.dumps({"en": "a b", "fr": "x y"}) + "\n")
    return path


@pytest.mark.parametrize("pair", ["ab", ("a", "b", "c"), ("a", None)])
def test_what_is_no_pair_is_refused(pair):
    with pytest.raises(RunError, match="Pair 1 is .*not a source and a target text"):
        select([("a", "b"), pair])


@pytest.mark.parametrize("lengths", ["all", (3,), (0, 4), (1, 2, 3)])
def test_lengths_of_another_kind_are_refused(lengths):
    with pytest.raises(ValueError, match=r"'auto', None for mixed ones, or .* \(20, 23\)"):
        select(lengths=lengths)


def test_number_is_at_least_one():
    with pytest.raises(ValueError, match="number must be at least 1, got 0"):
        select(number=0)

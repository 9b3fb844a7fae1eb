import dataclasses
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from example_run import make_sentence, stored, write_run

from hf_lrp.corpus import Run, RunError
from hf_lrp.corpus.measures import read_table
from hf_lrp.corpus.shards import Row, find_shard, read_results, read_rows, write_shard
from hf_lrp.data.json_files import write_json
from hf_lrp.results.contributions import Contributions
from hf_lrp.results.spans import Span

KEYS = ("weights", "predict", "seed", "generate", "versions", "prefixes", "selection", "label", "method", "tokenizer")


def assert_same(read: Row, written: Row) -> None:
    for field in dataclasses.fields(Row):
        a, b = getattr(read, field.name), getattr(written, field.name)
        if isinstance(b, np.ndarray):
            assert a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b), field.name
        else:
            assert a == b and type(a) is type(b), field.name


@pytest.mark.parametrize("lengths", [(4, 5), (1, 1), (3, 1), (1, 3), None])
def test_run_reads_back_what_was_written_in_order(tmp_path, lengths):
    run = write_run(tmp_path / "run", number=6, lengths=lengths, seed=3)
    assert run.prefixes == ("reference", "model", "random")
    assert (run.number, run.lengths) == (6, lengths)
    for prefix in run.prefixes:
        read = list(run.rows(prefix))
        assert [sentence.sentence for sentence in read] == list(range(6))
        for number, sentence in enumerate(read):
            own = (len(sentence.source_ids), len(sentence.target_ids))
            assert lengths in (own, None)
            assert_same(sentence, make_sentence(number, prefix, lengths=own, seed=3))


def test_example_is_valid():
    sentence = make_sentence(lengths=(4, 6))
    assert np.allclose(sentence.source.sum(1) + sentence.target.sum(1), 1)
    assert not np.triu(sentence.target).any() and sentence.target[5, 4] > 0
    assert np.array_equal(sentence.correct, sentence.target_ids == sentence.predicted_ids)


def test_same_sentences_give_the_same_bytes(tmp_path):
    for name in "ab":
        write_run(tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert len(files) == 7
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_shards_can_be_read_without_this_package(tmp_path):
    write_run(tmp_path, number=3, lengths=(2, 3), prefixes=("model",))
    rows = pq.read_table(tmp_path / "shards" / "00000.parquet").to_pylist()
    assert [row["sentence"] for row in rows] == [0, 1, 2]
    assert [len(row) for row in rows[0]["target"]] == [0, 1, 2] and [len(row) for row in rows[0]["source"]] == [2] * 3
    assert (rows[0]["source_length"], rows[0]["target_length"]) == (2, 3)


def test_name_is_the_label_or_the_folder(tmp_path):
    assert write_run(tmp_path / "base").name == "base"
    assert write_run(tmp_path / "base", label="Transformer base").name == "Transformer base"


def test_missing_and_unfinished_runs_are_refused(tmp_path):
    with pytest.raises(RunError, match="holds no evaluation.*hf-lrp analyze"):
        Run.open(tmp_path)
    with pytest.raises(RunError, match="not finished.*again"):
        write_run(tmp_path, shards=None)
    with pytest.raises(RunError, match="reads 'hf_lrp.corpus' 3: install a newer"):
        write_run(tmp_path, version=4)
    with pytest.raises(RunError, match="has format 'hf_lrp.corpus' 2, .* 'hf_lrp.corpus' 3: evaluate again with"):
        write_run(tmp_path, version=2)
    with pytest.raises(RunError, match="damaged"):
        write_run(tmp_path, version="1")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RunError, match="damaged"):
        Run.open(tmp_path)


def test_damaged_and_missing_shards_are_found(tmp_path):
    run = write_run(tmp_path)
    shard = run.folder / "shards" / "00001.parquet"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(RunError, match="00001.parquet is damaged.*again"):
        Run.open(tmp_path)
    shard.unlink()
    with pytest.raises(RunError, match="00001.parquet is missing"):
        Run.open(tmp_path)


@pytest.mark.parametrize("name", ["selection.json", "metrics.json", "shards/00000.json"])
@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_every_file_is_covered_by_the_manifest(tmp_path, name, damage):
    run = write_run(tmp_path, number=2)
    assert run.metrics.keys() == {"reference", "model", "random"} and run.metrics["model"]["sentences"] == 2
    path = tmp_path / name
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"2", b"3"))
    with pytest.raises(RunError, match=f"{name} .*: start the same `hf-lrp analyze` again"):
        Run.open(tmp_path)


def drop_shard(manifest):
    del manifest["shards"][0]


def double_shard(manifest):
    manifest["shards"][1] = manifest["shards"][0]


def swap_prefixes(manifest):
    manifest["prefixes"] = manifest["prefixes"][::-1]


def fewer_sentences(manifest):
    manifest["selection"]["number"] = 4
    del manifest["shards"][1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_shard, "shards are not in order"),
        (double_shard, "shards are not in order"),
        (swap_prefixes, "was changed after the results were computed: remove it and start"),
        (fewer_sentences, "was changed after the results were computed: remove it and start"),
        (lambda manifest: manifest["method"].update(name="ALTI"), "was changed after the results"),
        (lambda manifest: manifest["selection"].update(number=10**6), "its shards have 18 rows, not 1000000"),
        (lambda manifest: manifest["selection"].update(lengths=[4]), "lengths \\[4\\]"),
        (lambda manifest: manifest.update(prefixes=["model", "model"]), "its prefixes are"),
        *((lambda manifest, name=name: manifest.pop(name), f"no entry '{name}'") for name in KEYS),
    ],
)
def test_a_changed_manifest_is_refused(tmp_path, change, message):
    run = write_run(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    change(manifest)
    write_json(tmp_path / "manifest.json", manifest)
    with pytest.raises(RunError, match=message):
        Run.open(tmp_path)
    assert run.number == 6


def test_a_shard_damaged_after_opening_is_not_read(tmp_path):
    run = write_run(tmp_path)
    (tmp_path / "shards" / "00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match="00000.parquet is missing or damaged.*again"):
        next(run.rows("reference"))
    with pytest.raises(RunError, match="00000.parquet is missing or damaged.*again"):
        run[0]


@pytest.mark.parametrize("lengths", [(4, 5), (1, 1), None])
def test_results_are_whole(tmp_path, lengths):
    run = write_run(tmp_path, number=6, lengths=lengths, seed=3)
    for prefix in run.prefixes:
        results = run.results(prefix)
        for number, row in enumerate(run.rows(prefix)):
            own = (len(row.source_ids), len(row.target_ids))
            assert results[number] == stored(make_sentence(number, prefix, lengths=own, seed=3)).result
        assert [c.prefix for c in results] == [prefix] * 6
        assert results[-1] == results[5] and results[1:4] == [results[1], results[2], results[3]]
    assert run[5] == run.results("reference")[5] and len(run) == 6 == len(list(run))
    with pytest.raises(IndexError, match="there are 6"):
        run[6]


def test_results_of_runs_can_do_what_results_can(tmp_path):
    run = write_run(tmp_path)
    c = run[3]
    assert c.merge_subwords().level == "word" and c.notes == ("made up",) and c.start_tokens == ("<s>",)
    assert c.compare(Contributions.load(_saved(c, tmp_path))).same_target
    assert "<html" in c.to_html() and c.logits.tolist() == [0, 1, 2, 3, 4]
    assert run[1:3].mean().steps.tolist() == [1, 2, 3, 4, 5]


def _saved(c, folder):
    c.save(folder / "c.safetensors")
    return folder / "c.safetensors"


def test_prompts_are_stored_with_their_tokens(tmp_path):
    spans = {"examples": Span(("a", "b"), torch.rand(5, 2)), "rest": Span(("c",), torch.rand(5, 1))}
    whole = stored(make_sentence())
    whole = whole._replace(result=dataclasses.replace(whole.result, spans=spans))
    entry = write_shard(tmp_path, 0, [whole], "settings")
    path = tmp_path / "shards" / entry["file"]
    assert next(read_results(path, 0)) == whole
    row = next(read_rows(path, 0))
    np.testing.assert_allclose(row.spans["examples"], spans["examples"].total, rtol=1e-6)
    assert sum(row.part_totals.values()).shape == (5,)


def test_tables_build_no_results(tmp_path, monkeypatch):
    run = write_run(tmp_path)
    monkeypatch.setattr(Contributions, "__post_init__", lambda self: pytest.fail("a result was built"))
    assert read_table(run, "reference").values["source_total"].shape == (6, 5)


def test_rows_of_another_type_or_number_are_refused(tmp_path):
    run = write_run(tmp_path, prefixes=("reference", "model"))
    swapped = Run(tmp_path, run.manifest | {"prefixes": ["model", "reference"]})
    with pytest.raises(RunError, match="has sentence 0 with reference prefix where the manifest says .* model prefix"):
        next(swapped.rows("model"))
    shards = run.manifest["shards"]
    other = Run(tmp_path, run.manifest | {"shards": shards[1:]})
    with pytest.raises(RunError, match="has sentence 4 .* where the manifest says sentence 0"):
        next(other.rows("model"))


def test_unknown_prefix_names_those_there_are(tmp_path):
    run = write_run(tmp_path, prefixes=("reference",))
    with pytest.raises(RunError, match="prefix types reference, not with 'random'"):
        next(run.rows("random"))


def test_shard_is_found_only_whole_and_with_its_settings(tmp_path):
    entry = write_shard(tmp_path, 7, [stored(make_sentence())], "settings")
    assert entry["rows"] == 1 and find_shard(tmp_path, 7, "settings") == entry
    assert find_shard(tmp_path, 7, "others") is None and find_shard(tmp_path, 8, "settings") is None
    sidecar = tmp_path / "shards" / "00007.json"
    whole = json.loads(sidecar.read_text())
    changes = ({"sha256": "0"}, {"file": "00006.parquet"}, {"rows": 2}, {"more": 1})
    for broken in ("", "[]", "{}", *(json.dumps(whole | change) for change in changes)):
        sidecar.write_text(broken)
        assert find_shard(tmp_path, 7, "settings") is None
    sidecar.write_text(json.dumps(whole))
    assert find_shard(tmp_path, 7, "settings") == entry
    (tmp_path / "shards" / "00007.parquet").write_bytes(b"PAR1")
    assert find_shard(tmp_path, 7, "settings") is None

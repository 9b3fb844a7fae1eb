"""Evaluation of a corpus: the same as single calls of `explain`, stored, checked and continued."""

import gc
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import tiny_model
from tiny_tokenizer import WORDS, tiny_tokenizer

from hf_lrp import Contributions, Epsilon, Explainer, explain
from hf_lrp.corpus import Run, RunError, evaluate, evaluating, settings
from hf_lrp.corpus import processes as scheduling
from hf_lrp.data.locks import Occupied, one_writer
from hf_lrp.kinds.encoder_decoder import EncoderDecoder

SMALL = {"encoder_layers": 1, "decoder_layers": 1}


def make_pairs(number: int = 40) -> list[tuple[str, str]]:
    draw = random.Random(0)
    return [tuple(" ".join(draw.choices(WORDS, k=draw.randint(2, 3))) for _ in range(2)) for _ in range(number)]


PAIRS = make_pairs()
TOKENIZER = tiny_tokenizer()
OPTIONS: dict[str, Any] = {"number": 5, "lengths": (4, 3), "seed": 3, "progress": False}


def make_model(**changes: Any) -> Any:
    model = tiny_model("marian", **(SMALL | changes))
    model.generation_config.max_length = 6
    return model


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "SHARD", 2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "SHARD", 2)
        evaluate(make_model(), TOKENIZER, PAIRS, folder, **OPTIONS)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run that a test may change."""
    return shutil.copytree(finished, tmp_path / "run")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_results_are_those_of_explain(finished):
    run, model = Run.open(finished), make_model()
    chosen = [PAIRS[sentence.pair] for sentence in run.rows("reference")]
    assert run.number == len(chosen) == 5 and run.lengths == (4, 3)
    sources, targets = zip(*chosen, strict=True)
    for prefix in ("reference", "model", "random"):
        options = {} if prefix == "model" else {"target": list(targets), "seed": 3}
        expected = explain(model, TOKENIZER, list(sources), prefix=prefix, **options)
        for number, (sentence, c) in enumerate(zip(run.rows(prefix), expected, strict=True)):
            assert (sentence.sentence, sentence.prefix) == (number, prefix)
            assert sentence.source_tokens == c.source_tokens and sentence.target_tokens == c.target_tokens
            assert sentence.predicted_tokens == c.predicted_tokens
            for name in ("source", "target", "start", "log_probability"):
                np.testing.assert_allclose(getattr(sentence, name), getattr(c, name).numpy(), atol=2e-6)
            for name in ("source_ids", "target_ids", "predicted_ids"):
                assert getattr(sentence, name).tolist() == getattr(c, name).tolist()
            assert sentence.correct.tolist() == (c.predicted_ids == c.target_ids).tolist()
            assert sentence.conservation_error < 1e-5
            whole = run.results(prefix)[number]
            for name in ("source_words", "target_words", "notes", "start_tokens", "method", "dtype", "start_token"):
                assert getattr(whole, name) == getattr(c, name)
            np.testing.assert_allclose(whole.logits.numpy(), c.logits.numpy(), atol=2e-6)
            assert whole.predicted_ids.tolist() == c.predicted_ids.tolist() and whole.inside is None
            np.testing.assert_allclose(sentence.source.sum(1) + sentence.target.sum(1), 1, atol=1e-5)


def test_metrics_are_means_over_sentences_of_means_over_steps(finished):
    run = Run.open(finished)
    for prefix in run.prefixes:
        expected: dict[str, list[float]] = {name: [] for name in ("total", "source", "target", "start", "correct")}
        for sentence in run.rows(prefix):
            source, target = sentence.source.astype(float), sentence.target.astype(float)
            steps = range(1, len(source))  # without the first one
            expected["total"].append(np.mean([source[t].sum() for t in steps]))
            expected["target"].append(np.mean([slow_entropy(target[t]) for t in steps]))
            expected["source"].append(np.mean([slow_entropy(source[t]) for t in steps]))
            expected["start"].append(np.mean(sentence.start[1:].astype(float)))
            expected["correct"].append(np.mean(sentence.correct[1:]))
        found = run.metrics[prefix]
        names = {
            "source_total": "total",
            "source_entropy": "source",
            "target_entropy": "target",
            "start_share": "start",
            "accuracy": "correct",
        }
        for name, values in names.items():
            assert found[name] == pytest.approx(np.mean(expected[values]), abs=1e-12), name
        assert found["sentences"] == 5 and found["steps"] == sum(len(s.start) for s in run.rows(prefix))
        worst = max(sentence.conservation_error for sentence in run.rows(prefix))
        assert found["worst_conservation_error"] == worst > 0


def slow_entropy(shares: np.ndarray) -> float:
    total = sum(shares)
    return -sum(share / total * np.log(share / total) for share in shares if share > 0)


def test_manifest_tells_what_was_computed(finished):
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["model"] == "MarianMTModel" and manifest["method"]["name"] == "LRP"
    assert manifest["weights"] == settings.hash_weights(make_model()) != settings.hash_weights(make_model(seed=1))
    assert manifest["tokenizer"]["class"] == type(TOKENIZER).__name__ and manifest["predict"] == "top1"
    assert manifest["seed"] == 3 and manifest["prefixes"] == ["reference", "model", "random"]
    assert manifest["selection"]["corpus"]["pairs"] == 40 and manifest["selection"]["lengths"] == [4, 3]
    assert manifest["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert [shard["rows"] for shard in manifest["shards"]] == [3, 6, 6]


def test_weights_are_hashed_with_names_types_and_shapes():
    first, second = make_model(), make_model()
    assert settings.hash_weights(first) == settings.hash_weights(second)
    second.half()
    assert settings.hash_weights(first) != settings.hash_weights(second)
    layer = first.model.encoder.layers[0].fc1
    layer.weight.data = layer.weight.data.reshape(layer.weight.shape[::-1])
    assert settings.hash_weights(first) != settings.hash_weights(make_model())


def test_a_finished_run_is_not_computed_again(folder, monkeypatch):
    before = contents(folder)
    monkeypatch.setattr(Explainer, "explain_prefixes", None)
    run = evaluate(make_model(), TOKENIZER, PAIRS, folder, **OPTIONS)
    assert contents(folder) == before and run.name == "run"


def test_a_label_may_change(folder):
    assert evaluate(make_model(), TOKENIZER, PAIRS, folder, **OPTIONS, label="mine").name == "mine"
    assert evaluate(make_model(), TOKENIZER, PAIRS, folder, **OPTIONS).name == "mine"


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "sidecar"])
def test_a_damaged_shard_is_computed_again(folder, monkeypatch, damage):
    before = contents(folder)
    shard = folder / "shards" / "00001.parquet"
    if damage == "missing":
        shard.unlink()
    elif damage == "sidecar":
        shard.with_suffix(".json").write_text("{")
    else:
        content = bytearray(shard.read_bytes())
        content[100] ^= 1
        shard.write_bytes(content if damage == "flip" else content[:-1])
    (folder / "shards" / ".00001.parquet.0123").write_bytes(b"")  # left by a process that was killed
    computed = []
    explain_prefixes = Explainer.explain_prefixes

    def count(explainer, sources, *args, **options):
        computed.append(len(sources))
        return explain_prefixes(explainer, sources, *args, **options)

    monkeypatch.setattr(Explainer, "explain_prefixes", count)
    evaluate(make_model(), TOKENIZER, PAIRS, folder, **OPTIONS)
    assert computed == [2] and contents(folder) == before


@pytest.mark.parametrize("name", ["selection.json", "metrics.json"])
def test_other_files_are_written_again(folder, name):
    before = contents(folder)
    (folder / name).write_text("{")
    evaluate(make_model(), TOKENIZER, PAIRS, folder, **OPTIONS)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": make_model(seed=1)}, "weights is another"),
        ({"model": make_model(activation_function="gelu")}, "config is another"),
        ({"tokenizer": tiny_tokenizer(), "lengths": (3, 3)}, r"lengths was \[4, 3\] and is \[3, 3\]"),
        ({"pairs": PAIRS[:-1]}, "selection.corpus.pairs was 40 and is 39; selection.corpus.sha256 is another"),
        ({"rule": Epsilon()}, r'rule was "AlphaBeta\(alpha=1.0, beta=0.0\)" and is "Epsilon'),
        ({"prefixes": ("reference",)}, r'prefixes was .* and is \["reference"\]'),
        ({"seed": 4}, "seed was 3 and is 4"),
        ({"number": 6}, "number was 5 and is 6"),
        ({"num_beams": 2}, r'generate was \{\} and is \{"num_beams": 2\}'),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_other_settings_are_refused(folder, changes, message):
    before = contents(folder)
    arguments = {"model": make_model(), "tokenizer": TOKENIZER, "pairs": PAIRS, "folder": folder} | OPTIONS | changes
    with pytest.raises(RunError, match=f"other settings: .*{message}.*another folder"):
        evaluate(**arguments)
    assert contents(folder) == before


def test_another_tokenizer_is_refused(folder):
    other = tiny_tokenizer()
    other.add_tokens(["new"])
    with pytest.raises(RunError, match="tokenizer.sha256 is another"):
        evaluate(make_model(), other, PAIRS, folder, **OPTIONS)


def test_other_versions_matter_only_while_there_is_work(folder, monkeypatch):
    before = contents(folder)
    monkeypatch.setattr(settings, "__version__", "9.9")
    evaluate(make_model(), TOKENIZER, PAIRS, folder, **OPTIONS)
    assert contents(folder) == before
    (folder / "shards" / "00002.parquet").unlink()
    with pytest.raises(RunError, match='versions.hf_lrp was ".*" and is "9.9"'):
        evaluate(make_model(), TOKENIZER, PAIRS, folder, **OPTIONS)


def test_shards_of_a_lost_manifest_are_not_taken_for_others(folder):
    (folder / "manifest.json").unlink()
    changed = make_model(seed=1)
    run = evaluate(changed, TOKENIZER, PAIRS, folder, **OPTIONS | {"prefixes": ["reference"]})
    first = next(run.rows("reference"))
    expected = explain(changed, TOKENIZER, *PAIRS[first.pair])
    np.testing.assert_allclose(first.source, expected.source.numpy(), atol=2e-6)


def test_shards_and_what_ran_before_change_nothing(finished, tmp_path, monkeypatch):
    """Also where translations are sampled."""
    sampled = OPTIONS | {"prefixes": ("model", "random"), "do_sample": True, "num_beams": 1}
    evaluate(make_model(), TOKENIZER, PAIRS, tmp_path / "run", **sampled)
    before = contents(tmp_path / "run")
    (tmp_path / "run" / "shards" / "00002.json").unlink()
    model, state = make_model(), torch.get_rng_state()
    evaluate(model, TOKENIZER, PAIRS, tmp_path / "run", **sampled)
    assert contents(tmp_path / "run") == before
    assert torch.equal(torch.get_rng_state(), state)
    monkeypatch.setattr(scheduling, "SHARD", 3)
    run = evaluate(make_model(), TOKENIZER, PAIRS, tmp_path / "other", **OPTIONS | {"prefixes": ["random"]})
    for mine, other in zip(run.rows("random"), Run.open(finished).rows("random"), strict=True):
        assert np.array_equal(mine.target_ids, other.target_ids)
        np.testing.assert_allclose(mine.source, other.source, atol=2e-6)


def test_random_prefixes_are_targets_of_other_sentences(finished):
    run = Run.open(finished)
    references = [sentence.target_ids.tolist() for sentence in run.rows("reference")]
    drawn = [sentence.target_ids.tolist() for sentence in run.rows("random")]
    assert sorted(drawn) == sorted(references)
    assert all(mine != other for mine, other in zip(references, drawn, strict=True))


def test_one_shard_is_in_memory(tmp_path, monkeypatch):
    alive = []
    write_shard = evaluating.write_shard

    def count(*arguments):
        found = [each for each in gc.get_objects() if type(each) is Contributions]
        alive.append(sum(id(each) not in before for each in found))
        return write_shard(*arguments)

    gc.collect()
    others = [each for each in gc.get_objects() if type(each) is Contributions]  # of other tests
    before = {id(each) for each in others}
    monkeypatch.setattr(evaluating, "write_shard", count)
    pairs = iter(PAIRS)  # read once only
    evaluate(make_model(), TOKENIZER, pairs, tmp_path, **OPTIONS | {"prefixes": ["reference"], "lengths": None})
    assert len(alive) == 3 and max(alive) <= 4  # the shard that is written and the one before


def test_half_precision_is_converted_once(tmp_path, monkeypatch):
    model = make_model().half()
    with pytest.warns(UserWarning, match="float16 weights were propagated in float32") as warned:
        run = evaluate(model, TOKENIZER, PAIRS, tmp_path, **OPTIONS | {"prefixes": ["reference"]})
    assert len([w for w in warned if "float16" in str(w.message)]) == 1
    assert model.dtype == torch.float16 and run.manifest["weights"] == settings.hash_weights(model)


def test_pairs_longer_than_the_model_are_left_out(tmp_path):
    long = " ".join(["cat"] * 40)
    pairs = [(long, "the cat"), ("the cat", long), ("the cat", "a dog"), ("the dog", "a cat is big")]
    with pytest.warns(UserWarning, match="2 pairs that fit"):
        run = evaluate(make_model(), TOKENIZER, pairs, tmp_path, prefixes=["reference"], lengths=None, progress=False)
    assert [sentence.pair for sentence in run.rows("reference")] == [2, 3]


def test_a_finished_run_is_checked_without_writing(folder, monkeypatch):
    for name in ("write_json", "write_atomically", "write_shard", "one_writer"):
        monkeypatch.setattr(evaluating, name, None)
    assert evaluate(make_model(), TOKENIZER, PAIRS, folder, **OPTIONS).number == 5


def test_one_writer_at_a_time(tmp_path):
    with one_writer(tmp_path / ".run.lock", "it"), pytest.raises(Occupied, match="Another process is writing"):
        evaluate(make_model(), TOKENIZER, PAIRS, tmp_path / "run", **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_nothing_is_written_among_the_results_of_another_evaluation(tmp_path, monkeypatch):
    explain_prefixes = Explainer.explain_prefixes

    def replace_manifest(*args, **options):
        manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
        (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest | {"weights": "others"}))
        return explain_prefixes(*args, **options)

    monkeypatch.setattr(Explainer, "explain_prefixes", replace_manifest)
    with pytest.raises(RunError, match="was replaced or removed while this evaluation ran"):
        evaluate(make_model(), TOKENIZER, PAIRS, tmp_path / "run", **OPTIONS)
    assert not list((tmp_path / "run" / "shards").iterdir())


def test_a_failure_binds_nobody(tmp_path, monkeypatch):
    options = OPTIONS | {"prefixes": ["reference"]}
    with monkeypatch.context() as patch, pytest.raises(TypeError):
        patch.setattr(Explainer, "explain_prefixes", None)
        evaluate(make_model(), TOKENIZER, PAIRS, tmp_path / "run", **options | {"number": 1})
    (tmp_path / "run" / f".manifest.json.{'0a' * 16}").write_bytes(b"")  # of a process that was killed
    assert evaluate(make_model(), TOKENIZER, PAIRS, tmp_path / "run", **options).number == 5
    assert not list((tmp_path / "run").glob(".*")) and not list(tmp_path.glob(".*"))


def test_a_tokenizer_that_does_not_give_back_what_the_model_wrote_is_noticed(folder, monkeypatch):
    (folder / "metrics.json").unlink()
    monkeypatch.setattr(EncoderDecoder, "keeps", lambda *given: False)
    with pytest.warns(UserWarning, match="splits only 0% of the model's own translations"):
        run = evaluate(make_model(), TOKENIZER, PAIRS, folder, **OPTIONS)
    assert run.metrics["model"]["kept"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prefixes": "model"}, "one or more of reference, model, random"),
        ({"prefixes": []}, "one or more of"),
        ({"prefixes": ["models"]}, "one or more of"),
        ({"prefixes": ["model", "model"]}, "lists one twice"),
        ({"number": 1}, "at least two with different targets: evaluate more pairs"),
        ({"model": tiny_model("whisper")}, "reads audio: only corpora of text"),
        ({"pairs": []}, "corpus is empty"),
    ],
)
def test_what_cannot_be_evaluated(tmp_path, changes, message):
    arguments = {"model": make_model(), "tokenizer": TOKENIZER, "pairs": PAIRS, "folder": tmp_path} | OPTIONS | changes
    with pytest.raises((ValueError, TypeError), match=message):
        evaluate(**arguments)
    assert not list(tmp_path.iterdir())

"""The script that trains the shipped model, on a made-up corpus, and the shipped model itself."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "hf_lrp" / "embedded" / "tatoeba-en-fr"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("train_embedded", ROOT / "recipes" / "train_embedded.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    people = [("The cook", "Le cuisinier"), ("My aunt", "Ma tante"), ("A pilot", "Un pilote"), ("Zoe", "Zoé")]
    deeds = [
        ("sings", "chante"),
        ("paints the gate", "peint le portail"),
        ("isn't at sea", "n'est pas en mer"),
        ("reads two maps", "lit deux cartes"),
        ("laughs a lot", "rit beaucoup"),
    ]
    made = [(f"{who} {does}.", f"{qui} {fait}.") for who, qui in people for does, fait in deeds]
    asked = [(f"{who} {does}?", f"{qui} {fait}\u202f?") for who, qui in people for does, fait in deeds]
    return [*made, *asked]  # 40 pairs, 20 English sentences that differ in more than punctuation


@pytest.fixture(scope="module")
def tokenizer(script, pairs):
    return script.build_tokenizer(pairs, 200)


@pytest.fixture(scope="module")
def run(script, pairs, tmp_path_factory):
    """Train 6 steps; returns the folders and a function that runs the same command again."""
    folder = tmp_path_factory.mktemp("embedded")
    data = folder / "pairs.tsv"
    data.write_text("".join(f"{english}\t{french}\n" for english, french in pairs), encoding="utf-8")
    options = {"data": data, "output": folder / "model", "checkpoints": folder / "checkpoints"}
    options |= {"steps": 6, "save_steps": 3, "test_size": 4, "validation_size": 2, "vocab_size": 200}
    options |= {"d_model": 16, "ffn_dim": 32, "layers": 1, "heads": 2, "batch_tokens": 100, "warmup_steps": 2}

    def again(*more: str) -> None:
        script.main([*(f"--{name}={value}" for name, value in options.items()), *more])

    again()
    return folder, again


def test_split_holds_out_english_sides(script, pairs):
    train, validation, test = script.split_pairs(pairs, 4, 2)
    keys = [{script.english_key(english) for english, _ in part} for part in (train, validation, test)]
    assert [len(part) for part in (train, validation, test)] == [40 - 2 * 6, 2, 4]
    assert not keys[0] & keys[1] and not keys[0] & keys[2] and not keys[1] & keys[2]
    assert script.split_pairs(pairs, 4, 2) == (train, validation, test)


def test_held_out_pairs_do_not_depend_on_their_place_in_the_file(script, pairs):
    expected = {script.english_key(english) for english, _ in script.split_pairs(pairs, 4, 2)[2]}
    found = {script.english_key(english) for english, _ in script.split_pairs(pairs[::-1], 4, 2)[2]}
    assert found == expected


def test_split_says_when_there_is_too_little(script, pairs):
    with pytest.raises(ValueError, match="too few"):
        script.split_pairs(pairs, 15, 5)


def test_file_without_tabs_is_refused(script, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("no French here\n", encoding="utf-8")
    with pytest.raises(ValueError, match="separated by a tab"):
        script.read_pairs(path)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Ma tante n'est pas en mer\u202f?", "Ma tante n'est pas en mer ?"),
        ("  Zoé  lit deux cartes. ", "Zoé lit deux cartes."),
        ("Zoé n’est pas\u00a0en mer.", "Zoé n'est pas en mer."),
    ],
)
def test_tokenizer_gives_clean_text_back(tokenizer, text, clean):
    ids = tokenizer(text_target=text)["input_ids"]
    assert ids == tokenizer(text)["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id and ids.count(tokenizer.eos_token_id) == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == clean


def test_pieces_mark_word_starts_and_keep_punctuation_apart(tokenizer):
    pieces = tokenizer.tokenize("Zoe isn't at sea.")
    assert "".join(pieces) == "▁Zoe▁isn't▁at▁sea."
    assert "'" in pieces and "." in pieces


def test_batches_hold_every_pair_once_within_the_budget(script):
    examples = [([1] * (i % 7 + 1), [i] * (i % 5 + 1)) for i in range(100)]
    batches = script.make_batches(examples, 20, script.random.Random(0))
    assert sorted(example[1] for batch in batches for example in batch) == sorted(e[1] for e in examples)
    assert all(len(batch) * max(len(target) for _, target in batch) <= 20 for batch in batches)


def test_padding_does_not_change_the_loss(script, tokenizer, pairs):
    torch.manual_seed(0)
    arguments = script.Arguments(data="", output="", d_model=16, ffn_dim=32, layers=1, heads=2)
    model = script.build_model(tokenizer, arguments).eval()
    batch = script.encode(tokenizer, pairs[:4])
    with torch.no_grad():
        together = script.batch_loss(model, batch, 0.0)
        alone = sum(script.batch_loss(model, [example], 0.0) * len(example[1]) for example in batch)
    torch.testing.assert_close(together, alone / sum(len(target) for _, target in batch))


def test_resumed_run_ends_with_the_same_weights(run):
    folder, again = run
    expected = load_file(folder / "model" / "model.safetensors")
    start = load_file(folder / "checkpoints" / "step-3" / "model.safetensors")
    assert any(not torch.equal(start[name].half(), expected[name]) for name in expected)
    shutil.rmtree(folder / "checkpoints" / "step-6")
    again()
    found = load_file(folder / "model" / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, msg=name)


def test_saved_folder_loads_and_translates(run):
    folder, again = run
    again("--evaluate_only")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    assert model.dtype == torch.float32
    output = model.generate(**tokenizer("Zoe sings.", return_tensors="pt"), max_length=12)
    assert tokenizer.pad_token_id not in output[0, 1:]
    training = json.loads((folder / "model" / "training.json").read_text(encoding="utf-8"))
    assert training["steps"] == 6 and training["test"]["pairs"] == 4
    assert "- layers: 1 + 1," in (folder / "model" / "README.md").read_text(encoding="utf-8")
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.skipif(not SHIPPED.exists(), reason="the model is not in this checkout")
class TestShipped:
    def test_size_and_files(self):
        files = [path for path in SHIPPED.rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) <= 8_000_000
        assert not {".bin", ".pt", ".pth", ".pkl"} & {path.suffix for path in files}

    def test_card_tells_the_score(self):
        bleu = json.loads((SHIPPED / "training.json").read_text(encoding="utf-8"))["test"]["bleu"]
        assert f"BLEU {bleu:.1f}" in (SHIPPED / "README.md").read_text(encoding="utf-8")

    def test_translates_everyday_sentences(self, script):
        tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
        model = AutoModelForSeq2SeqLM.from_pretrained(SHIPPED, dtype=torch.float32).eval()
        cat, eat, tired = script.translate(
            model,
            tokenizer,
            ["The cat is sleeping on my bed.", "Do you want to eat with us tonight?", "I am very tired."],
        )
        assert "chat" in cat and "lit" in cat and cat.endswith(".")
        assert "manger" in eat and "soir" in eat and eat.endswith(" ?")
        assert "fatigué" in tired and tired.endswith(".")

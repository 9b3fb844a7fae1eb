"""Trained tokenizers come back from their files, and model configurations fit them."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from packaging.version import Version
from tiny_models import RELEASE
from transformers import AutoTokenizer, MarianMTModel, PreTrainedTokenizerBase

from hf_lrp import explain
from hf_lrp.models.fingerprints import tokenizer_fingerprint
from hf_lrp.models.vocabulary import Vocabulary
from hf_lrp.training.tokenization import train_tokenizer, translation_config

PAIRS = [
    ("The old man sees the big dog.", "Le vieil homme voit le grand chien."),
    ("Where is the old dog?", "Où est le vieux chien ?"),
    ("The children's house is big!", "La maison des enfants est grande !"),
    ("He doesn't see the man.", "Il ne voit pas l'homme."),
    ("They are in the old house.", "Ils sont dans la vieille maison."),
] * 4
SIZE = {"d_model": 16, "layers": 1, "heads": 2, "ffn_dim": 32, "dropout": 0.0, "max_length": 64}


def pairs() -> Dataset:
    return Dataset.from_list([{"source": source, "target": target} for source, target in PAIRS])


@pytest.fixture(scope="module", params=[True, False], ids=["joint", "separate"])
def trained(request, tmp_path_factory) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase, bool]:
    """A tokenizer as trained, and as loaded from beside its model."""
    tokenizer = train_tokenizer(pairs(), 400, joint=request.param)  # more than there is
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    translation_config(tokenizer, **SIZE).save_pretrained(folder)
    return tokenizer, AutoTokenizer.from_pretrained(folder), request.param


def require_two_vocabularies(joint: bool) -> None:
    if not joint and Version("5.8") > RELEASE:
        pytest.skip(f"transformers {RELEASE} ties the output layer and reads tokenizers of two vocabularies otherwise")


def test_loaded_encodes_and_decodes_alike(trained):
    tokenizer, loaded, _ = trained
    for source, target in [*PAIRS[:5], ("An unknown Ж.", "Un ₤ inconnu.")]:
        ids = tokenizer(text=source, text_target=target)
        assert loaded(text=source, text_target=target) == ids
        assert loaded.decode(ids["labels"]) == tokenizer.decode(ids["labels"])
        assert ids["input_ids"][-1] == ids["labels"][-1] == tokenizer.eos_token_id
    assert pickle.loads(pickle.dumps(loaded))(text_target="Il voit.") == tokenizer(text_target="Il voit.")


def test_decoding_gives_the_text_back(trained):
    _, loaded, _ = trained
    targets = [target for _, target in PAIRS[:5]]
    assert loaded.batch_decode(loaded(text_target=targets)["input_ids"], skip_special_tokens=True) == targets


def test_text_is_normalised(trained):
    _, loaded, _ = trained
    plain = loaded(text_target="Où voit l'homme ?")["input_ids"]
    for variant in ("Ou\u0300 voit l’homme\u202f?", " Où\u00a0voit\t l'homme ? ", "Où voit l'homme\u2009?\n"):
        assert loaded(text_target=variant)["input_ids"] == plain


def test_punctuation_stays_apart_and_spaces_are_marked(trained):
    _, loaded, _ = trained
    pieces = loaded.convert_ids_to_tokens(loaded(text_target="Le chien voit l'homme.")["input_ids"])
    assert pieces[-2:] == [".", "</s>"]
    assert "'" in pieces
    assert pieces[0].startswith("▁")
    assert "".join(pieces[:-1]) == "▁Le▁chien▁voit▁l'homme."


def test_special_tokens(trained):
    _, loaded, _ = trained
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.unk_token_id) == (0, 1, 2)
    assert loaded.convert_ids_to_tokens([0, 1, 2]) == ["<pad>", "</s>", "<unk>"]
    for side in ("text", "text_target"):
        assert 2 in loaded(**{side: "Ж"})["input_ids"]
        assert 2 not in loaded(**{side: "le" if side == "text_target" else "old"})["input_ids"]


def test_each_side_shows_its_own_pieces(trained):
    tokenizer, loaded, joint = trained
    model = MarianMTModel(translation_config(loaded, **SIZE)).eval()
    vocabulary = Vocabulary(model, loaded)
    source, target = PAIRS[0]
    for side, text in (("source", source), ("target", target)):
        ids = torch.tensor(vocabulary.encode([text], side)[0])
        assert "".join(vocabulary.tokens(ids, side)) == "▁" + text.replace(" ", "▁") + "</s>"
    if not joint:
        assert tokenizer.encoder != tokenizer.target_encoder
        assert not any("ù" in piece for piece in tokenizer.encoder)  # French only


def test_a_model_of_this_configuration_trains_generates_and_is_explained(trained):
    _, loaded, joint = trained
    require_two_vocabularies(joint)
    torch.manual_seed(0)
    config = translation_config(loaded, **SIZE)
    model = MarianMTModel(config).eval()
    shared = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert shared == joint == config.share_encoder_decoder_embeddings
    assert model.get_output_embeddings().weight is model.model.decoder.embed_tokens.weight
    batch = loaded(text=[PAIRS[0][0]], text_target=[PAIRS[0][1]], return_tensors="pt")
    assert model(**batch).loss.isfinite()
    assert model.generate(**loaded(PAIRS[0][0], return_tensors="pt"), max_length=10)[0, 0] == loaded.pad_token_id
    contributions = explain(model, loaded, PAIRS[0][0], PAIRS[0][1])
    assert "".join(contributions.source_tokens) == "▁The▁old▁man▁sees▁the▁big▁dog.</s>"
    assert "".join(contributions.target_tokens).startswith("▁Le▁vieil▁homme")


def test_sizes_fit(trained):
    _, loaded, joint = trained
    config = translation_config(loaded, **SIZE)
    if joint:
        assert config.vocab_size == config.decoder_vocab_size == len(loaded)
    else:
        assert (config.vocab_size, config.decoder_vocab_size) == (len(loaded.encoder), len(loaded.target_encoder))
        assert config.vocab_size != config.decoder_vocab_size
    assert config.decoder_start_token_id == config.pad_token_id == 0
    assert (config.eos_token_id, config.max_position_embeddings, config.d_model) == (1, 64, 16)
    with pytest.raises(ValueError, match="multiple of heads=3"):
        translation_config(loaded, **(SIZE | {"heads": 3}))


def test_vocabulary_sizes_are_kept():
    assert len(train_tokenizer(pairs(), 60)) == 60
    separate = train_tokenizer(pairs(), 50, joint=False)
    assert len(separate.encoder) == len(separate.target_encoder) == 50
    with pytest.raises(ValueError, match="vocab_size=20 is too small"):
        train_tokenizer(pairs(), 20)
    with pytest.raises(ValueError, match="no text"):
        train_tokenizer(pairs().select([]), 20)


PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:3]
from test_tokenization import save_tokenizers
save_tokenizers(sys.argv[3])
"""


def save_tokenizers(folder: str) -> None:
    for joint in (True, False):
        train_tokenizer(pairs(), 60, joint=joint).save_pretrained(f"{folder}/{joint}")


def test_the_same_pairs_give_the_same_files(tmp_path):
    """In another process too, where sets have another order."""
    save_tokenizers(str(tmp_path / "1"))
    here = Path(__file__).parent
    paths = [str(here), str(here.parent / "support"), str(tmp_path / "2")]
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", PROGRAM, *paths], env=environment, check=True)
    for joint in ("True", "False"):
        first, second = (
            {path.name: path.read_bytes() for path in (tmp_path / run / joint).iterdir()} for run in ("1", "2")
        )
        assert first == second
        assert ("tokenizer.json" in first) != ("source.spm" in first)


def test_fingerprints_tell_tokenizers_apart_by_what_they_do(trained):
    tokenizer, loaded, joint = trained
    require_two_vocabularies(joint)
    before = tokenizer_fingerprint(tokenizer)
    loaded(["Le chien", "Le"], padding=True, truncation=True, max_length=2)
    assert tokenizer_fingerprint(loaded) == before
    assert tokenizer_fingerprint(train_tokenizer(pairs(), 60, joint=joint)) != before

"""Loading checkpoints, and what is said of those that cannot be loaded."""

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub import errors as hub_errors
from packaging.version import Version
from safetensors.torch import load_file, save_file
from tiny_checkpoint import copy_checkpoint, put_into_cache, save_checkpoint
from tiny_decoders import tiny_decoder
from tiny_models import RELEASE, tiny_model
from tiny_tokenizer import nllb, whisper
from transformers import WhisperFeatureExtractor, WhisperProcessor
from transformers.utils import logging
from word_tokenizer import word_tokenizer

from hf_lrp import explain, load
from hf_lrp.models import loading
from hf_lrp.models.loading import CheckpointError, load_checkpoint, quiet_transformers


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def offline(checkpoint, tmp_path_factory) -> dict[str, str]:
    """What loading gives offline, by Hub id; in a process of its own, since settings are read on import."""
    cache = tmp_path_factory.mktemp("hub")
    put_into_cache(checkpoint, cache, "somebody/complete")
    (put_into_cache(checkpoint, cache, "somebody/without-weights") / "model.safetensors").unlink()
    marian = put_into_cache(checkpoint, cache, "somebody/with-sentencepiece")
    (marian / "tokenizer.json").unlink()
    (marian / "tokenizer_config.json").write_text('{"tokenizer_class": "MarianTokenizer"}')
    for name in ("source.spm", "target.spm", "vocab.json"):
        (marian / name).write_text("{}")
    environment = {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_CACHE": str(cache),
        "PYTHONPATH": str(Path(loading.__file__).parents[2]),
    }
    run = subprocess.run(
        [sys.executable, "-c", LOAD_ALL], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return {"cache": str(cache)} | json.loads(run.stdout)


LOAD_ALL = """
import json, sys
sys.modules["sentencepiece"] = None  # as if it were not installed
from hf_lrp.models.loading import CheckpointError, load_checkpoint

def load(name):
    try:
        return load_checkpoint(name)[0].config.name_or_path
    except CheckpointError as error:
        return str(error)

names = "complete", "absent", "without-weights", "with-sentencepiece"
print(json.dumps({name: load(f"somebody/{name}") for name in names}))
"""


def test_a_folder_gives_a_float32_model_in_evaluation_mode_and_its_tokenizer(checkpoint):
    model, tokenizer = load_checkpoint(checkpoint)
    assert not model.training
    assert tokenizer("the cat")["input_ids"] == [2, 4, 1]


def test_load_gives_what_explain_takes(checkpoint):
    model, tokenizer = load(checkpoint)
    named = explain(checkpoint, source="the cat")
    assert explain(model, tokenizer, "the cat") == named
    assert explain(str(checkpoint), tokenizer, "the cat") == named


def test_speech_models_come_with_their_processor(tmp_path):
    tokenizer = whisper(language="french", task="transcribe")
    processor = WhisperProcessor(WhisperFeatureExtractor(feature_size=5, chunk_length=2), tokenizer)
    tiny_model("whisper", max_source_positions=100, vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    model, loaded = load(tmp_path)
    assert isinstance(loaded, WhisperProcessor) and not model.training
    with pytest.raises(CheckpointError, match="reads audio, and the command line takes text only"):
        load_checkpoint(tmp_path)


def test_a_source_is_needed(checkpoint):
    with pytest.raises(TypeError, match="no source to explain: pass it after the tokenizer, or as source="):
        explain(checkpoint)
    with pytest.raises(TypeError, match="got str. What is to be explained comes after it, or as source="):
        explain(checkpoint, "the cat", "the dog")


def test_half_precision_weights_are_loaded_in_float32(checkpoint, tmp_path):
    folder = copy_checkpoint(checkpoint, tmp_path / "half", dtype="float16")
    weights = {name: tensor.half() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model, _ = load_checkpoint(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_the_embedded_model_is_the_default_and_shown_by_its_name(checkpoint, tmp_path, monkeypatch):
    folder = copy_checkpoint(checkpoint, tmp_path / "tatoeba-en-fr")
    monkeypatch.setattr(loading, "EMBEDDED_MODEL", folder)
    model, _ = load_checkpoint()
    assert model.config.name_or_path == "tatoeba-en-fr"


def test_an_installation_without_the_embedded_model_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "EMBEDDED_MODEL", tmp_path)
    with pytest.raises(CheckpointError, match=r"embedded model is missing .* Install hf-lrp again, or name a model"):
        load_checkpoint()


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(CheckpointError, match=r"The folder .*/nothing does not exist\."):
        load_checkpoint(tmp_path / "nothing")
    for name in ("./nothing", "a/b/c", "nothing/"):
        with pytest.raises(CheckpointError, match=f"The folder {name} does not exist"):
            load_checkpoint(name)


def test_a_file_in_place_of_a_folder(checkpoint):
    with pytest.raises(CheckpointError, match=r"model\.safetensors is a file\. Give the folder"):
        load_checkpoint(checkpoint / "model.safetensors")


def test_a_gguf_file_needs_its_package(tmp_path, monkeypatch):
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("hf_lrp.models.loading.is_gguf_available", lambda: False)
    with pytest.raises(CheckpointError, match="the package gguf is needed: pip install gguf"):
        load(tmp_path / "small.gguf")


def test_a_decoder_only_checkpoint(tmp_path):
    tiny_decoder().save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    model, tokenizer = load(tmp_path)
    assert type(model).__name__ == "LlamaForCausalLM" and model.dtype == torch.float32
    result = explain(tmp_path, source="cat dog", target="the cat", prompt="write {source} =")
    assert result == explain(model, tokenizer, "cat dog", "the cat", prompt="write {source} =")
    assert set(result.spans) == {"first token", "template"}


def test_a_folder_without_config(tmp_path):
    with pytest.raises(CheckpointError, match=r"has no config\.json\. Give the folder that save_pretrained"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{ no json", r"its config\.json is not valid JSON"),
        ("{}", r"its config\.json does not say a model_type"),
        ('{"model_type": "brand-new"}', r"transformers .* does not know its model type\. Supported .* marian"),
        (
            '{"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}',
            r"brings its own code, which hf-lrp does not",
        ),
        ('{"model_type": "mixtral"}', r"'mixtral' is not supported: it is a mixture of experts.* Supported .* marian"),
        ('{"model_type": "mamba"}', r"'mamba' is not supported: it is a state space model"),
        ('{"model_type": "bert"}', r"'bert' is not supported\. Supported .* marian"),
        ('{"model_type": "marian", "is_encoder_decoder": false}', r"says that it is not an encoder-decoder"),
        ('{"model_type": "nllb-moe"}', r"'nllb-moe' is not supported: it is a mixture .* marian.*adding_a_family"),
        ('{"model_type": "whisper"}', r"reads audio, and the command line takes text only\. Use hf_lrp\.explain"),
    ],
)
def test_configs_that_cannot_be_explained_are_refused_before_weights_are_read(tmp_path, config, message):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path)


def test_a_checkpoint_without_weights(checkpoint, tmp_path):
    folder = copy_checkpoint(checkpoint, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"it has no weights \(model\.safetensors or pytorch_model\.bin"):
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_damaged_weights(checkpoint, tmp_path, name):
    folder = copy_checkpoint(checkpoint, tmp_path / "model")
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content[:1000])
    with pytest.raises(CheckpointError, match=r"its weights are damaged or incomplete \(.*\)\. Copy it again"):
        load_checkpoint(folder)


def test_a_git_lfs_pointer_in_place_of_weights(checkpoint, tmp_path):
    folder = copy_checkpoint(checkpoint, tmp_path / "model")
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    with pytest.raises(CheckpointError, match=r"Git LFS pointer, not the weights\. .* `git lfs pull`"):
        load_checkpoint(folder)


def test_weights_that_are_missing_are_not_replaced_by_random_ones(checkpoint, tmp_path):
    folder = copy_checkpoint(checkpoint, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if "decoder.layers.1.fc1" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"2 of its weights are missing \(model\.decoder\.layers\.1\.fc1\.bias"):
        load_checkpoint(folder)


def test_weights_of_other_shapes(checkpoint, tmp_path):
    folder = copy_checkpoint(checkpoint, tmp_path / "model", decoder_ffn_dim=8)
    with pytest.raises(CheckpointError, match=r"its weights do not have the shapes that its config\.json says"):
        load_checkpoint(folder)


def test_a_checkpoint_without_a_tokenizer(checkpoint, tmp_path):
    folder = copy_checkpoint(checkpoint, tmp_path / "model")
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(
        CheckpointError, match=r"tokenizer of .* cannot be loaded .*: tokenizer\.json, or for MarianMT"
    ):
        load_checkpoint(folder)


no_sentencepiece = pytest.mark.skipif(
    Version("5.8") > RELEASE, reason="this release of transformers fails otherwise where sentencepiece is missing"
)


def test_a_tokenizer_that_transformers_makes_up_is_refused(tmp_path):
    tiny_model("bart").save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"has no tokenizer\. Its files belong beside config\.json: tok"):
        load_checkpoint(tmp_path)


@no_sentencepiece
def test_a_tokenizer_whose_package_is_not_installed(offline):
    assert offline["with-sentencepiece"] == (
        "The tokenizer of somebody/with-sentencepiece needs the package sentencepiece: pip install sentencepiece."
    )


@no_sentencepiece
def test_an_id_in_the_cache_works_offline_as_a_folder_does(offline):
    assert offline["complete"] == "somebody/complete"


def test_an_id_that_is_not_in_the_cache_offline(offline):
    assert offline["absent"] == (
        "somebody/absent cannot be loaded: there is no such folder, it is not in the Hub's cache "
        f"({offline['cache']}), and HF_HUB_OFFLINE is set. Run `hf download somebody/absent` on a machine with a "
        "network and copy the cache here, or unset HF_HUB_OFFLINE."
    )


@no_sentencepiece
def test_an_id_that_is_only_partly_in_the_cache(offline):
    assert "somebody/without-weights cannot be loaded: it has no weights" in offline["without-weights"]
    assert "`hf download somebody/without-weights --force-download`" in offline["without-weights"]


def hub_error(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)
    error.args = ("the Hub's words",)
    return error


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            hub_errors.RepositoryNotFoundError,
            r"no such folder, and no such model on the Hub; if it is private, log in",
        ),
        (hub_errors.GatedRepoError, r"access to it on the Hub is restricted: .* `hf auth login`"),
        (hub_errors.LocalEntryNotFoundError, r"the Hub cannot be reached\. Run `hf download .* check your connection"),
        (hub_errors.EntryNotFoundError, r"a file that is needed is missing from it on the Hub"),
        (ConnectionError, r"cannot be loaded: what transformers says\."),
    ],
)
def test_what_the_hub_answers(monkeypatch, kind, message):
    def fail(*_, **__):
        raise OSError("what transformers says") from hub_error(kind)

    monkeypatch.setattr(loading.AutoConfig, "from_pretrained", fail)
    monkeypatch.setattr(huggingface_hub, "is_offline_mode", lambda: False)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint("somebody/tiny-en-fr")


def test_a_name_that_is_neither_a_folder_nor_an_id():
    with pytest.raises(CheckpointError, match=r"no such folder, and it is not a valid Hub id \(owner/name\)"):
        load_checkpoint("not an id!")


def test_quiet_keeps_messages_off_and_puts_settings_back(checkpoint, capfd):
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with quiet_transformers():
        load_checkpoint(checkpoint)
        logging.get_logger("transformers").warning("chatter")
    out, err = capfd.readouterr()
    assert (re.sub("The OrderedVocab you are attempting.*\n", "", out), err) == ("", "")  # of old tokenizers, in Rust
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_quiet_lets_warnings_of_hf_lrp_through():
    with quiet_transformers(), pytest.warns(UserWarning, match="kept"):
        warnings.warn("kept", stacklevel=1)


def multilingual(folder):
    """A tiny NLLB with real language tokens."""
    tokenizer = nllb(tgt_lang=None)
    tokenizer.save_pretrained(folder)
    tiny_model("m2m_100", vocab_size=len(tokenizer), decoder_start_token_id=2).save_pretrained(folder)
    return folder


# NLLB's tokenizer is loaded as one without languages by the first releases of transformers 5.
LOSES_LANGUAGES = Version("5.8") > RELEASE


@pytest.mark.skipif(not LOSES_LANGUAGES, reason="for old releases of transformers")
def test_lost_languages_are_said(tmp_path):
    with pytest.raises(CheckpointError, match="loads its tokenizer without them: install transformers 5.8 or newer"):
        load_checkpoint(multilingual(tmp_path), "deu_Latn", "fra_Latn")


@pytest.mark.skipif(LOSES_LANGUAGES, reason="this release of transformers loses languages")
def test_languages_of_a_multilingual_model(tmp_path):
    model, tokenizer = load_checkpoint(multilingual(tmp_path), "deu_Latn", "fra_Latn")
    result = explain(model, tokenizer, "the cat", "a dog")
    assert result.source_tokens[0] == "deu_Latn"
    assert result.start_tokens == ("</s>", "fra_Latn")
    assert result.conservation_error <= 1e-5


@pytest.mark.skipif(LOSES_LANGUAGES, reason="this release of transformers loses languages")
@pytest.mark.parametrize("languages", [("xx", None), (None, "xx")])
def test_unknown_languages_are_named(tmp_path, languages):
    with pytest.raises(
        CheckpointError, match=r"'xx' is not a language of .*for example: deu_Latn, eng_Latn, fra_Latn"
    ):
        load_checkpoint(multilingual(tmp_path), *languages)


def test_a_model_without_languages(checkpoint):
    with pytest.raises(CheckpointError, match=r"has no languages to choose from: leave 'fr' out"):
        load_checkpoint(checkpoint, None, "fr")

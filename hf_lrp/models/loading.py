"""Load a checkpoint, from a folder or by its Hub id, with errors that say what to do."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
import transformers
from huggingface_hub import errors as hub_errors
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import is_gguf_available

from hf_lrp.models.families import FAMILIES, HOW_TO, supported_model_types, why_unsupported
from hf_lrp.models.vocabulary import knows_no_text

EMBEDDED_MODEL = Path(__file__).parents[1] / "embedded" / "tatoeba-en-fr"
_LANGUAGE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")  # NLLB's, such as eng_Latn
_TOKENIZER_FILES = (
    "Its files belong beside config.json: tokenizer.json, or for MarianMT source.spm, target.spm and vocab.json"
)
GGUF = ".gguf"
_LFS_POINTER = b"version https://git-lfs"


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message says why and what to do."""


def load(
    name: str | os.PathLike[str] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> tuple[PreTrainedModel, Any]:
    """A model that `explain` takes as it is, in float32 and evaluation mode, and its tokenizer.

    For speech models such as Whisper the second is the processor. Code in a checkpoint is never run.

    Args:
        name: a folder, a GGUF file, or the id of a model on the Hub or in its cache; None: the embedded English-French
            model.
        source_language, target_language: for multilingual models, as their tokenizer names them (``eng_Latn``).

    Raises:
        CheckpointError: there is no such checkpoint, it is damaged, or it cannot be explained.
    """
    name = _find(name)
    config = _load_config(name)
    _require_supported(config, name)
    family = FAMILIES[config.model_type]
    hears = family.source == "input_features"
    tokenizer = _load_tokenizer(name, AutoProcessor if hears else AutoTokenizer)
    set_languages(tokenizer, source_language, target_language, name)
    reads = AutoModelForCausalLM if family.encoder is None else AutoModelForSeq2SeqLM
    model = _load_model(name, AutoModelForSpeechSeq2Seq if hears else reads)
    if Path(name) == EMBEDDED_MODEL:
        model.config.name_or_path = EMBEDDED_MODEL.name
    elif Path(name).suffix == GGUF:  # transformers gives it the name of the folder
        model.config.name_or_path = Path(name).stem
    return model, tokenizer


def load_checkpoint(
    name: str | os.PathLike[str] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer for commands and analyses, which take text: a model that reads audio is refused."""
    config = _load_config(_find(name))
    if config.model_type in FAMILIES and FAMILIES[config.model_type].source == "input_features":
        raise CheckpointError(
            f"{name} reads audio, and the command line takes text only. Use hf_lrp.explain from Python, with the "
            "checkpoint's processor."
        )
    return load(name, source_language, target_language)


@contextmanager
def quiet_transformers(*, unless: bool = False) -> Iterator[None]:
    """Keep what transformers and the Hub report while loading off the terminal, except for progress of downloads."""
    if unless:
        yield
        return
    logging, hub_logging = transformers.utils.logging, huggingface_hub.utils.logging
    hub_verbosity = hub_logging.get_verbosity()
    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_bars = not huggingface_hub.utils.are_progress_bars_disabled()
    with warnings.catch_warnings():
        for module in ("transformers", "torch", "huggingface_hub"):
            warnings.filterwarnings("ignore", module=module)
        logging.set_verbosity_error()
        hub_logging.set_verbosity_error()
        logging.disable_progress_bar()  # also turns off those of the Hub
        if hub_bars:
            huggingface_hub.utils.enable_progress_bars()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            hub_logging.set_verbosity(hub_verbosity)
            if had_bars:
                logging.enable_progress_bar()


def _find(name: str | os.PathLike[str] | None) -> str:
    """The folder or Hub id to load from; raises for folders that hold no checkpoint."""
    if name is None:
        if not (EMBEDDED_MODEL / "config.json").is_file():
            raise CheckpointError(
                f"The embedded model is missing from this installation ({EMBEDDED_MODEL}). Install hf-lrp again, or "
                "name a model."
            )
        return str(EMBEDDED_MODEL)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise CheckpointError(
                f"The folder {name} has no config.json. Give the folder that save_pretrained or `hf download` wrote."
            )
        return str(folder)
    if folder.is_file():
        if folder.suffix == GGUF:
            return str(folder)
        raise CheckpointError(f"{name} is a file. Give the folder that holds config.json and the weights.")
    if folder.is_absolute() or len(folder.parts) > 2 or str(name).startswith(".") or str(name).endswith("/"):
        raise CheckpointError(f"The folder {name} does not exist.")
    return str(name)


def _located(name: str) -> dict[str, Any]:
    """Where a checkpoint is, as arguments of `from_pretrained`, which looks for a GGUF file in a folder."""
    path = Path(name)
    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    is_file = path.suffix == GGUF and path.is_file()
    return (where if is_file else {"pretrained_model_name_or_path": name}) | {"trust_remote_code": False}


def _load_config(name: str) -> PreTrainedConfig:
    if Path(name).suffix == GGUF and not is_gguf_available():
        raise CheckpointError(f"To read {name}, the package gguf is needed: pip install gguf.")
    try:
        return AutoConfig.from_pretrained(**_located(name))
    except Exception as error:
        _raise_hub_error(name, error)
        if "custom code" in str(error):
            reason = "it brings its own code, which hf-lrp does not run"
        elif "valid JSON" in str(error):
            reason = "its config.json is not valid JSON"
        elif "model_type" in str(error):
            reason = "its config.json does not say a model_type, so it is not a transformers checkpoint"
        elif "does not recognize this architecture" in str(error):
            known = f"Supported model types: {supported_model_types()}"
            reason = f"transformers {transformers.__version__} does not know its model type. {known}"
        else:
            reason = _in_one_line(error)
        raise CheckpointError(f"{name} cannot be loaded: {reason}.") from error


def _require_supported(config: PreTrainedConfig, name: str) -> None:
    """Raise for architectures that cannot be explained, before their weights are read."""
    kind = config.model_type
    if kind in FAMILIES and (config.is_encoder_decoder or FAMILIES[kind].encoder is None):
        return
    known = f"Supported model types: {supported_model_types()}. {HOW_TO}"
    reason = f"model type {kind!r} is not supported{why_unsupported(config)}"
    if kind in FAMILIES:
        reason, known = (
            f"its config.json says that it is not an encoder-decoder, although every model of type {kind!r} is one",
            "Mend it.",
        )
    raise CheckpointError(f"{name} cannot be explained: {reason}. {known}")


def _load_tokenizer(name: str, kind: Any) -> Any:
    """A tokenizer, or for speech models a processor."""
    try:
        tokenizer = kind.from_pretrained(**_located(name))
    except Exception as error:
        missing = _missing_package(error)
        if missing is not None:
            raise CheckpointError(
                f"The tokenizer of {name} needs the package {missing}: pip install {missing}."
            ) from error
        _raise_hub_error(name, error)
        raise CheckpointError(
            f"The tokenizer of {name} cannot be loaded ({type(error).__name__}: {_in_one_line(error)}). "
            f"{_TOKENIZER_FILES}; if they are there, copy or download them again."
        ) from error
    if knows_no_text(getattr(tokenizer, "tokenizer", tokenizer)):  # transformers makes one up
        raise CheckpointError(f"{name} has no tokenizer. {_TOKENIZER_FILES}: copy or download them too.")
    return tokenizer


def _missing_package(error: Exception) -> str | None:
    """Package that a tokenizer is built on, where it is not installed."""
    if not isinstance(error, ImportError):
        return None
    package = next((p for p in ("sentencepiece", "tiktoken") if p in str(error).lower()), "sentencepiece")
    return None if find_spec(package) else package


def set_languages(tokenizer: Any, source: str | None, target: str | None, name: str) -> None:
    """Tell a multilingual tokenizer its languages; None leaves one as it is.

    Raises:
        CheckpointError: the model, called ``name`` there, does not know a language.
    """
    _set_language(tokenizer, "src_lang", source, name)
    _set_language(tokenizer, "tgt_lang", target, name)


def _set_language(tokenizer: PreTrainedTokenizerBase, side: str, language: str | None, name: str) -> None:
    """Tell a multilingual tokenizer a language."""
    if language is None:
        return
    if not hasattr(tokenizer, side):
        if any(_LANGUAGE.fullmatch(token) for token in tokenizer.get_added_vocab()):
            raise CheckpointError(
                f"{name} has languages, but transformers {transformers.__version__} loads its tokenizer without them: "
                "install transformers 5.8 or newer."
            )
        raise CheckpointError(f"{name} has no languages to choose from: leave {language!r} out.")
    try:
        setattr(tokenizer, side, language)
        encoded = tokenizer(**{{"src_lang": "text", "tgt_lang": "text_target"}[side]: "."}).input_ids
    except KeyError:
        encoded = [tokenizer.unk_token_id]
    if tokenizer.unk_token_id in (encoded[0], encoded[-1]):
        languages = sorted(token for token in tokenizer.get_added_vocab() if "<" not in token)
        raise CheckpointError(
            f"{language!r} is not a language of {name}. It has, for example: {', '.join(languages[:8])}."
        )


def _load_model(name: str, kind: Any) -> PreTrainedModel:
    _require_no_pointer(name)
    try:
        model, report = kind.from_pretrained(**_located(name), dtype=torch.float32, output_loading_info=True)
    except Exception as error:
        _raise_hub_error(name, error)
        if isinstance(error, OSError) and re.search(r"no file named|not appear to have a file", str(error)):
            reason = "it has no weights (model.safetensors or pytorch_model.bin beside config.json)"
        elif "mismatched" in str(error):
            reason = "its weights do not have the shapes that its config.json says"
        else:
            reason = f"its weights are damaged or incomplete ({type(error).__name__}: {_in_one_line(error)})"
        raise CheckpointError(f"{name} cannot be loaded: {reason}. {_how_to_get_again(name)}") from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise CheckpointError(
            f"{name} cannot be loaded: {len(missing)} of its weights are missing ({missing[0]}, ...). "
            f"{_how_to_get_again(name)}"
        )
    return model.eval()


def _how_to_get_again(name: str) -> str:
    return "Copy it again." if Path(name).is_dir() else f"Get it again: `hf download {name} --force-download`."


def _require_no_pointer(name: str) -> None:
    """Raise where Git has left a pointer in place of the weights."""
    for path in sorted(Path(name).glob("*.safetensors")) + sorted(Path(name).glob("*.bin")):
        with path.open("rb") as file:
            if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise CheckpointError(
                    f"{path} is a Git LFS pointer, not the weights. Get them with `git lfs pull` in that folder."
                )


def _raise_hub_error(name: str, error: BaseException) -> None:
    """Raise what the Hub's part of an error means for the user; return if it has none."""
    chain = []
    cause: BaseException | None = error
    while cause is not None:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__

    def caused_by(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in chain)

    if caused_by(hub_errors.HFValidationError):
        reason = "there is no such folder, and it is not a valid Hub id (owner/name)"
    elif caused_by(hub_errors.GatedRepoError):
        reason = "access to it on the Hub is restricted: ask for it on its page, then log in with `hf auth login`"
    elif caused_by(hub_errors.RepositoryNotFoundError):
        reason = "there is no such folder, and no such model on the Hub; if it is private, log in with `hf auth login`"
    elif caused_by(hub_errors.LocalEntryNotFoundError, hub_errors.OfflineModeIsEnabled):
        offline, cache = huggingface_hub.is_offline_mode(), huggingface_hub.constants.HF_HUB_CACHE
        why_not = "HF_HUB_OFFLINE is set" if offline else "the Hub cannot be reached"
        remedy = "unset HF_HUB_OFFLINE" if offline else "check your connection"
        reason = (
            f"there is no such folder, it is not in the Hub's cache ({cache}), and {why_not}. Run "
            f"`hf download {name}` on a machine with a network and copy the cache here, or {remedy}"
        )
    elif caused_by(hub_errors.EntryNotFoundError):
        reason = "a file that is needed is missing from it on the Hub"
    else:
        return
    raise CheckpointError(f"{name} cannot be loaded: {reason}.") from error


def _in_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return text if len(text) <= 200 else text[:199] + "…"

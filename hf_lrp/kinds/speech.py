"""Models with an encoder that listens: samples or log-mel features, and what the encoder's positions are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_lrp.inputs.ids import Described, Sources
from hf_lrp.inputs.options import require_no_prompt
from hf_lrp.inputs.prefixes import DecoderPrompts, Prefix
from hf_lrp.inputs.prompts import Prompt
from hf_lrp.kinds.encoder_decoder import Encoded, has_length_limit
from hf_lrp.kinds.kind import Asked
from hf_lrp.models.configs import generation_config_of, position_limit
from hf_lrp.models.families import Family
from hf_lrp.models.vocabulary import Vocabulary

# Whisper's second convolution makes one position of two frames.
FRAMES_PER_POSITION = 2
FRAMES_PER_SECOND = 100  # where no feature extractor says otherwise
_NO_TIMES, _SIZE = (
    "<|notimestamps|>",
    51864,
)  # how Whisper's vocabularies are told, the smallest of which has this size

_ACCEPTED = (
    "pass samples as a 1-D array of floats, with the model's processor in place of the tokenizer, or log-mel features "
    "[bins, frames] (or a list of either)"
)


class Speech:
    """Whisper and its like."""

    def includes(self, family: Family) -> bool:
        """Whether the encoder takes features of sound."""
        return family.source == "input_features"

    def read(self, asked: Asked) -> Heard:
        """Samples or features."""
        require_no_prompt(asked.model, asked.prompt)
        prompts = DecoderPrompts(asked.model, asked.vocabulary, asked.options)
        config = asked.options.get("generation_config") or generation_config_of(asked.model)
        return Heard(read_audio(asked.source, asked.model, asked.processor), prompts, config)

    def corpus_prompt(self, model: PreTrainedModel, tokenizer: Any, prompt: Any) -> Prompt | None:
        """Raise: corpora are of text."""
        _refuse_text(model)

    def count_tokens(self, asked: Asked, targets: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Raise: corpora are of text."""
        _refuse_text(asked.model)

    def keeps(self, vocabulary: Vocabulary, prompt: Prompt | None, ids: Sequence[int]) -> bool:
        """Whether decoding and encoding give the same tokens."""
        raise NotImplementedError("Corpora must be text.")


def _refuse_text(model: PreTrainedModel) -> NoReturn:
    raise TypeError(f"{type(model).__name__} reads audio: only corpora of text can be evaluated.")


@dataclass(frozen=True)
class Heard(Encoded):
    """Recordings for an encoder, what the decoder is prompted with, and the config that says so to `generate`."""

    config: Any

    def read_targets(self, given: Any) -> tuple[list[Prefix], bool]:
        """Targets as prefixes, and whether a single one was given."""
        if self.prompts.vocabulary.tokenizer is None:  # which would know the tokens of languages and tasks
            require_prompt_tokens(self.prompts.vocabulary, self.config)
        return super().read_targets(given)

    def batch(
        self, model: PreTrainedModel, batch: list[Tensor], options: dict[str, Any]
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Features of one length, and settings that make Whisper return all tokens, also those it opens with."""
        require_prompt_tokens(self.prompts.vocabulary, self.config)
        settings: dict[str, Any] = {"force_unique_generate_call": True}
        if not has_length_limit(model, options):
            settings["max_length"] = position_limit(model)
        features = torch.stack(batch).to(model.dtype)
        mask = features.new_ones(len(features), features.shape[-1], dtype=torch.long)
        return {"input_features": features, "attention_mask": mask}, settings


def require_prompt_tokens(vocabulary: Vocabulary, config: Any) -> None:
    """Raise for generation configs that are older than the names of Whisper's languages, tasks and times in them.

    With such a one, `generate` prompts the decoder with no language or task, and these are written as if they were
    text, or `language=` fails.
    """
    if getattr(config, "no_timestamps_token_id", None) is not None:
        return
    if vocabulary.id_of(_NO_TIMES) is not None or vocabulary.sizes["target"] >= _SIZE:
        raise ValueError(
            "The model's generation config is an old one, without the names of Whisper's languages and tasks, so what "
            "the decoder is prompted with would count as predicted. Take that of the release it was made from, for "
            "example model.generation_config = GenerationConfig.from_pretrained('openai/whisper-tiny'), or pass the "
            "processor and a target."
        )


def read_audio(given: Any, model: PreTrainedModel, feature_extractor: Any) -> Sources:
    """Log-mel features [bins, frames] of each recording.

    Args:
        given: samples [n], features [bins, frames], a list of either, features [batch, bins, frames], or a mapping
            with ``input_features``.
        model: a speech model.
        feature_extractor: turns samples into features; None where features are given.
    """
    items, single = _arrays(given)
    features = [_features(item, number, model, feature_extractor) for number, item in enumerate(items)]
    rate = FRAMES_PER_SECOND
    if feature_extractor is not None:
        rate = feature_extractor.sampling_rate / feature_extractor.hop_length
    return Sources("input_features", features, single, partial(describe_frames, seconds=FRAMES_PER_POSITION / rate))


def describe_frames(features: Tensor, seconds: float) -> Described:
    """The encoder's positions for features [bins, frames]: the times they start at, grouped into full seconds."""
    count = features.shape[-1] // FRAMES_PER_POSITION
    times = [position * seconds for position in range(count)]
    full = [int(time + 1e-6) for time in times]
    words = [word for word, (_, group) in enumerate(groupby(full)) for _ in group]
    return Described(tuple(f"{time:.2f}s" for time in times), torch.arange(count), tuple(words))


def _arrays(given: Any) -> tuple[list[Tensor], bool]:
    """Samples or features of each recording, and whether a single one was given."""
    if isinstance(given, Mapping):
        if "input_features" not in given:
            raise ValueError(f"Expected 'input_features' for a speech model, found {sorted(given)}: {_ACCEPTED}.")
        given = given["input_features"]
    if isinstance(given, (Tensor, np.ndarray)):
        array = _floats(given, 0)
        return (list(array), False) if array.dim() == 3 else ([array], True)
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"source is a {type(given).__name__}, but this model listens to audio: {_ACCEPTED}.")
    if not given:
        raise ValueError("source is an empty list: pass at least one recording.")
    return [_floats(item, number) for number, item in enumerate(given)], False


def _floats(item: Any, number: int) -> Tensor:
    if not isinstance(item, (Tensor, np.ndarray)):
        raise TypeError(f"source {number} is a {type(item).__name__}, but this model listens to audio: {_ACCEPTED}.")
    array = torch.as_tensor(item)
    if not array.is_floating_point():
        raise TypeError(
            f"source {number} is an array of {array.dtype}, but this model listens to audio: {_ACCEPTED}. Divide "
            "16-bit samples by 32768."
        )
    return array


def _features(item: Tensor, number: int, model: PreTrainedModel, feature_extractor: Any) -> Tensor:
    """Checked features [bins, frames] of samples or features."""
    if item.dim() not in (1, 2) or not item.numel():
        raise ValueError(f"source {number} has the shape {tuple(item.shape)}: {_ACCEPTED}.")
    if not torch.isfinite(item).all():
        raise ValueError(f"source {number} contains NaN or infinity: check how the audio was read.")
    if item.dim() == 1:
        item = _from_samples(item, number, model, feature_extractor)
    config: Any = model.config
    bins, frames = config.num_mel_bins, FRAMES_PER_POSITION * config.max_source_positions
    if item.shape != (bins, frames):
        raise ValueError(
            f"source {number} has {item.shape[0]} bins and {item.shape[1]} frames, but the model takes exactly {bins} "
            f"bins and {frames} frames. Let its processor make the features: it pads short audio with silence; cut "
            "longer audio into pieces."
        )
    return item


def _from_samples(samples: Tensor, number: int, model: PreTrainedModel, feature_extractor: Any) -> Tensor:
    if feature_extractor is None:
        raise ValueError(
            f"source {number} is a 1-D array of samples, which only a processor can read: pass the model's processor "
            "in place of the tokenizer, or log-mel features [bins, frames]."
        )
    rate, longest = feature_extractor.sampling_rate, feature_extractor.n_samples
    if len(samples) > longest:
        raise ValueError(
            f"source {number} has {len(samples) / rate:.1f} s of audio at {rate} Hz, but the model takes at most "
            f"{longest / rate:.1f} s. Cut it into pieces, at pauses if possible."
        )
    array = samples.detach().cpu().float().numpy()
    return feature_extractor(array, sampling_rate=rate, return_tensors="pt").input_features[0]

"""Sound as a source: what is accepted, what the decoder is prompted, and what the result calls its positions."""

import copy
from typing import Any

import numpy as np
import pytest
import tiny_tokenizer as tokenizers
import torch
from tiny_models import tiny_model
from torch import Tensor
from transformers import PreTrainedModel, WhisperFeatureExtractor, WhisperProcessor

from hf_lrp import Contributions, explain
from hf_lrp.kinds.speech import describe_frames
from hf_lrp.models.words import Marking, detect_marking

TARGET = "he is in the street"
FORCED = ("<|fr|>", "<|transcribe|>", "<|notimestamps|>")
START = "<|startoftranscript|>"
SECONDS, RATE = 2, 16000


@pytest.fixture(scope="module")
def processor() -> Any:
    """Reads up to 2 s: 200 frames of 5 bins, 100 positions."""
    tokenizer = tokenizers.whisper(language="french", task="transcribe")
    return WhisperProcessor(WhisperFeatureExtractor(feature_size=5, chunk_length=SECONDS), tokenizer)


@pytest.fixture(scope="module")
def model(processor) -> PreTrainedModel:
    """A tiny Whisper with a generation config such as that of multilingual checkpoints, where the end also pads."""
    tokenizer = processor.tokenizer
    ids = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in ("en", "fr", "transcribe", "translate")}
    end = tokenizer.eos_token_id
    model = tiny_model(
        "whisper",
        max_source_positions=100,
        vocab_size=len(tokenizer),
        decoder_start_token_id=tokenizer.convert_tokens_to_ids(START),
        **{"pad_token_id": end, "eos_token_id": end, "bos_token_id": end},
    )
    config: Any = model.generation_config
    config.lang_to_id = {"<|en|>": ids["en"], "<|fr|>": ids["fr"]}
    config.task_to_id = {"transcribe": ids["transcribe"], "translate": ids["translate"]}
    config.no_timestamps_token_id = tokenizer.convert_tokens_to_ids("<|notimestamps|>")
    config.prev_sot_token_id = tokenizer.convert_tokens_to_ids("<|startofprev|>")
    config.is_multilingual = True
    return model


def tone(seconds: float = 1.2, pitch: float = 300.0) -> np.ndarray:
    return np.sin(np.arange(int(seconds * RATE)) * pitch / RATE * 2 * np.pi).astype(np.float32)


def features_of(processor: Any, samples: np.ndarray) -> Tensor:
    return processor.feature_extractor(samples, sampling_rate=RATE, return_tensors="pt").input_features[0]


def explain_one(*args: Any, **kwargs: Any) -> Contributions:
    result = explain(*args, **kwargs)
    assert isinstance(result, Contributions)
    return result


def test_shares_of_positions(model, processor):
    c = explain_one(model, processor, tone(), TARGET)
    steps = len(c.target_tokens)
    assert c.source.shape == (steps, 100)
    assert c.conservation_error <= 1e-5
    assert c.source_total[0] == pytest.approx(1)
    torch.testing.assert_close(c.source_total + c.target_total, torch.ones(steps))
    assert c.source_tokens[:3] == ("0.00s", "0.02s", "0.04s")
    assert c.source_tokens[-1] == "1.98s"
    assert c.source_ids.tolist() == list(range(100))
    assert c.source_words == (0,) * 50 + (1,) * 50


def test_targets_are_explained_as_the_model_is_trained(model, processor):
    """The logits are those of the decoder input that starts with all that the tokenizer writes in front of a text."""
    c = explain_one(model, processor, tone(), TARGET, predict="target")
    labels = processor.tokenizer(text_target=TARGET).input_ids
    with torch.no_grad():
        output = model(
            input_features=features_of(processor, tone())[None], decoder_input_ids=torch.tensor([labels[:-1]])
        )
    expected = output.logits[0, 3:].gather(1, torch.tensor(labels[4:])[:, None])[:, 0]
    torch.testing.assert_close(c.logits, expected, atol=1e-5, rtol=0)
    assert c.start_tokens == (START, *FORCED)
    assert c.target_ids.tolist() == labels[4:]
    assert c.target_tokens[-1] == "<|endoftext|>"


def test_seconds_are_the_words_of_a_sound(model, processor):
    c = explain_one(model, processor, tone(), TARGET)
    words = c.merge_subwords()
    assert words.source_tokens == ("0–1s", "1–2s")
    assert words.target_tokens == (*TARGET.split(), "<|endoftext|>")
    torch.testing.assert_close(words.source[0], torch.stack([c.source[0, :50].sum(), c.source[0, 50:].sum()]))
    assert "0–1s" in str(words)


def test_positions_follow_the_feature_extractor():
    described = describe_frames(torch.zeros(5, 10), seconds=0.4)
    assert described.tokens == ("0.00s", "0.40s", "0.80s", "1.20s", "1.60s")
    assert described.words == (0, 0, 0, 1, 1)
    skipping = describe_frames(torch.zeros(5, 6), seconds=1.5)
    assert skipping.tokens == ("0.00s", "1.50s", "3.00s")
    assert skipping.words == (0, 1, 2)
    long = describe_frames(torch.zeros(80, 3000), seconds=0.02)
    assert long.words[-1] == 29
    assert [long.words.count(word) for word in range(30)] == [50] * 30


def test_only_times_are_taken_for_times():
    assert detect_marking(["0.00s", "0.02s"]) is Marking.SECONDS
    assert detect_marking(["0.00s", "▁is"]) is Marking.SENTENCEPIECE
    assert detect_marking(["0.00s", "a"]) is Marking.NONE
    assert detect_marking([]) is Marking.NONE


def test_all_kinds_of_input_give_the_same(model, processor):
    sounds = [tone(), tone(0.5, 700.0)]
    targets = [TARGET, "they eats it"]
    expected = explain(model, processor, sounds, targets)
    features = [features_of(processor, sound) for sound in sounds]
    batch = torch.stack(features)
    encoding = processor(sounds, sampling_rate=RATE, return_tensors="pt")
    for given in ([torch.from_numpy(s) for s in sounds], features, batch, batch.numpy(), encoding, dict(encoding)):
        assert explain(model, processor, given, targets) == expected
    for single in (sounds[0], sounds[0].astype(np.float64), torch.from_numpy(sounds[0]), features[0]):
        assert explain(model, processor, single, TARGET) == expected[0]
    assert explain(model, processor.tokenizer, features, targets) == expected
    without = explain_one(model, None, features[0], processor.tokenizer(text_target=TARGET).input_ids)
    assert torch.equal(without.source, expected[0].source)
    assert without.source_tokens == expected[0].source_tokens
    assert without.start_tokens == tuple(map(str, processor.tokenizer(TARGET).input_ids[:4]))


def test_ids_keep_their_end_where_the_end_also_pads(model, processor):
    expected = explain_one(model, processor, tone(), TARGET)
    ids = processor.tokenizer(text_target=TARGET).input_ids
    end = ids[-1]
    for given in (ids, ids[1:], [*ids, end, end], [*ids[1:], -100, -100], ids[4:]):
        assert explain(model, processor, tone(), given) == expected
        assert explain(model, processor, [tone()], torch.tensor([given])) == [expected]
    unfinished = explain(model, processor, [tone()], torch.tensor([ids[:-1]]))
    assert unfinished[0].target_ids.tolist() == ids[4:-1]


def test_languages_of_ids_are_kept(model, processor):
    convert = processor.tokenizer.convert_tokens_to_ids
    languages = [START, "<|en|>", "<|translate|>"]
    for given in (processor, None):
        source = features_of(processor, tone())
        c = explain_one(model, given, source, [*convert(languages), *convert(["<|0.00|>", "Ġhe", "Ġis"])])
        assert c.start_tokens == (tuple(languages) if given else tuple(map(str, convert(languages))))
        assert c.target_ids.tolist() == convert(["<|0.00|>", "Ġhe", "Ġis"])
    words = explain_one(model, processor, source, convert(["<|0.00|>", "Ġhe", "Ġis", "<|0.04|>", "Ġit"]))
    assert words.merge_subwords().target_tokens == ("<|0.00|>", "he", "is", "<|0.04|>", "it")


def test_ids_may_begin_with_a_text_that_the_decoder_is_prompted_with(model, processor):
    """As `generate` is prompted with `prompt_ids`: all up to the start token and its languages is given."""
    tokenizer = processor.tokenizer
    before = tokenizer.convert_tokens_to_ids(["<|startofprev|>", "Ġhe", "Ġis"])
    ids = [*before, *tokenizer(text_target=TARGET).input_ids]
    source = features_of(processor, tone())
    c = explain_one(model, processor, source, ids, predict="target")
    assert c.start_tokens == ("<|startofprev|>", "Ġhe", "Ġis", START, *FORCED)
    assert c.target_ids.tolist() == ids[7:]
    with torch.no_grad():
        logits = model(input_features=source[None], decoder_input_ids=torch.tensor([ids[:-1]])).logits[0, 6:]
    torch.testing.assert_close(c.logits, logits.gather(1, torch.tensor(ids[7:])[:, None])[:, 0], atol=1e-5, rtol=0)
    without = explain_one(model, None, source, torch.tensor(ids), predict="target")
    assert torch.equal(without.source, c.source) and without.start_tokens == tuple(map(str, ids[:7]))
    written = explain_one(model, processor, source, language="fr", prompt_ids=torch.tensor(before), max_new_tokens=4)
    again = explain_one(model, processor, source, [*before, *ids[3:7], *written.target_ids.tolist()])
    assert torch.equal(written.source, again.source) and again.start_tokens == written.start_tokens


class TestOldGenerationConfig:
    """It does not name the tokens of languages and tasks, so that they would be counted as predicted."""

    @pytest.fixture
    def old(self, model):
        other = copy.deepcopy(model)
        for name in ("lang_to_id", "task_to_id", "no_timestamps_token_id", "is_multilingual", "prev_sot_token_id"):
            delattr(other.generation_config, name)
        return other

    @pytest.mark.parametrize("options", [{}, {"language": "en"}], ids=str)
    def test_is_refused_where_the_model_writes(self, old, processor, options):
        with pytest.raises(ValueError, match="Take that of the release it was made from"):
            explain(old, processor, tone(), max_new_tokens=4, **options)

    def test_is_replaced_by_one_that_is_given(self, model, old, processor):
        options = {"generation_config": model.generation_config, "language": "en", "max_new_tokens": 4}
        assert explain(old, processor, tone(), **options) == explain(model, processor, tone(), **options)

    def test_targets_have_the_prompt_of_the_tokenizer(self, model, old, processor):
        expected = explain_one(model, processor, tone(), TARGET)
        for target in (TARGET, processor.tokenizer(text_target=TARGET).input_ids):
            assert explain(old, processor, tone(), target) == expected

    def test_ids_of_a_real_vocabulary_need_the_processor(self):
        large = tiny_model("whisper", vocab_size=51865)
        source = torch.zeros(5, 2 * large.config.max_source_positions)
        with pytest.raises(ValueError, match="or pass the processor and a target"):
            explain(large, None, source, [4, 5, 6])


class TestModelPrefix:
    @pytest.mark.parametrize(
        ("options", "prompted"),
        [
            ({"language": "en"}, ("<|en|>", "<|transcribe|>", "<|notimestamps|>")),
            ({"language": "fr", "task": "translate"}, ("<|fr|>", "<|translate|>", "<|notimestamps|>")),
            ({"language": "en", "return_timestamps": True}, ("<|en|>", "<|transcribe|>")),
            ({"language": "en", "num_beams": 3}, ("<|en|>", "<|transcribe|>", "<|notimestamps|>")),
        ],
        ids=str,
    )
    def test_is_what_generate_writes(self, model, processor, options, prompted):
        sounds = [tone(), tone(0.5, 700.0)]
        results = explain(model, processor, sounds, max_new_tokens=6, **options)
        end = model.config.eos_token_id
        for sound, c in zip(sounds, results, strict=True):
            features = features_of(processor, sound)[None]
            plain = {"force_unique_generate_call": True} if "return_timestamps" in options else {}
            written = model.generate(input_features=features, max_new_tokens=6, **options, **plain)[0].tolist()
            written = written[-c.target_ids.numel() :] if plain else written
            ids = c.target_ids.tolist()
            assert [i for i in ids if i != end] == [i for i in written if i != end]
            assert end not in ids[:-1]
            assert c.start_tokens == (START, *prompted)

    def test_greedy_top1_explains_the_written_tokens(self, model, processor):
        c = explain_one(model, processor, tone(), language="en", max_new_tokens=6)
        assert torch.equal(c.predicted_ids, c.target_ids)

    def test_the_language_is_detected(self, model, processor):
        c = explain_one(model, processor, tone(), max_new_tokens=6)
        assert c.start_tokens[1] in ("<|en|>", "<|fr|>")
        assert torch.equal(c.predicted_ids, c.target_ids)

    def test_a_prompt_is_told_too(self, model, processor):
        prompt = torch.tensor(processor.tokenizer.convert_tokens_to_ids(["<|startofprev|>", "Ġhe", "Ġis"]))
        c = explain_one(model, processor, tone(), language="en", prompt_ids=prompt, max_new_tokens=6)
        assert c.start_tokens[:4] == ("<|startofprev|>", "Ġhe", "Ġis", START)
        assert c.start_tokens[4:] == ("<|en|>", "<|transcribe|>", "<|notimestamps|>")
        assert torch.equal(c.predicted_ids, c.target_ids)

    @pytest.mark.parametrize("batch_size", [1, 2, None])
    def test_batch_size_changes_nothing(self, model, processor, batch_size):
        sounds = [tone(), tone(0.5, 700.0), tone(2.0, 200.0)]
        expected = [explain(model, processor, sound, language="en", max_new_tokens=5) for sound in sounds]
        results = explain(model, processor, sounds, language="en", max_new_tokens=5, batch_size=batch_size)
        assert [c.target_ids.tolist() for c in results] == [c.target_ids.tolist() for c in expected]
        for c, d in zip(results, expected, strict=True):
            torch.testing.assert_close(c.source, d.source, atol=1e-6, rtol=0)

    def test_writes_up_to_the_last_position(self, model, processor):
        c = explain_one(model, processor, tone(), language="en", suppress_tokens=[model.config.eos_token_id])
        assert len(c.start_tokens) + len(c.target_tokens) == 32


def test_random_prefixes(model, processor):
    convert = processor.tokenizer.convert_tokens_to_ids
    languages = [convert(["<|en|>", "<|transcribe|>"]), convert(["<|fr|>", "<|translate|>"])]
    texts = [convert(["Ġhe", "Ġis"]), convert(["Ġthey"])]
    targets = [a + b for a, b in zip(languages, texts, strict=True)]
    c, d = explain(model, processor, [tone(), tone(0.5)], targets, prefix="random")
    assert [c.target_ids.tolist(), d.target_ids.tolist()] == texts[::-1]
    assert c.start_tokens == (START, "<|en|>", "<|transcribe|>")
    assert d.start_tokens == (START, "<|fr|>", "<|translate|>")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_features_take_the_type_of_the_model(processor, model, dtype):
    other = tiny_model("whisper", dtype=dtype)
    features = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    if dtype == torch.float16:
        with pytest.warns(UserWarning, match="propagated in float32"):
            c = explain_one(other, None, features, max_new_tokens=4)
    else:
        c = explain_one(other, None, features, max_new_tokens=4)
        assert c.conservation_error < 1e-12
    assert c.dtype == {torch.float64: "float64", torch.float16: "float32"}[dtype]


def test_results_are_saved(model, processor, tmp_path):
    c = explain_one(model, processor, tone(), TARGET)
    c.save(tmp_path / "c.safetensors")
    assert Contributions.load(tmp_path / "c.safetensors") == c


NOT_AUDIO: dict[str, tuple[Any, type[Exception], str]] = {
    "text": ("the cat", TypeError, "source is a str, but this model listens to audio: pass samples"),
    "texts": (["the cat"], TypeError, "source 0 is a str, but this model listens to audio"),
    "ids": ([4, 5], TypeError, "source 0 is a int, but this model listens to audio"),
    "a tensor of ids": (torch.tensor([4, 5]), TypeError, "array of torch.int64, but this model listens to audio"),
    "an encoding": ({"input_ids": [4]}, ValueError, "Expected 'input_features' for a speech model"),
    "16-bit samples": (tone().astype(np.int16), TypeError, "Divide 16-bit samples by 32768"),
    "nothing": ([], ValueError, "source is an empty list"),
    "no samples": (np.zeros(0, np.float32), ValueError, r"source 0 has the shape \(0,\)"),
    "4-D": (torch.zeros(1, 1, 5, 200), ValueError, r"source 0 has the shape \(1, 1, 5, 200\)"),
    "NaN": (np.full(100, np.nan, np.float32), ValueError, "source 0 contains NaN"),
    "too long": (tone(2.5), ValueError, "2.5 s of audio at 16000 Hz, but the model takes at most 2.0 s. Cut it"),
    "few frames": (torch.zeros(5, 100), ValueError, "100 frames, but the model takes exactly 5 bins and 200 frames"),
    "other bins": (torch.zeros(80, 200), ValueError, "80 bins and 200 frames, but the model takes exactly 5 bins"),
    "stereo": (np.zeros((2, 8000), np.float32), ValueError, "2 bins and 8000 frames, but the model takes exactly"),
}


@pytest.mark.parametrize("name", NOT_AUDIO)
def test_what_is_no_audio_is_named(model, processor, name):
    source, error, message = NOT_AUDIO[name]
    with pytest.raises(error, match=message):
        explain(model, processor, source, TARGET)


def test_samples_need_a_processor(model, processor):
    for tokenizer in (None, processor.tokenizer):
        with pytest.raises(ValueError, match="pass the model's processor in place of the tokenizer"):
            explain(model, tokenizer, tone())
    with pytest.raises(TypeError, match="must be a transformers tokenizer, a processor with one, or None"):
        explain(model, processor.feature_extractor, tone())


@pytest.mark.parametrize(
    "source",
    [tone(), torch.from_numpy(tone()), [tone()], [torch.zeros(5, 200)], {"input_features": torch.zeros(1, 5, 200)}],
    ids=["array", "tensor", "list", "features", "mapping"],
)
def test_text_models_refuse_audio(source):
    with pytest.raises((TypeError, ValueError), match="This model reads text: audio needs a speech model"):
        explain(tiny_model(), None, source, [4])

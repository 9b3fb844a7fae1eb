"""Tokens that the decoder is prompted rather than asked for: language tokens and the like."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_tokenizer as tokenizers
import torch
from example_contributions import make_contributions
from safetensors import safe_open
from tiny_models import ALL_FAMILIES, PAD, tiny_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_lrp import Contributions, explain
from hf_lrp.results.saving import save_fields

SOURCE, OTHER_SOURCE = "the cat sees the dog", "a big red house"
TARGET, OTHER_TARGET = "he is in the street", "they eats it"

# By name: the model's family, its tokenizer, and the tokens that the decoder input opens with.
CASES: dict[str, tuple[str, Callable[[Path], PreTrainedTokenizerBase], tuple[str, ...]]] = {
    "mbart-50": ("mbart", lambda _: tokenizers.mbart50(), ("</s>", "fr_XX")),
    "mbart-25": ("mbart", lambda _: tokenizers.mbart25(), ("fr_XX",)),
    "m2m_100": ("m2m_100", tokenizers.m2m100, ("</s>", "__de__")),
    "nllb": ("m2m_100", lambda _: tokenizers.nllb(), ("</s>", "fra_Latn")),
    "plbart": ("plbart", tokenizers.plbart, ("__en_XX__",)),
    "seamless_m4t": ("seamless_m4t", lambda _: tokenizers.seamless(), ("</s>", "__fra__")),
    "marian": ("marian", tokenizers.marian, ("<pad>",)),
    "bart": ("bart", lambda _: tokenizers.bart(), ("</s>",)),
    "t5": ("t5", lambda _: tokenizers.t5(), ("<pad>",)),
    "fsmt": ("fsmt", tokenizers.fsmt, ("</s>",)),
}
TEXT_FAMILIES = [family for family in ALL_FAMILIES if family != "whisper"]
TOLD_LANGUAGE = ("mbart-50", "m2m_100", "nllb", "seamless_m4t")


def build(name: str, folder: Path) -> tuple[PreTrainedModel, Any, tuple[str, ...]]:
    """A tiny model, its tokenizer, and with what its decoder input opens."""
    family, make, prompt = CASES[name]
    tokenizer: Any = make(folder)
    starts = {"t5": 0, "marian": tokenizer.pad_token_id, "mbart-25": None, "plbart": None}
    special = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id if name != "fsmt" else tokenizer.sep_token_id,
        "decoder_start_token_id": starts.get(name, tokenizer.sep_token_id),
    }
    sizes = {"vocab_size": {"m2m_100": 69}.get(name, len(tokenizer))}
    if name == "marian":
        sizes["decoder_vocab_size"] = sizes["vocab_size"]
    if name == "fsmt":
        sizes = {"src_vocab_size": 60, "tgt_vocab_size": 61, "vocab_size": 61}
    model = tiny_model(family, **special, **sizes)
    return model, tokenizer, prompt


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    return build(request.param, tmp_path)


@pytest.fixture(params=TOLD_LANGUAGE)
def prompted(request, tmp_path):
    """The cases in which a language token follows the start token."""
    return build(request.param, tmp_path)


def explain_one(*args: Any, **kwargs: Any) -> Contributions:
    result = explain(*args, **kwargs)
    assert isinstance(result, Contributions)
    return result


def target_ids(tokenizer: Any, text: str) -> list[int]:
    """A target as its tokenizer writes it, in ids of the target vocabulary."""
    ids = tokenizer(text_target=text).input_ids
    if type(tokenizer).__name__ == "FSMTTokenizer":
        pieces = {i: piece for piece, i in tokenizer.encoder.items()}
        numbers = {piece: i for i, piece in tokenizer.decoder.items()}
        return [numbers[pieces[i]] for i in ids]
    return ids


def test_texts_are_explained_as_the_model_is_trained(case):
    """The logits are those that transformers computes from labels, each family shifting them in its own way."""
    model, tokenizer, prompt = case
    c = explain_one(model, tokenizer, SOURCE, TARGET, predict="target")
    labels = torch.tensor([target_ids(tokenizer, TARGET)])
    if prompt[1:] == ("__fra__",):
        labels = labels[:, 1:]  # SeamlessM4T's tokenizer writes the start token too
    ids = torch.tensor([tokenizer(SOURCE).input_ids])
    with torch.no_grad():
        if "fsmt" in model.config.model_type:  # takes labels for the loss only
            shifted = {"decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels)}
        else:
            shifted = {"labels": labels}
        logits = model(input_ids=ids, use_cache=False, **shifted).logits[0]
    first = len(prompt) - 1
    steps = range(first, first + len(c.target_tokens))
    expected = torch.stack([logits[t, labels[0, t]] for t in steps])
    torch.testing.assert_close(c.logits, expected, atol=1e-5, rtol=0)
    assert c.start_tokens == prompt
    assert c.target_tokens[-1] == "</s>"
    assert not set(prompt[1:]) & set(c.target_tokens)
    assert c.target_ids.tolist() == labels[0, first : first + len(c.target_tokens)].tolist()


def test_definitions_hold(case):
    model, tokenizer, _ = case
    c = explain_one(model, tokenizer, SOURCE, TARGET)
    kept = explain_one(model, tokenizer, SOURCE, TARGET, start_token="keep")
    ones = torch.ones(len(c.target_tokens))
    assert c.conservation_error <= 1e-5
    assert c.source_total[0] == pytest.approx(1)
    torch.testing.assert_close(c.source_total + c.target_total, ones)
    torch.testing.assert_close(kept.source_total + kept.target_total + kept.start, ones)
    assert (kept.start > 0).all()
    assert torch.equal(c.target, c.target.tril(-1))


def test_start_is_the_share_of_start_and_forced_tokens(prompted):
    """The same decoder input with the language as a target token has the same shares, one column further left."""
    model, tokenizer, prompt = prompted
    language = tokenizer.convert_tokens_to_ids(prompt[1])
    ids = [i for i in target_ids(tokenizer, TARGET)[:-1] if i not in (language, tokenizer.eos_token_id)]
    forced = explain_one(model, None, [5, 6, 7], [*ids, 2], forced_bos_token_id=language, start_token="keep")
    plain = explain_one(model, None, [5, 6, 7], [language, *ids, 2], start_token="keep")
    torch.testing.assert_close(forced.source, plain.source[1:])
    torch.testing.assert_close(forced.start, plain.start[1:] + plain.target[1:, 0])
    torch.testing.assert_close(forced.target, plain.target[1:, 1:])
    assert forced.start_tokens == (str(model.config.decoder_start_token_id), str(language))
    assert plain.start_tokens == (str(model.config.decoder_start_token_id),)


def test_ids_come_with_and_without_what_is_forced(case):
    model, tokenizer, prompt = case
    expected = explain_one(model, tokenizer, SOURCE, TARGET)
    start, *forced = tokenizer.convert_tokens_to_ids(list(prompt))
    plain, pad = expected.target_ids.tolist(), model.config.pad_token_id
    behind = [start] if tokenizer(text_target=TARGET).input_ids[-1] == start != plain[-1] else []
    paddings: list[list[int]] = [[], [-100, -100], [pad, pad]]
    fronts = [*forced, *plain], [start, *forced, *plain], plain, [start, *plain], [*plain, *behind]
    for number, given in enumerate(fronts):  # each with each padding, in one form after the other
        rows = [torch.tensor([*given, *padding]) for padding in paddings[number % 3 :] + paddings[: number % 3]]
        assert explain(model, tokenizer, SOURCE, rows[0]) == expected
        assert explain(model, tokenizer, [SOURCE], rows[1][None]) == [expected]
        assert explain(model, tokenizer, SOURCE, rows[2].tolist()) == expected


@pytest.mark.parametrize(
    ("family", "given_as"),
    [*((family, "an option") for family in TEXT_FAMILIES), ("bart", "the generation config"), ("bart", "the config")],
)
def test_ids_need_no_tokenizer(family, given_as):
    model = tiny_model(family)
    options = {"forced_bos_token_id": 7} if given_as == "an option" else {}
    if given_as == "the generation config":
        model.generation_config.forced_bos_token_id = 7
    if given_as == "the config":
        model.config.forced_bos_token_id = 7
    start, pad = model.config.decoder_start_token_id, model.config.pad_token_id
    source, ids, other = [4, 5, 6, 1], [8, 9, 10, 1], [11, 12, 1]
    expected = explain(model, None, [source, source], [ids, other], **options)
    assert [c.start_tokens for c in expected] == [(str(start), "7")] * 2
    assert [c.target_ids.tolist() for c in expected] == [ids, other]
    for number, front in enumerate(([], [7], [start, 7], [start])):
        rows = [[*front, *ids], [*front, *other]]
        assert explain(model, None, [source, source], rows, **options) == expected
        second = ([*rows[1], pad], [*rows[1], -100], [pad, *rows[1]])[number % 3]
        padded = torch.tensor([rows[0], second])
        assert explain(model, None, [source, source], padded, **options) == expected


def test_other_languages_of_ids_are_kept(prompted):
    model, tokenizer, prompt = prompted
    c = explain_one(model, tokenizer, SOURCE, TARGET)
    own, other = tokenizer.convert_tokens_to_ids(prompt[1]), tokenizer(SOURCE).input_ids[0]
    d = explain_one(model, tokenizer, SOURCE, [other, *c.target_ids.tolist()])
    assert d.start_tokens == (prompt[0], *tokenizer.convert_ids_to_tokens([other]))
    assert torch.equal(d.target_ids, c.target_ids)
    assert not torch.allclose(d.source, c.source)
    e = explain_one(model, tokenizer, SOURCE, [other, *c.target_ids.tolist()], forced_bos_token_id=own)
    assert e == c
    assert explain_one(model, tokenizer, SOURCE, TARGET, forced_bos_token_id=other) == d


def test_other_languages_that_are_written_in_texts_are_kept(prompted):
    model, tokenizer, prompt = prompted
    [other] = tokenizer.convert_ids_to_tokens(tokenizer(SOURCE).input_ids[:1])
    c, d = (explain_one(model, tokenizer, SOURCE, text) for text in (TARGET, f"{other} {TARGET}"))
    if tokenizer.tokenize(other) == [other]:
        assert d.start_tokens == (prompt[0], other) and torch.equal(d.target_ids, c.target_ids)
    else:  # M2M100 reads what is written as words
        assert d.start_tokens == prompt and len(d.target_ids) > len(c.target_ids)


def test_generation_config_decides_before_the_tokenizer(prompted):
    model, tokenizer, prompt = prompted
    plain = explain_one(model, tokenizer, SOURCE, TARGET)
    model.generation_config.forced_bos_token_id = 5
    c = explain_one(model, tokenizer, SOURCE, TARGET)
    assert c.start_tokens == (prompt[0], *tokenizer.convert_ids_to_tokens([5]))
    assert c.target_tokens == plain.target_tokens


class TestModelPrefix:
    @pytest.mark.parametrize("beams", [1, 3])
    def test_is_what_generate_writes(self, case, beams):
        model, tokenizer, prompt = case
        start, *forced = tokenizer.convert_tokens_to_ids(list(prompt))
        never = {start, *tokenizer.all_special_ids} - {model.config.eos_token_id, *forced}
        options = {"num_beams": beams, "max_new_tokens": 6, "suppress_tokens": sorted(never)}
        results = explain(model, tokenizer, [SOURCE, OTHER_SOURCE], **options)
        options |= {"decoder_start_token_id": start} | ({"forced_bos_token_id": forced[0]} if forced else {})
        for text, c in zip([SOURCE, OTHER_SOURCE], results, strict=True):
            ids = torch.tensor([tokenizer(text).input_ids])
            row = model.generate(input_ids=ids, **options)[0].tolist()
            assert row[: len(prompt)] == [start, *forced]
            written = row[len(prompt) :]
            ends = [n + 1 for n, i in enumerate(written) if i == model.config.eos_token_id]
            assert c.target_ids.tolist() == written[: ends[0] if ends else None]
            assert c.start_tokens == prompt
            again = explain_one(model, tokenizer, text, c.target_ids)
            assert torch.equal(again.source, c.source)

    def test_ends_at_any_of_several_end_tokens(self):
        """Also in a batch, where what is shorter is padded behind its end."""
        model, sources = tiny_model("bart", seed=3), [[4, 5, 6], [17, 8, 29, 10], [2, 3]]
        options = {"max_new_tokens": 6, "num_beams": 1}
        plain = [explain_one(model, None, each, eos_token_id=PAD, **options).target_ids.tolist() for each in sources]
        assert all(len(set(each)) == 1 and len(each) == 6 for each in plain)  # the same token over and over
        first, second, third = (each[0] for each in plain)
        assert len({first, second, third}) == 3
        results = explain(model, None, sources, eos_token_id=[first, second], **options)
        assert [c.target_ids.tolist() for c in results] == [[first], [second], plain[2]]

    def test_greedy_top1_explains_the_written_tokens(self, case):
        model, tokenizer, _ = case
        c = explain_one(model, tokenizer, SOURCE, num_beams=1, max_new_tokens=6)
        assert torch.equal(c.predicted_ids, c.target_ids)

    def test_forced_token_as_an_option_needs_no_tokenizer(self, prompted):
        model, tokenizer, prompt = prompted
        language = tokenizer.convert_tokens_to_ids(prompt[1])
        ids = tokenizer(SOURCE).input_ids
        c = explain_one(model, None, ids, forced_bos_token_id=language, max_new_tokens=6)
        expected = explain_one(model, tokenizer, SOURCE, max_new_tokens=6)
        assert torch.equal(c.source, expected.source)
        assert torch.equal(c.target_ids, expected.target_ids)
        assert c.start_tokens[1:] == (str(language),)

    @pytest.mark.parametrize("family", ["marian", "pegasus", "bart"])
    def test_forced_token_of_the_generation_config(self, family):
        model = tiny_model(family)
        model.generation_config.forced_bos_token_id = 7
        c = explain_one(model, None, [4, 5, 6], max_new_tokens=6)
        start = model.config.decoder_start_token_id
        row = model.generate(input_ids=torch.tensor([[4, 5, 6]]), max_new_tokens=6)[0].tolist()
        assert row[:2] == [start, 7]
        assert c.target_ids.tolist() == [i for i in row[2:] if i != 39]
        assert c.start_tokens == (str(start), "7")

    def test_a_language_that_the_model_chooses_counts_as_told(self, tmp_path):
        model, _, _ = build("nllb", tmp_path)
        tokenizer: Any = tokenizers.nllb(tgt_lang=None)
        language = tokenizer.convert_tokens_to_ids("deu_Latn")

        def allowed(_: int, written: torch.Tensor) -> list[int]:
            return [language] if len(written) == 1 else [30, 31, 2]

        c = explain_one(model, tokenizer, SOURCE, prefix_allowed_tokens_fn=allowed, max_new_tokens=6)
        assert c.start_tokens == ("</s>", "deu_Latn")
        assert set(c.target_ids.tolist()) <= {30, 31, 2}

    def test_language_of_seamless_as_an_option(self, tmp_path):
        model, tokenizer, _ = build("seamless_m4t", tmp_path)
        language = tokenizer.convert_tokens_to_ids("__deu__")
        model.generation_config.text_decoder_lang_to_code_id = {"deu": language}
        for given in (tokenizer, None):
            c = explain_one(model, given, tokenizer(SOURCE).input_ids, tgt_lang="deu", max_new_tokens=6)
            assert len(c.start_tokens) == 2
            assert c.start_tokens[1] in ("__deu__", str(language))
            assert language not in c.target_ids


def test_random_prefixes_keep_their_own_forced_tokens(prompted):
    model, tokenizer, prompt = prompted
    own, other = tokenizer.convert_tokens_to_ids(prompt[1]), tokenizer(SOURCE).input_ids[0]
    first, second = (
        explain_one(model, tokenizer, SOURCE, text).target_ids.tolist() for text in (TARGET, OTHER_TARGET)
    )
    targets = [[own, *first], [other, *second]]
    c, d = explain(model, tokenizer, [SOURCE, OTHER_SOURCE], targets, prefix="random")
    assert c.target_ids.tolist() == second
    assert d.target_ids.tolist() == first
    assert c.start_tokens == prompt
    assert d.start_tokens == (prompt[0], *tokenizer.convert_ids_to_tokens([other]))
    assert torch.equal(c.source, explain_one(model, tokenizer, SOURCE, [own, *second]).source)
    drawn = explain(model, tokenizer, [SOURCE, OTHER_SOURCE], targets, prefix="random", pool=["we was"])
    assert [e.start_tokens for e in drawn] == [c.start_tokens, d.start_tokens]
    assert explain_one(model, tokenizer, SOURCE, prefix="random", pool=["we was"]).start_tokens == prompt


def test_predict_counts_the_real_steps(prompted):
    model, tokenizer, _ = prompted
    expected = explain_one(model, tokenizer, SOURCE, TARGET, predict="target")
    ids = expected.target_ids
    c = explain_one(model, tokenizer, SOURCE, TARGET, predict=ids)
    assert torch.equal(c.source, expected.source)
    pairs = torch.stack([ids, torch.full_like(ids, 7)], 1)
    contrastive = explain_one(model, tokenizer, SOURCE, TARGET, predict=pairs)
    seven = explain_one(model, tokenizer, SOURCE, TARGET, predict=pairs[:, 1])
    torch.testing.assert_close(contrastive.logits, expected.logits - seven.logits, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match=rf"its {len(ids)} steps need"):
        explain(model, tokenizer, SOURCE, TARGET, predict=[5, *ids.tolist()])


class TestBart:
    """`<s>` is forced where the generation config says so, else predicted."""

    def test_predicted(self, tmp_path):
        model, tokenizer, _ = build("bart", tmp_path)
        c = explain_one(model, tokenizer, SOURCE, TARGET)
        assert c.start_tokens == ("</s>",)
        assert c.target_tokens[0] == "<s>"

    def test_forced(self, tmp_path):
        model, tokenizer, _ = build("bart", tmp_path)
        model.generation_config.forced_bos_token_id = 0
        c = explain_one(model, tokenizer, SOURCE, TARGET)
        assert c.start_tokens == ("</s>", "<s>")
        assert c.target_tokens[0] == "he"
        for ids in (c.target_ids, [0, *c.target_ids.tolist()], [2, 0, *c.target_ids.tolist()]):
            assert explain(model, tokenizer, SOURCE, ids) == c
        written = explain_one(model, tokenizer, SOURCE, max_new_tokens=5)
        assert written.start_tokens == ("</s>", "<s>")


class TestUnknownLanguage:
    @pytest.mark.parametrize("make", [tokenizers.nllb, tokenizers.mbart50])
    def test_is_an_error_for_texts(self, make, tmp_path):
        model, _, _ = build("nllb", tmp_path)
        tokenizer: Any = make(tgt_lang=None)
        with pytest.raises(ValueError, match=r"Set tokenizer.tgt_lang, or pass the language's token as forced_bos"):
            explain(model, tokenizer, SOURCE, TARGET)
        assert tokenizer.tgt_lang is None

    def test_forced_token_is_enough(self, tmp_path):
        for known, unknown in (
            (tokenizers.nllb(), tokenizers.nllb(tgt_lang=None)),
            (tokenizers.m2m100(tmp_path), tokenizers.m2m100(tmp_path, tgt_lang=None)),
        ):
            model, _, _ = build("nllb", tmp_path)
            language = known(text_target=TARGET).input_ids[0]
            expected = explain_one(model, known, SOURCE, TARGET)
            assert explain_one(model, unknown, SOURCE, TARGET, forced_bos_token_id=language) == expected

    def test_mbart25_and_plbart_need_a_start(self, tmp_path):
        for name, tokenizer in (
            ("mbart-25", tokenizers.mbart25(tgt_lang=None)),
            ("plbart", tokenizers.plbart(tmp_path, tgt_lang=None)),
        ):
            model, _, _ = build(name, tmp_path)
            with pytest.raises(ValueError, match=r"decoder_start_token_id is not set.*or set tokenizer.tgt_lang"):
                explain(model, tokenizer, SOURCE, TARGET)
            model.generation_config.decoder_start_token_id = 9
            c = explain_one(model, tokenizer, SOURCE, TARGET)
            assert c.start_tokens == tuple(tokenizer.convert_ids_to_tokens([9]))
            assert c.target_tokens[-1] == "</s>"


def test_labels_of_mbart25_bring_the_start_token(tmp_path):
    model, tokenizer, _ = build("mbart-25", tmp_path)
    text = explain_one(model, tokenizer, SOURCE, TARGET)
    labels = tokenizer(text_target=TARGET).input_ids
    c = explain_one(model, None, tokenizer(SOURCE).input_ids, labels)
    assert torch.equal(c.source, text.source)
    assert c.start_tokens == (str(labels[-1]),)


@pytest.mark.parametrize("name", [*TOLD_LANGUAGE, "mbart-25", "plbart"])
def test_language_codes_are_special(name, tmp_path):
    """They are source tokens, and words of their own."""
    model, tokenizer, _ = build(name, tmp_path)
    c = explain_one(model, tokenizer, SOURCE, TARGET)
    position = -1 if name in ("mbart-25", "plbart") else 0
    language = c.source_tokens[position]
    assert language == tokenizer.convert_ids_to_tokens(tokenizer(SOURCE).input_ids)[position]
    words = c.merge_subwords()
    assert words.source_tokens[position] == language
    assert words.source_tokens[1 if position == 0 else 0] == "the"
    first, *others = c.target_ids.tolist()
    inside = explain_one(model, tokenizer, SOURCE, [first, c.source_ids[position].item(), *others])
    assert inside.merge_subwords().target_tokens[:2] == ("he", language)


def test_two_vocabularies_of_marian(tmp_path):
    """Source and target tokenizers cut and number pieces in their own ways."""
    tokenizer: Any = tokenizers.marian(tmp_path, separate=True)
    sizes = {"vocab_size": len(tokenizer.encoder), "decoder_vocab_size": len(tokenizer.decoder)}
    start = len(tokenizer.decoder) - 1
    special = {"pad_token_id": start, "decoder_start_token_id": start, "eos_token_id": 0}
    model = tiny_model("marian", **sizes, **special, share_encoder_decoder_embeddings=False)
    c = explain_one(model, tokenizer, SOURCE, TARGET)
    assert c.target_ids.tolist() == tokenizer(text_target=TARGET).input_ids
    assert c.merge_subwords().source_tokens == (*SOURCE.split(), "</s>")
    assert c.merge_subwords().target_tokens == (*TARGET.split(), "</s>")
    assert len(c.source_tokens) < len(explain_one(model, tokenizer, TARGET, SOURCE).target_tokens)


def test_two_vocabularies(tmp_path):
    model, tokenizer, _ = build("fsmt", tmp_path)
    c = explain_one(model, tokenizer, SOURCE, TARGET)
    assert c.source_tokens == (*(f"{word}</w>" for word in SOURCE.split()), "</s>")
    assert c.target_tokens == (*(f"{word}</w>" for word in TARGET.split()), "</s>")
    with pytest.raises(ValueError, match="source 0 has the token id 60, but the model's vocabulary has ids 0 to 59"):
        explain(model, tokenizer, [4, 60], [5])
    with pytest.raises(ValueError, match="target 0 has the token id 61, but the model's vocabulary has ids 0 to 60"):
        explain(model, tokenizer, [4, 59], [60, 61])


def test_forced_tokens_take_positions():
    model = tiny_model("bart")
    explain(model, None, [4], [5] * 31, forced_bos_token_id=7)
    with pytest.raises(ValueError, match="target 0 has 33 tokens, but the model has only 32 positions"):
        explain(model, None, [4], [5] * 32, forced_bos_token_id=7)


def test_relative_positions_have_no_limit():
    model = tiny_model("t5")
    assert explain_one(model, None, [4] * 70, [5] * 80).target.shape == (80, 80)


def test_other_options_of_generate_need_the_model_prefix():
    with pytest.raises(
        TypeError, match=r"Unknown arguments: num_beams. \(Options of `generate` other than forced_bos"
    ):
        explain(tiny_model(), None, [4], [5], num_beams=2, forced_bos_token_id=7)


class TestFiles:
    def test_start_tokens_are_kept(self, tmp_path):
        c = explain_one(tiny_model(), None, [4, 5], [6, 7], forced_bos_token_id=8)
        c.save(tmp_path / "c.safetensors")
        assert Contributions.load(tmp_path / "c.safetensors") == c
        assert c.to_dict()["start_tokens"] == ["39", "8"]
        assert c.merge_subwords().start_tokens == ("39", "8")

    def test_files_of_older_versions_are_read(self, tmp_path):
        old = make_contributions()
        old.save(tmp_path / "new.safetensors")
        with safe_open(tmp_path / "new.safetensors", framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        described = json.loads(metadata["description"])
        assert described.pop("start_tokens") == []
        save_fields(tmp_path / "old.safetensors", tensors, described)
        assert Contributions.load(tmp_path / "old.safetensors") == old

"""explain(): the contract users rely on."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_models import ALL_FAMILIES, FAMILIES, GOLDEN, SETTINGS, load_golden, random_ids, tiny_model
from tiny_tokenizer import tiny_tokenizer
from transformers import BatchEncoding, GenerationConfig

import hf_lrp
from hf_lrp import AlphaBeta, Contributions, Epsilon, Gamma, explain
from hf_lrp.inputs.memory import LARGEST_BATCH, generation_batch_size

SOURCES = ["the cat sees the dog", "she is in the house", "a small red house and a big blue street"]
TARGETS = ["he eats", "they was in a big house not a street", "we sees it"]
RULES = {"a1_b0_eps1e-12": AlphaBeta(1, 0), "a0.5_b0.5_eps1e-12": AlphaBeta(0.5, 0.5)}


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


def explain_one(*args, **kwargs) -> Contributions:
    result = explain(*args, **kwargs)
    assert isinstance(result, Contributions)
    return result


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_reproduces_the_golden_contributions(name, setting, dtype):
    golden = load_golden(name, dtype)
    c = explain_one(golden.model, None, golden.source_ids, golden.target_ids, rule=RULES[setting], start_token="keep")
    tolerance = 2e-6 if (setting, dtype) == ("a1_b0_eps1e-12", torch.float64) else 1e-5
    decoder = golden.decoder[setting].to(dtype)
    torch.testing.assert_close(c.source, golden.source[setting].to(dtype), atol=tolerance, rtol=0)
    torch.testing.assert_close(c.start, decoder[:, 0], atol=tolerance, rtol=0)
    torch.testing.assert_close(c.target[:, :-1], decoder[:, 1:], atol=tolerance, rtol=0)
    assert c.conservation_error < (1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("start_token", ["exclude", "keep"])
def test_without_source_tokens_the_source_is_one(model, tokenizer, start_token):
    options = {"predict": "target", "start_token": start_token}
    whole = explain_one(model, tokenizer, SOURCES[0], TARGETS[1], **options)
    alone = explain_one(model, tokenizer, SOURCES[0], TARGETS[1], **options, source_tokens=False)
    assert alone.source_tokens == ("<source>",) and alone.source.shape == (len(whole), 1)
    torch.testing.assert_close(alone.source_total, whole.source_total, rtol=0, atol=1e-6)
    torch.testing.assert_close(alone.target, whole.target, rtol=0, atol=1e-6)
    assert alone.conservation_error <= 1e-5


def test_definitions_of_the_paper(model, tokenizer):
    c = explain_one(model, tokenizer, SOURCES[0], TARGETS[1])
    steps = len(c.target_tokens)
    assert c.source.shape == (steps, len(c.source_tokens))
    assert c.target.shape == (steps, steps)
    assert c.source.min() >= 0
    assert c.target.min() >= 0
    assert torch.equal(c.target, c.target.tril(-1))
    assert c.source_total[0] == pytest.approx(1)
    torch.testing.assert_close(c.source_total + c.target_total, torch.ones(steps))
    assert c.conservation_error <= 1e-5
    assert c.source_tokens[-1] == c.target_tokens[-1] == "</s>"
    assert c.prefix == "reference"


def test_start_token_keep_gives_raw_shares(model, tokenizer):
    kept = explain_one(model, tokenizer, SOURCES[0], TARGETS[0], start_token="keep")
    excluded = explain_one(model, tokenizer, SOURCES[0], TARGETS[0])
    torch.testing.assert_close(kept.source_total + kept.target_total + kept.start, torch.ones(3))
    torch.testing.assert_close(excluded.source, kept.source / (1 - kept.start)[:, None], atol=1e-6, rtol=0)
    torch.testing.assert_close(excluded.start, kept.start)


def test_a_list_gives_what_single_sentences_give(model, tokenizer):
    together = explain(model, tokenizer, SOURCES, TARGETS)
    alone = [explain(model, tokenizer, s, t) for s, t in zip(SOURCES, TARGETS, strict=True)]
    assert together == alone


def test_all_kinds_of_input_give_the_same(model, tokenizer):
    texts = explain(model, tokenizer, SOURCES, TARGETS)
    ids = [torch.tensor(tokenizer(text).input_ids) for text in SOURCES]
    right = tokenizer(SOURCES, return_tensors="pt", padding=True, padding_side="right")
    left = tokenizer(SOURCES, return_tensors="pt", padding=True, padding_side="left")
    lists = [row.tolist() for row in ids]
    for given in (ids, lists, right, left, right["input_ids"], tokenizer(SOURCES), dict(right)):
        assert explain(model, tokenizer, given, TARGETS) == texts
    assert explain(model, tokenizer, ids[0], TARGETS[0]) == texts[0]
    assert explain(model, tokenizer, lists[0], TARGETS[0]) == texts[0]
    assert explain(model, tokenizer, BatchEncoding({"input_ids": lists[0]}), TARGETS[0]) == texts[0]


def test_arrays_columns_and_generators_are_taken(model, tokenizer):
    expected = explain(model, tokenizer, SOURCES, TARGETS)
    ids = [tokenizer(text).input_ids for text in SOURCES]
    for given in (
        np.array(SOURCES),
        np.array(SOURCES, dtype=object),
        pd.Series(SOURCES, index=[7, 8, 9]),
        tuple(SOURCES),
    ):
        assert explain(model, tokenizer, given, pd.Series(TARGETS)) == expected
    for given in ([np.array(row) for row in ids], pd.Series(ids), [[np.int32(i) for i in row] for row in ids]):
        assert explain(model, tokenizer, given, np.array(TARGETS)) == expected
    assert explain(model, tokenizer, (text for text in SOURCES), iter(TARGETS)) == expected
    assert explain(model, tokenizer, np.array(ids[0], dtype=np.uint16), TARGETS[0]) == expected[0]
    encoded = tokenizer(SOURCES, padding=True, return_tensors="np")
    assert explain(model, tokenizer, encoded, TARGETS) == expected
    assert explain(model, tokenizer, [*ids[0], 39, 39], TARGETS[0]) == expected[0]


def test_what_generate_returns_is_taken_as_target(model, tokenizer):
    written = model.generate(**tokenizer(SOURCES[0], return_tensors="pt"), max_new_tokens=5)
    c = explain_one(model, tokenizer, SOURCES[0], written)
    assert torch.equal(c.source, explain_one(model, tokenizer, SOURCES[0], max_new_tokens=5).source)
    assert explain(model, tokenizer, [SOURCES[0]], [written]) == [c]


def test_targets_may_carry_start_token_and_padding(model, tokenizer):
    plain = explain_one(model, tokenizer, SOURCES[0], TARGETS[0])
    ids = tokenizer(TARGETS[0]).input_ids
    start, pad = model.config.decoder_start_token_id, model.config.pad_token_id
    generated = torch.tensor([[start, *ids, pad, pad]])
    labels = torch.tensor([[*ids, -100, -100]])
    assert explain(model, tokenizer, [SOURCES[0]], generated) == [plain]
    assert explain(model, tokenizer, [SOURCES[0]], labels) == [plain]


def test_ids_need_no_tokenizer(model):
    c = explain_one(model, None, random_ids(4), random_ids(3, seed=1))
    assert c.source_tokens == tuple(str(i) for i in random_ids(4).tolist())
    assert c.source_words == (0, 1, 2, 3)


def test_ids_that_the_tokenizer_does_not_know_are_shown_as_numbers(model, tokenizer):
    c = explain_one(model, tokenizer, [4, 36], [37, 1])
    assert c.source_tokens == ("▁cat", "36")
    assert c.target_tokens == ("37", "</s>")


class TestPrefix:
    def test_model_prefix_is_what_generate_writes(self, model, tokenizer):
        options = {"num_beams": 3, "max_new_tokens": 6}
        results = explain(model, tokenizer, SOURCES, **options)
        for text, c in zip(SOURCES, results, strict=True):
            written = model.generate(**tokenizer(text, return_tensors="pt"), **options)[0, 1:].tolist()
            end = written.index(1) + 1 if 1 in written else len(written)
            assert c.target_ids.tolist() == written[:end]
            assert c.prefix == "model"

    @pytest.mark.parametrize("batch_size", [1, 2, None])
    def test_batch_size_changes_nothing(self, model, tokenizer, batch_size):
        expected = explain(model, tokenizer, SOURCES, max_new_tokens=5)
        assert explain(model, tokenizer, SOURCES, max_new_tokens=5, batch_size=batch_size) == expected

    def test_generation_is_not_cut_at_the_default_of_transformers(self, tokenizer):
        model = tiny_model()
        model.generation_config.eos_token_id = None
        model.generation_config.max_length = None
        assert len(explain_one(model, tokenizer, SOURCES[2]).target_tokens) > 20

    def test_generation_ends_where_it_is_told_to(self, model, tokenizer):
        whole = explain_one(model, tokenizer, SOURCES[0], max_new_tokens=8, eos_token_id=None)
        end = whole.target_ids[2].item()
        first = whole.target_ids.tolist().index(end)
        c = explain_one(model, tokenizer, SOURCES[0], max_new_tokens=8, eos_token_id=end)
        assert c.target_ids.tolist() == whole.target_ids[: first + 1].tolist()

    def test_options_of_generate_may_come_as_a_config(self, model, tokenizer):
        config = GenerationConfig(
            max_new_tokens=5, num_beams=2, forced_bos_token_id=7, eos_token_id=1, pad_token_id=39
        )
        c = explain_one(model, tokenizer, SOURCES[0], generation_config=config)
        d = explain_one(model, tokenizer, SOURCES[0], max_new_tokens=5, num_beams=2, forced_bos_token_id=7)
        assert c == d
        assert c.start_tokens == tuple(tokenizer.convert_ids_to_tokens([39, 7]))

    @pytest.mark.parametrize("family", ALL_FAMILIES)
    def test_batches_of_every_family_fit_into_memory(self, family):
        model = tiny_model(family)
        sizes = [generation_batch_size(model, 20, 1, limit) for limit in (10**4, 10**5, 10**9)]
        assert 1 <= sizes[0] < sizes[1] < sizes[2] == LARGEST_BATCH

    def test_greedy_top1_explains_the_written_tokens(self, model, tokenizer):
        c = explain_one(model, tokenizer, SOURCES[0], num_beams=1, max_new_tokens=5)
        assert torch.equal(c.predicted_ids, c.target_ids)

    def test_sampled_translations_repeat_with_their_seed(self, model, tokenizer):
        def sample(seed):
            results = explain(model, tokenizer, SOURCES, do_sample=True, max_new_tokens=8, seed=seed)
            return [c.target_ids.tolist() for c in results]

        torch.manual_seed(5)
        first = sample(1)
        state = torch.random.get_rng_state()
        assert sample(1) == first != sample(2)
        assert torch.equal(torch.random.get_rng_state(), state)

    def test_random_prefixes_are_other_sentences_targets(self, model, tokenizer):
        results = explain(model, tokenizer, SOURCES, TARGETS, prefix="random", seed=3)
        own = [tokenizer(text).input_ids for text in TARGETS]
        used = [c.target_ids.tolist() for c in results]
        assert sorted(used) == sorted(own)
        assert all(a != b for a, b in zip(used, own, strict=True))
        assert {c.prefix for c in results} == {"random"}
        assert explain(model, tokenizer, SOURCES, TARGETS, prefix="random", seed=3) == results

    def test_seed_changes_random_prefixes(self, model, tokenizer):
        sources, targets = SOURCES * 4, [f"{a} {b}" for a in TARGETS for b in ("he", "she", "it", "we")]
        shuffles = {
            tuple(c.target_tokens for c in explain(model, tokenizer, sources, targets, prefix="random", seed=seed))
            for seed in range(4)
        }
        assert len(shuffles) > 1

    def test_random_prefix_from_a_pool(self, model, tokenizer):
        c = explain_one(model, tokenizer, SOURCES[0], prefix="random", pool=["we was on it"])
        assert c.target_ids.tolist() == tokenizer("we was on it").input_ids

    def test_equal_targets_are_not_given_to_each_other(self, model, tokenizer):
        results = explain(model, tokenizer, SOURCES, ["he is", "he is", "she is"], prefix="random")
        assert results[0].target_tokens[0] == results[1].target_tokens[0] == "▁she"
        assert results[2].target_tokens[0] == "▁he"

    def test_a_prefix_is_all_that_decides(self, model, tokenizer):
        """A random prefix and the same text given as target are explained alike."""
        random = explain(model, tokenizer, SOURCES, TARGETS, prefix="random")
        given = explain(model, tokenizer, SOURCES, [c.target_ids for c in random])
        for a, b in zip(random, given, strict=True):
            assert torch.equal(a.source, b.source)


class TestPredict:
    def test_target_explains_the_following_token(self, model, tokenizer):
        c = explain_one(model, tokenizer, SOURCES[0], TARGETS[1], predict="target")
        assert torch.equal(c.predicted_ids, c.target_ids)
        assert c.predicted_tokens == c.target_tokens

    def test_ids_per_step(self, model, tokenizer):
        target = explain_one(model, tokenizer, SOURCES[0], TARGETS[1], predict="target")
        ids = explain_one(model, tokenizer, SOURCES[0], TARGETS[1], predict=target.target_ids)
        assert torch.equal(ids.source, target.source)
        assert ids.predict == "ids"
        lists = explain(model, tokenizer, [SOURCES[0]], [TARGETS[1]], predict=[target.target_ids.tolist()])
        assert lists == [ids]

    def test_tokens_per_step_are_looked_up(self, model, tokenizer):
        ids = explain_one(model, tokenizer, SOURCES[0], TARGETS[0], predict=[5, 9, 1])
        assert explain_one(model, tokenizer, SOURCES[0], TARGETS[0], predict=["▁dog", "eats", "</s>"]) == ids
        assert explain_one(model, tokenizer, SOURCES[0], TARGETS[0], predict=np.array([5, 9, 1])) == ids
        pairs = explain_one(model, tokenizer, SOURCES[0], TARGETS[0], predict=[["▁dog", 9], (3, "▁the"), ["he", 1]])
        assert pairs.predicted_ids[0].tolist() == [5, 9]
        assert explain(model, tokenizer, SOURCES[:1], TARGETS[:1], predict=[["▁dog", "eats", "</s>"]]) == [ids]

    def test_top1_has_the_highest_probability(self, model, tokenizer):
        top = explain_one(model, tokenizer, SOURCES[0], TARGETS[1])
        other = explain_one(model, tokenizer, SOURCES[0], TARGETS[1], predict="target")
        assert (top.probability >= other.probability).all()
        assert (top.logits >= other.logits).all()
        inputs = tokenizer(SOURCES[0], text_target=TARGETS[1], return_tensors="pt")
        with torch.no_grad():
            logits = model(**inputs).logits[0]
        torch.testing.assert_close(top.logits, logits.max(-1).values, atol=1e-5, rtol=0)
        torch.testing.assert_close(top.probability, logits.softmax(-1).max(-1).values, atol=1e-5, rtol=0)

    def test_contrastive_pairs_explain_the_difference(self, model, tokenizer):
        steps = len(tokenizer(TARGETS[0]).input_ids)
        pairs = torch.tensor([[5, 9]] * steps)
        c = explain_one(model, tokenizer, SOURCES[0], TARGETS[0], predict=pairs, start_token="keep")
        one, two = (
            explain_one(model, tokenizer, SOURCES[0], TARGETS[0], predict=pairs[:, i], start_token="keep")
            for i in (0, 1)
        )
        torch.testing.assert_close(c.logits, one.logits - two.logits, atol=1e-5, rtol=0)
        assert c.conservation_error <= 1e-5
        assert not torch.allclose(c.source, one.source)
        assert c.predicted_tokens[0] == "▁dog vs ▁eats"
        assert c.predict == "contrastive"

    def test_contrastive_against_an_identical_shift(self, tokenizer):
        """If the second row is zero, the difference is the first logit."""
        model = tiny_model("pegasus", tie_word_embeddings=False)
        with torch.no_grad():
            model.get_output_embeddings().weight[9] = 0
            model.get_buffer("final_logits_bias")[0, 9] = 0
        pairs = torch.tensor([[5, 9]] * 3)
        c = explain_one(model, tokenizer, SOURCES[0], TARGETS[0], predict=pairs)
        plain = explain_one(model, tokenizer, SOURCES[0], TARGETS[0], predict=pairs[:, 0])
        torch.testing.assert_close(c.source, plain.source)


@pytest.mark.parametrize("rule", [AlphaBeta(0.5, 0.5), Epsilon(), Gamma()], ids=str)
def test_other_rules_conserve(model, tokenizer, rule):
    c = explain_one(model, tokenizer, SOURCES[0], TARGETS[0], rule=rule)
    assert c.conservation_error <= 1e-5
    assert str(c.method) == f"LRP(rule={rule})"


def test_growing_relevance_is_reported(tokenizer):
    c = explain_one(tiny_model(), tokenizer, SOURCES[2], TARGETS[1], rule=AlphaBeta(2, -1))
    reported = any("sum to 1 only within" in note for note in c.notes)
    assert reported == (c.conservation_error > 1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_of_steps_change_nothing(tokenizer, family, monkeypatch):
    model = tiny_model(family, dtype=torch.float64)
    whole = explain_one(model, tokenizer, SOURCES[0], TARGETS[1])
    for steps in (1, 4):
        monkeypatch.setattr("hf_lrp.relevance.propagation.steps_per_chunk", lambda *_, steps=steps: steps)
        chunked = explain_one(model, tokenizer, SOURCES[0], TARGETS[1])
        torch.testing.assert_close(whole.source, chunked.source, atol=1e-12, rtol=0)
        torch.testing.assert_close(whole.target, chunked.target, atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_propagated_in_float32(tokenizer, dtype):
    half = tiny_model(dtype=dtype)
    with pytest.warns(UserWarning, match="propagated in float32"):
        c = explain_one(half, tokenizer, SOURCES[0], TARGETS[0])
    assert c.dtype == "float32"
    assert any("propagated in float32" in note for note in c.notes)
    assert c.conservation_error <= 1e-5
    assert next(half.parameters()).dtype == dtype
    full = explain_one(copy.deepcopy(half).float(), tokenizer, SOURCES[0], TARGETS[0])
    assert torch.equal(c.source, full.source)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_implementations_agree(tokenizer, implementation):
    expected = explain_one(tiny_model(), tokenizer, SOURCES[0], TARGETS[1])
    other = tiny_model()
    other.set_attn_implementation(implementation)
    c = explain_one(other, tokenizer, SOURCES[0], TARGETS[1])
    torch.testing.assert_close(c.source, expected.source, atol=1e-6, rtol=0)
    assert other.config._attn_implementation == implementation


def test_the_model_comes_back_as_it_was(model, tokenizer):
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kinds, trainable = [type(m) for m in model.modules()], [p.requires_grad for p in model.parameters()]
    explain(model, tokenizer, SOURCES, max_new_tokens=4)
    assert [type(m) for m in model.modules()] == kinds
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [p.requires_grad for p in model.parameters()] == trainable
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in model.parameters())
    assert not model.training


def test_autocast_and_inference_mode_change_nothing(model, tokenizer):
    expected = explain(model, tokenizer, SOURCES[0], TARGETS[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert explain(model, tokenizer, SOURCES[0], TARGETS[0]) == expected
    with torch.inference_mode():
        assert explain(model, tokenizer, SOURCES[0], TARGETS[0]) == expected


def test_separate_vocabularies():
    model = tiny_model(share_encoder_decoder_embeddings=False, tie_word_embeddings=False, decoder_vocab_size=50)
    c = explain_one(model, None, random_ids(5), torch.tensor([44, 47, 1]))
    assert c.conservation_error <= 1e-5


def test_single_tokens(model):
    c = explain_one(model, None, [4], [7])
    assert c.source.tolist() == [[pytest.approx(1)]]
    assert c.target.tolist() == [[0]]
    assert c.source_entropy.item() == pytest.approx(0)


def test_public_names():
    assert set(hf_lrp.__all__) >= {"explain", "AlphaBeta", "Contributions", "patched", "Epsilon", "Gamma"}
    assert all(hasattr(hf_lrp, name) for name in hf_lrp.__all__)

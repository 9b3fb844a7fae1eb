"""Models without an encoder: prompts, the parts of a prompt, and their shares."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_decoders import DECODERS, tiny_decoder
from tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast
from word_tokenizer import word_tokenizer

from hf_lrp import AlphaBeta, Contributions, Epsilon, Gamma, Prompt, explain, explain_prefixes

SENTENCES = ["cat dog", "the cat", "dog dog the"]
TEMPLATE = "{instruction} : {examples} ; {source} ="
PARTS = {"instruction": "write it", "examples": "a b ; b a"}
CHAT = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}<me> "
DROPPING = "{% for m in messages %}hello {% endfor %}"
REFUSING = "{{ raise_exception('no system') }}"
CHANGING = CHAT.replace("m.content", "m.content | upper")


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer()


def test_the_shares_of_all_parts_sum_to_one(tokenizer: Any) -> None:
    prompt = Prompt(TEMPLATE, PARTS)
    c = explain(tiny_decoder(), tokenizer, "cat dog", "dog the cat", prompt=prompt, start_token="keep")
    assert isinstance(c, Contributions)
    assert list(c.spans) == ["first token", "instruction", "examples", "template"]
    assert {name: span.tokens for name, span in c.spans.items()} == {
        "first token": ("write",),
        "instruction": ("it",),
        "examples": ("a", "b", ";", "b", "a"),
        "template": (":", ";", "="),
    }
    assert c.source_tokens == ("cat", "dog") and c.target_tokens == ("dog", "the", "cat")
    spans = torch.stack([span.total for span in c.spans.values()]).sum(0)
    torch.testing.assert_close(c.start, spans)
    torch.testing.assert_close(c.source_total + c.target_total + spans, torch.ones(3), rtol=0, atol=1e-5)
    assert c.conservation_error <= 1e-5 and not c.notes


def test_without_the_prompt_source_and_target_sum_to_one(tokenizer: Any) -> None:
    given = {"prompt": Prompt(TEMPLATE, PARTS)}
    kept = explain(tiny_decoder(), tokenizer, "cat dog", "dog the cat", start_token="keep", **given)
    c = explain(tiny_decoder(), tokenizer, "cat dog", "dog the cat", **given)
    torch.testing.assert_close(c.source_total + c.target_total, torch.ones(3), rtol=0, atol=1e-5)
    assert c.source_total[0] == pytest.approx(1.0)
    assert c.spans == kept.spans
    torch.testing.assert_close(c.source, kept.source / (1 - kept.start)[:, None], rtol=0, atol=1e-5)


@pytest.mark.parametrize("prefix", ["reference", "model", "random"])
def test_a_list_gives_what_single_sentences_give(tokenizer: Any, prefix: str) -> None:
    model = tiny_decoder()
    targets = ["dog the", "the cat dog", "cat"]
    options: dict[str, Any] = {"prompt": "say {source} =", "prefix": prefix}
    if prefix == "model":
        options |= {"max_new_tokens": 3, "do_sample": False}
        results = explain(model, tokenizer, SENTENCES, **options)
        alone = [explain(model, tokenizer, one, **options) for one in SENTENCES]
    else:
        results = explain(model, tokenizer, SENTENCES, targets, **options)
        written = [tokenizer.convert_tokens_to_string(list(c.target_tokens)) for c in results]
        assert (written == targets) == (prefix == "reference")
        alone = [
            explain(model, tokenizer, one, target, prompt="say {source} =")
            for one, target in zip(SENTENCES, written, strict=True)
        ]
    for together, single in zip(results, alone, strict=True):
        assert together.prefix == prefix
        assert together.target_tokens == single.target_tokens
        torch.testing.assert_close(together.source, single.source, rtol=0, atol=1e-6)


def test_steps_words_tables_and_files_keep_the_parts(tokenizer: Any, tmp_path: Path) -> None:
    c = explain(tiny_decoder(), tokenizer, "cat dog", "dog the cat", prompt=Prompt(TEMPLATE, PARTS))
    c.save(tmp_path / "c.safetensors")
    assert Contributions.load(tmp_path / "c.safetensors") == c
    assert torch.equal(c[1:].spans["examples"].shares, c.spans["examples"].shares[1:])
    assert c.merge_subwords().spans["template"].shares.shape[1] == 3
    assert set(c.to_pandas()["side"]) == {*c.spans, "source", "target"}
    assert c[1].spans == pytest.approx({name: span.total[1].item() for name, span in c.spans.items()})
    assert c.to_dict()["spans"]["template"]["tokens"] == [":", ";", "="]


def test_chat_messages_go_through_the_chat_template(tokenizer: Any) -> None:
    tokenizer.chat_template = CHAT
    messages = [{"role": "user", "content": "write {source}"}]
    c = explain(tiny_decoder(), tokenizer, "cat dog", "dog the", prompt=messages)
    assert c.source_tokens == ("cat", "dog")
    assert c.spans["first token"].tokens == ("<",)
    assert c.spans["template"].tokens == ("user", ">", "write", "<", "me", ">")
    assert c.target_tokens == ("dog", "the", "</s>")
    assert explain(tiny_decoder(), tokenizer, "cat dog", "dog the").source_tokens == ("cat", "dog")  # the default


def test_a_token_across_a_border_counts_where_most_of_it_is(tokenizer: Any) -> None:
    c = explain(tiny_decoder(), tokenizer, "cat", "dog", prompt="a x{source} =")
    assert c.source_tokens == ("first",)  # xcat, which is unknown
    assert [note for note in c.notes if "straddles a border in the prompt and counts as source" in note]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("Translate.", "has no {source}"),
        ("{source} {source}", "has {source} more than once"),
        ("{examples} {source}", "has {examples}, but nothing to put there"),
        ([{"role": "user", "content": "{source}"}], "the tokenizer has no chat template"),
    ],
)
def test_prompts_that_cannot_be_used(tokenizer: Any, prompt: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explain(tiny_decoder(), tokenizer, "cat", "dog", prompt=prompt)


@pytest.mark.parametrize(
    ("template", "message"),
    [(DROPPING, "drops or repeats"), (CHANGING, "changes"), (REFUSING, "does not take these messages .no system")],
)
def test_a_chat_template_that_drops_or_changes_the_source(tokenizer: Any, template: str, message: str) -> None:
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=message):
        explain(tiny_decoder(), tokenizer, "cat", "dog", prompt=[{"role": "user", "content": "write {source}"}])


def test_what_else_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="has an encoder"):
        explain(tiny_model(), None, torch.tensor([3, 4]), torch.tensor([3]), prompt="{source}")
    for ids in (torch.tensor([3, 4]), [3, 4], {"input_ids": torch.tensor([[3, 4]])}, ["cat", [3]]):
        with pytest.raises(TypeError, match=r"takes its sources as texts.* Decode ids first"):
            explain(tiny_decoder(), tokenizer, ids, "dog")
    with pytest.raises(ValueError, match="needs the model's tokenizer"):
        explain(tiny_decoder(), None, "cat", "dog")
    with pytest.raises(ValueError, match="source 1 is empty"):
        explain(tiny_decoder(), tokenizer, ["cat", " "], ["dog", "dog"])
    with pytest.raises(ValueError, match="target 0 is empty"):
        explain(tiny_decoder(), tokenizer, "cat", "")
    with pytest.raises(ValueError, match="at least one sentence"):
        explain(tiny_decoder(), tokenizer, [], [])
    with pytest.raises(ValueError, match="num_return_sequences must be 1"):
        explain(tiny_decoder(), tokenizer, "cat", num_return_sequences=2)
    with pytest.raises(ValueError, match="prompt around source 0 has 71 tokens and the target 1, but .* 64 positions"):
        explain(tiny_decoder(), tokenizer, "cat", "dog", prompt="the " * 70 + "{source}")
    with pytest.raises(ValueError, match="forced_bos_token_id is for models with an encoder"):
        explain(tiny_decoder(), tokenizer, "cat", "dog", forced_bos_token_id=3)


def test_what_generate_returned_as_target(tokenizer: Any) -> None:
    """The prompt that it begins with is not part of the target, and the checkpoint's own limit holds."""
    model = tiny_decoder()
    model.generation_config.max_new_tokens = 4
    ids = tokenizer("say cat =", return_tensors="pt")["input_ids"]
    written = model.generate(input_ids=ids)
    c = explain(model, tokenizer, "cat", written, prompt="say {source} =")
    assert c.target_ids.tolist() == written[0, ids.shape[1] :].tolist()
    own = explain(model, tokenizer, "cat", prompt="say {source} =", return_dict_in_generate=False)
    assert len(own) <= 4 and own.target_ids.tolist() == c.target_ids[: len(own)].tolist()


@pytest.mark.parametrize(
    ("template", "parts", "message"),
    [
        ("{target} {source}", {"target": "cat"}, "cannot be called 'target'"),
        ("{source}", {"source": "cat"}, "cannot be called 'source': that is what"),
        ("{}}{source}", {}, "cannot be called ''"),
        ("{source}", {"examples": "cat"}, "has no {examples}"),
        ([], {}, "must be a text, or chat messages"),
        ([{"role": "user", "content": [{"type": "text"}]}], {}, "the content a text"),
        ("{a} {source}", {"a": 3}, "The part 'a' of the prompt must be a text"),
        ("{source}", ["cat"], "a mapping from names to texts"),
    ],
)
def test_templates_and_parts_that_cannot_be(template: Any, parts: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Prompt(template, parts)


def test_braces_and_parts_for_each_source(tokenizer: Any) -> None:
    prompt = Prompt("{{ {hint} }} {source} =", {"hint": ["a", "b b"]})
    one, other = explain(tiny_decoder(), tokenizer, ["cat", "dog"], ["dog", "cat"], prompt=prompt)
    assert one.spans["hint"].tokens == ("a",) and other.spans["hint"].tokens == ("b", "b")
    with pytest.raises(ValueError, match="has 2 texts for 1 sources"):
        explain(tiny_decoder(), tokenizer, "cat", "dog", prompt=prompt)


@pytest.mark.parametrize("rule", [AlphaBeta(), AlphaBeta(0.5, 0.5), Epsilon(), Gamma()], ids=str)
@pytest.mark.parametrize(
    "predict", ["top1", "target", ["the", "cat", "dog"], [3, 4, 5], [[3, 4], [4, 5], [5, 3]], {"the": "it"}]
)
def test_rules_and_what_is_predicted(tokenizer: Any, rule: Any, predict: Any) -> None:
    model, given = tiny_decoder(), {"prompt": Prompt(TEMPLATE, PARTS), "rule": rule, "start_token": "keep"}
    c = explain(model, tokenizer, "cat dog", "dog the cat", predict=predict, **given)
    total = c.source_total + c.target_total + sum(span.total for span in c.spans.values())
    torch.testing.assert_close(total, torch.ones(len(c)), rtol=0, atol=1e-5)
    if isinstance(predict, dict):
        assert c.steps == (2,) and c.predicted_tokens == ("the vs it",) and c.predict == "contrastive"
        pairs = explain(model, tokenizer, "cat dog", "dog the cat", predict=[[4, 3], [5, 7], [3, 4]], **given)
        torch.testing.assert_close(pairs[1:2].source, c.source, rtol=0, atol=1e-6)
        assert pairs[1:2].spans["examples"].tokens == c.spans["examples"].tokens


def test_contrasted_words_have_the_probability_of_all_their_pieces(tokenizer: Any) -> None:
    model, options = tiny_decoder(), {"prompt": "write {source} ="}
    c = explain(model, tokenizer, "cat dog", "dog the cat", predict={"the": "it b"}, **options)
    found = re.search(r"from there on: (\S+) against (\S+)\)", c.contrasted[0].note)
    assert found is not None
    for given, target, steps in ((found[1], "dog the cat", [1]), (found[2], "dog it b cat", [1, 2])):
        whole = explain(model, tokenizer, "cat dog", target, predict="target", **options)
        assert float(given) == pytest.approx(whole.log_probability[steps].sum().exp().item(), rel=0.06)


def test_a_contrast_in_what_the_model_writes(tokenizer: Any) -> None:
    options: dict[str, Any] = {"prompt": "write {source} =", "max_new_tokens": 3, "do_sample": False}
    c = explain(tiny_decoder(), tokenizer, "cat dog", **options)
    word = next(token for token in c.target_tokens if c.target_tokens.count(token) == 1)
    contrast = explain(tiny_decoder(), tokenizer, "cat dog", predict={word: "b"}, **options)
    assert contrast.predicted_tokens == (f"{word} vs b",)


@pytest.mark.parametrize("name", DECODERS)
def test_a_batch_writes_what_single_sentences_write(tokenizer: Any, name: str) -> None:
    model, options = tiny_decoder(name, seed=3), {"prompt": "it {source} =", "max_new_tokens": 4, "do_sample": False}
    together = explain(model, tokenizer, SENTENCES, batch_size=3, **options)
    assert [c.target_tokens for c in together] == [
        explain(model, tokenizer, one, **options).target_tokens for one in SENTENCES
    ]
    pairs = explain(model, tokenizer, SENTENCES, batch_size=2, num_beams=2, **options)
    assert all(c.prefix == "model" and len(c) <= 4 for c in pairs)


def test_a_memory_limit_makes_no_difference_and_names_the_least(tokenizer: Any) -> None:
    options: dict[str, Any] = {"prompt": Prompt(TEMPLATE, PARTS)}
    with pytest.raises(ValueError, match="Give at least max_memory='(\\d+)MB'") as caught:
        explain(tiny_decoder(), tokenizer, "cat dog", "dog the cat", max_memory=1000, **options)
    least = str(caught.value).split("max_memory='")[1].split("'")[0]
    limited = explain(tiny_decoder(), tokenizer, "cat dog", "dog the cat", max_memory=least, **options)
    whole = explain(tiny_decoder(), tokenizer, "cat dog", "dog the cat", **options)
    torch.testing.assert_close(limited.source, whole.source, rtol=0, atol=1e-6)


def test_a_pool_and_several_prefixes_of_each_source(tokenizer: Any) -> None:
    model, pool = tiny_decoder(), ["it a", "b b b", "a the it"]
    drawn = explain(model, tokenizer, SENTENCES[:2], prompt="write {source} =", prefix="random", pool=pool)
    for c in drawn:
        assert tokenizer.decode(c.target_ids) in pool
    targets = {"reference": ["dog", "the cat"], "model": None, "random": ["it a", "b"]}
    options: dict[str, Any] = {"prompt": "write {source} =", "max_new_tokens": 3, "do_sample": False}
    found = list(explain_prefixes(model, tokenizer, SENTENCES[:2], targets, **options))
    alone = explain(model, tokenizer, SENTENCES[:2], targets["random"], prompt="write {source} =")
    for results, one in zip(found, alone, strict=True):
        assert list(results) == ["reference", "model", "random"]
        torch.testing.assert_close(results["random"].source, one.source, rtol=0, atol=1e-6)
        assert results["random"].spans["template"].tokens == one.spans["template"].tokens


def test_half_precision_and_another_tokenizer_are_noted(tokenizer: Any) -> None:
    half = tiny_decoder(dtype=torch.bfloat16)
    c = explain(half, tokenizer, "cat", "dog the", prompt="write {source}")
    assert any("float32" in note for note in c.notes) and c.conservation_error <= 1e-5
    larger = tiny_decoder(vocab_size=200)
    with pytest.warns(UserWarning, match="perhaps not this model's"):
        c = explain(larger, tokenizer, "cat", "dog the", prompt="write {source}")
    assert any("it has 40 tokens, the model 200" in note for note in c.notes)

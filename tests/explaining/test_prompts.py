"""Models without an encoder: prompts, the parts of a prompt, and their shares."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_decoders import tiny_decoder
from tiny_models import tiny_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_lrp import Contributions, Prompt, explain

SENTENCES = ["cat dog", "the cat", "dog dog the"]
TEMPLATE = "{instruction} : {examples} ; {source} ="
PARTS = {"instruction": "write it", "examples": "a b ; b a"}
CHAT = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}<me> "
DROPPING = "{% for m in messages %}hello {% endfor %}"
CHANGING = CHAT.replace("m.content", "m.content | upper")


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """One token per word or mark."""
    words = "first </s> <pad> cat dog the write it a b : ; = < > user me".split()
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="first"))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", pad_token="<pad>", unk_token="first")


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


@pytest.mark.parametrize(("template", "message"), [(DROPPING, "drops or repeats"), (CHANGING, "changes")])
def test_a_chat_template_that_drops_or_changes_the_source(tokenizer: Any, template: str, message: str) -> None:
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=message):
        explain(tiny_decoder(), tokenizer, "cat", "dog", prompt=[{"role": "user", "content": "write {source}"}])


def test_what_else_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="has an encoder"):
        explain(tiny_model(), None, torch.tensor([3, 4]), torch.tensor([3]), prompt="{source}")
    with pytest.raises(TypeError, match="takes its sources as texts"):
        explain(tiny_decoder(), tokenizer, torch.tensor([3, 4]), "dog")
    with pytest.raises(ValueError, match="needs the model's tokenizer"):
        explain(tiny_decoder(), None, "cat", "dog")

"""Prompts of decoder-only models, also senseless ones: right shares of all parts, or an error in words."""

from typing import Any

import pytest
import torch
from fuzzing import assert_says_what_to_do, numbers_of_cases, try_cases
from hypothesis import strategies as st
from tiny_decoders import tiny_decoder
from word_tokenizer import word_tokenizer

from hf_lrp import Prompt, explain

WORDS = ["cat", "dog", "the", "a", "b", "write", "=", ";"]
CHAT = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}<me> "
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
odd_texts = st.text("c at{}\n\t\x00\u202e\ud800é猫", max_size=8)
templates = st.lists(
    st.sampled_from([" ", "\n", "{source}", "{hint}", "{{", "}}", "{", "}", "{}", "{source", "{target}", *WORDS]),
    min_size=1,
    max_size=6,
).map(lambda pieces: " ".join(["{source}", *pieces]) if "{source}" not in pieces else "".join(pieces))
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": templates}), max_size=2
)
parts = st.one_of(
    st.just({}),
    st.dictionaries(
        st.sampled_from(["hint", "source", "other"]), st.one_of(sentences, odd_texts, st.none()), max_size=2
    ),
)
ids = st.lists(st.integers(-2, 42), max_size=4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cases", numbers_of_cases(60, 3000))
def test_shares_of_all_parts_are_right_or_the_error_says_what_to_do(cases: int) -> None:
    model, tokenizer = tiny_decoder(), word_tokenizer()
    tokenizer.chat_template = CHAT
    accepted = []

    def check(source: Any, target: Any, template: Any, given: dict[str, Any]) -> None:
        try:
            c = explain(model, tokenizer, source, target, prompt=Prompt(template, given), start_token="keep")
        except (ValueError, TypeError) as error:
            assert_says_what_to_do(error)
            return
        spans = sum(span.total for span in c.spans.values())
        torch.testing.assert_close(c.source_total + c.target_total + spans, torch.ones(len(c)), atol=1e-4, rtol=0)
        shown = [i for i in c.source_ids.tolist() if i in tokenizer(source)["input_ids"]]
        assert shown or c.notes, "none of the source's tokens is in the source's share"
        accepted.append(source)

    sources, targets = st.one_of(sentences, sentences, odd_texts), st.one_of(sentences, sentences, odd_texts, ids)
    try_cases(check, cases, sources, targets, st.one_of(templates, templates, messages), parts)
    assert len(accepted) > cases / 10

"""Contrasts by text: why this word, not that one."""

import pytest
import torch

from hf_lrp import Contributions, ContributionsList, explain, load

SOURCE, TARGET = "The old man sees the big dog.", "Le vieil homme voit le grand chien."


@pytest.fixture(scope="module")
def loaded():
    return load()


def test_the_step_where_the_words_part_is_explained(loaded):
    model, tokenizer = loaded
    c = explain(model, tokenizer, SOURCE, TARGET, predict={"chien": "chat"})
    assert isinstance(c, Contributions)
    assert (c.predict, c.predicted_tokens, len(c)) == ("contrastive", ("▁chien vs ▁chat",), 1)
    assert c.target_tokens[c.steps[0] - 1] == "▁chien" and c.is_written == (True,)
    torch.testing.assert_close(c.source_total + c.target_total, torch.ones(1))


def test_shares_are_those_of_the_pair_of_ids(loaded):
    model, tokenizer = loaded
    c = explain(model, tokenizer, SOURCE, TARGET, predict={"chien": "chat", "homme": "chien"})
    assert len(c) == 2 and c.steps == tuple(sorted(c.steps))
    pairs = torch.stack([c.target_ids, torch.roll(c.target_ids, 1)], 1)
    pairs[[step - 1 for step in c.steps]] = c.predicted_ids
    whole = explain(model, tokenizer, SOURCE, TARGET, predict=pairs)
    for i, step in enumerate(c.steps):
        torch.testing.assert_close(c.source[i], whole.source[step - 1], rtol=0, atol=2e-6)
        torch.testing.assert_close(c.target[i], whole.target[step - 1], rtol=0, atol=2e-6)
        torch.testing.assert_close(c.logits[i], whole.logits[step - 1], rtol=1e-4, atol=1e-4)


def test_words_of_several_pieces_part_where_their_pieces_do(loaded):
    model, tokenizer = loaded
    c = explain(model, tokenizer, SOURCE, TARGET, predict={"vieil": "vieux"})
    whole = explain(model, tokenizer, SOURCE, TARGET, predict="target")
    other = tokenizer(text_target=TARGET.replace("vieil", "vieux")).input_ids
    first = next(i for i, (a, b) in enumerate(zip(whole.target_ids.tolist(), other, strict=False)) if a != b)
    assert c.steps == (first + 1,)
    assert c.predicted_ids.tolist() == [[whole.target_ids[first].item(), other[first]]]


def test_what_the_model_writes_can_be_contrasted(loaded):
    model, tokenizer = loaded
    written = explain(model, tokenizer, SOURCE)
    assert "▁chien" in written.target_tokens
    c = explain(model, tokenizer, SOURCE, predict={"chien": "chat"})
    assert c.prefix == "model"
    assert c.steps == (written.target_tokens.index("▁chien") + 1,)


def test_lists_take_lists(loaded):
    model, tokenizer = loaded
    results = explain(
        model,
        tokenizer,
        [SOURCE, "I like cats."],
        [TARGET, "J'aime les chats."],
        predict=[{"chien": "chat"}, {"chats": "chiens"}],
    )
    assert isinstance(results, ContributionsList) and [len(c) for c in results] == [1, 1]


@pytest.mark.parametrize(
    ("target", "words", "message"),
    [
        (TARGET, {"chat": "chien"}, r"'chat' cannot be contrasted in target 0, .*: it is not in it"),
        ("Le chat et le chat.", {"chat": "chien"}, "it is in it 2 times: give more of the words around it"),
        (TARGET, {"chien": "chien"}, "gives the same tokens for 'chien' and 'chien'"),
        (TARGET, {}, "predict for sentence 0 is empty"),
        (TARGET, {"chien": ""}, "must map words to words, got 'chien': ''"),
        (TARGET, [{"chien": "chat"}], "predict is a list of 1 mappings, but one mapping such as"),
    ],
)
def test_words_that_cannot_be_contrasted(loaded, target, words, message):
    model, tokenizer = loaded
    with pytest.raises(ValueError, match=message):
        explain(model, tokenizer, SOURCE, target, predict=words)


def test_more_words_tell_repeated_ones_apart(loaded):
    model, tokenizer = loaded
    c = explain(model, tokenizer, SOURCE, "Le chat et le chat.", predict={"Le chat": "Le chien"})
    assert c.target_tokens[c.steps[0] - 1] == "▁chat" and c.steps[0] < 4


def test_ids_without_a_tokenizer_have_no_words(loaded):
    model, _ = loaded
    with pytest.raises(ValueError, match="there is no tokenizer: pass one, or pairs of ids per step"):
        explain(model, None, [5, 6, 0], [7, 8, 0], predict={"a": "b"})

"""Contrasts by text: why this word, not that one."""

import math
import re

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
    assert whole.contrasted == () and len(c.contrasted) == 2
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


def log_probability(model, tokenizer, text, steps):
    """Of the tokens of a target at some steps, from 0, by a plain forward pass with labels."""
    labels = tokenizer(text_target=text, return_tensors="pt").input_ids
    with torch.no_grad():
        logits = model(**tokenizer(SOURCE, return_tensors="pt"), labels=labels).logits[0]
    return sum(logits[i].double().log_softmax(-1)[labels[0, i]].item() for i in steps)


class TestWholeWords:
    """Asked is about words, explained is a piece: every view says so."""

    NEIGHBOURS = "Le vieil homme voit les voisins."

    def test_words_without_a_common_piece(self, loaded):
        model, tokenizer = loaded
        c = explain(model, tokenizer, SOURCE, self.NEIGHBOURS, predict={"voisins": "amis"})
        [(word, other, note)] = c.contrasted
        assert (word, other, c.predicted_tokens) == ("voisins", "amis", ("▁vois vs ▁amis",))
        assert note.startswith(
            "“voisins” and “amis” share no first piece, so their first pieces decide: this explains “vois” against "
            "“amis”; what comes later, “ins” of “voisins”, is not compared"
        )
        step = c.steps[0] - 1
        texts = (self.NEIGHBOURS, [step, step + 1]), (self.NEIGHBOURS.replace("voisins", "amis"), [step])
        ours, theirs = (log_probability(model, tokenizer, *each) for each in texts)
        p, q = re.search(r"probability of all pieces from there on: (\S+) against (\S+)\)$", note).groups()
        assert float(p) == pytest.approx(math.exp(ours), rel=0.06)
        assert float(q) == pytest.approx(math.exp(theirs), rel=0.06)
        assert ours < c.log_probability[0] - 1e-3  # the first piece alone is more probable

    def test_words_with_a_common_beginning(self, loaded):
        model, tokenizer = loaded
        c = explain(model, tokenizer, SOURCE, self.NEIGHBOURS, predict={"voisins": "voisines"})
        assert c.predicted_tokens == ("ins vs ines",)
        assert c.contrasted[0].note.startswith(
            "“voisins” and “voisines” share “vois”, and the pieces after it decide: this explains “ins” against “ines”"
        )

    def test_a_word_that_goes_on_from_the_other(self, loaded):
        model, tokenizer = loaded
        one, other = "Le vieil homme voit.", "Le vieil homme voitures."
        ids = [tokenizer(text_target=text).input_ids for text in (one, other)]
        c = explain(model, tokenizer, SOURCE, one, predict={"voit": "voitures"})
        step = next(i for i, (a, b) in enumerate(zip(*ids, strict=False)) if a != b)
        assert c.steps == (step + 1,) and c.predicted_ids.tolist() == [[ids[0][step], ids[1][step]]]
        assert c.contrasted[0].label == "voit vs voitures"

    def test_words_of_one_piece_need_no_note(self, loaded):
        model, tokenizer = loaded
        c = explain(model, tokenizer, SOURCE, TARGET, predict={"chien": "chat"})
        assert c.contrasted == (("chien", "chat", ""),)

    def test_every_view_names_the_words(self, loaded, tmp_path):
        model, tokenizer = loaded
        words = {"voisins": "amis", "homme": "chien"}
        c = explain(model, tokenizer, SOURCE, self.NEIGHBOURS, predict=words)
        assert c.row_labels == ("homme vs chien", "voisins vs amis")
        lines = str(c).splitlines()
        assert [line.split()[1:4] for line in lines[-2:]] == [["homme", "vs", "chien"], ["voisins", "vs", "amis"]]
        assert "note: “voisins” and “amis” share no first piece" in str(c)
        c.save(tmp_path / "c.safetensors")
        kept = Contributions.load(tmp_path / "c.safetensors")
        assert kept == c and kept.contrasted[1].word == "voisins"
        assert c[1:].row_labels == ("voisins vs amis",) and c.to_dict()["contrasted"][0][:2] == ["homme", "chien"]


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

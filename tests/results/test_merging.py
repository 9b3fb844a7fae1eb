"""Contributions between words."""

import torch
from example_contributions import make_contributions
from hypothesis import given, settings
from hypothesis import strategies as st


def test_merging_by_hand():
    source = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.2], [0.1, 0.2, 0.3]])
    target = torch.tensor([[0.0, 0.0, 0.0], [0.4, 0.0, 0.0], [0.3, 0.1, 0.0]])
    contributions = make_contributions(
        ("▁sleep", "s", "</s>"),
        ("▁dor", "t", "</s>"),
        source=source,
        target=target,
        log_probability=torch.tensor([0.5, 0.5, 0.9]).log(),
    )
    words = contributions.merge_subwords()
    assert words.source_tokens == ("sleeps", "</s>")
    assert words.target_tokens == words.predicted_tokens == ("dort", "</s>")
    torch.testing.assert_close(words.source, torch.tensor([[0.65, 0.15], [0.3, 0.3]]))
    torch.testing.assert_close(words.target, torch.tensor([[0.2, 0.0], [0.4, 0.0]]))
    torch.testing.assert_close(words.probability, torch.tensor([0.25, 0.9]))
    torch.testing.assert_close(words.logits[0], contributions.logits[:2].mean())
    assert words.source_ids.tolist() == [0, 2]
    assert words.level == "word"
    assert contributions.level == "token"


def test_contrastive_pairs_survive_merging():
    pairs = torch.arange(12).reshape(6, 2)
    merged = make_contributions(predicted_ids=pairs, predict="contrastive").merge_subwords()
    assert merged.predicted_ids.tolist() == [[0, 1], [2, 3], [4, 5], [8, 9], [10, 11]]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_merging_keeps_sums_and_is_idempotent(data):
    piece = st.sampled_from(["▁a", "b", "▁", "。", ".", "我", "'", "</s>"])
    source = data.draw(st.lists(piece, min_size=1, max_size=9))
    target = data.draw(st.lists(piece, min_size=1, max_size=9))
    contributions = make_contributions(source, target, seed=data.draw(st.integers(0, 1000)))
    words = contributions.merge_subwords()
    sums = words.source.sum(1) + words.target.sum(1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    for of_words, of_tokens in (
        (words.source_total, contributions.source_total),
        (words.target_total, contributions.target_total),
        (words.start, contributions.start),
    ):
        groups = torch.tensor(contributions.target_words)
        means = [of_tokens[groups == word].mean() for word in range(len(words.target_tokens))]
        torch.testing.assert_close(of_words, torch.stack(means))
    assert not words.target.triu(1).any()
    assert words.merge_subwords() == words

"""`align`: links of the embedded model, batches, both directions, gold links, and what is refused."""

import pytest
import torch
from left_alone import unchanged
from tiny_decoders import tiny_decoder
from tiny_models import ALL_FAMILIES, tiny_model
from tiny_tokenizer import tiny_tokenizer

from hf_lrp import Aligner, Alignment, LinkHeads, Text, align, load
from hf_lrp.links.agreement import DECODER_SEARCH, heads_by_agreement
from hf_lrp.links.extraction import link_strengths
from hf_lrp.links.heads import Head, all_heads
from hf_lrp.links.words import read_word_weights
from hf_lrp.results.alignment import alignment_error_rate

SOURCES = ["She bought a red car .", "The cat sleeps .", "I do not see the old house ."]
TARGETS = ["Elle a acheté une voiture rouge .", "Le chat dort .", "Je ne vois pas la vieille maison ."]
GOLD = ["0-0 1-1 1-2 2-3 3-5 4-4 5-6", "0-0 1-1 2-2 3-3", "0-0 2-1 2-3 3-2 4-4 5-5 6-6 7-7 1p1"]
HEADS = LinkHeads((Head(0, 1), Head(0, 3), Head(2, 2, "predicts")))
TEXT_FAMILIES = [family for family in ALL_FAMILIES if family != "whisper"]


@pytest.fixture(scope="module")
def embedded() -> tuple:
    return load()


def test_words_of_the_embedded_model_are_linked(embedded) -> None:
    model, tokenizer = embedded
    with unchanged(model):
        found = align(model, tokenizer, SOURCES, TARGETS, heads=HEADS)
    sure = [{tuple(map(int, link.split("-"))) for link in line.split() if "p" not in link} for line in GOLD]
    assert alignment_error_rate([each.links for each in found], sure) < 0.15
    assert found[1].pairs() == [("The", "Le"), ("cat", "chat"), ("sleeps", "dort"), (".", ".")]
    assert str(found[1]) == "0-0 1-1 2-2 3-3"
    assert found[0].heads is HEADS and all(0 < strength <= 1 for strength in found[0].strengths.values())


def test_a_batch_gives_what_single_pairs_give(embedded) -> None:
    together = align(*embedded, SOURCES, TARGETS, heads=HEADS)
    for source, target, both in zip(SOURCES, TARGETS, together, strict=True):
        (alone,) = align(*embedded, [source], [target], heads=HEADS)
        assert alone.links == both.links
        assert alone.strengths == pytest.approx(both.strengths, abs=1e-4)


def test_heads_are_found_without_gold_links_and_kept(embedded, tmp_path) -> None:
    model, tokenizer = embedded
    sources, targets = SOURCES * 7, TARGETS * 7
    aligner = Aligner(model, tokenizer)
    found = aligner.find_heads(sources, targets)
    assert found.found == "agreement" and found.sentences == 21
    assert len({head[:2] for head in found.heads}) == len(found.heads)  # no head at both steps
    assert found.weights[0] == 1 and list(found.weights) == sorted(found.weights, reverse=True)
    sure = [{tuple(map(int, link.split("-"))) for link in line.split() if "p" not in link} for line in GOLD * 7]
    assert alignment_error_rate([each.links for each in aligner.align(sources, targets)], sure) < 0.2
    found.save(model)
    try:
        again = Aligner(model, tokenizer)
        assert again.heads is not None and again.heads.heads == found.heads
        assert again.heads.found == "generation_config"
    finally:
        for name in ("heads", "steps", "weights", "thresholds"):
            delattr(model.generation_config, f"alignment_{name}")


def test_few_pairs_without_known_heads_are_doubtful(embedded) -> None:
    with pytest.warns(UserWarning, match="found on 3 pairs, which are few"):
        Aligner(*embedded).find_heads(SOURCES, TARGETS)


def test_gold_links_choose_heads(embedded) -> None:
    aligner = Aligner(*embedded)
    chosen = aligner.choose_heads(zip(SOURCES, TARGETS, GOLD, strict=True))
    assert chosen.found == "gold" and chosen.sentences == 3
    sure = [{tuple(map(int, link.split("-"))) for link in line.split() if "p" not in link} for line in GOLD]
    by_gold = alignment_error_rate([each.links for each in aligner.align(SOURCES, TARGETS)], sure)
    by_worst = alignment_error_rate(
        [each.links for each in align(*embedded, SOURCES, TARGETS, heads=[(1, 0, "reads")])], sure
    )
    assert by_gold < 0.1 < by_worst
    with pytest.raises(ValueError, match="Gold links have 9-0 where there are 2 source words"):
        aligner.choose_heads([("a cat", "un chat", "0-0 9-0")])


def test_both_directions_together_average_strengths() -> None:
    model, back, tokenizer = tiny_model("marian"), tiny_model("marian", seed=5), tiny_tokenizer()
    heads = [(0, 0, "reads")]
    sources, targets = ["the cat sees a dog"], ["he eats the big house"]
    forward, backward = Aligner(model, tokenizer, heads=heads), Aligner(back, tokenizer, heads=heads)
    both = Aligner(model, tokenizer, heads=heads, reverse=(back, tokenizer))
    assert forward.heads is not None and backward.heads is not None
    both.all_heads = [forward.heads, backward.heads]
    one = link_strengths(_weights(forward, *sources, *targets))
    other = link_strengths(_weights(backward, *targets, *sources)).T
    expected = (one + other) / 2
    found = both.align(sources, targets)[0].strengths
    assert found and found == pytest.approx({(s, t): expected[t, s].item() for s, t in found})


def _weights(aligner: Aligner, source: str, target: str) -> torch.Tensor:
    """Weights between words, [target words, source words], of the aligner's heads together."""
    heads = aligner.heads
    assert heads is not None
    ((_, pair),) = read_word_weights(aligner.reader, [Text.at_spaces(source)], [Text.at_spaces(target)], heads.heads)
    return heads.combine(pair.weights)


def test_parts_of_a_text_are_carried_into_the_target() -> None:
    pair = Alignment(
        Text.at_spaces("a red car"), Text.at_spaces("une voiture rouge"), {(0, 0): 1, (1, 2): 1, (2, 1): 1}, HEADS
    )
    assert pair.carry(2, 5) == (12, 17)  # red
    assert pair.carry(0, 5) == (0, 17)  # a red
    assert pair.carry(5, 6) is None  # a space
    assert pair.pairs() == [("a", "une"), ("car", "voiture"), ("red", "rouge")]


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_every_family_with_an_encoder_that_reads_text_links_words(family: str) -> None:
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    heads = [(0, 0, "reads"), (1, 1, "predicts")]
    sources, targets = ["the cat sees a dog", "it is"], ["he eats the big house", "she was not"]
    for found in align(model, tokenizer, sources, targets, heads=heads):
        weights = _weights(Aligner(model, tokenizer, heads=heads), found.source.text, found.target.text)
        expected = slow_weights(model, tokenizer, found.source.text, found.target.text)
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-5)


def slow_weights(model, tokenizer, source: str, target: str) -> torch.Tensor:
    """Each word is a token: the sum of both heads' weights without the end of the sentence."""
    ids = [tokenizer(text, return_tensors="pt")["input_ids"] for text in (source, target)]
    start = torch.tensor([[model.config.decoder_start_token_id]])
    if model.config.model_type != "fsmt":
        model.set_attn_implementation("eager")
    with torch.no_grad():
        given = {"input_ids": ids[0], "decoder_input_ids": torch.cat([start, ids[1]], 1)}
        layers = model(**given, output_attentions=True, use_cache=False).cross_attentions
    steps, words = len(target.split()), len(source.split())
    return layers[0][0, 0, 1 : steps + 1, :words] + layers[1][0, 1, :steps, :words]


def test_a_decoder_links_the_source_in_its_prompt() -> None:
    heads = LinkHeads((Head(0, 0), Head(1, 1)))
    found = align(
        tiny_decoder("llama"), tiny_tokenizer(), ["the cat sees"], ["he was on"], heads=heads, prompt="it {source} and"
    )
    assert found[0].source.words == ("the", "cat", "sees") and found[0].target.words == ("he", "was", "on")


def test_heads_of_a_decoder_have_a_search_of_their_own() -> None:
    aligner = Aligner(tiny_decoder("llama"), tiny_tokenizer(), prompt="it {source} and")
    texts = aligner.texts(["the cat sees", "a dog"] * 10, ["he was on", "the big house"] * 10)
    found = aligner.find_heads(*texts)
    candidates = all_heads(aligner.reader.blocks)
    weights = [pair.weights for _, pair in read_word_weights(aligner.reader, *texts, candidates)]
    assert found == heads_by_agreement(weights, candidates, DECODER_SEARCH) != heads_by_agreement(weights, candidates)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((["a", "b"], ["c"]), ValueError, "2 sources, but 1 targets"),
        (("a cat", ["un chat"]), TypeError, "must be a list of texts"),
    ],
)
def test_bad_input_is_refused(embedded, arguments: tuple, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        align(*embedded, *arguments, heads=HEADS)


def test_bad_options_are_refused(embedded) -> None:
    model, tokenizer = embedded
    with pytest.raises(ValueError, match="need the model's tokenizer"):
        align(model, None, SOURCES, TARGETS)
    with pytest.raises(TypeError, match="heads must be LinkHeads or triples"):
        align(model, tokenizer, SOURCES, TARGETS, heads=[3])
    with pytest.raises(TypeError, match="gold must be triples"):
        align(model, tokenizer, SOURCES, TARGETS, gold=[3])
    with pytest.raises(ValueError, match="'0:0' is not a link"):
        align(model, tokenizer, SOURCES, TARGETS, gold=[("a", "b", "0:0")])
    with pytest.raises(ValueError, match="gold is empty"):
        align(model, tokenizer, SOURCES, TARGETS, gold=[])
    with pytest.raises(ValueError, match="no layer 9"):
        align(model, tokenizer, SOURCES, TARGETS, heads=[(8, 0)])


def test_there_may_be_nothing_to_link(embedded) -> None:
    assert align(*embedded, [], []) == []

"""Link heads: kept in the generation config, and found by agreement."""

import json

import pytest
from tiny_models import tiny_model

from hf_lrp.links.extraction import Extraction
from hf_lrp.links.heads import Head, LinkHeads, heads_from_dict, heads_to_dict, saved_heads


def test_heads_are_saved_with_the_model_and_read_from_it(tmp_path) -> None:
    model = tiny_model("marian")
    assert saved_heads(model) is None
    heads = (Head(1, 0), Head(0, 1, "predicts"))
    learned = tuple(0.5 * n for n in range(10))
    given = LinkHeads(heads, "gold", 20, (1.0, 0.25), Extraction(0.25), learned)
    assert heads_from_dict(json.loads(json.dumps(heads_to_dict(given)))) == given
    given.save(model)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    found = saved_heads(loaded)
    assert found is not None and found.heads == heads and found.found == "generation_config"
    assert found.weights == (1.0, 0.25) and found.how == Extraction(0.25) and found.learned == learned


def test_heads_without_steps_are_those_of_the_token_that_is_predicted() -> None:
    model = tiny_model("marian")
    model.generation_config.alignment_heads = [[0, 1], [1, 1]]
    found = saved_heads(model)
    assert found is not None and found.heads == (Head(0, 1, "predicts"), Head(1, 1, "predicts"))


@pytest.mark.parametrize("steps", [["reads"], ["reads", "writes"]])
def test_heads_that_cannot_be_read_are_refused(steps: list[str]) -> None:
    model = tiny_model("marian")
    model.generation_config.alignment_heads = [[0, 1], [1, 1]]
    model.generation_config.alignment_steps = steps
    with pytest.raises(ValueError, match="alignment_heads and what stands beside it cannot be read"):
        saved_heads(model)


def test_link_heads_are_told_in_words() -> None:
    assert str(LinkHeads((Head(0, 1),), "agreement", 9)) == (
        "layer 1 head 2, at the step that reads the word (found by agreement on 9 pairs)"
    )
    with pytest.raises(ValueError, match="at least one"):
        LinkHeads(())
    with pytest.raises(ValueError, match="named twice"):
        LinkHeads((Head(0, 1), Head(0, 1)))
    with pytest.raises(ValueError, match="1 heads need 8 coefficients or none, got 3"):
        LinkHeads((Head(0, 1),), learned=(1.0, 2.0, 3.0))

"""Families that users describe themselves, and the page that lists those that are known."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from invented_family import INVENTED, InventedConfig, InventedForTranslation
from tiny_models import ALL_FAMILIES, random_ids
from torch import nn

from hf_lrp import AlphaBeta, Epsilon, Family, UnknownStructure, explain, register_family
from hf_lrp.models.families import FAMILIES

SOURCE, TARGET = random_ids(5, seed=1), random_ids(4, seed=2)
PAGE = Path(__file__).parents[2] / "docs" / "supported_models.md"


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the table as it was."""
    monkeypatch.setattr("hf_lrp.models.families.FAMILIES", dict(FAMILIES))


@pytest.fixture
def model() -> InventedForTranslation:
    torch.manual_seed(0)
    model = InventedForTranslation(InventedConfig())
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.3)
    return model.eval()


def test_an_unknown_family_is_refused_with_a_pointer_to_the_how_to(model: Any) -> None:
    with pytest.raises(TypeError, match=r"InventedForTranslation .*'invented'.* Supported: .*t5.*adding_a_family\.md"):
        explain(model, None, SOURCE, TARGET)


@pytest.mark.parametrize("rule", [AlphaBeta(), Epsilon()], ids=str)
def test_a_registered_family_is_explained(model: Any, rule: Any) -> None:
    register_family("invented", INVENTED)
    result = explain(model, None, SOURCE, TARGET, rule=rule, start_token="keep")
    assert result.conservation_error <= 1e-5
    assert result.source.shape == (4, 5)
    changed = TARGET.clone()
    changed[2] = 30
    other = explain(model, None, SOURCE, changed, rule=rule, start_token="keep")
    torch.testing.assert_close(other.source[:3], result.source[:3])
    assert not torch.allclose(other.source[3], result.source[3])


def test_a_model_that_cannot_generate_needs_a_target(model: Any) -> None:
    register_family("invented", INVENTED)
    with pytest.raises(TypeError, match="InventedForTranslation has no generate method.*pass a target"):
        explain(model, None, SOURCE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm_first": False}, "differs from what hf_lrp assumes"),
        ({"scaling": "eyes"}, "The attention differs"),
        ({"scaling": None}, "The attention differs"),
        ({"projections": ("offer", "ask", "give", "collect")}, "The attention differs"),
        ({"gated_feed_forward": ("think.1", "think.0", "think.2")}, "The feed-forward activation differs"),
        ({"gated_feed_forward": None, "feed_forward": ("think.0", "think.2")}, "The feed-forward activation differs"),
        (
            {"self_attention_norm": "think_norm", "feed_forward_norm": "inward_norm"},
            "differs from what hf_lrp assumes",
        ),
    ],
    ids=str,
)
def test_a_wrong_description_is_found_out(model: Any, change: dict[str, Any], message: str) -> None:
    register_family("invented", replace(INVENTED, **change))
    with pytest.raises(UnknownStructure, match=message):
        explain(model, None, SOURCE, TARGET)


def test_a_description_that_names_what_is_not_there(model: Any) -> None:
    register_family("invented", replace(INVENTED, cross_attention="sideward"))
    with pytest.raises(UnknownStructure, match=r"InventedForTranslation is not built as .* says.*sideward"):
        explain(model, None, SOURCE, TARGET)


def test_what_cannot_be_registered() -> None:
    with pytest.raises(TypeError, match="must be a Family, got dict"):
        register_family("invented", {"norm_first": True})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'bart' already has a description, and a different one"):
        register_family("bart", Family(norm_first=True))
    register_family("bart", FAMILIES["bart"])


def rows_of_the_page() -> dict[str, list[str]]:
    text = PAGE.read_text(encoding="utf-8").partition("\n## How the families differ\n")[2]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return {re.findall(r"`([^`]+)`", row[0])[0]: [cell.strip() for cell in row[1:]] for row in rows}


def test_the_page_lists_the_families_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("\n## How the families differ\n")[0]
    listed = {
        part: re.findall(r"^\|[^|]+\| `(\w[\w-]*)` \| 0", text_of, re.MULTILINE) for part, text_of in sections(text)
    }
    assert listed["Models with an encoder"] == [name for name in FAMILIES if FAMILIES[name].encoder is not None]
    assert listed["Models without an encoder"] == [name for name in FAMILIES if FAMILIES[name].encoder is None]


def sections(text: str) -> list[tuple[str, str]]:
    """Headings with what stands below."""
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in text.split("\n## ")[1:]]


def test_the_page_and_the_code_agree() -> None:
    rows = rows_of_the_page()
    assert set(rows) == set(FAMILIES)
    with_encoder = {name: family for name, family in FAMILIES.items() if family.encoder is not None}
    assert set(with_encoder) == {*ALL_FAMILIES, "t5gemma"}  # those that the tests go through
    for name, family in with_encoder.items():
        place = "around" if family.feed_forward_post_norm else "pre" if family.norm_first else "post"
        norm = f"{place}, {'RMS' if 'rms' in family.norm else 'layer norm'}"
        bias = "none" if family.head_bias is None else f"`{family.head_bias}`"
        expected = [norm, "yes" if family.embedding_norm else "no", family.positions, f"`{family.head}`", bias]
        expected += [f"if `{family.scaled_head}`" if family.scaled_head else "no", family.forced]
        assert rows[name] == expected, name


def test_the_page_and_the_code_agree_on_models_without_an_encoder() -> None:
    rows = rows_of_the_page()
    for name, family in FAMILIES.items():
        if family.encoder is not None:
            continue
        before, after = family.feed_forward_norm is not None, family.feed_forward_post_norm is not None
        place = "around" if before and after else "of updates" if after else "pre"
        norm = f"{place}, {'RMS' if 'rms' in family.norm else 'layer norm'}"
        features = {
            "fused projections": family.fused,
            "grouped queries": family.key_heads,
            "norms on queries and keys": family.query_key_norms or "use_qk_norm" in str(family.variants),
            "parallel blocks": family.parallel,
            "sliding windows": family.sliding_window,
            "soft cap on scores": family.score_cap,
            "soft cap on logits": family.logit_cap,
            "scaled logits": family.logit_scale,
            "no rotation in some layers": family.rotary_if,
            "projection before the output layer": family.output_projection,
        }
        has = ", ".join(name for name, value in features.items() if value) or "none of these"
        assert rows[name] == [norm, family.positions, has], name

"""Shares of heads over a corpus, and what masking heads by share costs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hf_lrp import explain, load
from hf_lrp.corpus import masked_heads
from hf_lrp.corpus.heads import HeadShares, measure_heads
from hf_lrp.corpus.masked_heads import DRAWS, FRACTIONS, TRIALS, MaskedHeads, Trial, mask_heads
from hf_lrp.explaining.explainer import Explainer
from hf_lrp.models.head_masking import HeadPlace
from hf_lrp.results.intervals import Estimate

PAIRS = [
    ("The dog eats.", "Le chien mange."),
    ("I am here.", "Je suis ici."),
    ("She sings well.", "Elle chante bien."),
]


@pytest.fixture(scope="module")
def embedded() -> Any:
    return load()


@pytest.fixture(scope="module")
def shares(embedded: Any, tmp_path_factory: pytest.TempPathFactory) -> HeadShares:
    return measure_heads(*embedded, PAIRS, tmp_path_factory.mktemp("heads"))


def made_up(layers: int = 2, heads: int = 4) -> HeadShares:
    values = np.arange(layers * heads, dtype=float).reshape(layers, heads)
    kinds = {"self": values, "cross": values[:, ::-1]}
    estimates = {kind: Estimate(each, each - 1, each + 1) for kind, each in kinds.items()}
    return HeadShares("a model", 3, estimates, {kind: np.stack([each] * 3, -1) for kind, each in kinds.items()}, {})


class TestShares:
    def test_they_are_means_over_steps_then_over_sentences(self, embedded: Any, shares: HeadShares) -> None:
        results = [explain(*embedded, source, target, inside=True).inside for source, target in PAIRS]
        for kind, estimate in shares.heads.items():
            expected = torch.stack([inside.heads(kind).double().mean(0) for inside in results]).mean(0)
            np.testing.assert_allclose(estimate.value, expected.numpy(), atol=1e-7)
            np.testing.assert_allclose(shares.parts[kind].sum(-1), estimate.value, atol=1e-12)
            assert (estimate.low <= estimate.value).all() and (estimate.value <= estimate.high).all()
        sent = torch.stack([inside["decoder.sent"].double().sum(-1).mean(0) for inside in results]).mean(0)
        np.testing.assert_allclose(shares.blocks["decoder.sent"].value, sent.numpy(), atol=1e-7)
        assert shares.sentences == 3 and set(shares.heads) == {"encoder", "self", "cross"}

    def test_files(self, shares: HeadShares, tmp_path: Path) -> None:
        shares.save(tmp_path)
        again = HeadShares.load(tmp_path)
        assert again.model == shares.model
        for kind, estimate in shares.heads.items():
            for before, after in zip(estimate, again.heads[kind], strict=True):
                np.testing.assert_array_equal(before, after)
        lines = (tmp_path / "heads.csv").read_text().splitlines()
        assert lines[0] == "kind,layer,head,share,low,high,queries,keys,values"
        assert len(lines) == 1 + 3 * 3 * 4
        kind, layer, head, share, *_ = lines[5].split(",")
        assert float(share) == pytest.approx(shares.heads[kind].value[int(layer) - 1, int(head) - 1], abs=1e-9)

    def test_files_that_are_none_are_refused(self, shares: HeadShares, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="hf-lrp heads"):
            HeadShares.load(tmp_path)
        (tmp_path / "heads.json").write_text('{"format": "hf_lrp.heads", "version": 7}')
        with pytest.raises(ValueError, match="another version"):
            HeadShares.load(tmp_path)

    def test_one_sentence_has_no_intervals(self, embedded: Any, tmp_path: Path) -> None:
        found = measure_heads(*embedded, PAIRS[:1], tmp_path)
        assert np.isnan(HeadShares.load(tmp_path).heads["self"].low).all() and np.isnan(found.heads["self"].low).all()

    def test_interrupted_it_goes_on(
        self, embedded: Any, shares: HeadShares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[str] = []
        whole = Explainer.explain

        def until_the_third(self: Explainer, source: str, *args: Any, **options: Any) -> Any:
            calls.append(source)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return whole(self, source, *args, **options)

        monkeypatch.setattr(Explainer, "explain", until_the_third)
        with pytest.raises(KeyboardInterrupt):
            measure_heads(*embedded, PAIRS, tmp_path)
        with pytest.raises(ValueError, match="other settings"):
            measure_heads(*embedded, PAIRS[::-1], tmp_path)
        found = measure_heads(*embedded, PAIRS, tmp_path)
        assert calls == [*(source for source, _ in PAIRS), PAIRS[2][0]]
        np.testing.assert_array_equal(found.heads["self"].value, shares.heads["self"].value)
        assert {path.name for path in tmp_path.iterdir()} == {"heads.json", "heads.csv"}

    def test_empty_sides_are_refused(self, embedded: Any, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="no side of a pair"):
            measure_heads(*embedded, [("a", " ")], tmp_path)


class TestTrials:
    def test_orders(self) -> None:
        lowest = Trial("lowest", 0.25).heads(made_up())
        assert lowest == [
            *(HeadPlace("self", 0, 0), HeadPlace("self", 0, 1)),
            *(HeadPlace("cross", 0, 3), HeadPlace("cross", 0, 2)),
        ]
        assert Trial("highest", 0.125).heads(made_up()) == [HeadPlace("self", 1, 3), HeadPlace("cross", 1, 0)]
        drawn = [Trial(f"random {draw}", 0.5).heads(made_up()) for draw in range(2)]
        assert drawn[0] != drawn[1] and all(len(set(heads)) == 8 for heads in drawn)
        assert Trial("random 0", 0.25).heads(made_up())[:2] == drawn[0][:2]  # nested
        assert len(TRIALS) == len(FRACTIONS) * (2 + DRAWS)

    def test_shares_mean_something_only_where_both_ends_differ_from_random(self) -> None:
        noise = np.random.default_rng(0).normal(size=50)
        levels = {"lowest": 40, "highest": 10, "random 0": 28, "random 1": 32}

        def masked(**changed: int) -> MaskedHeads:
            own = levels | changed
            return MaskedHeads(
                noise + 50, {trial: noise * (i + 1) + own[trial.order] for i, trial in enumerate(TRIALS)}
            )

        assert masked().means_something
        assert masked().advantage("lowest").value == pytest.approx(10, abs=2)
        assert masked().advantage("highest").value == pytest.approx(-20, abs=2)
        assert not masked(lowest=30).means_something and not masked(highest=30).means_something


def test_masking_translates_scores_and_goes_on(
    embedded: Any, shares: HeadShares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked_heads, "TRIALS", [Trial("lowest", 0.5), Trial("highest", 0.5), Trial("random 0", 0.5)])
    whole, calls = masked_heads.MaskedTranslator.scores, []

    def until_the_second(self: Any, heads: Any) -> list[float]:
        calls.append(len(heads))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, heads)

    monkeypatch.setattr(masked_heads.MaskedTranslator, "scores", until_the_second)
    with pytest.raises(KeyboardInterrupt):
        mask_heads(*embedded, shares, PAIRS, tmp_path)
    found = mask_heads(*embedded, shares, PAIRS, tmp_path)
    assert calls == [0, 18, 18, 18, 18]
    assert found.whole.mean() > 60 and found.curve("highest")[0.5].mean() < found.whole.mean()
    written = json.loads((tmp_path / "masked.json").read_text())
    assert written["whole"]["value"] == pytest.approx(found.whole.mean())
    assert {curve["order"] for curve in written["curves"]} == {"lowest", "random", "highest"}
    assert [path.name for path in tmp_path.iterdir()] == ["masked.json"]

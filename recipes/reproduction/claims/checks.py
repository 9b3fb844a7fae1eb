"""The claims on evaluations (runs, or what was kept of them), grouped by kind of model and seed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from claims.data_amount import more_data
from claims.objectives import KINDS, own_prefixes_entropy, own_prefixes_source, random_prefixes
from claims.one_model import check_curves
from claims.reading import as_results, check_same_sentences, read_curves, read_training
from claims.results import Results
from claims.training import check_training_curves
from claims.verdicts import Claim
from hf_lrp.corpus.run import Run


def check_model(runs: Mapping[int, Run | Results]) -> list[Claim]:
    """C1 to C7, on runs by seed, with all three prefix types; lengths may be mixed. One seed: on this model alone."""
    return check_curves(*(read_curves(runs, prefix) for prefix in ("reference", "model", "random")))


def check_objectives(
    runs: Mapping[str, Mapping[int, Run | Results]], unconverged: Collection[str] = ()
) -> list[Claim]:
    """C8 to C10, on runs with model and random prefixes by kind of model (`KINDS`) and seed.

    Args:
        runs: a seed's model is compared with the baseline of the same seed. A kind may be missing: what compares it is
            not decided.
        unconverged: kinds that are not trained to convergence; what compares them is not decided.
    """
    results = {kind: {seed: as_results(run) for seed, run in runs[kind].items()} for kind in KINDS if runs.get(kind)}
    check_same_sentences([each for seeds in results.values() for each in seeds.values()])
    own, random = ({kind: read_curves(results[kind], prefix) for kind in results} for prefix in ("model", "random"))
    return [
        own_prefixes_source(own, unconverged),
        own_prefixes_entropy(own, unconverged),
        random_prefixes(random, unconverged),
    ]


def check_growth(runs: Mapping[int, Mapping[int, Run | Results]], unconverged: Collection[int] = ()) -> list[Claim]:
    """C11, on runs with reference and model prefixes by number of training pairs and seed."""
    results = {pairs: {seed: as_results(run) for seed, run in seeds.items()} for pairs, seeds in runs.items()}
    check_same_sentences([each for seeds in results.values() for each in seeds.values()])
    curves = {
        prefix: {pairs: read_curves(seeds, prefix) for pairs, seeds in results.items()}
        for prefix in ("reference", "model")
    }
    return [more_data(curves, unconverged)]


def check_training(runs: Mapping[int, Mapping[int, Run | Results]]) -> list[Claim]:
    """C12 to C15, on runs of checkpoints with reference prefixes, by seed and by the number of updates.

    One seed: on this training alone.
    """
    return check_training_curves(read_training(runs))

"""Made-up contributions for which it is known whether a claim is true, to see how often its rule is wrong."""

from collections.abc import Callable

from claims.verdicts import Claim

from simulated_claims import models, trainings
from simulated_claims.world import CASES, World

SIMULATIONS: dict[str, Callable[[World], Claim]] = {
    "C1": models.falls,
    "C2": models.drops_at_end,
    "C3": models.uses_ends,
    "C4": models.rises_and_falls,
    "C5": models.grows,
    "C6": models.own_prefixes,
    "C7": models.unrelated_prefixes,
    "C8": models.objectives_source,
    "C9": models.objectives_entropy,
    "C10": models.objectives_random,
    "C11": models.amounts,
    "C12": trainings.converges,
    "C13": trainings.stages,
    "C14": trainings.changes,
    "C15": trainings.accuracy,
}

# One statement alone: no part of it can be true.
WITHOUT_PARTS = ("C1", "C12")


def applies(claim: str, case: str) -> bool:
    """Whether a case can be made for a claim."""
    return case != "part" or claim not in WITHOUT_PARTS


__all__ = ["CASES", "SIMULATIONS", "World", "applies"]

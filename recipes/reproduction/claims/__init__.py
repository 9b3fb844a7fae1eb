"""The findings of Voita, Sennrich and Titov (2021) as claims that are checked on runs, each with its numbers.

A claim is one or more statements. A statement is a mean over sentences and seeds with its interval, and the values
that agree with the paper, from a minimum effect on that was fixed beforehand (`sizes`). It holds if the whole interval
agrees, does not hold if nothing in it does, and is not decided otherwise. `docs/claim_rules.md` has the rules, and how
often they err.

`checks` is what a recipe calls, on runs or on what was kept of them (`results`). It reads them (`reading`) and applies
the rules, which are functions of arrays: `one_model`, `objectives`, `data_amount`, `training`. These build on
`curves`, `intervals` and `verdicts`.
"""

from claims.checks import check_growth, check_model, check_objectives, check_training
from claims.convergence import has_converged, has_lowered_risk
from claims.objectives import KINDS
from claims.results import Results, measure_run
from claims.verdicts import Claim, Statement, as_markdown, as_rows

__all__ = [
    "KINDS",
    "Claim",
    "Results",
    "Statement",
    "as_markdown",
    "as_rows",
    "check_growth",
    "check_model",
    "check_objectives",
    "check_training",
    "has_converged",
    "has_lowered_risk",
    "measure_run",
]

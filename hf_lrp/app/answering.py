"""From a question to its answer, and from an error to what a visitor is told."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

from hf_lrp.app.models import Models
from hf_lrp.app.questions import Limits, Question, check, check_length
from hf_lrp.data.failures import in_one_line, ran_out_of_memory
from hf_lrp.explaining.explainer import explain
from hf_lrp.models.configs import generation_config_of, position_limit
from hf_lrp.models.families import family_of
from hf_lrp.results.contributions import Contributions
from hf_lrp.results.target_texts import target_texts

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Answer(NamedTuple):
    """The contributions, and what the model was conditioned on as text."""

    result: Contributions
    text: str


def answer(question: Question, label: str, models: Models, limits: Limits) -> Answer:
    """Explain what is asked with one model.

    Raises:
        ValueError, TypeError, RuntimeError: what `explain`, `Models.get` and the limits refuse.
    """
    check(question, limits)
    with models.use(label, question.source_language, question.target_language) as (model, tokenizer):
        _check_lengths(question, tokenizer, limits)
        options: dict[str, Any] = {"max_new_tokens": _most(model, limits)} if question.prefix == "model" else {}
        result = explain(
            model,
            tokenizer,
            question.source.strip(),
            question.target.strip() if question.prefix == "reference" else None,
            prompt=question.prompt if question.prompt.strip() and family_of(model).encoder is None else None,
            prefix=question.prefix,
            predict=question.contrast or "top1",
            pool=question.pool if question.prefix == "random" else None,
            max_memory=limits.memory,
            **options,
        )
        return Answer(result, target_texts(tokenizer, [result])[0].strip())


def _check_lengths(question: Question, tokenizer: Any, limits: Limits) -> None:
    """Raise a ValueError for texts with too many tokens."""

    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False, verbose=False).input_ids)

    check_length(count(question.source), limits.tokens, "source")
    if question.prefix == "reference":
        check_length(count(question.target), limits.tokens, "target")
    if question.prefix == "random":
        check_length(max(map(count, question.pool)), limits.tokens, "longest unrelated sentence")
    check_length(count(question.prompt), limits.prompt_tokens, "prompt")


def _most(model: PreTrainedModel, limits: Limits) -> int:
    """How many tokens a model may write: what is allowed, its positions, and what its checkpoint says if it does."""
    own = generation_config_of(model).max_length
    room = [position_limit(model), None if own == 20 else own]  # 20: transformers' default
    return min([limits.tokens, *(length - 1 for length in room if length is not None)])


def describe_failure(error: Exception) -> str:
    """Message to a visitor; of errors that are not foreseen, only the terminal gets the details."""
    if ran_out_of_memory(error):
        return "This needs more memory than the app may use. Shorten the sentences."
    if isinstance(error, ValueError | TypeError | RuntimeError):
        return in_one_line(error)
    traceback.print_exception(error, file=sys.stderr)
    return f"The app failed ({type(error).__name__}). Where it runs, its terminal says more."

"""Events of the app: texts of fields in, values of its components out. Nothing here knows Gradio."""

from __future__ import annotations

from hf_lrp.app.answering import Answer, answer, describe_failure
from hf_lrp.app.models import Models
from hf_lrp.app.questions import Limits, Question
from hf_lrp.app.views import Recent, View, frame, links, message, results_of, side_by_side

NOTHING, BEFORE = "nothing", "the result before"  # what to compare with, besides other models


class Events:
    """Functions that the page's events call.

    Args:
        models: what visitors may choose.
        limits: of each question.
    """

    def __init__(self, models: Models, limits: Limits) -> None:
        self.models, self.limits, self.recent = models, limits, Recent()

    def explain(
        self, model: str | None, beside: str | None, before: str | None, *fields: str | None
    ) -> tuple[str, str, str | None]:
        """HTML of the result or of what went wrong, the target, and the key of what is shown.

        Args:
            model: the label of a model; None where the choice was emptied, which is refused.
            beside: what to compare with: the label of another, `BEFORE`, or `NOTHING` or None.
            before: the key of what was shown before; None: nothing was.
            fields: those of a `Question`, in their order; None where nothing was ever written.
        """
        question = Question(*("" if field is None else field for field in fields))
        try:
            first = answer(question, model or "", self.models, self.limits)
            view = self._view(first, question, beside or NOTHING, before)
            key = self.recent.put(view)
            return links(key) + frame(view), first.text, key
        except Exception as error:
            return message(describe_failure(error)), question.target, None

    def _view(self, first: Answer, question: Question, beside: str, before: str | None) -> View:
        if beside == BEFORE:
            return (
                first.result if before is None else side_by_side(results_of(self.recent.get(before))[-1], first.result)
            )
        if beside == NOTHING:
            return first.result
        return side_by_side(first.result, answer(question, beside, self.models, self.limits).result)

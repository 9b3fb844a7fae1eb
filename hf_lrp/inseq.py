"""The paper's method for inseq: once this is imported, `inseq.load_model(model, "alpha_beta_lrp")`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    from inseq.attr import FeatureAttribution
    from inseq.attr.step_functions import get_step_function
    from inseq.data import FeatureAttributionStepOutput
except ImportError as error:
    raise ImportError("hf_lrp.inseq needs inseq: pip install inseq.") from error

from hf_lrp.inputs.memory import memory_limit
from hf_lrp.methods.lrp import PAPER_RULE
from hf_lrp.models.copies import WorkingCopy
from hf_lrp.models.families import family_of
from hf_lrp.relevance.patching import patched
from hf_lrp.relevance.propagation import Relevance, memory_for_steps, propagate


class AlphaBetaLRP(FeatureAttribution):
    """Raw shares of source and prefix tokens, which sum to 1 with `attribute_target=True`.

    Explains the logit of the token that is written at each step. All steps of a sentence go back together, before
    inseq asks for them one by one. In a model without an encoder the prompt is a part of the prefix, as inseq has it.
    """

    method_name = "alpha_beta_lrp"

    def __init__(self, attribution_model: Any, **kwargs: Any) -> None:
        super().__init__(attribution_model, hook_to_model=False)
        self._rows: list[Relevance] = []
        self._step, self._active = 0, torch.empty(0, dtype=torch.bool)
        self.hook(**kwargs)

    def attribute(self, batch: Any, attributed_fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Attribution of a batch of sentences, which inseq calls: explain them, then let it go through the steps."""
        if attributed_fn != get_step_function(self.attribution_model.default_attributed_fn_id):
            raise ValueError(
                "alpha_beta_lrp explains the logit of the written token, so attributed_fn cannot be chosen. For the "
                "difference of two words: hf_lrp.explain(..., predict={'word': 'other'}).to_inseq()."
            )
        self._rows = self._propagate(batch)
        try:
            return super().attribute(batch, attributed_fn, *args, **kwargs)
        finally:
            self._rows = []

    def filtered_attribute_step(
        self, batch: Any, target_ids: Tensor, attributed_fn: Any, target_attention_mask: Any = None, **kwargs: Any
    ) -> Any:
        """One step of the sentences that are not at their end."""
        self._step = batch.target_ids.shape[1]
        mask = torch.ones_like(target_ids) if target_attention_mask is None else target_attention_mask
        self._active = mask.flatten().bool().cpu()
        return super().filtered_attribute_step(batch, target_ids, attributed_fn, target_attention_mask, **kwargs)

    def attribute_step(self, attribute_fn_main_args: dict[str, Any], attribution_args: Any = None) -> Any:
        """The shares at this step: `[sentences, source]`, and `[sentences, prefix]` where they are asked for."""
        rows = [row for row, active in zip(self._rows, self._active, strict=True) if active]
        encodes = self.attribution_model.is_encoder_decoder
        with_target = not encodes or len(attribute_fn_main_args["inputs"]) > 1
        return FeatureAttributionStepOutput(
            source_attributions=torch.stack([row.source[self._step - 1] for row in rows]) if encodes else None,
            target_attributions=torch.stack([row.decoder[self._step - 1, : self._step] for row in rows])
            if with_target
            else None,
            step_scores={},
        )

    def _propagate(self, batch: Any) -> list[Relevance]:
        """Shares of each sentence at the places of the batch: `[steps, padded length]`, 0 for padding."""
        model, _ = WorkingCopy(self.attribution_model.model).in_float32(self.attribution_model.model)
        encoded = family_of(model).encoder is not None
        limit, found = memory_limit(None, model.device), []
        for number, target in enumerate(batch.target_ids):
            written = _kept(batch.target_mask[number])
            ids = target[written].to(model.device)
            places = _kept(batch.source_mask[number]) if encoded else written[:0]
            source = {"input_ids": batch.source_ids[number][places].to(model.device)} if encoded else {}
            with patched(model, PAPER_RULE) as patch:
                room = memory_for_steps(patch.network, len(places), len(ids), model.dtype.itemsize, limit)
                raw = propagate(patch, source, ids[:-1], _following(ids), slice(0, len(ids) - 1), room)
            width = batch.source_ids.shape[1] if encoded else 0
            found.append(_with_padding(raw, places.cpu(), width, written.cpu(), len(target)))
        return found


def _kept(mask: Tensor) -> Tensor:
    """Places of what is not padding."""
    return mask.bool().nonzero()[:, 0]


def _following(ids: Tensor) -> Any:
    return lambda logits: ids[1:].to(logits.device)


def _with_padding(raw: Relevance, source: Tensor, width: int, written: Tensor, length: int) -> Relevance:
    """The same shares at the places of a padded batch; row p - 1 is the prediction of place p."""
    source_shares, decoder = torch.zeros(length, width), torch.zeros(length, length)
    rows = written[1:] - 1
    if width:
        source_shares[rows[:, None], source] = raw.source.cpu().float()
    decoder[rows[:, None], written[:-1]] = raw.decoder.cpu().float()
    return Relevance(source_shares, decoder, raw.logits, raw.log_probability, raw.explained)

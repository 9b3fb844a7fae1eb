"""The methods for inseq: once this is imported, `inseq.load_model(model, "alpha_beta_lrp")`, or "hf_lrp_alti"."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

try:
    from inseq.attr import FeatureAttribution
    from inseq.attr.step_functions import get_step_function
    from inseq.data import FeatureAttributionStepOutput
except ImportError as error:
    raise ImportError("hf_lrp.inseq needs inseq: pip install inseq.") from error

from hf_lrp.inputs.memory import memory_limit
from hf_lrp.methods.lrp import LRP
from hf_lrp.methods.method import Method, Question
from hf_lrp.methods.table import METHODS
from hf_lrp.models.copies import WorkingCopy
from hf_lrp.models.exchange import read_plain_network
from hf_lrp.models.passes import DecoderInput, Relevance
from hf_lrp.models.vocabulary import Vocabulary


class AlphaBetaLRP(FeatureAttribution):
    """Raw shares of source and prefix tokens, which sum to 1 with `attribute_target=True`.

    Explains the logit of the token that is written at each step. All steps of a sentence go back together, before
    inseq asks for them one by one. In a model without an encoder the prompt is a part of the prefix, as inseq has it.
    """

    method_name = "alpha_beta_lrp"
    method: ClassVar[Method] = LRP()

    def __init__(self, attribution_model: Any, **kwargs: Any) -> None:
        super().__init__(attribution_model, hook_to_model=False)
        self._rows: list[Relevance] = []
        self._step, self._active = 0, torch.empty(0, dtype=torch.bool)
        self.hook(**kwargs)

    def attribute(self, batch: Any, attributed_fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Attribution of a batch of sentences, which inseq calls: explain them, then let it go through the steps."""
        if attributed_fn != get_step_function(self.attribution_model.default_attributed_fn_id):
            raise ValueError(
                f"{self.method_name} explains the logit of the written token, so attributed_fn cannot be chosen. For "
                "the difference of two words: hf_lrp.explain(..., predict={'word': 'other'}).to_inseq()."
            )
        self._rows = self._explain(batch)
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

    def _explain(self, batch: Any) -> list[Relevance]:
        """Values of each sentence at the places of the batch: `[steps, padded length]`, 0 for padding."""
        original = self.attribution_model.model
        model, _ = WorkingCopy(original).in_float32(original)
        network, limit, found = read_plain_network(model), memory_limit(None, model.device), []
        unknown = Vocabulary(original, self.attribution_model.tokenizer).unknown
        encoded = network.encoder is not None
        for number, target in enumerate(batch.target_ids):
            written = _kept(batch.target_mask[number])
            ids = target[written].to(model.device)
            places = _kept(batch.source_mask[number]) if encoded else written[:0]
            source = {"input_ids": batch.source_ids[number][places].to(model.device)} if encoded else {}
            given = [DecoderInput(ids[:-1], _following(ids), slice(0, len(ids) - 1))]
            question = Question(model, network, source, len(places), given, limit, unknown=unknown)
            (raw,) = self.method.explain(question)
            width = batch.source_ids.shape[1] if encoded else 0
            found.append(_with_padding(raw, places.cpu(), width, written.cpu(), len(target)))
        return found


def _registered(name: str, method: Method) -> type[AlphaBetaLRP]:
    """The class by which inseq knows a method, whose own values are its attributions."""
    own = {"method_name": f"hf_lrp_{name.replace('-', '_')}", "method": method, "__doc__": type(method).__doc__}
    return type(type(method).__name__, (AlphaBetaLRP,), own)


OTHERS = {name: _registered(name, row.method) for name, row in METHODS.items() if name != "lrp"}


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

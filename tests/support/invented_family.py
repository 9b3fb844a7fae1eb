"""An architecture that no library has, with names of its own: what a user might want to explain."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import Seq2SeqLMOutput

from hf_lrp import Family


class InventedConfig(PreTrainedConfig):
    model_type = "invented"

    def __init__(self, width: int = 12, depth: int = 2, vocab_size: int = 40, **options: Any) -> None:
        self.width, self.depth, self.vocab_size = width, depth, vocab_size
        super().__init__(
            **{"is_encoder_decoder": True, "pad_token_id": 39, "decoder_start_token_id": 39, "eos_token_id": 1}
            | options
        )


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width) * 0.3 + 1)
        self.variance_epsilon = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)


class Look(nn.Module):
    """Attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ask, self.offer, self.give, self.collect = (nn.Linear(width, width) for _ in range(4))
        self.eyes, self.focus = 3, (width / 3) ** -0.5

    def forward(self, x: Tensor, y: Tensor, hidden: Tensor | None = None) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.eyes, -1)).transpose(1, 2) for part in (self.ask(x), self.offer(y), self.give(y))
        )
        scores = query @ key.transpose(2, 3) * self.focus
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        return self.collect((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


class Storey(nn.Module):
    """A layer; with a cross-attention in the decoder."""

    def __init__(self, width: int, decodes: bool) -> None:
        super().__init__()
        self.inward, self.inward_norm = Look(width), Norm(width)
        if decodes:
            self.outward, self.outward_norm = Look(width), Norm(width)
        self.think = nn.ModuleList([nn.Linear(width, 20), nn.Linear(width, 20), nn.Linear(20, width)])
        self.think_norm, self.spark = Norm(width), nn.Tanh()

    def forward(self, x: Tensor, memory: Tensor | None) -> Tensor:
        hidden = None if memory is None else torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        normed = self.inward_norm(x)
        x = x + self.inward(normed, normed, hidden)
        if memory is not None:
            x = x + self.outward(self.outward_norm(x), memory)
        normed = self.think_norm(x)
        return x + self.think[2](self.spark(self.think[0](normed)) * self.think[1](normed))


class Tower(nn.Module):
    def __init__(self, config: InventedConfig, decodes: bool) -> None:
        super().__init__()
        self.storeys = nn.ModuleList([Storey(config.width, decodes) for _ in range(config.depth)])
        self.roof = Norm(config.width)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        for storey in self.storeys:
            x = storey(x, memory)
        return self.roof(x)


class InventedForTranslation(PreTrainedModel):
    config_class = InventedConfig

    def __init__(self, config: InventedConfig) -> None:
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.width)
        self.reader, self.writer = Tower(config, decodes=False), Tower(config, decodes=True)
        self.mouth = nn.Linear(config.width, config.vocab_size)

    def get_input_embeddings(self) -> nn.Module:
        return self.words

    def get_output_embeddings(self) -> nn.Module:
        return self.mouth

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor, **_: Any) -> Seq2SeqLMOutput:
        read = self.reader(self.words(input_ids))
        return Seq2SeqLMOutput(logits=self.mouth(self.writer(self.words(decoder_input_ids), read)))


INVENTED = Family(
    norm_first=True,
    norm="rms",
    encoder="reader",
    decoder="writer",
    layers="storeys",
    final_norm="roof",
    self_attention="inward",
    self_attention_norm="inward_norm",
    cross_attention="outward",
    cross_attention_norm="outward_norm",
    projections=("ask", "offer", "give", "collect"),
    heads="eyes",
    scaling="focus",
    gated_feed_forward=("think.0", "think.1", "think.2"),
    activation="spark",
    feed_forward_norm="think_norm",
    head="mouth",
    head_bias=None,
)

"""Masked heads, to see whether shares mean something: chrF with heads masked by share or in random order.

The protocol: in each kind of heads (encoder, self, cross) alike, a fraction of the heads is masked: those with the
lowest shares, those with the highest, or ones drawn at random, several times. Everything is translated anew, by
greedy search, and no translation may be longer than the longest reference. Shares mean something if masking the lowest
costs less chrF than masking at random, and masking the highest more: the mean over all fractions of the difference,
sentence by sentence, with an interval over sentences that excludes 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from hf_lrp.corpus.heads import HeadShares, settings_of
from hf_lrp.corpus.journal import Journal
from hf_lrp.data.json_files import write_json
from hf_lrp.data.locks import one_writer
from hf_lrp.kinds.kind import Asked
from hf_lrp.kinds.table import kind_of
from hf_lrp.models.exchange import read_plain_network
from hf_lrp.models.head_masking import HeadPlace, heads_masked
from hf_lrp.models.vocabulary import Vocabulary
from hf_lrp.results.intervals import Estimate, bootstrap_mean

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FRACTIONS = (0.125, 0.25, 0.5)
DRAWS = 2  # random orders
ORDERS = ("lowest", "random", "highest")
BATCH = 25


class Trial(NamedTuple):
    """Which heads are masked: a fraction of those of each kind, in an order (`lowest`, `highest`, `random N`)."""

    order: str
    fraction: float

    def heads(self, shares: HeadShares) -> list[HeadPlace]:
        """The heads that are masked."""
        chosen = []
        for number, kind in enumerate(shares.heads):
            ranking = shares.ranking(kind)
            if self.order == "highest":
                ranking.reverse()
            elif self.order != "lowest":
                seed = int(self.order.removeprefix("random ")), number
                ranking = [ranking[i] for i in np.random.default_rng(seed).permutation(len(ranking))]
            chosen += [HeadPlace(kind, *place) for place in ranking[: round(self.fraction * len(ranking))]]
        return chosen


TRIALS = [
    Trial(order, fraction)
    for fraction in FRACTIONS
    for order in ("lowest", "highest", *(f"random {draw}" for draw in range(DRAWS)))
]


@dataclass(frozen=True, eq=False)
class MaskedHeads:
    """chrF with heads masked.

    Attributes:
        whole: `[n]`, of each sentence with all heads.
        chrf: by trial, `[n]`.
    """

    whole: np.ndarray
    chrf: dict[Trial, np.ndarray]

    def curve(self, order: str) -> dict[float, np.ndarray]:
        """By fraction, `[n]`; of ``random`` the mean over its draws."""
        found: dict[float, list[np.ndarray]] = {}
        for trial, values in self.chrf.items():
            if trial.order.split(" ")[0] == order:
                found.setdefault(trial.fraction, []).append(values)
        return {fraction: np.mean(values, axis=0) for fraction, values in sorted(found.items())}

    def estimates(self, order: str) -> dict[float, Estimate]:
        """By fraction, from 0 on, the mean with its interval."""
        return {
            fraction: bootstrap_mean(values) for fraction, values in {0.0: self.whole, **self.curve(order)}.items()
        }

    def advantage(self, order: str) -> Estimate:
        """Mean over fractions of chrF in this order, less that in random order."""
        own, drawn = self.curve(order), self.curve("random")
        return bootstrap_mean(np.mean([own[fraction] - drawn[fraction] for fraction in own], axis=0))

    @property
    def means_something(self) -> bool:
        """Whether the lowest cost less than random ones, and the highest more, by intervals that exclude 0."""
        return bool(self.advantage("lowest").low > 0 and self.advantage("highest").high < 0)

    def save(self, folder: str | Path) -> None:
        """Write `masked.json`: means with intervals by order and fraction, and the advantages."""
        content = {
            "sentences": len(self.whole),
            "whole": _plain(bootstrap_mean(self.whole)),
            "curves": [
                {"order": order, "fraction": fraction, **_plain(estimate)}
                for order in ORDERS
                for fraction, estimate in self.estimates(order).items()
            ],
            "advantages": {order: _plain(self.advantage(order)) for order in ("lowest", "highest")},
            "means_something": self.means_something,
        }
        write_json(Path(folder) / "masked.json", content)


def _plain(estimate: Estimate) -> dict[str, float | None]:
    """As JSON has it; None for an end of an interval that one sentence does not have."""
    return {name: None if np.isnan(end) else end for name, end in estimate._asdict().items()}


def mask_heads(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    shares: HeadShares,
    pairs: Sequence[tuple[str, str]],
    folder: str | Path,
    *,
    prompt: Any = None,
    progress: bool = False,
) -> MaskedHeads:
    """Translate with heads masked, and score by chrF; interrupted and called again, it goes on.

    Args:
        model, tokenizer: as for `hf_lrp.explain`; a model that translates.
        shares: of the model's heads, measured on other sentences.
        pairs: sources and references, as text.
        folder: gets `masked.json`; unfinished work stands beside it.
        prompt: for a model without an encoder.
        progress: show a progress bar.
    """
    read = kind_of(model).corpus_prompt(model, tokenizer, prompt)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    translator = MaskedTranslator(model, tokenizer, pairs, read)
    ranks = {kind: shares.ranking(kind) for kind in shares.heads}
    settings = settings_of(model, pairs, read) | {"ranks": {k: [list(p) for p in r] for k, r in ranks.items()}}
    with one_writer(folder / "masked.lock", str(folder)):
        journal = Journal(folder / "masked.partial", settings)
        masks: list[list[HeadPlace]] = [[], *(trial.heads(shares) for trial in TRIALS)]
        done = len(journal.rows)
        bar = tqdm(masks[done:], initial=done, total=len(masks), desc="Masking heads", disable=not progress)
        for heads in bar:
            journal.append({"chrf": translator.scores(heads)})
        whole, *rows = (np.array(row["chrf"]) for row in journal.rows)
        found = MaskedHeads(whole, dict(zip(TRIALS, rows, strict=True)))
        found.save(folder)
        journal.remove()
    return found


class MaskedTranslator:
    """Translates the same sources again and again, and scores each translation."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        pairs: Sequence[tuple[str, str]],
        prompt: Any,
    ) -> None:
        try:
            from sacrebleu import CHRF
        except ImportError as error:
            raise ImportError('chrF comes from sacrebleu: install the extra "train" of hf-lrp.') from error
        self.model, self.tokenizer, self._chrf = model, tokenizer, CHRF()
        self.references = [reference for _, reference in pairs]
        self.network = read_plain_network(model)
        asked = Asked(model, Vocabulary(model, tokenizer), [source for source, _ in pairs], prompt, None, {})
        self.reading = kind_of(model).read(asked)
        longest = max(len(prefix.ids) for prefix in self.reading.read_targets(self.references)[0])
        self.options: dict[str, Any] = {"num_beams": 1, "do_sample": False, "max_new_tokens": longest}

    def scores(self, heads: Sequence[HeadPlace]) -> list[float]:
        """chrF of each translation with these heads masked."""
        with heads_masked(self.network, heads):
            written = self.reading.generate(self.model, BATCH, self.options, False)
        return [
            round(self._chrf.sentence_score(text, [reference]).score, 4)
            for text, reference in zip(self._texts(written), self.references, strict=True)
        ]

    def _texts(self, written: Sequence[Any]) -> Iterator[str]:
        decode: Any = self.tokenizer.decode
        return (str(decode(prefix.ids.tolist(), skip_special_tokens=True)).strip() for prefix in written)

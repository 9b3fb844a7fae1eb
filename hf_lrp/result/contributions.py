"""The result of an explanation: how much each source and each prefix token contributes to each prediction."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor

from hf_lrp.data.files import write_atomically
from hf_lrp.result.words import detect_marking, display_tokens, join_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure
    from pandas import DataFrame

    from hf_lrp.result.terminal import TerminalTable

FILE_FORMAT = "hf_lrp.contributions"
FILE_VERSION = 1

_FLOATS = ("source", "target", "start", "logits", "probability")
_IDS = ("source_ids", "target_ids", "predicted_ids")
_TUPLES = (
    "source_tokens",
    "target_tokens",
    "predicted_tokens",
    "source_words",
    "target_words",
    "notes",
    "start_tokens",
)
_CHOICES = {
    "start_token": ("exclude", "keep"),
    "prefix": ("reference", "model", "random"),
    "predict": ("top1", "target", "ids", "contrastive"),
    "level": ("token", "word"),
}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Contributions:
    """Contributions of S source tokens and of the prefix to T predictions. Immutable.

    Attributes:
        source: `[T, S]`, R_t(x_i): the share of source token i in the prediction at step t.
        target: `[T, T]`, R_t(y_j): the share of target token j in the prediction at step t; strictly lower
            triangular, since only tokens before t are known at step t. At word level (see `merge_subwords`)
            the diagonal holds the share of earlier pieces of the same word.
        start: `[T]`, the raw share of the decoder start token and of forced tokens.
        logits: `[T]`, the explained logit (contrastive: the difference of two).
        probability: `[T]`, the probability of the explained token.
        source_tokens: S raw tokenizer pieces such as `▁Hello`.
        target_tokens: T pieces that the model is conditioned on.
        predicted_tokens: T pieces whose logits are explained.
        source_ids: `[S]`; at word level the id of a word's first piece, as for the next two.
        target_ids: `[T]`.
        predicted_ids: `[T]`, or `[T, 2]` for a contrastive pair.
        source_words: S indices: which word each token belongs to; starts at 0 and never decreases.
        target_words: T indices, likewise.
        conservation_error: largest |sum - 1| of the raw shares as propagation returned them.
        start_token: `"exclude"` where source and target sum to 1, `"keep"` where `start` has a part in it.
        prefix: `"reference"`, `"model"` or `"random"`.
        predict: `"top1"`, `"target"`, `"ids"` or `"contrastive"`.
        rule: the redistribution rule, as text.
        model: the model's name.
        dtype: what propagation ran in, for example `"float32"`.
        notes: what a reader should know, for example that half-precision weights were propagated in float32.
        level: `"token"`, or `"word"` after `merge_subwords`.
        start_tokens: the decoder start token and what was forced after it, such as the target language; their
            shares are `start`. Empty in files of older versions.

    Steps and positions count from 0, as in the tensors; tables and plots number steps from 1, as the paper
    does. Every access to a tensor gives a copy on the CPU that raises on in-place writes; a `.clone()` of it
    can be written to and used in autograd.
    """

    source: Tensor
    target: Tensor
    start: Tensor
    logits: Tensor
    probability: Tensor
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    predicted_tokens: tuple[str, ...]
    source_ids: Tensor
    target_ids: Tensor
    predicted_ids: Tensor
    source_words: tuple[int, ...]
    target_words: tuple[int, ...]
    conservation_error: float
    start_token: str
    prefix: str
    predict: str
    rule: str
    model: str
    dtype: str
    notes: tuple[str, ...] = ()
    level: Literal["token", "word"] = "token"
    start_tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in _TUPLES:
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in (*_FLOATS, *_IDS):
            value = getattr(self, name)
            if not isinstance(value, Tensor):
                raise ValueError(f"{name} must be a tensor, got {type(value).__name__}.")
            with torch.inference_mode():
                kept = value.detach().cpu().clone(memory_format=torch.contiguous_format)
            object.__setattr__(self, name, kept)
        self._check_tensors()
        self._check_descriptions()

    def __getattribute__(self, name: str) -> Any:
        # torch raises on in-place writes to an inference tensor, but only after it has written, and lets
        # writes through `.data` and `.numpy()` pass. The copy handed out raises; what is kept never changes.
        value = object.__getattribute__(self, name)
        if isinstance(value, Tensor):
            with torch.inference_mode():
                return value.clone()
        return value

    def _check_tensors(self) -> None:
        steps, positions = len(self.target_tokens), len(self.source_tokens)
        if not steps or not positions:
            raise ValueError(f"at least one source and one target token are needed, got {positions} and {steps}.")
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("start", "logits", "probability", "target_ids"), (steps,))
        shapes |= {"source": (steps, positions), "target": (steps, steps), "source_ids": (positions,)}
        shapes["predicted_ids"] = (steps, 2) if self.predicted_ids.ndim == 2 else (steps,)
        for name, shape in shapes.items():
            tensor = getattr(self, name)
            if tuple(tensor.shape) != shape:
                raise ValueError(
                    f"{name} must have shape {list(shape)} for {positions} source and {steps} target tokens, "
                    f"got {list(tensor.shape)}."
                )
            kind_is_right = tensor.is_floating_point() if name in _FLOATS else _is_integer(tensor)
            if not kind_is_right:
                kind = "a floating point" if name in _FLOATS else "an integer"
                raise ValueError(f"{name} must be {kind} tensor, got {tensor.dtype}.")
        if self.target.triu(0 if self.level == "token" else 1).count_nonzero():
            raise ValueError("target must be lower triangular: a token that is not yet written cannot contribute.")

    def _check_descriptions(self) -> None:
        steps, positions = len(self.target_tokens), len(self.source_tokens)
        for name, length in (
            ("predicted_tokens", steps),
            ("source_words", positions),
            ("target_words", steps),
        ):
            if len(getattr(self, name)) != length:
                raise ValueError(f"{name} must have {length} entries, got {len(getattr(self, name))}.")
        for name in ("source_words", "target_words"):
            words = getattr(self, name)
            if words[0] != 0 or any(b - a not in (0, 1) for a, b in pairwise(words)):
                raise ValueError(f"{name} must start at 0 and grow by 0 or 1 from token to token, got {words}.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}.")

    @property
    def source_total(self) -> Tensor:
        """R_t(source), `[T]`: the share of the whole source in each prediction."""
        return self.source.sum(1)

    @property
    def target_total(self) -> Tensor:
        """R_t(target), `[T]`: the share of the whole prefix in each prediction."""
        return self.target.sum(1)

    @property
    def source_entropy(self) -> Tensor:
        """Entropy in nats of R_t(x_i) / R_t(source), `[T]`; nan at steps where a share is negative."""
        return _entropy(self.source).to(self.source.dtype)

    @property
    def target_entropy(self) -> Tensor:
        """Entropy in nats of R_t(y_j) / R_t(target), `[T]`; 0 without a prefix, nan as for the source."""
        return _entropy(self.target).to(self.source.dtype)

    @property
    def labels(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Source, target and predicted tokens as tables and plots show them (see `words.display_tokens`)."""
        both = display_tokens(self.target_tokens + self.predicted_tokens)
        return (
            display_tokens(self.source_tokens),
            both[: len(self.target_tokens)],
            both[len(self.target_tokens) :],
        )

    @property
    def color_limit(self) -> float:
        """Where the colour scale of plots and pages ends: the 98th percentile of the sizes of all shares.

        The first steps have few prefix tokens, with large shares; a scale up to those would hide the rest.
        """
        written = torch.ones_like(self.target).tril(-1 if self.level == "token" else 0).bool()
        sizes = torch.cat([self.source.flatten(), self.target[written]]).double().abs()
        return sizes.quantile(0.98).item() or 1.0

    def merge_subwords(self) -> Contributions:
        """The same contributions between words instead of sub-word pieces.

        What the pieces of an input word contribute is added; predictions of a word's pieces are averaged, so
        source and target together still sum to 1 where they did. A word's later pieces are predicted from
        its earlier ones: their share stands on the diagonal of `target`. Probabilities are multiplied, logits
        and start shares averaged, pieces joined without their markers.
        """
        if self.level == "word":
            return self
        columns, rows = _membership(self.source_words), _membership(self.target_words)
        mean = rows / rows.sum(1, keepdim=True)
        first_column, first_row = columns.argmax(1), rows.argmax(1)
        probability = [self.probability[row.bool()].double().prod() for row in rows]
        target_marking = detect_marking(self.target_tokens + self.predicted_tokens)
        source_marking = detect_marking(self.source_tokens)
        return replace(
            self,
            source=(mean @ self.source.double() @ columns.T).to(self.source.dtype),
            target=(mean @ self.target.double() @ rows.T).to(self.target.dtype),
            start=(mean @ self.start.double()).to(self.start.dtype),
            logits=(mean @ self.logits.double()).to(self.logits.dtype),
            probability=torch.stack(probability).to(self.probability.dtype),
            source_tokens=join_words(self.source_tokens, self.source_words, source_marking),
            target_tokens=join_words(self.target_tokens, self.target_words, target_marking),
            predicted_tokens=join_words(self.predicted_tokens, self.target_words, target_marking),
            source_ids=self.source_ids[first_column],
            target_ids=self.target_ids[first_row],
            predicted_ids=self.predicted_ids[first_row],
            source_words=tuple(range(len(columns))),
            target_words=tuple(range(len(rows))),
            level="word",
        )

    def alignment(self) -> set[tuple[int, int]]:
        """Links between source and target words, as pairs of their numbers from 0.

        Each target token is linked to one source token: that whose part of R_t(source) is largest, relative to
        its average over all steps. Words are linked if any of their tokens are. Words are what spaces part, as in
        files of alignments; special tokens are left out. Target words without a counterpart are linked too. The
        contributions must be those of the target's tokens: `explain(..., predict="target")`.
        """
        from hf_lrp.result.alignment import align_words

        return align_words(self)

    def to_dict(self) -> dict[str, Any]:
        """Every field and every derived quantity as plain lists, numbers and strings, ready for `json.dump`.

        Numbers that JSON does not know, such as the nan of an undefined entropy, become None.
        """
        derived = ("source_total", "target_total", "source_entropy", "target_entropy")
        names = [*(field.name for field in fields(self)), *derived]
        return {name: _plain(getattr(self, name)) for name in names}

    def to_pandas(self) -> DataFrame:
        """One row per step and input token that is known at that step.

        Columns: `step`, `predicted`, `side` (`"source"` or `"target"`), `position`, `token`, `contribution`.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas.") from error
        own = int(self.level == "word")  # at word level the word that is being written counts too
        rows: list[tuple[int, str, str, int, str, float]] = []
        source, target = self.source.tolist(), self.target.tolist()
        for step, predicted in enumerate(self.predicted_tokens):
            for side, tokens, shares in (
                ("source", self.source_tokens, source[step]),
                ("target", self.target_tokens[: step + own], target[step]),
            ):
                rows += [(step, predicted, side, i, token, shares[i]) for i, token in enumerate(tokens)]
        return pd.DataFrame(rows, columns=["step", "predicted", "side", "position", "token", "contribution"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, which replaces an old one only once all is written."""
        from safetensors.torch import save

        tensors = {name: getattr(self, name) for name in (*_FLOATS, *_IDS)}
        described = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in tensors}
        text = json.dumps(described, ensure_ascii=False)
        metadata = {"format": FILE_FORMAT, "version": str(FILE_VERSION), "description": text}
        content = save(tensors, metadata | {"sha256": _checksum(tensors, text)})
        write_atomically(path, content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Contributions:
        """Read what `save` wrote, exactly.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is damaged, is something else, or was written by a newer version.
        """
        tensors, text = _read(Path(path))
        try:
            values: dict[str, Any] = {**tensors, **json.loads(text)}
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path} does not hold valid contributions: {error} Compute and save them again."
            ) from error

    @overload
    def plot(self, figure: Figure | None = None, *, title: str | None = None) -> Figure: ...

    @overload
    def plot(self, figure: SubFigure, *, title: str | None = None) -> SubFigure: ...

    def plot(self, figure: Figure | SubFigure | None = None, *, title: str | None = None) -> Figure | SubFigure:
        """A heat map of source and prefix contributions with the curve of R_t(source) beside it.

        Args:
            figure: an empty matplotlib figure or sub-figure to draw into; by default a new one that fits.
            title: replaces the title.
        """
        from hf_lrp.result.plotting import plot_contributions

        return plot_contributions(self, figure, title=title)

    def to_html(self) -> str:
        """A self-contained page with the heat map as a table."""
        from hf_lrp.result.html import render_page

        return render_page([self])

    def _repr_html_(self) -> str:
        from hf_lrp.result.html import render_fragment

        return render_fragment(self)

    def table(self) -> TerminalTable:
        """A coloured table for the terminal, as wide as it is: `rich.print(contributions.table())`."""
        from hf_lrp.result.terminal import TerminalTable

        return TerminalTable(self)

    def __str__(self) -> str:
        from hf_lrp.result.terminal import plain_table

        return plain_table(self)

    def __repr__(self) -> str:
        return (
            f"<Contributions of {len(self.source_tokens)} source {self.level}s to "
            f"{len(self.target_tokens)} steps, "
            f"mean R(source) {self.source_total.double().mean():.3f}, model {self.model!r}>"
        )

    def __eq__(self, other: object) -> bool:
        """Whether all fields are the same, exactly."""
        if not isinstance(other, Contributions):
            return NotImplemented
        return all(_same(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    __hash__ = None  # type: ignore[assignment]


def _is_integer(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _entropy(shares: Tensor) -> Tensor:
    """Entropy of each renormalised row of `[T, n]`, in float64, since effects are in the third decimal."""
    exact = shares.double()
    total = exact.sum(1, keepdim=True)
    p = torch.where(total > 0, exact / total, 0.0)
    entropy = -torch.special.xlogy(p, p).sum(1) + 0.0  # no -0.0
    return torch.where((exact < 0).any(1), math.nan, entropy)


def _membership(words: Sequence[int]) -> Tensor:
    """`[W, n]`, 1 where token n belongs to word W."""
    return torch.nn.functional.one_hot(torch.tensor(words)).double().T


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    return bool(a == b or (a != a and b != b))


def _checksum(tensors: dict[str, Tensor], text: str) -> str:
    """SHA-256 of the tensors with their names, types and shapes, and of the description."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name} {tensor.dtype} {list(tensor.shape)}\0".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, Tensor], str]:
    """Tensors and description of a file, checked."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path, or write it with Contributions.save.")
    if not path.is_file():
        raise ValueError(f"{path} is not a file; give the file that Contributions.save wrote.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FILE_FORMAT:
                raise ValueError(
                    f"{path} is a safetensors file, but not of contributions (its format is "
                    f"{metadata.get('format')!r}); give a file that Contributions.save wrote."
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{path} is truncated, damaged or no safetensors file ({error}); copy it again, or compute and save again."
        ) from error
    version, text = metadata.get("version", ""), metadata.get("description", "")
    if version.isdecimal() and int(version) > FILE_VERSION:
        raise ValueError(
            f"{path} has format version {version}, this hf_lrp reads up to {FILE_VERSION}; "
            "upgrade it: pip install -U hf-lrp."
        )
    if version != str(FILE_VERSION) or metadata.get("sha256") != _checksum(tensors, text):
        raise ValueError(f"{path} is damaged: its checksum does not match; copy it again, or compute and save again.")
    return tensors, text

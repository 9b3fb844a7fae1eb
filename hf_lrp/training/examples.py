"""Data sets as people have them, as examples to train on: token ids, their lengths, and a number each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_lrp.data.reading import import_datasets, numbered, two_columns
from hf_lrp.models.configs import IGNORED_LABEL
from hf_lrp.training.encoding import encode_pairs, example_features

logger = logging.get_logger(__name__)

_IDS = ("input_ids", "labels")
_MAX_LENGTH = 128


def prepare_examples(
    dataset: Any, tokenizer: PreTrainedTokenizerBase | None, *, source: str, target: str, max_length: int | None
) -> Any:
    """Examples with the columns of `hf_lrp.training.encoding.encode_pairs`.

    Args:
        dataset: a table or stream of `datasets` or of torch, with one of these:
            - the columns of `encode_pairs`: it stays as it is;
            - `input_ids` and `labels`, as a tokenizer gives them, padded (with an `attention_mask` and with labels
              of -100) or not: rows are numbered in their order;
            - text in the columns `source` and `target`, or in a column `translation` that holds both: pairs are
              encoded, and those left out that `encode_pairs` leaves out.
        tokenizer: the model's; for text.
        source, target: names of text columns or languages.
        max_length: positions that the model has; None: no limit is known.
    """
    if isinstance(dataset, Mapping):
        raise ValueError(f"This is a set of data sets ({', '.join(dataset)}): give one, for example dataset['train'].")
    columns = _columns(dataset)
    if all(name in columns for name in _IDS):
        ready = "example" in columns and (is_stream(dataset) or {"source_length", "target_length"} <= set(columns))
        return dataset if ready else _complete(dataset)
    if "input_ids" in columns:
        return dataset  # to translate, not to train on
    if "translation" not in columns and not {source, target} <= set(columns):
        raise ValueError(
            f"The data set has the columns {', '.join(columns)}, but neither input_ids and labels, nor translation, "
            f"nor text in {source} and {target}: name its text columns with source_column and target_column."
        )
    if tokenizer is None:
        raise ValueError("The data set is text: give the model's tokenizer as processing_class.")
    pairs = numbered(two_columns(dataset, "The data set", source, target))
    encoded, report = encode_pairs(pairs, tokenizer, max_length=min(_MAX_LENGTH, max_length or _MAX_LENGTH))
    if not is_stream(pairs) and report.kept < report.read:
        logger.warning(str(report))
    return encoded


def is_stream(dataset: Any) -> bool:
    """Whether a data set is read from its beginning to its end, and does not know its length."""
    return dataset is not None and not hasattr(dataset, "__len__")


def _columns(dataset: Any) -> Sequence[str]:
    names = getattr(dataset, "column_names", None)
    return names if names is not None else list(next(iter(dataset)))


def _complete(dataset: Any) -> Any:
    """Numbered examples without padding."""
    if is_stream(dataset):
        return _NumberedStream(dataset)
    datasets = import_datasets()
    if not isinstance(dataset, datasets.Dataset):
        return datasets.Dataset.from_list(list(_number(dataset)), features=example_features())
    return dataset.with_format(None).map(
        _complete_batch,
        batched=True,
        with_indices=True,
        remove_columns=dataset.column_names,
        features=example_features(),
    )


class _NumberedStream(IterableDataset):
    """The rows of a stream without padding, numbered in their order in each pass."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return _number(self._rows)


def _number(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows):
        columns = _complete_batch({name: [values] for name, values in row.items()}, [number])
        yield {name: values[0] for name, values in columns.items()}


def _complete_batch(batch: Mapping[str, Sequence[Any]], numbers: Sequence[int]) -> dict[str, list]:
    masks = batch.get("attention_mask")
    sources = [_plain(ids) for ids in batch["input_ids"]]
    if masks is not None:
        sources = [
            [i for i, m in zip(ids, _plain(mask), strict=True) if m] for ids, mask in zip(sources, masks, strict=True)
        ]
    targets = [[i for i in _plain(ids) if i != IGNORED_LABEL] for ids in batch["labels"]]
    return {
        "input_ids": sources,
        "labels": targets,
        "example": list(numbers),
        "source_length": list(map(len, sources)),
        "target_length": list(map(len, targets)),
    }


def _plain(ids: Any) -> list[int]:
    return ids.tolist() if hasattr(ids, "tolist") else list(ids)

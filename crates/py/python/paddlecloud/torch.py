"""RecordIO files for a torch `DataLoader`. Import it only where torch is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.utils.data

from paddlecloud import data
from paddlecloud._native import reader

__all__ = ["IndexedRecordDataset", "RecordDataset"]


T = TypeVar("T")


class RecordDataset(data.RecordDataset[T], torch.utils.data.IterableDataset):
    """`paddlecloud.data.RecordDataset`, recognised by DataLoader; its workers share the trainer's records."""


class IndexedRecordDataset(torch.utils.data.Dataset):
    """Records by number, for custom samplers. A batch is read in one call."""

    def __init__(self, files: Any, *, decode: Callable[[bytes], Any] | None = None) -> None:
        self._reader = reader(files)
        self._decode = decode

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, number: int) -> Any:
        record = self._reader[number]
        return record if self._decode is None else self._decode(record)

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        records = self._reader[numbers]
        return records if self._decode is None else [self._decode(record) for record in records]

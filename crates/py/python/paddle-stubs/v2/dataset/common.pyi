import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["DATA_HOME", "cluster_files_reader", "convert", "download", "md5file", "split"]

DATA_HOME: str

_Path = str | os.PathLike[str]
_Samples = Callable[[], Iterable[Any]] | Iterable[Any]

def convert(
    output_path: _Path,
    reader: _Samples,
    line_count: int | None = None,
    name_prefix: str | None = None,
    num_shards: int | None = None,
    *,
    num_prefix: str | None = None,
    compressor: str | None = "snappy",
) -> None: ...
def split(
    reader: _Samples,
    line_count: int,
    suffix: str = "%05d.pickle",
    dumper: Callable[..., object] = ...,
) -> None: ...
def cluster_files_reader(
    files_pattern: str,
    trainer_count: int,
    trainer_id: int | None = None,
    loader: Callable[..., Iterable[Any]] = ...,
    *,
    train_id: int | None = None,
) -> Callable[[], Iterator[Any]]: ...
def md5file(name: _Path) -> str: ...
def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str: ...

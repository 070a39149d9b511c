import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

__all__ = [
    "age_table",
    "convert",
    "fetch",
    "get_movie_title_dict",
    "max_job_id",
    "max_movie_id",
    "max_user_id",
    "movie_categories",
    "movie_info",
    "test",
    "train",
    "user_info",
]

URL: str
MD5: str
age_table: list[int]

@dataclasses.dataclass
class MovieInfo:
    index: int
    categories: list[str]
    title: str
    def value(self) -> list[Any]: ...

@dataclasses.dataclass
class UserInfo:
    index: int
    is_male: bool
    age: int
    job_id: int
    def value(self) -> list[int]: ...

def train() -> Callable[[], Iterator[list[Any]]]: ...
def test() -> Callable[[], Iterator[list[Any]]]: ...
def get_movie_title_dict() -> dict[str, int]: ...
def movie_categories() -> dict[str, int]: ...
def movie_info() -> dict[int, MovieInfo]: ...
def user_info() -> dict[int, UserInfo]: ...
def max_movie_id() -> int: ...
def max_user_id() -> int: ...
def max_job_id() -> int: ...
def fetch() -> None: ...
def convert(path: str | os.PathLike[str]) -> None: ...

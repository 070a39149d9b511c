"""MovieLens 1M: users, films, and the ratings one gave the other, from -3 to 5."""

import dataclasses
import functools
import random
import re
import zipfile

from paddle.v2.dataset import common

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

URL = "http://files.grouplens.org/datasets/movielens/ml-1m.zip"
MD5 = "c4d9eecfca2ab87c1945afe126590906"

age_table = [1, 18, 25, 35, 45, 50, 56]

_TEST_SHARE = 0.1


@dataclasses.dataclass
class MovieInfo:
    """A film: number, categories, title without the year."""

    index: int
    categories: list
    title: str

    def value(self):
        """Number, numbers of the categories, numbers of the title's words."""
        words, categories = get_movie_title_dict(), movie_categories()
        return [
            self.index,
            [categories[category] for category in self.categories],
            [words[word.lower()] for word in self.title.split()],
        ]


@dataclasses.dataclass
class UserInfo:
    """A user: number, gender, place in `age_table`, job."""

    index: int
    is_male: bool
    age: int
    job_id: int

    def value(self):
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]


def train():
    """A reader of user, film and rating: eight parts, the last of them a list of one number."""
    return functools.partial(_ratings, False)


def test():
    """The same for the ratings kept for testing."""
    return functools.partial(_ratings, True)


def get_movie_title_dict():
    """Numbers of the words in titles, in alphabetical order."""
    return _numbers(_archive(), "words")


def movie_categories():
    """Numbers of the categories, in alphabetical order."""
    return _numbers(_archive(), "categories")


def movie_info():
    return _movies(_archive())


def user_info():
    return _users(_archive())


def max_movie_id():
    return max(movie_info())


def max_user_id():
    return max(user_info())


def max_job_id():
    return max(user.job_id for user in user_info().values())


def fetch():
    """Makes sure that the archive exists."""
    _archive()


def convert(path):
    """Writes both parts as RecordIO."""
    common.convert(path, train(), 1000, "movielens_train")
    common.convert(path, test(), 1000, "movielens_test")


def _archive():
    return common.download(URL, "movielens", MD5)


@functools.cache
def _movies(archive):
    found = {}
    for number, title, categories in _lines(archive, "movies"):
        title = re.sub(r"\(\d+\)$", "", title)
        found[int(number)] = MovieInfo(int(number), categories.split("|"), title)
    return found


@functools.cache
def _users(archive):
    return {
        int(number): UserInfo(int(number), gender == "M", age_table.index(int(age)), int(job))
        for number, gender, age, job, _ in _lines(archive, "users")
    }


@functools.cache
def _numbers(archive, what):
    movies = _movies(archive).values()
    if what == "words":
        names = {word.lower() for movie in movies for word in movie.title.split()}
    else:
        names = {category for movie in movies for category in movie.categories}
    return {name: number for number, name in enumerate(sorted(names))}


def _ratings(is_test):
    """Which ratings are for testing follows from their place in the file alone."""
    archive = _archive()
    users, movies, source = _users(archive), _movies(archive), random.Random(0)
    for user, movie, rating, _ in _lines(archive, "ratings"):
        if (source.random() < _TEST_SHARE) == is_test:
            yield [*users[int(user)].value(), *movies[int(movie)].value(), [float(rating) * 2 - 5.0]]


def _lines(archive, name):
    with zipfile.ZipFile(archive) as package, package.open(f"ml-1m/{name}.dat") as file:
        for line in file:
            yield line.decode("latin-1").strip().split("::")

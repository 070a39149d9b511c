"""Reads ratings for `trainer_config.py`: `user::film::rating`, with what is known of both from the meta data."""

from paddle.trainer.PyDataProvider2 import *


def hook(settings, meta, **kwargs):
    settings.meta = meta
    settings.input_types = [
        integer_value(meta["films"]),
        integer_value(meta["words"], seq_type=SequenceType.SEQUENCE),
        dense_vector(meta["genres"]),
        integer_value(meta["users"]),
        integer_value(2),
        integer_value(meta["ages"]),
        integer_value(meta["jobs"]),
        dense_vector(1),
    ]


@provider(init_hook=hook, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, file_name):
    with open(file_name) as file:
        for line in file:
            user, film, rating = map(int, line.split("::"))
            title, genres = settings.meta["film"][film]
            # From 1 to 5 stars as from -3 to 5.
            yield [film, title, genres, user, *settings.meta["user"][user], [rating * 2 - 5.0]]

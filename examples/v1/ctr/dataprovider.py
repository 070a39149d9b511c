"""Reads click logs for `trainer_config.py`."""

from paddle.trainer.PyDataProvider2 import *


def hook(settings, dict_size, **kwargs):
    settings.logger.info("dict_size is %d", dict_size)
    settings.input_types = {"features": sparse_binary_vector(dict_size), "click": integer_value(2)}


@provider(init_hook=hook, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, file_name):
    with open(file_name) as file:
        for line in file:
            click, ids = line.split("\t")
            yield {"features": [int(word) for word in ids.split()], "click": int(click)}

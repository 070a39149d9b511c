"""Ratings of films by a v1 configuration: features of user and film, compared by their cosine."""

import json

from paddle.trainer_config_helpers import *

with open("data/meta.json") as file:
    meta = json.load(file)
is_predict = get_config_arg("is_predict", bool, False)
SIZE = 16

settings(batch_size=64, learning_rate=3e-3, learning_method=AdamOptimizer())


def by_id(name, size):
    return fc_layer(input=embedding_layer(input=data_layer(name, size=size), size=SIZE), size=SIZE)


def film():
    number = by_id("movie_id", meta["films"])
    title = embedding_layer(input=data_layer("title", size=meta["words"]), size=SIZE)
    title = text_conv_pool(input=title, context_len=3, hidden_size=SIZE)
    genres = fc_layer(input=data_layer("genres", size=meta["genres"]), size=SIZE)
    return fc_layer(name="movie_fusion", input=[number, title, genres], size=32)


def user():
    parts = [by_id("user_id", meta["users"]), by_id("gender", 2), by_id("age", meta["ages"]), by_id("occupation", meta["jobs"])]
    return fc_layer(name="user_fusion", input=parts, size=32)


similarity = cos_sim(a=film(), b=user())
if is_predict:
    outputs(similarity)
else:
    outputs(regression_cost(input=similarity, label=data_layer("rating", size=1)))
    define_py_data_sources2("data/train.list", "data/test.list", module="dataprovider", obj="process", args={"meta": meta})

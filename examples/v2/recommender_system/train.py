"""What a user will think of a film, by the network of the 2017 book: features of both, compared by their cosine.

    python prepare.py data && DATA_HOME=data python train.py

The same program trains alone and in a job with parameter servers.
"""

import os
import warnings

import paddle.v2 as paddle

TRAINER_ID = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
TRAINERS = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))
PASSES = int(os.getenv("PADDLE_INIT_NUM_PASSES", "10"))
FEEDING = {name: number for number, name in enumerate(
    ["user_id", "gender_id", "age_id", "job_id", "movie_id", "category_id", "movie_title", "score"]
)}  # fmt: skip

warnings.filterwarnings("ignore", message=".*of the original archive")
movielens = paddle.dataset.movielens


def embedded(name, count, size=16):
    data = paddle.layer.data(name=name, type=paddle.data_type.integer_value(count))
    return paddle.layer.fc(input=paddle.layer.embedding(input=data, size=size), size=size)


def user_features():
    parts = [
        embedded("user_id", movielens.max_user_id() + 1),
        embedded("gender_id", 2, 4),
        embedded("age_id", len(movielens.age_table), 4),
        embedded("job_id", movielens.max_job_id() + 1),
    ]
    return paddle.layer.fc(input=parts, size=32, act=paddle.activation.Tanh())


def film_features():
    categories = paddle.layer.data(
        name="category_id", type=paddle.data_type.sparse_binary_vector(len(movielens.movie_categories()))
    )
    words = len(movielens.get_movie_title_dict())
    title = paddle.layer.data(name="movie_title", type=paddle.data_type.integer_value_sequence(words))
    title = paddle.networks.sequence_conv_pool(
        input=paddle.layer.embedding(input=title, size=16), hidden_size=16, context_len=3
    )
    parts = [embedded("movie_id", movielens.max_movie_id() + 1), paddle.layer.fc(input=categories, size=16), title]
    return paddle.layer.fc(input=parts, size=32, act=paddle.activation.Tanh())


def share(reader):
    def mine():
        for number, sample in enumerate(reader()):
            if number % TRAINERS == TRAINER_ID:
                yield sample

    return mine


def main():
    paddle.init(use_gpu=False, trainer_count=1)
    inference = paddle.layer.cos_sim(a=user_features(), b=film_features(), size=1, scale=5)
    score = paddle.layer.data(name="score", type=paddle.data_type.dense_vector(1))
    cost = paddle.layer.square_error_cost(input=inference, label=score)
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Adam(learning_rate=3e-3)
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)

    def event_handler(event):
        if isinstance(event, paddle.event.EndPass) and TRAINER_ID == 0:
            result = trainer.test(reader=paddle.batch(movielens.test(), batch_size=256), feeding=FEEDING)
            print(f"pass {event.pass_id} test cost {result.cost:.4f}", flush=True)

    reader = paddle.batch(paddle.reader.shuffle(share(movielens.train()), buf_size=8192), batch_size=64)
    trainer.train(reader=reader, event_handler=event_handler, feeding=FEEDING, num_passes=PASSES)

    user, film = movielens.user_info()[23], movielens.movie_info()[34]
    feeding = {name: place for name, place in FEEDING.items() if name != "score"}
    found = paddle.infer(output_layer=inference, parameters=parameters, input=[user.value() + film.value()], feeding=feeding)
    print(f"user 23 will rate `{film.title.strip()}` {(found[0][0] + 5) / 2:.1f}")


if __name__ == "__main__":
    main()

"""Translation by the network of the 2017 book: an encoder in both directions, a decoder with attention, and a beam search.

    python prepare.py data
    DATA_HOME=data python train.py               # trains, and saves output/model.tar
    DATA_HOME=data python train.py generate      # translates with it

It is narrower than the original. The same program trains alone and in a job with parameter servers.
"""

import os
import sys
import warnings

import paddle.v2 as paddle

TRAINER_ID = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
TRAINERS = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))
PASSES = int(os.getenv("PADDLE_INIT_NUM_PASSES", "5"))
WORD_DIM, ENCODER, DECODER = 16, 24, 24
MODEL = "output/model.tar"

warnings.filterwarnings("ignore", message=".*of the original archive")


def encoder(size):
    words = paddle.layer.data(name="source_language_word", type=paddle.data_type.integer_value_sequence(size))
    embedded = paddle.layer.embedding(input=words, size=WORD_DIM)
    forward = paddle.networks.simple_gru(input=embedded, size=ENCODER)
    backward = paddle.networks.simple_gru(input=embedded, size=ENCODER, reverse=True)
    both = paddle.layer.concat(input=[forward, backward])
    projected = paddle.layer.fc(input=both, size=DECODER, act=paddle.activation.Linear(), bias_attr=False)
    first = paddle.layer.first_seq(input=backward)
    boot = paddle.layer.fc(input=first, size=DECODER, act=paddle.activation.Tanh(), bias_attr=False)
    return both, projected, boot


def translator(source_size, target_size, beam_size=None):
    """The cost of a translation, or with `beam_size` the translations themselves."""
    both, projected, boot = encoder(source_size)

    def step(encoded, encoded_proj, word):
        state = paddle.layer.memory(name="gru_decoder", size=DECODER, boot_layer=boot)
        context = paddle.networks.simple_attention(
            encoded_sequence=encoded, encoded_proj=encoded_proj, decoder_state=state
        )
        sums = paddle.layer.fc(
            input=[context, word],
            size=DECODER * 3,
            act=paddle.activation.Linear(),
            bias_attr=False,
            layer_attr=paddle.attr.ExtraLayerAttribute(error_clipping_threshold=100.0),
        )
        now = paddle.layer.gru_step(name="gru_decoder", input=sums, output_mem=state, size=DECODER)
        return paddle.layer.fc(input=now, size=target_size, bias_attr=True, act=paddle.activation.Softmax())

    inputs = [paddle.layer.StaticInput(input=both), paddle.layer.StaticInput(input=projected)]
    table = "_target_language_embedding"
    if beam_size is not None:
        word = paddle.layer.GeneratedInput(size=target_size, embedding_name=table, embedding_size=WORD_DIM)
        return paddle.layer.beam_search(
            name="decoder_group",
            step=step,
            input=[*inputs, word],
            bos_id=0,
            eos_id=1,
            beam_size=beam_size,
            max_length=30,
        )
    words = paddle.layer.data(name="target_language_word", type=paddle.data_type.integer_value_sequence(target_size))
    embedded = paddle.layer.embedding(input=words, size=WORD_DIM, param_attr=paddle.attr.ParamAttr(name=table))
    decoded = paddle.layer.recurrent_group(name="decoder_group", step=step, input=[*inputs, embedded])
    following = paddle.layer.data(
        name="target_language_next_word", type=paddle.data_type.integer_value_sequence(target_size)
    )
    return paddle.layer.classification_cost(input=decoded, label=following)


def share(reader):
    def mine():
        for number, sample in enumerate(reader()):
            if number % TRAINERS == TRAINER_ID:
                yield sample

    return mine


def train(source_size, target_size):
    cost = translator(source_size, target_size)
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Adam(learning_rate=2e-2, gradient_clipping_threshold=10.0)
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)

    def event_handler(event):
        if isinstance(event, paddle.event.EndPass) and TRAINER_ID == 0:
            result = trainer.test(reader=paddle.batch(paddle.dataset.wmt14.test(100), batch_size=50))
            print(f"pass {event.pass_id} test cost {result.cost:.4f} {result.metrics}", flush=True)
            os.makedirs(os.path.dirname(MODEL), exist_ok=True)
            with open(MODEL, "wb") as file:
                parameters.to_tar(file)

    reader = paddle.batch(paddle.reader.shuffle(share(paddle.dataset.wmt14.train(100)), buf_size=8192), batch_size=50)
    trainer.train(reader=reader, event_handler=event_handler, num_passes=PASSES)


def generate(source_size, target_size, beam_size=3):
    found = translator(source_size, target_size, beam_size)
    with open(MODEL, "rb") as file:
        parameters = paddle.parameters.Parameters.from_tar(file)
    samples = list(paddle.dataset.wmt14.gen(100)())
    scores, ids = paddle.infer(
        output_layer=found, parameters=parameters, input=[[given] for given, _, _ in samples], field=["prob", "id"]
    )
    source_words, target_words = paddle.dataset.wmt14.get_dict(100)
    # Every translation is its length, its words and -1; each sample has `beam_size` of them, the likeliest first.
    sentences, ids = [], ids.tolist()
    while ids:
        sentences.append(ids[1 : ids[0] + 1])
        ids = ids[ids[0] + 2 :]
    right = 0
    for number, (given, _, wanted) in enumerate(samples):
        best = sentences[number * beam_size]
        right += best == wanted
        if number < 3:
            print(" ".join(source_words[word] for word in given[1:-1]))
            print(f"{scores[number][0]:.4f}\t{' '.join(target_words[word] for word in best)}")
    print(f"{right} of {len(samples)} translations are right")


if __name__ == "__main__":
    paddle.init(use_gpu=False, trainer_count=1)
    sizes = [len(each) for each in paddle.dataset.wmt14.get_dict(100)]
    (generate if "generate" in sys.argv[1:] else train)(*sizes)

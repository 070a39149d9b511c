"""Generation by beam search, and networks that are saved for inference."""

import io
import itertools

import numpy as np
import pytest

pytest.importorskip("paddle.nn")

import paddle.v2 as paddle

WORDS, HIDDEN, LONGEST = 5, 4, 4
BOS, EOS = 0, 1


def decoder(beam=None, results=None):
    """A decoder of a source sequence with attention: trained on a target, or generating with `beam`."""
    source = paddle.layer.data("source", paddle.data_type.dense_vector_sequence(HIDDEN))
    boot = paddle.layer.fc(paddle.layer.first_seq(source), HIDDEN, name="boot")

    def step(encoded, word):
        before = paddle.layer.memory("state", HIDDEN, boot_layer=boot)
        context = paddle.networks.simple_attention(encoded, encoded, before, name="attention")
        sums = paddle.layer.fc([context, word], 3 * HIDDEN, act=paddle.activation.Linear(), name="sums")
        state = paddle.layer.gru_step(sums, before, name="state")
        return paddle.layer.fc(state, WORDS, act=paddle.activation.Softmax(), name="chances")

    if beam is None:
        target = paddle.layer.data("target", paddle.data_type.integer_value_sequence(WORDS))
        words = paddle.layer.embedding(target, HIDDEN, param_attr=paddle.attr.Param(name="words"))
        return paddle.layer.recurrent_group(step, [paddle.layer.StaticInput(source), words], name="decoder")
    word = paddle.layer.GeneratedInput(WORDS, "words", HIDDEN)
    return paddle.layer.beam_search(
        step, [paddle.layer.StaticInput(source), word], BOS, EOS, beam, LONGEST, name="decoder", num_results_per_sample=results
    )


@pytest.fixture
def parameters():
    made = paddle.parameters.create(decoder())
    source = np.random.default_rng(3)
    for name in made.names():
        made[name] = source.normal(0, 1.2, made.get_shape(name)).astype(np.float32)
    return made


SOURCES = [np.random.default_rng(number).normal(size=(length, HIDDEN)).astype(np.float32) for number, length in enumerate((2, 5, 1))]


def every_sentence():
    """All that can be generated: sentences that end with EOS, or that are cut off."""
    others = [word for word in range(WORDS) if word != EOS]
    for length in range(1, LONGEST + 1):
        for start in itertools.product(others, repeat=length - 1):
            yield [*start, EOS]
    for whole in itertools.product(others, repeat=LONGEST):
        yield list(whole)


def likeliest(parameters, source, count):
    """Scores of all sentences by the training network, which sees whole sentences."""
    sentences = list(every_sentence())
    given = [(source, [BOS, *sentence[:-1]]) for sentence in sentences]
    chances = paddle.infer(decoder(), parameters, given)
    starts = np.concatenate([[0], np.cumsum([len(each) for each in sentences])])
    scores = [np.log(chances[a:b][np.arange(b - a), each]).sum() for a, b, each in zip(starts, starts[1:], sentences)]
    best = np.argsort(scores)[::-1][:count]
    return [scores[place] for place in best], [sentences[place] for place in best]


def split(ids):
    """`length words -1` as lists of words."""
    found, rest = [], ids.tolist()
    while rest:
        length = rest[0]
        assert rest[length + 1] == -1
        found.append(rest[1 : length + 1])
        rest = rest[length + 2 :]
    return found


def test_a_wide_beam_finds_the_likeliest_sentences_of_all(parameters):
    beam = 4**LONGEST  # nothing is ever dropped
    scores, ids = paddle.infer(decoder(beam, 3), parameters, [(source,) for source in SOURCES], field=["prob", "id"])
    found = split(ids)
    assert scores.shape == (len(SOURCES), 3)
    for number, source in enumerate(SOURCES):
        expected, sentences = likeliest(parameters, source, 3)
        np.testing.assert_allclose(scores[number], expected, rtol=1e-3)
        assert found[3 * number : 3 * number + 3] == sentences


def test_a_narrow_beam_takes_the_likeliest_word_each_time(parameters):
    scores, ids = paddle.infer(decoder(1), parameters, [(source,) for source in SOURCES], field=["prob", "id"])
    assert scores.shape == (len(SOURCES), 1)
    for source, sentence in zip(SOURCES, split(ids)):
        for place in range(len(sentence)):
            chances = paddle.infer(decoder(), parameters, [(source, [BOS, *sentence[:place]])])
            assert chances[-1].argmax() == sentence[place]


def test_parameters_of_a_step_are_named_after_its_group_as_in_2017(parameters):
    assert {"_state@decoder.w0", "_chances@decoder.wbias", "_attention_transform@decoder.w0", "words"} <= set(parameters.names())


def test_wrong_inputs_are_explained():
    source = paddle.layer.data("source", paddle.data_type.dense_vector_sequence(HIDDEN))
    with pytest.raises(ValueError, match=r"test_v2_generation.py:\d+: `beam_search` needs one `GeneratedInput`, not 0"):
        paddle.layer.beam_search(lambda x: x, [paddle.layer.StaticInput(source)], BOS, EOS, 3)
    with pytest.raises(ValueError, match="must be `StaticInput` or `GeneratedInput`"):
        paddle.layer.beam_search(lambda x: x, [source], BOS, EOS, 3)
    with pytest.raises(ValueError, match="belongs to `beam_search`"):
        paddle.layer.recurrent_group(lambda x, y: x, [source, paddle.layer.GeneratedInput(WORDS, "words", HIDDEN)])


def test_a_network_that_was_saved_for_inference_predicts_the_same():
    ids = paddle.layer.data("ids", paddle.data_type.integer_value_sequence(9))
    out = paddle.layer.fc(paddle.layer.pooling(paddle.layer.embedding(ids, 3)), 2, act=paddle.activation.Softmax())
    parameters = paddle.parameters.create(out)
    file = io.BytesIO()
    paddle.topology.Topology(layers=out).serialize_for_inference(file)
    file.seek(0)
    samples = [([1, 2],), ([8],)]
    found = paddle.inference.Inference(parameters=parameters, fileobj=file).infer(samples)
    assert np.array_equal(found, paddle.infer(out, parameters, samples))
    with pytest.raises(ValueError, match="not a saved network"):
        paddle.inference.Inference(parameters=parameters, fileobj=io.BytesIO(b"\x08\x01protobuf"))

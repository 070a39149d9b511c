"""The order of data layers in a provider's samples, compared with the rule of v0.10. Needs no PaddlePaddle.

There, `outputs` collects the data layers by a walk from the outputs, depth first, and each layer lists its parents in an order of
its own. Here every generated layer is written down together with what that walk finds from it.
"""

import random

import pytest

from paddlecloud.v1 import configuration

SEQ_TO_SEQ = """
from paddle.trainer_config_helpers import *

settings(batch_size=4)
source = data_layer(name='source', size=9)
encoded = simple_gru(input=embedding_layer(input=source, size=4), size=4)
projected = fc_layer(input=encoded, size=4)
boot = fc_layer(input=first_seq(input=encoded), size=4)

def step(encoded, projected, word):
    before = memory(name='decoder', size=4, boot_layer=boot)
    context = simple_attention(encoded_sequence=encoded, encoded_proj=projected, decoder_state=before)
    with mixed_layer(size=12) as sums:
        sums += full_matrix_projection(input=context)
        sums += full_matrix_projection(input=word)
    state = gru_step_layer(name='decoder', input=sums, output_mem=before, size=4)
    return fc_layer(input=state, size=7, act=SoftmaxActivation())

statics = [StaticInput(input=encoded, is_seq=True), StaticInput(input=projected, is_seq=True)]
if get_config_arg('generate', bool, False):
    word = GeneratedInput(size=7, embedding_name='words', embedding_size=4)
    made = beam_search(name='decoder_group', step=step, input=[word] + statics, bos_id=0, eos_id=1, beam_size=2)
    seqtext_printer_evaluator(input=made, id_input=data_layer(name='number', size=1), result_file='made')
    outputs(made)
else:
    word = embedding_layer(input=data_layer(name='target', size=7), size=4)
    decoder = recurrent_group(name='decoder_group', step=step, input=statics + [word])
    outputs(classification_cost(input=decoder, label=data_layer(name='next', size=7)))
"""


def order_of(tmp_path, text, **arguments):
    (tmp_path / "trainer_config.py").write_text(text)
    found = configuration.read(str(tmp_path / "trainer_config.py"), arguments)
    return [node.name for node in found.input_order()]


def test_a_translation_takes_source_target_and_next_word(tmp_path):
    assert order_of(tmp_path, SEQ_TO_SEQ) == ["source", "target", "next"]
    exchanged = SEQ_TO_SEQ.replace("statics + [word]", "[word] + statics").replace("step(encoded, projected, word)", "step(word, encoded, projected)")
    assert order_of(tmp_path, exchanged) == ["source", "target", "next"], "the step decides, not the order of its inputs"


def test_a_generating_network_takes_the_sentence_and_its_number(tmp_path):
    assert order_of(tmp_path, SEQ_TO_SEQ, generate="1") == ["source", "number"]


class Generator:
    """A random configuration. Each layer is its name and the data layers that v0.10's walk finds from it, in order."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = ["from paddle.trainer_config_helpers import *", "settings(batch_size=4)"]
        self.indent = ""
        self.count = 0
        self.layers = [self.say(f"data_layer(name='d{number}', size=4)", [f"d{number}"]) for number in range(6)]
        self.weights = [self.say(f"data_layer(name='w{number}', size=1)", [f"w{number}"]) for number in range(2)]

    def say(self, call, *found):
        self.count += 1
        self.lines.append(f"{self.indent}x{self.count} = {call}")
        return f"x{self.count}", [name for each in found for name in each]

    def plain(self, layers):
        """A layer of size 4 over some of `layers`."""
        (a, of_a), (b, of_b), (c, of_c) = (self.random.choice(layers) for _ in range(3))
        weight, of_weight = self.random.choice(self.weights)
        operator = f"dotmul_operator(a={b}, b={c})"
        return self.random.choice([
            lambda: self.say(f"fc_layer(input=[{a}, {b}], size=4)", of_a, of_b),
            lambda: self.say(f"addto_layer(input=[{a}, {b}, {c}])", of_a, of_b, of_c),
            lambda: self.say(f"mixed_layer(size=4, input=[full_matrix_projection(input={a}), {operator}])", of_a, of_b, of_c),
            lambda: self.say(f"expand_layer(input={a}, expand_as={b})", of_a, of_b),
            lambda: self.say(f"scaling_layer(input={a}, weight={weight})", of_weight, of_a),
            lambda: self.say(f"power_layer(input={a}, weight={weight})", of_a, of_weight),
            lambda: self.say(f"interpolation_layer(input=[{a}, {b}], weight={weight})", of_weight, of_a, of_b),
            lambda: self.say(f"{a} + {b}", of_a, of_b),
            lambda: self.say(f"simple_lstm(input={a}, size=4)", of_a),
        ])()  # fmt: skip

    def cell(self, layers):
        """A cell of a group's step: its memory has the layer's own name, and perhaps a boot layer."""
        boot, of_boot = self.random.choice([*self.layers, (None, [])])
        memory = f"memory(name='cell{self.count}', size=4, boot_layer={boot})"
        (a, of_a), name = self.random.choice(layers), f"cell{self.count}"
        before = self.say(memory, of_boot)
        kind = self.random.choice(["fc", "gru", "naive"])
        if kind == "fc":
            return self.say(f"fc_layer(input=[{a}, {before[0]}], size=4, name='{name}')", of_a, before[1])
        sums = self.say(f"fc_layer(input={a}, size=12)", of_a)
        found = (before, sums) if kind == "naive" else (sums, before)
        layer = "gru_step_naive_layer" if kind == "naive" else "gru_step_layer"
        return self.say(f"{layer}(input={sums[0]}, output_mem={before[0]}, size=4, name='{name}')", *(each[1] for each in found))

    def group(self):
        given = [self.random.choice(self.layers) for _ in range(self.random.randint(1, 3))]
        inputs = [given[0][0], *(f"StaticInput(input={name})" for name, _ in given[1:])]
        self.count += 1
        step = f"step{self.count}"
        self.lines.append(f"def {step}({', '.join(f'g{number}' for number in range(len(given)))}):")
        self.indent = "    "
        inside = [(f"g{number}", found) for number, (_, found) in enumerate(given)]
        for _ in range(self.random.randint(1, 4)):
            inside.append(self.cell(inside) if self.random.random() < 0.5 else self.plain(inside))
        # Each output is of a type that can be one.
        results = [self.say(f"fc_layer(input={name}, size=4)", found) for name, found in self.random.sample(inside, self.random.randint(1, 2))]
        self.lines.append(f"    return [{', '.join(name for name, _ in results)}]")
        self.indent = ""
        call = f"recurrent_group(step={step}, input=[{', '.join(inputs)}])"
        if len(results) == 1:
            return [self.say(call, results[0][1])]
        group, _ = self.say(call)
        return [self.say(f"{group}[{number}]", found) for number, (_, found) in enumerate(results)]

    def configuration(self):
        """Its text and the order that it must have."""
        for _ in range(self.random.randint(2, 10)):
            self.layers += self.group() if self.random.random() < 0.4 else [self.plain(self.layers)]
        costs = [self.cost() for _ in range(self.random.randint(1, 3))]
        self.lines.append(f"outputs([{', '.join(name for name, _ in costs)}])")
        return "\n".join(self.lines), list(dict.fromkeys(name for _, found in costs for name in found))

    def cost(self):
        (a, of_a), (label, of_label) = self.random.choice(self.layers[6:]), self.random.choice(self.layers)
        weight, of_weight = self.random.choice([*self.weights, (None, [])])
        return self.say(f"regression_cost(input={a}, label={label}, weight={weight})", of_a, of_label, of_weight)


@pytest.mark.parametrize("start", range(0, 300, 30))
def test_the_order_is_that_of_the_original_in_generated_configurations(tmp_path, start):
    for seed in range(start, start + 30):
        text, expected = Generator(seed).configuration()
        assert order_of(tmp_path, text) == expected, f"seed {seed}:\n{text}"

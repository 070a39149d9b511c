"""Layers on sequences: pooling, recurrent layers, and groups of layers that run at every position."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from paddlecloud.legacy import activations as act_
from paddlecloud.legacy import poolings
from paddlecloud.legacy.activations import Activation
from paddlecloud.legacy.attributes import ParamAttr
from paddlecloud.legacy.graph import GraphError, Node, ancestors, bias, default_name, scope, users_line, weight
from paddlecloud.legacy.layers.building import as_list, make
from paddlecloud.legacy.layers.dense import embedding


class AggregateLevel:
    """Sequences here have one level, so both mean the whole sequence."""

    TO_NO_SEQUENCE = "non-seq"
    TO_SEQUENCE = "seq"
    EACH_TIMESTEP = "non-seq"
    EACH_SEQUENCE = "seq"


class ExpandLevel:
    FROM_NO_SEQUENCE = "non-seq"
    FROM_SEQUENCE = "seq"
    FROM_TIMESTEP = "non-seq"


def pooling(
    input,
    pooling_type=None,
    name=None,
    bias_attr=None,
    agg_level=AggregateLevel.TO_NO_SEQUENCE,
    stride=-1,
    layer_attr=None,
):
    """One value per sequence."""
    _whole(stride)
    kind = poolings.Pooling.of(pooling_type, poolings.Max)
    return make(
        name or default_name("seq_pooling"), "seq_pool", [input], input.size, layer_attr=layer_attr, pooling=kind.name
    )


def last_seq(input, name=None, agg_level=AggregateLevel.TO_NO_SEQUENCE, stride=-1, layer_attr=None):
    _whole(stride)
    return make(
        name or default_name("last_seq"), "seq_pool", [input], input.size, layer_attr=layer_attr, pooling="last"
    )


def first_seq(input, name=None, agg_level=AggregateLevel.TO_NO_SEQUENCE, stride=-1, layer_attr=None):
    _whole(stride)
    return make(
        name or default_name("first_seq"), "seq_pool", [input], input.size, layer_attr=layer_attr, pooling="first"
    )


def _whole(stride):
    if stride != -1:
        raise NotImplementedError(f"{users_line()}: pooling with a stride is not supported; leave `stride` at -1")


def expand(input, expand_as, name=None, bias_attr=False, expand_level=ExpandLevel.FROM_NO_SEQUENCE, layer_attr=None):
    """Each row once for every position of the sequence in `expand_as`."""
    return make(name or default_name("expand_layer"), "expand", [input, expand_as], input.size, layer_attr=layer_attr)


def seq_concat(a, b, act=None, name=None, layer_attr=None, bias_attr=None):
    """The sequences of `a` followed by those of `b`."""
    if a.size != b.size:
        raise GraphError(f"{users_line()}: `seq_concat` of sizes {a.size} and {b.size}")
    name = name or default_name("seqconcat")
    return make(name, "seq_concat", [a, b], a.size, act=Activation.of(act, act_.Linear), layer_attr=layer_attr)


def seq_reshape(input, reshape_size, act=None, name=None, layer_attr=None, bias_attr=None):
    name = name or default_name("seqreshape")
    return make(name, "seq_reshape", [input], reshape_size, act=Activation.of(act, act_.Linear), layer_attr=layer_attr)


def lstmemory(
    input,
    name=None,
    size=None,
    reverse=False,
    act=None,
    gate_act=None,
    state_act=None,
    bias_attr=None,
    param_attr=None,
    layer_attr=None,
):
    """LSTM with peepholes; `input` has the four gates' sums: candidate, input, forget, output."""
    size = _quarter(input, size, 4, "lstmemory")
    name = name or default_name("lstmemory")
    recurrent_weight = weight(name, 0, (size, size, 4), param_attr)
    bias_spec = bias(name, (1, 7 * size), bias_attr)
    return make(
        name, "lstmemory", [input], size, parameters=[recurrent_weight, bias_spec], layer_attr=layer_attr,
        weights=[recurrent_weight], bias=bias_spec, reverse=bool(reverse), **_gates(act, gate_act, state_act),
    )  # fmt: skip


def grumemory(
    input,
    name=None,
    size=None,
    reverse=False,
    act=None,
    gate_act=None,
    bias_attr=None,
    param_attr=None,
    layer_attr=None,
):
    """GRU; `input` has the sums of update gate, reset gate and candidate."""
    size = _quarter(input, size, 3, "grumemory")
    name = name or default_name("gru")
    recurrent_weight = weight(name, 0, (size, 3 * size), param_attr)
    bias_spec = bias(name, (1, 3 * size), bias_attr)
    return make(
        name, "grumemory", [input], size, parameters=[recurrent_weight, bias_spec], layer_attr=layer_attr,
        weights=[recurrent_weight], bias=bias_spec, reverse=bool(reverse), **_gates(act, gate_act, None),
    )  # fmt: skip


def recurrent(input, act=None, bias_attr=None, param_attr=None, name=None, reverse=False, layer_attr=None):
    """h(t) = act(x(t) + h(t-1) W + b)"""
    name = name or default_name("recurrent_layer")
    recurrent_weight = weight(name, 0, (input.size, input.size), param_attr)
    bias_spec = bias(name, (1, input.size), bias_attr)
    return make(
        name, "recurrent", [input], input.size, parameters=[recurrent_weight, bias_spec], layer_attr=layer_attr,
        weights=[recurrent_weight], bias=bias_spec, reverse=bool(reverse), gates=(Activation.of(act, act_.Tanh).name,),
    )  # fmt: skip


def gru_step(
    input, output_mem, size=None, act=None, name=None, gate_act=None, bias_attr=None, param_attr=None, layer_attr=None
):
    """One step of a GRU inside `recurrent_group`."""
    size = _quarter(input, size, 3, "gru_step")
    name = name or default_name("gru_step")
    recurrent_weight = weight(name, 0, (size, 3 * size), param_attr)
    bias_spec = bias(name, (1, 3 * size), bias_attr)
    return make(
        name, "gru_step", [input, output_mem], size, parameters=[recurrent_weight, bias_spec], layer_attr=layer_attr,
        weights=[recurrent_weight], bias=bias_spec, **_gates(act, gate_act, None),
    )  # fmt: skip


@functools.wraps(gru_step)
def gru_step_naive(*given, **options):
    """`gru_step`; but v1 meets its memory first when it orders the data layers."""
    node = gru_step(*given, **options)
    node.conf["naive"] = True
    return node


def lstm_step(
    input, state, size=None, act=None, name=None, gate_act=None, state_act=None, bias_attr=None, layer_attr=None
):
    """One step of an LSTM inside `recurrent_group`; `get_output(…, 'state')` gives its cell."""
    size = _quarter(input, size, 4, "lstm_step")
    name = name or default_name("lstm_step")
    bias_spec = bias(name, (1, 3 * size), bias_attr)
    return make(
        name, "lstm_step", [input, state], size, parameters=[bias_spec], layer_attr=layer_attr, weights=[], bias=bias_spec,
        **_gates(act, gate_act, state_act),
    )  # fmt: skip


def get_output(input, arg_name, name=None, layer_attr=None):
    return make(
        name or default_name("get_output_layer"),
        "get_output",
        [input],
        input.size,
        layer_attr=layer_attr,
        output=arg_name,
    )


def _gates(act, gate_act, state_act) -> dict:
    wanted = ((act, act_.Tanh), (gate_act, act_.Sigmoid), (state_act, act_.Tanh))
    return {"gates": tuple(Activation.of(value, default).name for value, default in wanted)}


def _quarter(input, size, parts, layer) -> int:
    if input.size % parts or size not in (None, input.size // parts):
        expected = f"{parts} × {size}" if size else f"a multiple of {parts}"
        raise GraphError(f"{users_line()}: the input of `{layer}` must have size {expected}, not {input.size}")
    return input.size // parts


@dataclass
class StaticInput:
    """The same at every step of a `recurrent_group`; with `is_seq`, a whole sequence."""

    input: Node
    is_seq: bool = False
    size: int | None = None


def SubsequenceInput(input):
    raise NotImplementedError(
        f"{users_line()}: nested sequences (`SubsequenceInput`) are not supported; give one sequence per sample"
    )


_groups: list[dict] = []


def memory(
    name,
    size,
    memory_name=None,
    is_seq=False,
    boot_layer=None,
    boot_bias=None,
    boot_bias_active_type=None,
    boot_with_const_id=None,
):
    """What the layer `name` of this step gave in the step before."""
    if not _groups:
        raise GraphError(f"{users_line()}: `memory` only works inside the step of a `recurrent_group`")
    if is_seq or boot_bias is not None:
        raise NotImplementedError(f"{users_line()}: `memory` supports `boot_layer` and `boot_with_const_id` only")
    node = make(memory_name or default_name("memory"), "memory", [], size, boot_id=boot_with_const_id)
    _groups[-1]["memories"].append((node, name, boot_layer))
    return node


def recurrent_group(step, input, reverse=False, name=None, targetInlink=None):
    """Runs `step` at every position of the input sequences."""
    name = name or default_name("recurrent_group")
    given, sequences, statics = [], [], []
    for each in as_list(input):
        if isinstance(each, StaticInput):
            given.append(_static(name, each, statics))
        elif isinstance(each, GeneratedInput):
            raise GraphError(f"{users_line()}: `GeneratedInput` belongs to `beam_search`, not to `recurrent_group`")
        else:
            given.append(make(f"{each.name}@{name}", "placeholder", [], each.size))
            sequences.append((given[-1], each))
    if not sequences:
        raise GraphError(f"{users_line()}: `recurrent_group` needs a sequence among its inputs")
    outputs, conf = _run_step(name, step, given)
    conf = {**conf, "sequences": sequences, "statics": statics, "reverse": bool(reverse), "outputs": outputs}
    main = make(name if len(outputs) > 1 else outputs[0].name, "recurrent_group", _outer(conf), outputs[0].size, **conf)
    if len(outputs) == 1:
        return main
    return [make(out.name, "group_output", [main], out.size, number=number) for number, out in enumerate(outputs)]


@dataclass
class GeneratedInput:
    """In `beam_search`: the word that was generated last, by its row in the table `embedding_name`."""

    size: int
    embedding_name: str
    embedding_size: int


def beam_search(step, input, bos_id, eos_id, beam_size, max_length=500, name=None, num_results_per_sample=None):
    """Generates sequences: the likeliest that `step`, which gives the chances of the next word, can produce.

    All inputs are `StaticInput`s but one, the `GeneratedInput`. `paddle.infer(…, field=['prob', 'id'])` gives the results.
    """
    name = name or default_name("beam_search")
    given, statics, generated = [], [], []
    for each in as_list(input):
        if isinstance(each, StaticInput):
            given.append(_static(name, each, statics))
        elif isinstance(each, GeneratedInput):
            ids = make(f"__generated_word__@{name}", "placeholder", [], each.size)
            with scope(name):
                given.append(embedding(ids, each.embedding_size, param_attr=ParamAttr(name=each.embedding_name)))
            generated.append(ids)
        else:
            raise GraphError(f"{users_line()}: the inputs of `beam_search` must be `StaticInput` or `GeneratedInput`, not {each!r}")
    if len(generated) != 1:
        raise GraphError(f"{users_line()}: `beam_search` needs one `GeneratedInput`, not {len(generated)}")
    if not statics:
        raise GraphError(f"{users_line()}: `beam_search` needs a `StaticInput`, which gives the number of samples")
    outputs, conf = _run_step(name, step, given)
    conf = {
        **conf, "statics": statics, "word": generated[0], "chances": outputs[0], "bos": bos_id, "eos": eos_id, "beam": beam_size,
        "longest": max_length, "results": min(num_results_per_sample or beam_size, beam_size),
    }  # fmt: skip
    return make(name, "beam_search", _outer(conf), generated[0].size, **conf)


def _static(name, each, statics):
    inner = make(f"{each.input.name}@{name}", "placeholder", [], each.input.size)
    statics.append((inner, each.input))
    return inner


def _run_step(name, step, given):
    """The outputs of a step, and what it consists of: its layers and its memories."""
    group: dict = {"memories": []}
    _groups.append(group)
    try:
        with scope(name) as made:
            outputs = as_list(step(*given))
    finally:
        _groups.pop()
    known = {node.name: node for node in [*ancestors(outputs), *made]}
    memories = []
    for node, source, boot in group["memories"]:
        if source not in known:
            raise GraphError(f"{node.line}: no layer of the step is named `{source}`, which `memory` refers to")
        if known[source].size != node.size:
            raise GraphError(
                f"{node.line}: `memory` has size {node.size}, but layer `{source}` has {known[source].size}"
            )
        memories.append((node, known[source], boot))
    body = ancestors([*outputs, *(source for _, source, _ in memories)])
    return outputs, {"body": body, "memories": memories}


def _outer(conf):
    """The layers outside a group that it needs."""
    origins = [origin for _, origin in (*conf.get("sequences", ()), *conf["statics"])]
    return origins + [boot for _, _, boot in conf["memories"] if boot is not None]

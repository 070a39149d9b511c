"""Data, projections, and layers that treat every row alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from paddlecloud.legacy import activations as act_
from paddlecloud.legacy.activations import Activation
from paddlecloud.legacy.attributes import ExtraAttr
from paddlecloud.legacy.graph import GraphError, Image, Node, ParameterSpec, bias, default_name, users_line, weight
from paddlecloud.legacy.layers.building import as_list, attr_for_each, expect_size, make


def data(name, type, height=None, width=None, depth=None, layer_attr=None):
    """Data from a reader; `type` is one of `paddle.data_type`."""
    image = None
    if height and width:
        if type.dim % (height * width):
            raise GraphError(
                f"{users_line()}: data layer `{name}`: {type.dim} values are not an image of {height} × {width}"
            )
        image = Image(type.dim // (height * width), height, width)
    return make(name, "data", [], type.dim, layer_attr=layer_attr, image=image, type=type)


@dataclass(eq=False)
class Projection:
    """A part of a `mixed` layer: one input, perhaps with a weight."""

    kind: str
    inputs: list[Node]
    size: int
    attr: Any = None
    shape: tuple[int, ...] | None = None
    conf: dict[str, Any] = field(default_factory=dict)

    def bind(self, layer: str, number: int, size: int) -> ParameterSpec | None:
        """Its weight, once the layer's name and size are known."""
        self.size = self.size or size
        if self.shape is None:
            return None
        shape = tuple(self.size if side is None else side for side in self.shape)
        return weight(layer, number, shape, self.attr)


def full_matrix_projection(input, size=0, param_attr=None):
    return Projection("full_matrix", [input], size, param_attr, (input.size, None))


def trans_full_matrix_projection(input, size=0, param_attr=None):
    return Projection("trans_full_matrix", [input], size, param_attr, (None, input.size))


def table_projection(input, size=0, param_attr=None):
    """Rows of a table, picked by the input's ids."""
    return Projection("table", [input], size, param_attr, (input.size, None))


def identity_projection(input, offset=None, size=None):
    if offset is None:
        return Projection("identity", [input], input.size)
    return Projection(
        "slice",
        [input],
        size or input.size - offset,
        conf={"slices": [(offset, offset + (size or input.size - offset))]},
    )


def slice_projection(input, slices):
    return Projection("slice", [input], sum(end - start for start, end in slices), conf={"slices": list(slices)})


def scaling_projection(input, param_attr=None):
    return Projection("scaling", [input], input.size, param_attr, (1, 1))


def dotmul_projection(input, param_attr=None):
    return Projection("dotmul", [input], input.size, param_attr, (1, input.size))


def context_projection(input, context_len, context_start=None, padding_attr=False):
    """Each position together with its neighbours; 0 beyond the ends of the sequence."""
    if padding_attr is not False:
        raise NotImplementedError(
            f"{users_line()}: trainable padding of `context_projection` is not supported; pass `padding_attr=False`"
        )
    start = -(context_len // 2) if context_start is None else context_start
    return Projection("context", [input], input.size * context_len, conf={"length": context_len, "start": start})


def dotmul_operator(a=None, b=None, scale=1, **names):
    a, b = names.get("x", a), names.get("y", b)
    if a.size != b.size:
        raise GraphError(f"{users_line()}: `dotmul_operator` of sizes {a.size} and {b.size}")
    return Projection("dotmul_operator", [a, b], a.size, conf={"scale": scale})


class MixedBuilder(Node):
    """A `mixed` layer that is filled by `+=` inside `with`."""

    def __init__(self, name, size, act, bias_attr, layer_attr):
        self._waiting = []
        self._options = (size, act, bias_attr, layer_attr)
        super().__init__(name, "mixed", [], int(size or 0))

    def __iadd__(self, projection):
        self._waiting.append(projection)
        return self

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.finish()

    def finish(self):
        size, act, bias_attr, layer_attr = self._options
        done = _mixed(self.name, self._waiting, size, act, bias_attr, layer_attr)
        for key in ("kind", "inputs", "size", "conf", "parameters", "activation", "drop_rate", "order"):
            setattr(self, key, getattr(done, key))


def mixed(size=0, name=None, input=None, act=None, bias_attr=False, layer_attr=None):
    """The sum of projections."""
    name = name or default_name("mixed")
    if input is None:
        return MixedBuilder(name, size, act, bias_attr, layer_attr)
    return _mixed(name, as_list(input), size, act, bias_attr, layer_attr)


def _mixed(name, projections, size, act, bias_attr, layer_attr):
    parts = [part if isinstance(part, Projection) else identity_projection(part) for part in projections]
    size = size or next((part.size for part in parts if part.size), 0)
    if not size:
        raise GraphError(f"{users_line()}: `mixed` needs a size")
    return _sum_of(name, "mixed", parts, size, act, bias_attr, layer_attr)


def _sum_of(name, kind, parts, size, act, bias_attr, layer_attr, joined=False):
    act = Activation.of(act, act_.Linear)
    weights = [part.bind(name, number, 0 if joined else size) for number, part in enumerate(parts)]
    for part in parts:
        if not joined and part.size != size:
            raise GraphError(
                f"{users_line()}: layer `{name}` has size {size}, but its `{part.kind}` projection has {part.size}"
            )
    size = sum(part.size for part in parts) if joined else size
    parameters = [*weights, bias(name, (1, size), False if bias_attr is None and joined else bias_attr)]
    bias_spec = parameters[-1]
    inputs = [origin for part in parts for origin in part.inputs]
    conf = {"parts": parts, "weights": weights, "bias": bias_spec, "joined": joined}
    return make(name, kind, inputs, size, parameters=parameters, act=act, layer_attr=layer_attr, **conf)


def fc(input, size, act=None, name=None, param_attr=None, bias_attr=None, layer_attr=None):
    """Fully connected; with tanh where no activation is given."""
    inputs = as_list(input)
    name = name or default_name("fc_layer")
    for each in inputs:
        if not isinstance(each, Node):
            raise GraphError(f"{users_line()}: an input of `fc` must be a layer, not {each!r}")
    parts = [
        full_matrix_projection(each, size, attr) for each, attr in zip(inputs, attr_for_each(param_attr, len(inputs)))
    ]
    return _sum_of(name, "fc", parts, size, Activation.of(act, act_.Tanh), bias_attr, layer_attr)


def embedding(input, size, name=None, param_attr=None, layer_attr=None):
    """A row of a table for each id."""
    name = name or default_name("embedding")
    return _sum_of(name, "mixed", [table_projection(input, size, param_attr)], size, None, False, layer_attr)


def addto(input, act=None, name=None, bias_attr=None, layer_attr=None):
    """The sum of layers of one size."""
    inputs = as_list(input)
    name = name or default_name("addto")
    if len({each.size for each in inputs}) != 1:
        raise GraphError(f"{users_line()}: `addto` of layers of different sizes: {[each.size for each in inputs]}")
    parts = [identity_projection(each) for each in inputs]
    node = _sum_of(name, "addto", parts, inputs[0].size, act, False if bias_attr is None else bias_attr, layer_attr)
    node.image = inputs[0].image
    return node


def concat(input, act=None, name=None, layer_attr=None, bias_attr=None):
    """Layers (or projections) side by side."""
    name = name or default_name("concat")
    given = as_list(input)
    parts = [part if isinstance(part, Projection) else identity_projection(part) for part in given]
    node = _sum_of(name, "concat", parts, 0, act, bias_attr, layer_attr, joined=True)
    images = [getattr(part, "image", None) for part in given]
    if all(images) and len({(image.height, image.width) for image in images}) == 1:
        node.image = Image(sum(image.channels for image in images), images[0].height, images[0].width)
    return node


def dropout(input, dropout_rate, name=None):
    """Sets values to 0 in training; scales by what is kept in testing."""
    node = addto(
        input, act=act_.Linear(), name=name or default_name("dropout"), layer_attr=ExtraAttr(drop_rate=dropout_rate)
    )
    return node


def slope_intercept(input, name=None, slope=1.0, intercept=0.0, layer_attr=None):
    name = name or default_name("slope_intercept_layer")
    return make(name, "slope_intercept", [input], input.size, layer_attr=layer_attr, slope=slope, intercept=intercept)


def scaling(input, weight, name=None, layer_attr=None):
    """Each row of `input` times its number in `weight`."""
    expect_size(weight, "weight", 1)
    return make(name or default_name("scaling_layer"), "scaling", [weight, input], input.size, layer_attr=layer_attr)


def interpolation(input, weight, name=None, layer_attr=None):
    first, second = input
    expect_size(weight, "weight", 1)
    return make(
        name or default_name("interpolation_layer"),
        "interpolation",
        [weight, first, second],
        first.size,
        layer_attr=layer_attr,
    )


def power(input, weight, name=None, layer_attr=None):
    expect_size(weight, "weight", 1)
    return make(name or default_name("power_layer"), "power", [weight, input], input.size, layer_attr=layer_attr)


def dot_prod(input1, input2, name=None, layer_attr=None):
    return make(name or default_name("dot_prod_layer"), "dot_prod", [input1, input2], 1, layer_attr=layer_attr)


def cos_sim(a, b, scale=1, size=1, name=None, layer_attr=None):
    """The cosine of the angle between two layers, times `scale`."""
    if size != 1 or a.size != b.size:
        raise GraphError(f"{users_line()}: `cos_sim` compares layers of one size, not {a.size} and {b.size}")
    return make(name or default_name("cos_sim"), "cos_sim", [a, b], 1, layer_attr=layer_attr, scale=scale)


def sum_to_one_norm(input, name=None, layer_attr=None):
    return make(
        name or default_name("sum_to_one_norm_layer"), "sum_to_one_norm", [input], input.size, layer_attr=layer_attr
    )


def row_l2_norm(input, name=None, layer_attr=None):
    return make(name or default_name("row_l2_norm_layer"), "row_l2_norm", [input], input.size, layer_attr=layer_attr)


def clip(input, min, max, name=None):
    return make(name or default_name("clip"), "clip", [input], input.size, low=min, high=max)


def max_id(input, name=None, layer_attr=None):
    """The number of the largest value."""
    return make(name or default_name("maxid_layer"), "max_id", [input], 1, layer_attr=layer_attr)


def eos(input, eos_id, name=None, layer_attr=None):
    return make(name or default_name("eos_layer"), "eos", [input], 1, layer_attr=layer_attr, eos=eos_id)

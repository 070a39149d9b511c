"""The layer graph: nodes, their parameters and their names. It computes nothing and needs no PaddlePaddle."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from paddlecloud.legacy.attributes import ParamAttr

_HERE = os.path.dirname(os.path.abspath(__file__))
_OURS = (_HERE, os.path.join(os.path.dirname(_HERE), "_paddle"), os.path.join(os.path.dirname(_HERE), "v1"))


class GraphError(ValueError):
    """A layer that cannot be built or computed as asked."""


@dataclass
class ParameterSpec:
    """A parameter of a network: name, shape, initial values, and how it is trained."""

    name: str
    shape: tuple[int, ...]
    mean: float = 0.0
    deviation: float = 0.0
    is_uniform: bool = False
    is_smart: bool = False
    is_bias: bool = False
    # Convolutions were saved without a shape.
    has_dims: bool = True
    learning_rate: float = 1.0
    momentum: float | None = None
    l1: float | None = None
    l2: float | None = None
    clip: float = 0.0
    is_static: bool = False
    is_sparse: bool = False
    # The share of values that pruning keeps at 0.
    pruned: float = 0.0
    initializer: Any = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def start(self, source):
        """Initial values from a numpy generator."""
        import numpy

        if self.initializer is not None:
            return numpy.asarray(self.initializer(self.name), numpy.float32).reshape(self.shape)
        if self.deviation == 0.0:
            return numpy.full(self.shape, self.mean, numpy.float32)
        if self.is_uniform:
            low, high = self.mean - self.deviation, self.mean + self.deviation
            return source.uniform(low, high, self.shape).astype(numpy.float32)
        return (source.standard_normal(self.shape, numpy.float32) * self.deviation + self.mean).astype(numpy.float32)


def weight(
    layer: str, number: int, shape, attr, *, deviation: float | None = None, has_dims: bool = True
) -> ParameterSpec:
    """The `number`-th weight of a layer; `deviation` replaces 1/sqrt(rows) where the program says nothing."""
    attr = ParamAttr.of(attr)
    spec = _spec(attr, attr.name or f"_{scoped(layer)}.w{number}", shape)
    if attr.is_smart:
        spec.is_smart = deviation is None
        spec.deviation = 1 / math.sqrt(shape[0]) if deviation is None else deviation
    spec.has_dims = has_dims
    return spec


def bias(layer: str, shape, attr) -> ParameterSpec | None:
    """A layer's bias; `False` means none."""
    if attr is False:
        return None
    attr = ParamAttr.of(attr)
    spec = _spec(attr, attr.name or f"_{scoped(layer)}.wbias", shape)
    spec.is_bias = True
    return spec


# Groups that are being made, the innermost last, each with its layers so far.
_scopes: list[tuple[str, list[Node]]] = []


@contextlib.contextmanager
def scope(group: str):
    """Layers made inside belong to a recurrent group, which is part of their parameters' names. Gives the list of them."""
    made: list[Node] = []
    _scopes.append((group, made))
    try:
        yield made
    finally:
        _scopes.pop()


def scoped(layer: str) -> str:
    return f"{layer}@{_scopes[-1][0]}" if _scopes else layer


def _spec(attr: ParamAttr, name: str, shape) -> ParameterSpec:
    spec = ParameterSpec(name, tuple(int(side) for side in shape))
    if attr.initial_max is not None:
        spec.is_uniform = True
        spec.mean = (attr.initial_max + attr.initial_min) / 2
        spec.deviation = attr.initial_max - spec.mean
    else:
        spec.mean = attr.initial_mean or 0.0
        if attr.initial_std is not None:
            spec.deviation = attr.initial_std
        elif attr.initial_mean is not None:
            spec.deviation = 0.01
    spec.learning_rate = 1.0 if attr.learning_rate is None else attr.learning_rate
    spec.momentum, spec.l1, spec.l2 = attr.momentum, attr.l1_rate, attr.l2_rate
    spec.clip = attr.gradient_clipping_threshold or 0.0
    spec.is_static, spec.is_sparse = bool(attr.is_static), bool(attr.sparse_update)
    spec.pruned = attr.update_hooks.sparsity_ratio if attr.update_hooks is not None else 0.0
    spec.initializer = attr.initializer
    return spec


@dataclass(frozen=True)
class Image:
    """How a node's values are an image: channels, rows, columns."""

    channels: int
    height: int
    width: int

    @property
    def size(self) -> int:
        return self.channels * self.height * self.width


@dataclass(eq=False)
class Node:
    """One layer of a network."""

    name: str
    kind: str
    inputs: list[Node]
    size: int
    conf: dict[str, Any] = field(default_factory=dict)
    parameters: list[ParameterSpec] = field(default_factory=list)
    activation: str = "linear"
    drop_rate: float = 0.0
    image: Image | None = None
    line: str = ""
    order: int = 0

    def __post_init__(self):
        self.line = self.line or users_line()
        self.order = next_number("")
        if _scopes:
            _scopes[-1][1].append(self)
        for parent in self.inputs:
            if not isinstance(parent, Node):
                raise GraphError(f"{self.line}: an input of `{self.name}` must be a layer, not {parent!r}")

    def __repr__(self) -> str:
        return f"<layer {self.name}: {self.kind}, size {self.size}>"

    # Arithmetic on layers is 2017's `layer_math`.
    def __add__(self, other):
        from paddlecloud.legacy import layers

        return (
            layers.slope_intercept(self, intercept=other)
            if isinstance(other, (int, float))
            else layers.addto([self, other])
        )

    __radd__ = __add__

    def __mul__(self, other):
        from paddlecloud.legacy import layers

        if isinstance(other, (int, float)):
            return layers.slope_intercept(self, slope=other)
        scalar, vector = (self, other) if self.size == 1 else (other, self)
        return layers.scaling(vector, scalar)

    __rmul__ = __mul__

    def __neg__(self):
        return self * -1.0

    def __sub__(self, other):
        return self + (-other)

    def __rsub__(self, other):
        return (-self) + other

    def fail(self, message: str) -> GraphError:
        return GraphError(f"{self.line}: layer `{self.name}`: {message}")


_counts: dict[str, int] = {}


def next_number(key: str) -> int:
    number = _counts.get(key, 0)
    _counts[key] = number + 1
    return number


def default_name(prefix: str) -> str:
    """`__fc_layer_0__` for the first layer of its kind."""
    return f"__{prefix}_{next_number(prefix)}__"


def reset_names() -> None:
    """Begins a new configuration."""
    order = _counts.get("", 0)
    _counts.clear()
    _counts[""] = order


def users_frame():
    """Where the program called us; none in a thread of ours."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((*_OURS, "<string>", "<frozen")):
        frame = frame.f_back  # type: ignore[assignment]
    return frame


def users_line() -> str:
    """`train.py:12`, where the program called us."""
    frame = users_frame()
    return "?" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def ancestors(outputs: Iterable[Node]) -> list[Node]:
    """All nodes that `outputs` need, in the order a program defined them."""
    found: dict[int, Node] = {}
    waiting = list(outputs)
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            found[id(node)] = node
            waiting.extend(node.inputs)
            waiting.extend(node.conf.get("outer", ()))
    return sorted(found.values(), key=lambda node: node.order)


def data_nodes(nodes: Iterable[Node]) -> list[Node]:
    return [node for node in nodes if node.kind == "data"]


def own_parameters(node: Node) -> list[ParameterSpec]:
    """The parameters of a layer and of those inside it."""
    return [*node.parameters, *(spec for inner in node.conf.get("body", ()) for spec in inner.parameters)]


def parameter_specs(nodes: Iterable[Node]) -> dict[str, ParameterSpec]:
    """The parameters of `nodes` by name. Layers that name the same parameter share it."""
    specs: dict[str, ParameterSpec] = {}
    for node in nodes:
        for spec in own_parameters(node):
            known = specs.setdefault(spec.name, spec)
            if known.size != spec.size:
                raise node.fail(f"parameter `{spec.name}` has shape {spec.shape} here and {known.shape} elsewhere")
    return specs

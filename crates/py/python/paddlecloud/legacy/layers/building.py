"""What the modules of layers share: nodes from options."""

from __future__ import annotations

from paddlecloud.legacy.attributes import ExtraAttr
from paddlecloud.legacy.graph import GraphError, Node, users_line


def as_list(value) -> list:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def attr_for_each(value, count: int) -> list:
    """One parameter attribute per input."""
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise GraphError(f"{users_line()}: {len(value)} parameter attributes for {count} inputs")
        return list(value)
    return [value] * count


def make(name, kind, inputs, size, *, parameters=(), act=None, layer_attr=None, image=None, **conf) -> Node:
    if layer_attr is not None and not isinstance(layer_attr, ExtraAttr):
        raise TypeError(f"`layer_attr` must be an ExtraAttr, not {layer_attr!r}")
    return Node(
        name,
        kind,
        list(inputs),
        int(size),
        {"error_clip": getattr(layer_attr, "error_clipping_threshold", None), **conf},
        [spec for spec in parameters if spec is not None],
        act.name if act is not None else "linear",
        layer_attr.drop_rate if layer_attr is not None else 0.0,
        image,
    )


def expect_size(node, what, size):
    if node.size != size:
        raise GraphError(f"{users_line()}: `{what}` must have size {size}, not {node.size}")

"""The order of data layers in a provider's samples: where the depth-first walk of v0.9 and v0.10 from the outputs meets them.

A group is walked as its step was written: through the layers of the step, from a `StaticInput` to the layer it names, and from
a memory to its boot layer only. What a memory refers to is not an input.
"""

from __future__ import annotations

from collections.abc import Iterable

from paddlecloud.legacy import evaluators
from paddlecloud.legacy.graph import Node


def data_layers(outputs: Iterable[Node]) -> list[Node]:
    found: list[Node] = []
    seen: set[int] = set()
    outside: dict[int, list[Node]] = {}
    waiting = list(outputs)[::-1]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.kind == "data":
            found.append(node)
        waiting += _inputs(node, outside)[::-1]
    return found


def _inputs(node: Node, outside: dict[int, list[Node]]) -> list[Node]:
    """What the walk visits after a node. `outside` has the layers behind the inputs and memories of the groups met so far."""
    inputs = outside.get(id(node), node.inputs)
    if node.kind in ("recurrent_group", "beam_search"):
        outside.update(_outside(node.conf))
        inputs = node.conf["outputs"][:1] if node.kind == "recurrent_group" else [node.conf["chances"]]
    elif node.kind == "group_output":
        [group] = node.inputs
        outside.update(_outside(group.conf))
        inputs = [group.conf["outputs"][node.conf["number"]]]
    elif node.kind == "power" or node.conf.get("naive"):
        inputs = inputs[::-1]
    # A printer adds the samples' numbers to the inputs of the layer that it prints.
    return inputs + [each for printer in evaluators.printers([node]) for each in printer.inputs[1:]]


def _outside(conf) -> dict[int, list[Node]]:
    """The layer outside for each input of a group; a memory has one if it has a boot layer."""
    inputs = {id(inner): [origin] for inner, origin in (*conf.get("sequences", ()), *conf["statics"])}
    return inputs | {id(memory): [] if boot is None else [boot] for memory, _, boot in conf["memories"]}

"""A network in a file, for programs that only predict: what `Topology.serialize_for_inference` writes.

The file is a pickle of our layers, so only files of a trusted program should be read. Files of 2017 hold a protobuf message instead.
"""

from __future__ import annotations

import pickle

from paddlecloud.legacy.graph import GraphError, Node

_FORMAT = "paddlecloud network 1"


def write(nodes: list[Node], file) -> None:
    pickle.dump({"format": _FORMAT, "outputs": nodes}, file)


def read(file) -> list[Node]:
    try:
        found = pickle.load(file)
    except Exception as error:  # anything may come out of a pickle that is none
        raise GraphError(f"not a saved network: {error}") from error
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise GraphError("not a network that `serialize_for_inference` of this version saved; run the program that defines it again")
    return found["outputs"]

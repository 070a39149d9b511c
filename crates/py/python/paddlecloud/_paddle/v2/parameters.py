"""The parameters of a network."""

from paddlecloud.legacy import graph, log
from paddlecloud.legacy.parameters import Parameters
from paddlecloud.legacy.training import layers_of

__all__ = ["Parameters", "create"]


def create(layers):
    """New parameters for all layers that `layers` need."""
    outputs = layers_of(layers, "layers")
    nodes = graph.ancestors(outputs)
    log.orders(graph.data_nodes(nodes), outputs)
    return Parameters.of(nodes)

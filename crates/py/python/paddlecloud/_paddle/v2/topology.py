"""What a network consists of."""

from paddlecloud.legacy import graph, saved
from paddlecloud.legacy.training import layers_of

__all__ = ["Topology"]


class Topology:
    """The network that computes `layers`."""

    def __init__(self, layers, extra_layers=None):
        self.layers = layers_of(layers, "layers")
        self._nodes = graph.ancestors([*self.layers, *layers_of(extra_layers or [], "extra_layers")])

    def get_layer(self, name):
        """The layer of that name, or `None`."""
        return next((node for node in self._nodes if node.name == name), None)

    def data_layers(self):
        return {node.name: node for node in graph.data_nodes(self._nodes)}

    def data_type(self):
        """(name, type) of every data layer, in the order in which a reader's samples have them."""
        return [(node.name, node.conf["type"]) for node in graph.data_nodes(self._nodes)]

    def proto(self):
        raise NotImplementedError(
            "networks have no protobuf form here: save parameters with `to_tar` and keep the program"
        )

    def serialize_for_inference(self, stream):
        """Saves the network for `paddle.inference.Inference(parameters=…, fileobj=…)`; `stream` must be open for binary writing."""
        saved.write(self.layers, stream)

"""A network that can be computed: nodes, parameters and their tensors."""

from __future__ import annotations

import numpy as np

from paddlecloud.legacy import evaluators, graph, settings
from paddlecloud.legacy.feeder import Feeder
from paddlecloud.legacy.graph import Node
from paddlecloud.legacy.parameters import Parameters


class Run:
    """One pass through a network: whether it trains, and what kernels leave behind for after it."""

    def __init__(self, machine, is_training):
        self._machine = machine
        self.is_training = is_training
        self.running = []

    def parameter(self, spec):
        return self._machine.tensors[spec.name]

    def keep_running(self, spec, now, fraction):
        """Notes a batch statistic for a running mean."""
        self.running.append((spec.name, now.detach(), fraction))


class Machine:
    """Computes `outputs` from fed values with `parameters`."""

    def __init__(self, outputs: list[Node], parameters: Parameters):
        settings.require_paddle()
        from paddlecloud.legacy import kernels

        self._compute = kernels.compute
        self.outputs = outputs
        self.printers = evaluators.printers(graph.ancestors(outputs))
        self.nodes = graph.ancestors([*outputs, *(node for each in self.printers for node in each.inputs)])
        self.data = graph.data_nodes(self.nodes)
        self.evaluators = evaluators.of_nodes(self.nodes)
        self.parameters = parameters
        self.tensors = {}
        for spec in graph.parameter_specs(self.nodes).values():
            self._check(spec)
            tensor = parameters.tensor(spec.name)
            self.tensors[spec.name] = tensor if tuple(tensor.shape) == spec.shape else tensor.reshape(spec.shape)

    def _check(self, spec) -> None:
        """Raises, with the layer's line, where the parameters belong to another network."""
        if spec.name in self.parameters and self.parameters.spec(spec.name).size == spec.size:
            return
        node = next(node for node in self.nodes if spec in graph.own_parameters(node))
        if spec.name not in self.parameters:
            names = ", ".join(self.parameters.names()) or "none"
            raise node.fail(f"there is no parameter `{spec.name}`; there are {names}: they belong to another network")
        known = self.parameters.spec(spec.name)
        raise node.fail(
            f"parameter `{spec.name}` has shape {known.shape}, but this network needs {spec.shape}; it belongs to another network"
        )

    def feeder(self, feeding=None) -> Feeder:
        return Feeder(self.data, feeding)

    def forward(self, feed, is_training: bool):
        """Values of all nodes by identity, and the run."""
        run = Run(self, is_training)
        values = {}
        for node in self.nodes:
            if node.kind == "data":
                values[id(node)] = feed[node.name]
                continue
            try:
                values[id(node)] = self._compute(node, [values[id(parent)] for parent in node.inputs], run)
            except graph.GraphError:
                raise
            except (ValueError, TypeError, RuntimeError, IndexError) as error:
                raise node.fail(str(error).strip().splitlines()[-1] if str(error).strip() else repr(error)) from error
        return values, run

    def update_running(self, run) -> None:
        """Moves running means by what the batch showed."""
        for name, now, fraction in run.running:
            array = self.parameters.array(name)
            array *= np.float32(fraction)
            array += np.float32(1 - fraction) * now.numpy().reshape(array.shape)

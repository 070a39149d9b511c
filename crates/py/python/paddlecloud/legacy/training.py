"""Training, testing and inference by the programs' own loop: passes, batches and events."""

from __future__ import annotations

import contextlib

import numpy as np

from paddlecloud.legacy import events, graph, log, saved, settings
from paddlecloud.legacy.evaluators import Evaluator
from paddlecloud.legacy.graph import Node
from paddlecloud.legacy.layers import COSTS
from paddlecloud.legacy.machine import Machine
from paddlecloud.legacy.metrics import Metrics
from paddlecloud.legacy.optimizers import Optimizer
from paddlecloud.legacy.parameters import Parameters
from paddlecloud.legacy.updaters import LocalUpdater, RemoteUpdater
from paddlecloud.legacy.values import Sparse, Value


class NoSamples(RuntimeError):
    """A local training whose reader has nothing to train on."""


class Trainer:
    """`paddle.trainer.SGD`: trains `cost` on batches from a reader.

    Without `is_local`, training is remote in a job with parameter servers and local elsewhere. `pserver_spec` and `use_etcd`, by which the
    original found its servers, are not used: a job's environment names them.
    """

    def __init__(
        self,
        cost,
        parameters,
        update_equation,
        extra_layers=None,
        is_local=None,
        pserver_spec=None,
        use_etcd=True,
        *,
        is_quiet=False,
    ):
        if not isinstance(parameters, Parameters):
            raise TypeError(f"`parameters` must come from `paddle.parameters.create`, not {parameters!r}")
        if not isinstance(update_equation, Optimizer):
            raise TypeError(
                f"`update_equation` must be an optimizer such as `paddle.optimizer.Momentum()`, not {update_equation!r}"
            )
        self._costs = layers_of(cost, "cost")
        for node in self._costs:
            if node.kind not in COSTS:
                raise node.fail(f"`cost` must be a cost layer such as `square_error_cost`, not `{node.kind}`")
        outputs = [*self._costs, *layers_of(extra_layers or [], "extra_layers")]
        if not is_quiet:
            log.orders(graph.data_nodes(graph.ancestors(outputs)), outputs)
            with log.making_parameters():
                self._machine = Machine(outputs, parameters)
        else:
            self._machine = Machine(outputs, parameters)
        self._optimizer = update_equation
        self._is_local = not settings.is_remote() if is_local is None else bool(is_local)
        self._updater = None
        self._to_skip = 0  # batches that the attempt before this one trained, in all calls of `train`

    @property
    def evaluators(self):
        return self._machine.evaluators

    def train(self, reader, num_passes=1, event_handler=None, feeding=None):
        """Reads all batches `num_passes` times and updates the parameters after each."""
        event_handler = event_handler or (lambda event: None)
        self._connect()
        feeder = self._machine.feeder(feeding)
        whole, one = Metrics(self._machine.evaluators), Metrics(self._machine.evaluators)
        for number in range(num_passes):
            batches = iter(reader())
            skipped = _skip(batches, self._to_skip)
            self._to_skip -= skipped
            if self._to_skip:
                continue  # the attempt before this one had finished this pass
            event_handler(events.BeginPass(number))
            whole.clear()
            at = skipped - 1
            for at, batch in enumerate(batches, skipped):
                event_handler(events.BeginIteration(number, at))
                values, total, run = self._forward_backward(feeder(batch))
                event_handler(events.EndForwardBackward(number, at, self._machine))
                self._update(run, len(batch), number)
                one.clear()
                one.add(values)
                whole.absorb(one)
                event_handler(events.EndIteration(number, at, total / len(batch), one, self._machine, whole))
            if at < 0:
                self._without_batches(number)
            with self._averaged():
                event_handler(events.EndPass(number, whole, self._machine))

    def _without_batches(self, number):
        """Of several trainers one may have nothing to train on; one alone has trained nothing."""
        if self._is_local and number == 0:
            raise NoSamples(f"{graph.users_line()}: the reader given to `train` has no batches: there is nothing to train on")
        log.say(graph.users_line(), f"the reader given to `train` has no batches in pass {number}", "WARNING")

    def _connect(self):
        if self._updater is None:
            self._updater = (LocalUpdater if self._is_local else RemoteUpdater)(self._optimizer, self._machine)
            self._to_skip = self._updater.steps_done

    def _forward_backward(self, feed):
        values, run = self._machine.forward(feed, is_training=True)
        total = self._total(values)
        if not total.stop_gradient:
            total.backward()
        return values, float(total), run

    def _update(self, run, samples, number):
        self._updater.update(samples, number)
        self._machine.parameters.clear_gradients()
        self._machine.update_running(run)

    def _total(self, values):
        """The sum over all samples: gradients are not averaged."""
        total = values[id(self._costs[0])].data.sum()
        for node in self._costs[1:]:
            total = total + values[id(node)].data.sum()
        return total

    def test(self, reader, feeding=None):
        """Mean cost per sample and metrics over all batches of a reader, without training."""
        import paddle

        feeder = self._machine.feeder(feeding)
        metrics = Metrics(self._machine.evaluators)
        total, samples = 0.0, 0
        with self._averaged(), paddle.no_grad():
            for batch in reader():
                values, _ = self._machine.forward(feeder(batch), is_training=False)
                metrics.add(values)
                total += float(self._total(values))
                samples += len(batch)
        if not samples:
            # Where trainers share out the files, some have none to test with.
            log.say(graph.users_line(), "the reader given to `test` has no batches: cost and metrics are nan", "WARNING")
            return events.TestResult(dict.fromkeys(metrics.read(), np.nan), np.nan)
        return events.TestResult(metrics, total / samples)

    @contextlib.contextmanager
    def _averaged(self):
        """Puts the averaged values in place while something tests or saves."""
        parameters = self._machine.parameters
        averaged = self._updater.averaged() if self._updater is not None and not parameters.averaged else None
        if not averaged:
            yield
            return
        kept = {name: parameters.get(name) for name in averaged}
        parameters.averaged = True
        try:
            for name, value in averaged.items():
                parameters.array(name)[...] = value
            yield
        finally:
            parameters.averaged = None
            for name, value in kept.items():
                parameters.array(name)[...] = value

    def save_parameter_to_tar(self, f):
        with self._averaged():
            self._machine.parameters.to_tar(f)


def _skip(batches, count):
    """Leaves out batches that were trained before a restart; returns how many there were."""
    done = 0
    while done < count and next(batches, None) is not None:
        done += 1
    return done


def layers_of(value, what) -> list[Node]:
    """The layers a program means: one or several. Evaluators among them belong to their network anyway."""
    found = list(value) if isinstance(value, (list, tuple)) else [value]
    for each in found:
        if not isinstance(each, (Node, Evaluator)):
            raise TypeError(f"`{what}` must be a layer, not {each!r}")
    return [each for each in found if isinstance(each, Node)]


class Inference:
    """A network with parameters, for predictions. `fileobj` is a file that `Topology.serialize_for_inference` wrote."""

    def __init__(self, output_layer=None, parameters=None, fileobj=None):
        if fileobj is not None:
            output_layer = saved.read(fileobj)
        if not isinstance(parameters, Parameters):
            raise TypeError(f"`parameters` must be paddle parameters, not {parameters!r}")
        self._machine = Machine(layers_of(output_layer, "output_layer"), parameters)

    def iter_infer(self, input, feeding=None):
        import paddle

        feeder = self._machine.feeder(feeding)
        with paddle.no_grad():
            values, _ = self._machine.forward(feeder(list(input)), is_training=False)
        yield [values[id(node)] for node in self._machine.outputs]

    def iter_infer_field(self, field, **given):
        fields = field if isinstance(field, (list, tuple)) else [field]
        for values in self.iter_infer(**given):
            yield [_field(value, each) for value in values for each in fields]

    def infer(self, input, field="value", flatten_result=True, **given):
        """Values of all outputs; one array, or a list where there are several outputs or fields."""
        found = [
            np.concatenate(parts) if flatten_result else list(parts)
            for parts in zip(*self.iter_infer_field(field, input=input, **given))
        ]
        return found[0] if len(found) == 1 else found


def _field(value: Value, field):
    if field in ("id", "ids"):
        ids = (value.extra or {}).get("ids")
        found = value.data.numpy() if ids is None else ids
        return found.reshape(-1).astype(np.int64) if ids is not None or found.ndim == 1 else found.argmax(axis=1)
    if field not in ("value", "prob"):
        raise ValueError(f"`field` must be 'value', 'prob' or 'id', not {field!r}")
    if field == "prob" and value.extra and "prob" in value.extra:
        return value.extra["prob"]
    return value.data.dense() if isinstance(value.data, Sparse) else value.data.numpy()


def infer(output_layer, parameters, input, feeding=None, field="value"):
    """Predictions for a list of samples."""
    return Inference(output_layer, parameters).infer(input=input, field=field, feeding=feeding)

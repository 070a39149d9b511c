"""Where gradients go: to an optimizer in this process, or to the job's parameter servers."""

from __future__ import annotations

import numpy as np

from paddlecloud.legacy import log, optimizers, schedules
from paddlecloud.legacy.optimizers import Averages, Optimizer

# Values per piece: the best of 8,192 to 65,536 for Adam on word2vec.
_BLOCK = 32768


class LocalUpdater:
    """Changes the parameters in this process."""

    steps_done = 0

    def __init__(self, optimizer: Optimizer, machine):
        self._optimizer = optimizer
        self._machine = machine
        self._trained = [name for name in machine.tensors if not machine.parameters.spec(name).is_static]
        self._masks = pruning_masks(machine.parameters, self._trained)
        arrays = machine.parameters.array
        self._states = {name: [{} for _ in range(0, arrays(name).size, _BLOCK)] for name in self._trained}
        self._samples = 0
        self._averages = None
        if optimizer.model_average is not None:
            self._averages = {name: Averages(optimizer.model_average, arrays(name)) for name in self._trained}

    def update(self, samples, number):
        """Applies the gradients of a batch of `samples` in pass `number`."""
        self._samples += samples
        rate = self._optimizer.rate(self._samples, number)
        for name in self._trained:
            gradient = gradient_of(self._machine.parameters.tensor(name))
            if gradient is None:
                continue
            if name in self._masks:
                gradient = gradient * self._masks[name]
            value = self._machine.parameters.array(name)
            self._update_blocks(self._machine.parameters.spec(name), value.reshape(-1), gradient.reshape(-1), rate)
            if self._averages is not None:
                self._averages[name].add(value)

    def _update_blocks(self, spec, value, gradient, rate):
        """Optimizers work element by element, so a large parameter is updated in pieces that stay in the processor's cache."""
        for number, state in enumerate(self._states[spec.name]):
            piece = slice(number * _BLOCK, (number + 1) * _BLOCK)
            self._optimizer.update(spec, value[piece], gradient[piece], state, rate)

    def averaged(self):
        """Values to test and predict with, where they differ from those in training."""
        if self._averages is None:
            return None
        return {name: average.mean() for name, average in self._averages.items() if average.updates}


def gradient_of(tensor):
    """The gradient on the tensor's own memory."""
    gradient = tensor.grad
    return None if gradient is None else np.from_dlpack(gradient.detach())


def pruning_masks(parameters, names):
    """For pruned parameters 0 where a value stays 0. Their smallest values become 0 now; their gradients must be masked."""
    masks = {}
    for name in names:
        count = int(parameters.spec(name).pruned * parameters.spec(name).size)
        if count:
            values = parameters.array(name)
            mask = np.ones(values.size, np.float32)
            mask[np.argsort(np.abs(values).reshape(-1), kind="stable")[:count]] = 0
            masks[name] = mask.reshape(values.shape)
            values *= masks[name]
    return masks


class RemoteUpdater:
    """Sends gradients to the parameter servers and takes the new values from there.

    Steps are synchronous, and the gradients of all trainers are added up: N trainers with batches of B train like one with N × B.
    """

    def __init__(self, optimizer: Optimizer, machine):
        from paddlecloud import ps

        self._machine = machine
        self._trained = [name for name in machine.tensors if not machine.parameters.spec(name).is_static]
        self._masks = pruning_masks(machine.parameters, self._trained)
        self._session = ps.connect(reduce="sum")
        log.servers(is_sparse=any(machine.parameters.spec(name).is_sparse for name in self._trained))
        for name in self._trained:
            spec = machine.parameters.spec(name)
            self._session.create(name, machine.parameters.array(name), on_server(optimizer, spec))
        self._arrays = {name: machine.parameters.array(name) for name in self._trained}
        self._session.pull(out=self._arrays)
        self._average = optimizer.model_average is not None
        self._optimizer = optimizer

    @property
    def steps_done(self):
        """Not 0 in a trainer that was restarted."""
        return self._session.step

    def update(self, samples, number):
        gradients = {}
        for name in self._trained:
            gradient = gradient_of(self._machine.parameters.tensor(name))
            gradients[name] = np.zeros_like(self._arrays[name]) if gradient is None else gradient
            if name in self._masks:
                gradients[name] = gradients[name] * self._masks[name]
        for rate, names in self._rates(number):
            self._session.push({name: gradients[name] for name in names}, lr=rate, samples=samples)
        self._session.end_step(self._trained, out=self._arrays)

    def _rates(self, number):
        """Parameters by the rate to push with them. Only `pass_manual` needs one: the servers do not know the pass."""
        if self._optimizer.schedule != "pass_manual":
            return [(None, self._trained)]
        rate = self._optimizer.rate(0, number)
        names = {}
        for name in self._trained:
            names.setdefault(rate * self._machine.parameters.spec(name).learning_rate, []).append(name)
        return names.items()

    def averaged(self):
        return self._session.pull(list(self._trained), averaged=True) if self._average else None


def on_server(optimizer: Optimizer, spec):
    """The parameter server's optimizer that does the same arithmetic."""
    from paddlecloud import ps

    common = {
        "lr": schedule_on_server(optimizer, spec),
        "proximal_l1": optimizer.l1 if spec.l1 is None else spec.l1,
        "l2": optimizer.l2 if spec.l2 is None else spec.l2,
        "clip": spec.clip or optimizer.clip,
        "average": (optimizer.model_average.max_average_window or 10000) if optimizer.model_average is not None else 0,
    }
    if isinstance(optimizer, optimizers.Adam):
        return ps.Adam(beta1=optimizer.beta1, beta2=optimizer.beta2, epsilon=optimizer.epsilon, **common)
    if isinstance(optimizer, optimizers.Adamax):
        return ps.Adamax(beta1=optimizer.beta1, beta2=optimizer.beta2, epsilon=0.0, **common)
    common["momentum"] = optimizer.momentum_of(spec)
    scales = {
        optimizers.Momentum: None,
        optimizers.AdaGrad: "adagrad",
        optimizers.RMSProp: "rmsprop",
        optimizers.DecayedAdaGrad: "decayed_adagrad",
        optimizers.AdaDelta: "adadelta",
    }
    scale = scales[type(optimizer)]
    if scale is not None:
        common["epsilon"] = optimizer.epsilon
        common["rho"] = getattr(optimizer, "rho", 0.0)
    return ps.Velocity(scale=scale, **common)


def schedule_on_server(optimizer: Optimizer, spec):
    """2017's schedule by the samples of all trainers, or a number. The rate of `pass_manual` is sent with every push."""
    from paddlecloud import ps

    base, kind = optimizer.learning_rate * spec.learning_rate, optimizer.schedule
    a, b = optimizer.decay
    if kind in ("constant", "pass_manual"):
        return base
    if kind == "manual":
        segments = schedules.segments(optimizer.schedule_args)
        # A segment's end belongs to it; behind the last one its factor stays.
        ends = [(end + 1, base * factor) for (end, _), (_, factor) in zip(segments, segments[1:])]
        return ps.Piecewise(base * segments[0][1], tuple(ends), by_samples=True)
    shapes = {
        "poly": lambda: ps.InversePower(base, a, b, by_samples=True),
        "caffe_poly": lambda: ps.Polynomial(base, int(a), power=b, by_samples=True),
        "exp": lambda: ps.Exponential(base, a, b, by_samples=True),
        "discexp": lambda: ps.Exponential(base, a, b, staircase=True, by_samples=True),
        "linear": lambda: ps.Linear(base, a * spec.learning_rate, b * spec.learning_rate, by_samples=True),
    }
    return shapes[kind]()

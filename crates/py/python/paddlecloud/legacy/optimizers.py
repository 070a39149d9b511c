"""The optimizers of 2017. A gradient is the sum over a batch; they change numpy arrays in place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paddlecloud.legacy import schedules


@dataclass(frozen=True)
class L2Regularization:
    """Adds `rate * w` to every gradient."""

    rate: float


@dataclass(frozen=True)
class L1Regularization:
    """Moves every value towards 0 by `lr * rate` after an update."""

    rate: float


@dataclass(frozen=True)
class ModelAverage:
    """Tests and predicts with a mean of the last values.

    The mean covers at least `average_window` of all updates, but no more than about `max_average_window`.
    """

    average_window: float
    max_average_window: int | None = None
    do_average_in_cpu: bool = False


class Optimizer:
    """What all have: the rate, its schedule, regularization, clipping, averaging."""

    def __init__(
        self,
        learning_rate=1e-3,
        regularization=None,
        model_average=None,
        gradient_clipping_threshold=None,
        learning_rate_decay_a=0.0,
        learning_rate_decay_b=0.0,
        learning_rate_schedule=None,
        learning_rate_args="",
        batch_size=None,
        is_async=False,
        **unknown,
    ):
        if unknown:
            raise TypeError(f"{type(self).__name__}() has no option `{next(iter(unknown))}`")
        self.learning_rate = learning_rate
        self.model_average = model_average
        self.clip = gradient_clipping_threshold or 0.0
        self.schedule = learning_rate_schedule or ("poly" if learning_rate_decay_a else "constant")
        self.decay = learning_rate_decay_a, learning_rate_decay_b
        self.schedule_args = learning_rate_args
        self.rate = schedules.rate_of(
            self.schedule, learning_rate, learning_rate_decay_a, learning_rate_decay_b, learning_rate_args
        )
        self.l1 = self.l2 = 0.0
        for each in regularization if isinstance(regularization, (list, tuple)) else [regularization]:
            if isinstance(each, L2Regularization):
                self.l2 = each.rate
            elif isinstance(each, L1Regularization):
                self.l1 = each.rate
            elif each is not None:
                raise TypeError(f"`regularization` must be L1Regularization or L2Regularization, not {each!r}")

    def state(self, value):
        """New state for a parameter."""
        return {}

    def momentum_of(self, spec):
        return spec.momentum or 0.0

    def update(self, spec, value, gradient, state, rate):
        """Changes `value` by one gradient. `rate` is the schedule's."""
        clip = spec.clip or self.clip
        if clip:
            gradient = np.clip(gradient, -clip, clip)
        rate *= spec.learning_rate
        decay = self.l2 if spec.l2 is None else spec.l2
        state["step"] = state.get("step", 0) + 1
        self.apply(spec, value, gradient, state, rate, decay)
        l1 = self.l1 if spec.l1 is None else spec.l1
        if l1:
            value[...] = np.sign(value) * np.maximum(np.abs(value) - rate * l1, 0.0)

    def apply(self, spec, value, gradient, state, rate, decay):
        raise NotImplementedError

    def _move(self, spec, value, gradient, state, rate, decay):
        """`v = momentum * v - rate * (g + decay * w); w += v`; `rate` may be an array."""
        step = gradient + decay * value if decay else gradient
        step = rate * step
        momentum = self.momentum_of(spec)
        if not momentum:
            value -= step
            return
        velocity = _kept(state, "velocity", value)
        velocity *= momentum
        velocity -= step
        value += velocity


class Momentum(Optimizer):
    """`v = momentum * v - lr * (g + decay * w); w += v`"""

    def __init__(self, momentum=None, sparse=False, **options):
        super().__init__(**options)
        self.momentum = momentum or 0.0
        self.sparse = sparse

    def momentum_of(self, spec):
        return self.momentum if spec.momentum is None else spec.momentum

    def apply(self, spec, value, gradient, state, rate, decay):
        self._move(spec, value, gradient, state, np.float32(rate), decay)


class AdaGrad(Optimizer):
    """`a += g * g; w -= lr / sqrt(a + epsilon) * (g + decay * w)`"""

    def __init__(self, epsilon=1e-6, **options):
        super().__init__(**options)
        self.epsilon = epsilon

    def apply(self, spec, value, gradient, state, rate, decay):
        total = _kept(state, "squares", value)
        total += gradient * gradient
        self._move(spec, value, gradient, state, np.float32(rate) / np.sqrt(total + self.epsilon), decay)


class DecayedAdaGrad(Optimizer):
    """AdaGrad with a running mean of squares, which begins as the first square."""

    def __init__(self, rho=0.95, epsilon=1e-6, **options):
        super().__init__(**options)
        self.rho = rho
        self.epsilon = epsilon

    def _mean_square(self, value, gradient, state):
        mean = _kept(state, "squares", value)
        share = 1.0 if state["step"] == 1 else 1.0 - self.rho
        mean *= self.rho
        mean += np.float32(share) * gradient * gradient
        return mean

    def apply(self, spec, value, gradient, state, rate, decay):
        mean = self._mean_square(value, gradient, state)
        self._move(spec, value, gradient, state, np.float32(rate) / np.sqrt(mean + self.epsilon), decay)


class RMSProp(DecayedAdaGrad):
    """DecayedAdaGrad by the variance of the gradient instead of its square."""

    def apply(self, spec, value, gradient, state, rate, decay):
        mean = self._mean_square(value, gradient, state)
        first = _kept(state, "mean", value)
        first *= self.rho
        first += np.float32(1.0 - self.rho) * gradient
        self._move(spec, value, gradient, state, np.float32(rate) / np.sqrt(mean - first * first + self.epsilon), decay)


class AdaDelta(Optimizer):
    def __init__(self, rho=0.95, epsilon=1e-6, **options):
        super().__init__(**options)
        self.rho = rho
        self.epsilon = epsilon

    def apply(self, spec, value, gradient, state, rate, decay):
        squares = _kept(state, "squares", value)
        steps = _kept(state, "steps", value)
        squares *= self.rho
        squares += np.float32(1 - self.rho) * gradient * gradient
        factor = np.sqrt((steps + self.epsilon) / (squares + self.epsilon))
        steps *= self.rho
        steps += np.float32(1 - self.rho) * np.square(gradient * factor)
        self._move(spec, value, gradient, state, np.float32(rate) * factor, decay)


class Adam(Optimizer):
    """As published. Unlike 2017's, it applies L2 regularization: `g + decay * w`."""

    def __init__(self, beta1=0.9, beta2=0.999, epsilon=1e-8, **options):
        super().__init__(**options)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def apply(self, spec, value, gradient, state, rate, decay):
        if decay:
            gradient = gradient + decay * value
        # Both sums are kept without their factor 1 - beta, which saves two passes over the values.
        first, second, scratch = (_kept(state, name, value) for name in ("sum", "squares", "scratch"))
        first *= self.beta1
        first += gradient
        second *= self.beta2
        second += np.multiply(gradient, gradient, out=scratch)
        step, spread = state["step"], np.sqrt(1 - self.beta2)
        np.sqrt(second, out=scratch)
        scratch += np.float32(self.epsilon / spread)
        np.divide(first, scratch, out=scratch)
        share = (1 - self.beta1) / spread * np.sqrt(1 - self.beta2**step) / (1 - self.beta1**step)
        scratch *= np.float32(rate * share)
        value -= scratch


class Adamax(Optimizer):
    """Adam by the largest gradient instead of the mean square."""

    def __init__(self, beta1=0.9, beta2=0.999, **options):
        super().__init__(**options)
        self.beta1 = beta1
        self.beta2 = beta2

    def apply(self, spec, value, gradient, state, rate, decay):
        if decay:
            gradient = gradient + decay * value
        first = _kept(state, "mean", value)
        largest = _kept(state, "largest", value)
        first *= self.beta1
        first += np.float32(1 - self.beta1) * gradient
        np.maximum(np.float32(self.beta2) * largest, np.abs(gradient), out=largest)
        scale = np.float32(rate / (1 - self.beta1 ** state["step"]))
        # A value that never had a gradient stays: 0 / 0 is no step.
        value -= scale * np.divide(first, largest, out=np.zeros_like(first), where=largest > 0)


def _kept(state, name, value):
    """A part of a parameter's state, 0 at first."""
    found = state.get(name)
    if found is None:
        found = state[name] = np.zeros_like(value)
    return found


class Averages:
    """The running mean of `ModelAverage` for one parameter: two sums that take turns."""

    _LEAST = 10000

    def __init__(self, settings: ModelAverage, value):
        self.settings = settings
        self.newest = np.zeros_like(value, dtype=np.float64)
        self.before = np.zeros_like(value, dtype=np.float64)
        self.updates = self.count = self.count_before = 0

    def add(self, value):
        self.updates += 1
        self.count += 1
        self.newest += value
        most = self.settings.max_average_window or 1 << 62
        if self.count >= min(self._LEAST, most) and self.count >= min(
            most, self.updates * self.settings.average_window
        ):
            self.before[...] = self.newest
            self.newest[...] = 0
            self.count_before, self.count = self.count, 0

    def mean(self):
        return ((self.newest + self.before) / max(self.count + self.count_before, 1)).astype(np.float32)

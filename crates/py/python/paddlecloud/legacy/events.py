"""The events that a trainer passes to an event handler."""

from __future__ import annotations


class WithMetric:
    def __init__(self, evaluator):
        self._found = evaluator if isinstance(evaluator, dict) else evaluator.read()

    @property
    def metrics(self):
        """{name of evaluator: number}"""
        return self._found


class TestResult(WithMetric):
    """What `SGD.test` returns: mean cost per sample, and metrics."""

    __test__ = False

    def __init__(self, evaluator, cost):
        super().__init__(evaluator)
        self.cost = cost


class BeginPass:
    def __init__(self, pass_id):
        self.pass_id = pass_id


class EndPass(WithMetric):
    """The metrics are those of the whole pass."""

    def __init__(self, pass_id, evaluator, gm=None):
        super().__init__(evaluator)
        self.pass_id = pass_id
        self.gm = gm


class BeginIteration:
    def __init__(self, pass_id, batch_id):
        self.pass_id = pass_id
        self.batch_id = batch_id


class EndForwardBackward:
    def __init__(self, pass_id, batch_id, gm=None):
        self.pass_id = pass_id
        self.batch_id = batch_id
        self.gm = gm


class EndIteration(WithMetric):
    """`cost` is the mean per sample of this batch, and `metrics` are the batch's own."""

    def __init__(self, pass_id, batch_id, cost, evaluator, gm=None, so_far=None):
        super().__init__(evaluator)
        self._batch = evaluator
        self._so_far = so_far
        self.pass_id = pass_id
        self.batch_id = batch_id
        self.cost = cost
        self.gm = gm

    def count_into(self, metrics):
        """Adds this batch to other metrics; to be called inside the event handler."""
        metrics.absorb(self._batch)

    @property
    def pass_metrics(self):
        """The metrics of all batches of this pass up to this one; to be read inside the event handler."""
        return {} if self._so_far is None else self._so_far.read()

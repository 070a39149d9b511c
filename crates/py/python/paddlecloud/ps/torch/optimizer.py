"""`DistributedOptimizer`: an optimizer of PyTorch whose updates happen on the parameter servers.

The object stays the program's own. Its class becomes a subclass with other `step`, `state_dict` and `load_state_dict`, so parameter
groups, schedulers and hooks are PyTorch's.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection
from typing import Any

import torch

from paddlecloud.ps.loops import say
from paddlecloud.ps.optimizers import Optimizer
from paddlecloud.ps.session import Session, connect
from paddlecloud.ps.torch import states
from paddlecloud.ps.torch.rules import rule_of
from paddlecloud.ps.torch.tensors import Parameter, Parameters


def DistributedOptimizer(optimizer: Any, session: Session | None = None, *, model: Any = None) -> Any:
    """Makes a PyTorch optimizer update the parameters on the parameter servers. Returns the same object.

    With `model` the tensors have its names, so that an exported model can be loaded with `load_state_dict`. A parameter that
    needs no gradient is not sent before it does. A step sends what `backward` has accumulated, so a program's own clipping
    acts before the gradients of the trainers are averaged.
    """
    if isinstance(optimizer, Distributed):
        raise ValueError("this optimizer is distributed already; use the object that `DistributedOptimizer` returned")
    plain = type(optimizer)
    for group in optimizer.param_groups:
        rule_of(plain, group)
    before = dict(optimizer.__dict__)
    _remove_scheduler_step(optimizer)
    state = optimizer.__dict__.pop("state")
    optimizer.__class__ = _class_of(plain)
    # Wraps our `step` like any other: for the profiler, and for the hooks of newer versions.
    name = "_patch_step_function" if hasattr(optimizer, "_patch_step_function") else "_hook_for_profile"
    getattr(optimizer, name)()
    try:
        optimizer.session = session or connect()
        optimizer._begin(Parameters(optimizer.session, model), state)
    except BaseException:
        optimizer.__class__, optimizer.__dict__ = plain, before
        raise
    return optimizer


def _remove_scheduler_step(optimizer: Any) -> None:
    """A scheduler that was made before has put a `step` onto the object that counts, then calls that of the plain class.

    Ours counts itself.
    """
    step = optimizer.__dict__.get("step")
    if step is None:
        return
    if not (hasattr(step, "_with_counter") or hasattr(step, "_wrapped_by_lr_sched")):
        raise ValueError("`step` of this optimizer was replaced; call `DistributedOptimizer` before what replaces it")
    del optimizer.__dict__["step"]


@functools.cache
def _class_of(plain: type) -> type:
    return type(plain.__name__, (Distributed, plain), {"_plain": plain, "__module__": __name__})


class Distributed:
    """What differs from the plain optimizer, whose class follows in the order of bases."""

    _plain: type
    session: Session
    param_groups: list[dict[str, Any]]
    defaults: dict[str, Any]

    def _begin(self, parameters: Parameters, state: Any) -> None:
        self._parameters = parameters
        self._has_stepped = False
        # The rule with which parameters of each group are declared, whenever that is: a restarted trainer must declare the same,
        # and its numbers may have changed. Pushes bring those of their step.
        self._rules = [rule_of(self._plain, group) for group in self.param_groups]
        # States that were loaded before the first step. They are sent then, because values that are assigned clear them.
        self._loaded: dict[str, Any] = {}
        # A restarted trainer needs the values of all parameters that have been trained, also if its program freezes them at first.
        self._declare(self.session.names_on_servers() if self.session.restarted else ())
        self._frozen = [parameter for parameter in self._parameters if not _is_trained(parameter.tensor)]
        self._send_states(state)
        self.session.optimizers.append(self)

    def step(self, closure: Any = None, *, grad_scaler: Any = None) -> Any:
        """Sends the gradients, ends this trainer's step, and fetches the new values."""
        if grad_scaler is not None:
            _refuse_scaler()
        self._count_for_schedulers()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._declare()
        if not self._may_push():
            self.fetch()
            return loss
        self._name_frozen()
        for rule, gradients in self._pushes().items():
            self.session.push(gradients, optimizer=rule)
        self._parameters.end_step()
        return loss

    # Schedulers leave a `step` with these marks as it is.
    step._with_counter = True  # type: ignore[attr-defined]
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]

    def _count_for_schedulers(self) -> None:
        self._step_count = getattr(self, "_step_count", 0) + 1
        self._opt_called = True

    def _may_push(self) -> bool:
        """Whether the gradients belong to the values of this step. What the program changed since counts, or is refused."""
        changed = self._parameters.changed()
        is_first, self._has_stepped = not self._has_stepped, True
        if not is_first and changed:
            raise ValueError(
                f"`{changed[0].name}` was changed in place after the first step; the parameter servers would undo that. "
                "Change parameters before the first step, or limit them where the model uses them"
            )
        if is_first and self.session.restarted:
            return self._resume(changed)
        if is_first:
            self._assign(changed)
        return True

    def _resume(self, changed: list[Parameter]) -> bool:
        """A restarted trainer's program may have begun with values that training has left behind."""
        if not changed and not self._loaded:
            return True
        name = changed[0].name if changed else next(iter(self._loaded))
        what = "this batch is not counted" if changed else "what was loaded is not used"
        say(f"trainer {self.session.trainer} resumes at step {self.session.step}, but its program set `{name}`: {what}")
        self._loaded = {}
        return not changed

    def _assign(self, changed: list[Parameter]) -> None:
        """Values that the program set between `DistributedOptimizer` and the first step, as with `model.load_state_dict`."""
        if changed and self.session.mode != "sync" and self.session.trainers > 1:
            raise ValueError(
                f"`{changed[0].name}` was changed after `DistributedOptimizer`; "
                "in asynchronous training set parameters before, because other trainers may have begun"
            )
        if self.session.trainer == 0:
            for parameter in changed:
                self.session.assign(parameter.name, parameter.values())
        self.session.refuse_other_values({parameter.name: parameter.values() for parameter in self._parameters})
        for name, state in self._loaded.items():
            self.session.set_optimizer_state(name, state)
        self._loaded = {}

    def fetch(self) -> None:
        """Fetches all values, as a session does after a rollback."""
        self._parameters.fetch()

    def _pushes(self) -> dict[Optimizer, dict[str, Any]]:
        """The gradients of this step by rule and numbers. A parameter without one is left out: PyTorch does not update it either."""
        pushes: dict[Optimizer, dict[str, Any]] = {}
        for group in self.param_groups:
            rule = rule_of(self._plain, group)
            for tensor in group["params"]:
                if tensor.grad is None:
                    continue
                parameter = self._parameters.declared[id(tensor)]
                _refuse_other_state(parameter, rule)
                gradient = parameter.gradient()
                pushes.setdefault(rule, {})[parameter.name] = -gradient if group.get("maximize") else gradient
        return pushes

    def _declare(self, known: Collection[str] = ()) -> None:
        """Declares the parameters that are not declared yet and need a gradient: all at first, later those that were unfrozen.

        Also those that servers have, if their names are in `known`.
        """
        name = self._parameters.name
        new = [
            (number, at, tensor)
            for number, group in enumerate(self.param_groups)
            for at, tensor in enumerate(group["params"])
            if not self._parameters.has(tensor) and (_is_trained(tensor) or (known and name(number, at, tensor) in known))
        ]
        if not new:
            return
        if len({id(tensor) for *_, tensor in new}) < len(new):
            raise ValueError("a group has a parameter twice; the parameter servers update it once in a step")
        rules = [self._declared_rule(number) for number in range(len(self.param_groups))]
        other = self._parameters.declare([(name(number, at, tensor), tensor, rules[number]) for number, at, tensor in new])
        if other and self._has_stepped:
            say(f"`{other[0]}` had other values in this trainer than in trainer 0, whose values count")

    def _declared_rule(self, number: int) -> Optimizer:
        declared, now = self._rules[number], rule_of(self._plain, self.param_groups[number])
        return declared if _keeps_state(declared, now) else now

    def trained(self) -> list[list[tuple[bool, bool]]]:
        """Of each parameter: whether it needs a gradient, and whether it has one, which may be 0."""
        return [[(tensor.requires_grad, tensor.grad is not None) for tensor in group["params"]] for group in self.param_groups]

    def restore_trained(self, kept: list[list[tuple[bool, bool]]]) -> None:
        """What `trained` returned, in a trainer that resumes: its program has frozen and unfrozen parameters since its start."""
        self._frozen = []
        for group, flags in zip(self.param_groups, kept):
            for tensor, (needs_gradient, has_gradient) in zip(group["params"], flags):
                tensor.requires_grad_(needs_gradient)
                if not has_gradient:
                    tensor.grad = None
                elif tensor.grad is None:
                    tensor.grad = torch.zeros_like(tensor)

    def _name_frozen(self) -> None:
        """Says once which parameters are frozen in this restarted trainer that were trained before, if no loop has kept that."""
        if not self._frozen or self.session.is_replaying():
            return
        names = [parameter.name for parameter in self._frozen if not _is_trained(parameter.tensor)]
        self._frozen = []
        self.session.say_frozen(names)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As of the plain optimizer. All trainers must add it at the same step."""
        self._plain.add_param_group(self, param_group)  # type: ignore[attr-defined]
        try:
            self._rules.append(self._rule_of_added(self.param_groups[-1]))
            self._declare()
        except ValueError:
            self.param_groups.pop()
            del self._rules[len(self.param_groups) :]
            raise

    def _rule_of_added(self, group: dict[str, Any]) -> Optimizer:
        """A program often computes the numbers of a new group from those of the moment: only the usual ones are the same again."""
        numbers = {name: value for name, value in self.defaults.items() if type(value) in (int, float, tuple)}
        usual, own = rule_of(self._plain, {**group, **numbers}), rule_of(self._plain, group)
        return usual if _keeps_state(usual, own) else own

    def state_dict(self) -> dict[str, Any]:
        """As of the plain optimizer, with the state of the parameter servers."""
        found = self.session.optimizer_state([parameter.name for parameter in self._parameters])
        found.update(self._loaded)
        result: dict[str, Any] = self._plain_object(states.to_torch(self._plain, self._parameters, found)).state_dict()
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As of the plain optimizer. All trainers must call it at the same step; the state of trainer 0 counts."""
        loaded = self._plain_object(defaultdict(dict))
        loaded.load_state_dict(state_dict)
        for group in loaded.param_groups:
            rule_of(self._plain, group)
        self.__dict__["param_groups"] = loaded.param_groups
        self._send_states(loaded.state)

    def _plain_object(self, state: Any) -> Any:
        """A plain optimizer with this one's groups, hooks and a given state."""
        plain = object.__new__(self._plain)
        own = ("session", "_parameters", "_has_stepped", "_rules", "_loaded", "_frozen")
        plain.__dict__.update({name: value for name, value in self.__dict__.items() if name not in own}, state=state)
        return plain

    def _send_states(self, found: Any) -> None:
        for parameter in self._parameters:
            state = states.to_servers(self._plain, parameter, found.get(parameter.tensor, {}))
            if self._has_stepped:
                self.session.set_optimizer_state(parameter.name, state)
            elif state.updates or parameter.name in self._loaded:
                self._loaded[parameter.name] = state

    @property
    def state(self) -> Any:
        raise ValueError("the optimizer's state is on the parameter servers; use `state_dict()` and `load_state_dict()`")

    @state.setter
    def state(self, _: Any) -> None:
        raise ValueError("the optimizer's state is on the parameter servers; use `load_state_dict()`")

    @property
    def _step_supports_amp_scaling(self) -> bool:
        # Only an enabled GradScaler asks.
        _refuse_scaler()
        return False

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, _: bool) -> None:
        pass

    def __reduce_ex__(self, _: Any) -> Any:
        # The state of some schedulers holds their methods, and so their optimizer.
        return _Copy, ()


class _Copy:
    """What a copied or pickled distributed optimizer is: it has no parameters and no session."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ValueError("a distributed optimizer cannot be copied or pickled; use `state_dict()`")


def _is_trained(tensor: Any) -> bool:
    return tensor.requires_grad or tensor.grad is not None


def _keeps_state(before: Optimizer, rule: Optimizer) -> bool:
    return (rule.kind, rule.slots()) == (before.kind, before.slots())


def _refuse_other_state(parameter: Parameter, rule: Optimizer) -> None:
    before = parameter.rule
    if not _keeps_state(before, rule):
        raise ValueError(
            f"`{parameter.name}` was declared with {type(before).__name__} and now needs {type(rule).__name__} with another state: "
            "after `DistributedOptimizer`, `momentum` cannot become or stop being 0, and `centered` cannot change; "
            "begin with `momentum=1e-9`"
        )


def _refuse_scaler() -> None:
    raise ValueError(
        "a GradScaler skips steps on one trainer only, so it does not work with parameter servers; "
        "use `torch.autocast` with bfloat16, which needs none"
    )

"""A Paddle optimizer whose kernels run on the parameter servers.

Paddle's own code collects, clips and groups the gradients and reads the settings. Where it would call a kernel for a parameter,
the gradient is kept with the rule of that moment; at the end of the step all are pushed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import paddle

from paddlecloud.ps import arrays
from paddlecloud.ps.arrays import Floats
from paddlecloud.ps.loops import say
from paddlecloud.ps.optimizers import Optimizer, OptimizerState
from paddlecloud.ps.paddle import rules, state
from paddlecloud.ps.session import Session, connect


def DistributedOptimizer(
    optimizer: Any, session: Session | None = None, *, model: Any = None, clip: str | None = None
) -> Any:
    """Makes a Paddle optimizer update the parameters on the parameter servers. Returns the same object.

    model: the layer whose names of parameters the tensors on the servers get. Without it they are numbered.
    clip: "each": with several trainers, each clips its own gradients by `grad_clip` before the mean is taken. Paddle clips the mean.

    A parameter with `stop_gradient=True` stays in this trainer until it becomes trainable.
    """
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is distributed already")
    rules.refuse_unknown(optimizer)
    session = session or connect()
    rules.refuse_clip(optimizer, session, clip)
    shared = _Shared(optimizer, session, model)
    plain, before = type(optimizer), optimizer.state_dict()
    optimizer.session = session
    optimizer._shared = shared
    session.optimizers.append(optimizer)
    # Its kernels are called for many tensors at once; the results are the same.
    optimizer._use_multi_tensor = False
    # Paddle compares the name of the class.
    optimizer.__class__ = type(plain.__name__, (_Distributed, plain), {})
    _move_state(optimizer, before)
    return optimizer


def _move_state(optimizer: Any, before: dict[str, Any]) -> None:
    """What the optimizer has learned, or loaded, before it was distributed."""
    optimizer._accumulators.clear()
    optimizer._accumulators_holder = {}
    optimizer._already_create_accumulator.clear()
    if any(name not in state.NO_ACCUMULATORS for name in before):
        optimizer._shared.set_state(state.parse(optimizer, before, optimizer._shared.declared))


class _Distributed:
    """What replaces methods of Paddle's class; those with `_` are called by its own."""

    _shared: _Shared

    def step(self) -> None:
        with self._shared.step(self):
            super().step()  # type: ignore[misc]

    def minimize(self, *args: Any, **options: Any) -> Any:
        with self._shared.step(self):
            return super().minimize(*args, **options)  # type: ignore[misc]

    def apply_gradients(self, params_grads: Any) -> Any:
        with self._shared.step(self):
            return super().apply_gradients(params_grads)  # type: ignore[misc]

    def fetch(self) -> None:
        """Fetches all values, as a session does after a rollback."""
        self._shared.fetch()

    def trained(self) -> Any:
        """Which parameters are trained: a loop that survives restarts keeps it."""
        return self._shared.trained(self)

    def restore_trained(self, kept: Any) -> None:
        self._shared.restore_trained(self, kept)

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = super().state_dict()  # type: ignore[misc]
        return found | state.read(self, self._shared.session, self._shared.declared)

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        scheduler = {name: value for name, value in state_dict.items() if name == "LR_Scheduler"}
        super().set_state_dict(scheduler)  # type: ignore[misc]
        self._shared.set_state(state.parse(self, state_dict, self._shared.declared))

    load_state_dict = set_state_dict

    def append_regularization_ops(self, parameters_and_grads: Any, regularization: Any = None) -> Any:
        """In a step the servers add what a regularizer adds, to the mean of the gradients."""
        if self._shared.is_in_step:
            return parameters_and_grads
        return super().append_regularization_ops(parameters_and_grads, regularization)  # type: ignore[misc]

    def use_fusion_storage(self) -> None:
        raise _unsupported("use_fusion_storage", "leave it out")

    def set_merged_model_params(self, _: Any) -> None:
        raise _unsupported("set_merged_model_params", "leave it out")

    def get_opti_var_name_list(self) -> list[str]:
        raise _unsupported("get_opti_var_name_list", "use the keys of `state_dict()`")

    def sharded_state_dict(self, _: Any) -> Any:
        raise _unsupported("sharded_state_dict", "use `state_dict()`")

    def _create_accumulators(self, block: Any, parameters: Any) -> None:
        """The servers have them."""

    def _finish_update(self, block: Any, parameters_and_grads: Any) -> None:
        """The servers count the updates."""

    def _append_optimize_op(self, block: Any, param_and_grad: Any) -> None:
        if isinstance(param_and_grad, dict):
            param_and_grad = self._update_param_group(param_and_grad)  # type: ignore[attr-defined]
        self._shared.keep(self, *param_and_grad)


class _Shared:
    """The parameters of an optimizer as tensors of the parameter servers, and the gradients of a step."""

    def __init__(self, optimizer: Any, session: Session, model: Any) -> None:
        self.session = session
        self.declared: dict[str, Any] = {}
        self._names = _Names(optimizer, session, model)
        self._marks: dict[str, tuple[int, bytes]] = {}
        self._kept: dict[Optimizer, dict[str, Any]] = {}
        self._loaded: dict[str, OptimizerState] = {}
        self._has_begun = False
        self.is_in_step = False
        # A restarted trainer must declare a parameter with the same rate, whenever that is. Pushes bring that of their step.
        self._rate = float(optimizer.get_lr())
        # A restarted trainer needs the values of all parameters that have been trained, also if its program freezes them at first.
        self._declare(optimizer, session.names_on_servers() if session.restarted else ())
        self._frozen = [name for name, tensor in self.declared.items() if tensor.stop_gradient]

    @contextlib.contextmanager
    def step(self, optimizer: Any) -> Iterator[None]:
        """A step of the session: pushes what Paddle hands over meanwhile, and takes the new values."""
        if not paddle.in_dynamic_mode() or paddle.base.dygraph.base.in_to_static_mode():
            raise ValueError("the parameter servers do not support static graph mode; call `step` outside `to_static`")
        self._declare(optimizer)
        counts = self._is_ready()
        self._kept, self.is_in_step = {}, True
        try:
            yield
        finally:
            self.is_in_step = False
        self._refuse_skipped(optimizer)
        kept, self._kept = self._kept, {}
        if not counts:
            self.fetch()
            return
        self._name_frozen()
        for rule, gradients in kept.items():
            self.session.push(gradients, optimizer=rule)
        self._receive(list(self.declared), self.session.end_step)

    def fetch(self) -> None:
        """A parameter declared later than the step to which training went back is forgotten: it is declared again."""
        for name in list(self.declared):
            try:
                self._receive([name], self.session.pull)
            except ValueError:
                del self.declared[name], self.session._shapes[name]
                say(f"training went back to a step before `{name}` was declared; it keeps the values of this trainer")

    def keep(self, optimizer: Any, tensor: Any, gradient: Any) -> None:
        """Keeps a gradient with the rule that Paddle would apply now."""
        name, rule = self._names.of(tensor), rules.current(optimizer, tensor)
        if gradient.is_selected_rows():
            rule = rules.of_sparse(optimizer, tensor, name, rule)
            gradient = _dense(gradient, tensor)
        self._kept.setdefault(rule, {})[name] = gradient

    def set_state(self, loaded: dict[str, OptimizerState]) -> None:
        """Sends what the program loaded. Until the first step it is kept, because assigned weights clear it."""
        for name, found in loaded.items():
            self.session.set_optimizer_state(name, found)
        if not self._has_begun:
            self._loaded |= loaded

    def _is_ready(self) -> bool:
        """Whether the gradients belong to the values of this step. What the program loaded is sent, other changes are refused."""
        changed = [name for name, tensor in self.declared.items() if self._marks[name] != _mark(tensor)]
        is_first, self._has_begun = not self._has_begun, True
        if is_first and self.session.restarted:
            return self._resume(changed)
        if changed and not is_first:
            raise ValueError(
                f"`{changed[0]}` was changed in place after the first step; the parameter servers would undo that. "
                "Change parameters before the first step, or limit them where the model uses them"
            )
        if is_first:
            self._assign(changed)
        return True

    def trained(self, optimizer: Any) -> list[tuple[bool, bool]]:
        """Of each parameter: whether it is trained, and whether it has a gradient, which may be 0."""
        return [(not tensor.stop_gradient, _has_gradient(tensor)) for tensor, _ in rules.parameters(optimizer)]

    def restore_trained(self, optimizer: Any, kept: list[tuple[bool, bool]]) -> None:
        """What `trained` returned, in a trainer that resumes: its program has frozen and unfrozen parameters since its start."""
        self._frozen = []
        for (tensor, _), (is_trained, has_gradient) in zip(rules.parameters(optimizer), kept):
            tensor.stop_gradient = not is_trained
            if not has_gradient:
                tensor.clear_gradient(False)
            elif not _has_gradient(tensor):
                tensor.grad = paddle.zeros_like(tensor)

    def _name_frozen(self) -> None:
        """Says once which parameters are frozen in this restarted trainer that were trained before, if no loop has kept that."""
        if not self._frozen or self.session.is_replaying():
            return
        names = [name for name in self._frozen if name in self.declared and self.declared[name].stop_gradient]
        self._frozen = []
        self.session.say_frozen(names)

    def _resume(self, changed: list[str]) -> bool:
        """The first step of a restarted trainer: the servers have trained values and states, whatever the program loaded."""
        self._loaded = {}
        for name in changed[:1]:
            say(f"`{name}` was set by the program; it has the values of step {self.session.step} again, and this batch does not count")
        return not changed

    def _assign(self, changed: list[str]) -> None:
        """Values that the program set between `DistributedOptimizer` and the first step, as with `model.set_state_dict`."""
        if changed and self.session.mode != "sync" and self.session.trainers > 1:
            raise ValueError(
                f"`{changed[0]}` was changed after `DistributedOptimizer`; "
                "in asynchronous training set parameters before, because other trainers may have begun"
            )
        if self.session.trainer == 0:
            for name in changed:
                self.session.assign(name, self.declared[name])
        self.session.refuse_other_values({name: arrays.view(tensor) for name, tensor in self.declared.items()})
        # All trainers send it, since they wait for each other.
        for name, found in self._loaded.items():
            self.session.set_optimizer_state(name, found)
        self._loaded = {}

    def _declare(self, optimizer: Any, known: Collection[str] = ()) -> None:
        """Declares the parameters that are trained and not declared yet, and those that servers have, if they are in `known`."""
        new = {}
        for tensor, group in rules.parameters(optimizer):
            name = self._names.of(tensor)
            if name in self.declared or (tensor.stop_gradient and name not in known):
                continue
            if tensor.dtype != paddle.float32:
                kind = str(tensor.dtype).removeprefix("paddle.")
                raise ValueError(f"`{name}` is {kind}, but the parameter servers compute in float32; convert the model")
            if name in self.session._shapes:
                raise ValueError(
                    f"this session has a tensor `{name}` already; give one `model=` that contains the parameters of all optimizers"
                )
            self.session.create(name, tensor, rules.initial(optimizer, tensor, group, self._rate))
            new[name] = tensor
        if not new:
            return
        self.declared |= new
        before = {name: _mark(tensor) for name, tensor in new.items()} if self._has_begun else {}
        self._receive(list(new), self.session.pull)
        for name, mark in before.items():
            if mark[-1] != self._marks[name][-1]:
                say(f"`{name}` has the values of trainer 0 after this step")

    def _receive(self, names: list[str], call: Any) -> None:
        """Values go into the parameters themselves where numpy can write to them."""
        targets = {name: _target(self.declared[name]) for name in names}
        call(names, out=targets)
        for name in names:
            tensor = self.declared[name]
            if not tensor.place.is_cpu_place():
                tensor.set_value(targets[name])
            self._marks[name] = _mark(tensor)

    def _refuse_skipped(self, optimizer: Any) -> None:
        """A `GradScaler` that found an overflow makes Paddle skip its kernels: the other trainers would not skip theirs."""
        if optimizer._get_auxiliary_var("found_inf") and self.session.trainers > 1:
            raise ValueError(
                "GradScaler skipped a step of this trainer, which the others cannot know: "
                "with several trainers use bfloat16, which needs no GradScaler"
            )


class _Names:
    """The names of parameters on the servers."""

    def __init__(self, optimizer: Any, session: Session, model: Any) -> None:
        tensors = [tensor for tensor, _ in rules.parameters(optimizer)]
        if model is not None:
            self._names = {id(tensor): str(name) for name, tensor in model.named_parameters()}
            lost = [tensor.name for tensor in tensors if id(tensor) not in self._names]
            if lost:
                raise ValueError(f"the parameter `{lost[0]}` of the optimizer is not one of `model`")
            return
        prefix, number = "", 0
        while any(f"{prefix}parameter{at}" in session._shapes for at in range(len(tensors))):
            number += 1
            prefix = f"optimizer{number}."
        self._names = {id(tensor): f"{prefix}parameter{at}" for at, tensor in enumerate(tensors)}

    def of(self, tensor: Any) -> str:
        try:
            return self._names[id(tensor)]
        except KeyError:
            raise ValueError(f"`{tensor.name}` is not one of the optimizer's parameters") from None


def _target(tensor: Any) -> Floats:
    if tensor.place.is_cpu_place():
        return arrays.writable(tensor, tensor.name)
    return np.empty(tuple(tensor.shape), np.float32)


def _has_gradient(tensor: Any) -> bool:
    return tensor._grad_ivar() is not None


def _mark(tensor: Any) -> tuple[int, bytes]:
    """What shows that the program wrote to a parameter: Paddle's counter of such writes, and a digest.

    `set_value` and assignments to `.data` do not count.
    """
    return tensor.inplace_version, arrays.digest(arrays.view(tensor))


def _dense(gradient: Any, tensor: Any) -> Floats:
    """A gradient of `paddle.nn.Embedding(sparse=True)`: rows, some of them repeatedly."""
    merged: Any = paddle.nn.clip.merge_selected_rows(gradient)  # type: ignore[no-untyped-call]
    found = np.zeros(tuple(tensor.shape), np.float32)
    found[merged.rows()] = merged._get_tensor_from_selected_rows().numpy()
    return found


def _unsupported(method: str, instead: str) -> ValueError:
    return ValueError(f"the parameter servers do not support `{method}`; {instead}")

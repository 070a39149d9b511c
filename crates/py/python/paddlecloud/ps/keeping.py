"""What a trainer keeps besides its parameters: random generators, and objects with a state.

A `Part` reads and writes one of them. Which parts there are is decided once, when the loop is made; what cannot be kept is refused then.
"""

from __future__ import annotations

import io
import pickle
import random
import sys
import types
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paddlecloud import _native
from paddlecloud.ps import arrays


@dataclass(frozen=True)
class Part:
    """Something with a state."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    # Its methods may be in its state: they are written by name.
    owner: Any = None


class Parts:
    """Several parts, whose states are bytes: equal ones are the same object, so that a message has them once."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = list(parts)
        self._latest = [b""] * len(self._parts)
        self.names = [part.name for part in self._parts]

    def read(self) -> list[bytes]:
        for number, part in enumerate(self._parts):
            state = pack(part.read(), part.owner)
            if state != self._latest[number]:
                self._latest[number] = state
        return list(self._latest)

    def write(self, states: Sequence[bytes]) -> None:
        for part, state in zip(self._parts, states):
            part.write(unpack(state, part.owner))


def generators(loader: Any, kept: Iterable[Any]) -> Parts:
    """The random generators of this process, of the loader, and those among what is kept."""
    parts = [
        Part("random", random.getstate, random.setstate),
        Part("numpy.random", np.random.get_state, np.random.set_state),
    ]
    for name in ("torch", "paddle"):
        framework: Any = sys.modules.get(name)
        if hasattr(framework, "get_rng_state"):
            parts.append(Part(name, framework.get_rng_state, framework.set_rng_state))
    found = {id(item): item for item in (*_of_loader(loader), *kept) if is_generator(item)}
    return Parts([*parts, *(_generator(item) for item in found.values())])


def objects(kept: Iterable[Any], optimizers: Sequence[Any]) -> Parts:
    """The objects with a state among what is kept, the rates of `optimizers` and of those that kept schedulers change, and
    which of their parameters `optimizers` train.
    """
    kept = list(kept)
    distributed = {id(optimizer) for optimizer in optimizers}
    whole = [item for item in kept if not is_generator(item) and id(item) not in distributed]
    changed = [*optimizers, *(optimizer for item in whole for optimizer in _optimizers_of(item))]
    rates = {id(optimizer): optimizer for optimizer in changed if not any(optimizer is item for item in whole)}
    parts = [_object(item, optimizers) for item in whole]
    parts += [_rates(optimizer) for optimizer in rates.values()]
    parts += [Part(type(item).__name__, item.trained, item.restore_trained) for item in optimizers]
    found = Parts(parts)
    _check(found)
    return found


def is_generator(item: Any) -> bool:
    if isinstance(item, (np.random.Generator, random.Random)):
        return True
    return hasattr(item, "get_state") and hasattr(item, "set_state")


def _generator(item: Any) -> Part:
    name = type(item).__name__
    if isinstance(item, np.random.Generator):
        source = item.bit_generator
        return Part(name, lambda: source.state, lambda state: setattr(source, "state", state))
    if isinstance(item, random.Random):
        return Part(name, item.getstate, item.setstate)
    return Part(name, item.get_state, item.set_state)


def _of_loader(loader: Any) -> list[Any]:
    """The generators of a torch DataLoader and its samplers."""
    batches = getattr(loader, "batch_sampler", None)
    holders = (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
    return [getattr(holder, "generator", None) for holder in holders]


def _object(item: Any, optimizers: Sequence[Any]) -> Part:
    name = type(item).__name__
    write = getattr(item, "load_state_dict", None) or getattr(item, "set_state_dict", None)
    read = getattr(item, "state_dict", None)
    if read is None or write is None:
        raise TypeError(
            f"`keep` cannot keep {name}: it has no `state_dict` and `load_state_dict` (or `set_state_dict`), "
            "and is no random generator"
        )
    if is_trained(item, optimizers):
        return Part(name, lambda: _untrained(item), lambda state: _write_buffers(item, write, state))
    return Part(name, read, write, item)


def is_trained(item: Any, optimizers: Sequence[Any]) -> bool:
    """Whether a module has parameters that the parameter servers hold. One that is an average of another model has not."""
    if not hasattr(item, "parameters") or not hasattr(item, "buffers"):
        return False
    held = {id(parameter) for optimizer in optimizers for parameter in _parameters(optimizer)}
    return any(id(parameter) in held for parameter in item.parameters())


def has_parameters(item: Any) -> bool:
    """Whether it is an optimizer."""
    return hasattr(item, "param_groups") or hasattr(item, "_param_groups")


def _parameters(optimizer: Any) -> list[Any]:
    if hasattr(optimizer, "param_groups"):
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]
    # Paddle's: parameters, or groups of them.
    groups = getattr(optimizer, "_param_groups", None) or []
    return [parameter for group in groups for parameter in (group["params"] if isinstance(group, dict) else [group])]


def buffers(module: Any) -> dict[str, Any]:
    """The tensors among a module's state that are no parameters."""
    return {name: value for name, value in _untrained(module).items() if hasattr(value, "dtype")}


def _untrained(module: Any) -> dict[str, Any]:
    """A module's state without its parameters. Paddle's have the statistics of BatchNorm among them, which are not trained."""
    parameters = {id(parameter) for parameter in module.parameters() if not getattr(parameter, "stop_gradient", False)}
    torch = sys.modules.get("torch")
    is_torch = torch is not None and isinstance(module, torch.nn.Module)
    state = module.state_dict(keep_vars=True) if is_torch else module.state_dict()
    return {name: value for name, value in state.items() if id(value) not in parameters}


def _write_buffers(module: Any, write: Callable[..., Any], state: dict[str, Any]) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(module, torch.nn.Module):
        write(state, strict=False)
    elif state:
        # Paddle's: a name that is missing is a warning, so it gets its parameters too.
        write({**module.state_dict(), **state})


def _optimizers_of(item: Any) -> list[Any]:
    """The optimizers whose rates a scheduler of torch changes."""
    if hasattr(item, "param_groups"):
        return []
    held = [getattr(item, "optimizer", None), getattr(item, "_optimizer", None)]
    held += [getattr(inner, "optimizer", None) for inner in getattr(item, "_schedulers", ())]
    return [optimizer for optimizer in held if hasattr(optimizer, "param_groups")]


def _rates(optimizer: Any) -> Part:
    """The numbers of an optimizer; what it has learned is on the parameter servers."""
    name = type(optimizer).__name__
    if not hasattr(optimizer, "param_groups"):  # Paddle's: a scheduler is kept by itself.
        return Part(name, optimizer.get_lr, lambda rate: _write_rate(optimizer, rate))

    def write(groups: list[dict[str, Any]]) -> None:
        found = len(optimizer.param_groups)
        if len(groups) != found:
            raise _native.PsError(
                f"the kept state has {len(groups)} parameter groups of {name}, this program has {found}: add groups by the "
                "position (`loop.epoch`), not once"
            )
        for group, numbers in zip(optimizer.param_groups, groups):
            group.update(numbers)

    return Part(name, lambda: [_without(group, "params") for group in optimizer.param_groups], write)


def _write_rate(optimizer: Any, rate: float) -> None:
    if isinstance(optimizer._learning_rate, (int, float)) and rate != optimizer.get_lr():
        optimizer.set_lr(rate)


def _without(group: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != name}


def _check(parts: Parts) -> None:
    """Refuses a state that cannot be written to bytes, before training begins."""
    for part in parts._parts:
        try:
            pack(part.read(), part.owner)
        except Exception as error:
            raise TypeError(f"`keep` cannot keep {part.name}: {error}") from error


class _Pickler(pickle.Pickler):
    """Tensors are written as arrays, which are smaller than their own form."""

    def __init__(self, out: io.BytesIO, owner: Any) -> None:
        super().__init__(out, protocol=5)
        self._owner = owner

    def reducer_override(self, item: Any) -> Any:
        for name, make in (("torch", _torch_tensor), ("paddle", _paddle_tensor)):
            kind: Any = getattr(sys.modules.get(name), "Tensor", ())
            if isinstance(item, kind):
                return make, (item.detach().cpu().numpy(),)
        return NotImplemented

    def persistent_id(self, item: Any) -> str | None:
        is_own = isinstance(item, types.MethodType) and self._owner is not None and item.__self__ is self._owner
        return item.__name__ if is_own else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, state: bytes, owner: Any) -> None:
        super().__init__(io.BytesIO(state))
        self._owner = owner

    def persistent_load(self, name: str) -> Any:
        return getattr(self._owner, name)


def _torch_tensor(values: Any) -> Any:
    return sys.modules["torch"].from_numpy(values.copy())


def _paddle_tensor(values: Any) -> Any:
    return sys.modules["paddle"].to_tensor(values)


def pack(state: Any, owner: Any = None) -> bytes:
    out = io.BytesIO()
    _Pickler(out, owner).dump(state)
    return out.getvalue()


def unpack(state: bytes, owner: Any = None) -> Any:
    return _Unpickler(state, owner).load()


# Of an array, what a batch is recognized by.
_ELEMENTS = 64
_ITEMS = 8


def fingerprint(batch: Any, so_far: int = 0) -> int:
    """Differs, nearly always, if two batches differ."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for item in batch[:_ITEMS]:
            so_far = fingerprint(item, so_far)
        return so_far
    if isinstance(batch, (bytes, str, int, float)):
        return zlib.crc32(repr(batch[:256] if isinstance(batch, (bytes, str)) else batch).encode(), so_far)
    try:
        found = arrays.view(batch)
        return zlib.crc32(repr(found.shape).encode() + found.reshape(-1)[:_ELEMENTS].tobytes(), so_far)
    except Exception:  # Something of the program's own, or on a GPU.
        return so_far

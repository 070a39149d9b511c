"""The parameters of a PyTorch program as tensors of the parameter servers: declared, sent, fetched, and checked for changes.

The servers own the values. A program that changes its copy would lose the change at the next fetch without a word, so every
copy is compared with what was fetched before a gradient is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paddlecloud.ps import arrays
from paddlecloud.ps.optimizers import Optimizer
from paddlecloud.ps.session import Session

@dataclass
class Parameter:
    """One parameter, its name on the servers and the rule it was declared with."""

    name: str
    tensor: Any
    rule: Optimizer
    # What was fetched last: torch's counter of in-place changes, and a digest of the values.
    version: int = -1
    digest: bytes = b""
    # The values that it was declared with, if that was during training.
    first: Any = None

    def values(self) -> npt.NDArray[np.float32]:
        """The values, in place where the tensor is contiguous."""
        found: npt.NDArray[np.float32] = self.tensor.detach().contiguous().numpy()
        return found

    def gradient(self) -> npt.NDArray[np.float32]:
        """What `backward` has accumulated, dense and contiguous."""
        found = self.tensor.grad.detach()
        if found.is_sparse:
            self._refuse_sparse()
            found = found.to_dense()
        dense: npt.NDArray[np.float32] = found.contiguous().numpy()
        return dense

    def _refuse_sparse(self) -> None:
        if self.rule.kind not in ("sgd", "momentum", "adagrad"):
            raise ValueError(f"`{self.name}` has a sparse gradient, which PyTorch supports for SGD and Adagrad only")
        if self.rule.l2:
            raise ValueError(f"`{self.name}` has a sparse gradient, for which PyTorch has no `weight_decay`; set it to 0")

    def take(self, values: npt.NDArray[np.float32]) -> None:
        """Puts the fetched values in place. Torch counts it as a change, as it does for its own optimizers."""
        with torch.no_grad():
            if self.tensor.is_contiguous() and values.ctypes.data == self.tensor.data_ptr():
                # They are there: only the counter of changes has to move.
                self.tensor.view(-1)[:0].zero_()
            else:
                self.tensor.copy_(torch.from_numpy(values))
        self.version, self.digest = self.tensor._version, arrays.digest(self.values())

    def is_changed(self) -> bool:
        """Whether the program changed the values since they were fetched; `.data` does not count its changes."""
        return self.tensor._version != self.version or arrays.digest(self.values()) != self.digest


def refuse_unusable(name: str, tensor: Any) -> None:
    """A parameter must be what the servers compute with: float32 in main memory."""
    if isinstance(tensor, torch.nn.parameter.UninitializedParameter):
        raise ValueError(f"`{name}` has no shape yet; run the model once before `DistributedOptimizer`")
    if tensor.dtype is not torch.float32:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(f"`{name}` is {kind}, but the parameter servers compute in float32; use `model.float()`")
    if tensor.device.type != "cpu":
        raise ValueError(f"`{name}` is on {tensor.device}, but the parameter servers need it on the CPU; use `model.cpu()`")
    if tensor.layout is not torch.strided:
        raise ValueError(f"`{name}` is {tensor.layout}; the parameter servers need a dense parameter")


class Parameters:
    """All parameters that a `DistributedOptimizer` has declared."""

    def __init__(self, session: Session, model: Any) -> None:
        self.session = session
        self.model = model
        self.declared: dict[int, Parameter] = {}
        # Whether a step was ended.
        self.is_training = False

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.declared.values())

    def has(self, tensor: Any) -> bool:
        return id(tensor) in self.declared

    def name(self, number: int, at: int, tensor: Any) -> str:
        """The name of the model, or else the place in the groups."""
        if self.model is None:
            return f"group{number}.{at}"
        for name, found in self.model.named_parameters():
            if found is tensor:
                return str(name)
        raise ValueError(f"parameter {at} of group {number} is none of `model`; give a model that contains all parameters")

    def declare(self, found: list[tuple[str, Any, Optimizer]]) -> list[str]:
        """Creates tensors on the servers and fetches their values, which are those of trainer 0.

        Returns the names of those that had other values here.
        """
        for name, tensor, _ in found:
            refuse_unusable(name, tensor)
            if name in self.session._shapes:
                raise ValueError(
                    f"this session has a tensor `{name}` already; give one `model=` that contains the parameters of all optimizers"
                )
        new = [Parameter(name, tensor, rule) for name, tensor, rule in found]
        for parameter in new:
            self.session.create(parameter.name, parameter.values(), parameter.rule)
        for parameter in new:
            self.declared[id(parameter.tensor)] = parameter
        before = [arrays.digest(parameter.values()) for parameter in new]
        self._taken(self.session.pull, new)
        if self.is_training:
            for parameter in new:
                parameter.first = parameter.values().copy()
        return [parameter.name for parameter, digest in zip(new, before) if digest != parameter.digest]

    def fetch(self) -> None:
        """Fetches all values. A parameter that was declared later than the step to which training went back is declared again."""
        try:
            self._taken(self.session.pull, list(self))
        except ValueError:
            for parameter in list(self):
                try:
                    self._taken(self.session.pull, [parameter])
                except ValueError:
                    self._forget(parameter)

    def _forget(self, parameter: Parameter) -> None:
        del self.declared[id(parameter.tensor)]
        del self.session._shapes[parameter.name]
        if parameter.first is not None:
            parameter.take(parameter.first)

    def end_step(self) -> None:
        """Ends the step and fetches all values after it."""
        self.is_training = True
        self._taken(self.session.end_step, list(self))

    def _taken(self, call: Any, some: list[Parameter]) -> None:
        values = {parameter.name: parameter.values() for parameter in some}
        call(list(values), out=values)
        for parameter in some:
            parameter.take(values[parameter.name])

    def changed(self) -> list[Parameter]:
        return [parameter for parameter in self if parameter.is_changed()]

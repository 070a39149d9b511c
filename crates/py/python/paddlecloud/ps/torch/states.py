"""The optimizer state of the parameter servers in the form of PyTorch's `state_dict`, and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from paddlecloud.ps.optimizers import OptimizerState
from paddlecloud.ps.torch.rules import STATE_NAMES
from paddlecloud.ps.torch.tensors import Parameter


def to_torch(
    plain: type, parameters: Iterable[Parameter], found: Mapping[str, OptimizerState]
) -> defaultdict[Any, dict[str, Any]]:
    """What `optimizer.state` of the plain optimizer would be. A parameter that was never updated has none, as there."""
    states: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
    for parameter in parameters:
        if found[parameter.name].updates:
            states[parameter.tensor] = _to_torch(plain, parameter.tensor, found[parameter.name])
    return states


def _to_torch(plain: type, tensor: Any, state: OptimizerState) -> dict[str, Any]:
    # SGD does not count its updates.
    result: dict[str, Any] = {} if plain is torch.optim.SGD else {"step": torch.tensor(float(state.updates))}
    for name, slot in STATE_NAMES[plain].items():
        if slot in state.slots:
            values = torch.empty_like(tensor, requires_grad=False)
            result[name] = values.copy_(torch.from_numpy(state.slots[slot].reshape(tensor.shape)))
    return result


def to_servers(plain: type, parameter: Parameter, state: dict[str, Any]) -> OptimizerState:
    """The state of one parameter for the servers; that of one without updates if PyTorch has none."""
    slots = parameter.rule.slots()
    names = {slot: name for name, slot in STATE_NAMES[plain].items() if slot in slots}
    # Adagrad has sums and a counter before the first update, SGD may have a buffer that is None.
    if float(state.get("step", 1)) == 0 or all(value is None for value in state.values()):
        first = getattr(parameter.rule, "initial", 0.0)
        return OptimizerState(0, 0, {slot: np.full(parameter.tensor.shape, first, np.float32) for slot in slots})
    missing = [name for name in names.values() if state.get(name) is None]
    if missing:
        raise ValueError(f"the loaded optimizer state of `{parameter.name}` has no `{missing[0]}`")
    values = {slot: np.ascontiguousarray(state[name].detach().numpy(), np.float32) for slot, name in names.items()}
    return OptimizerState(int(float(state.get("step", 1))), 0, values)

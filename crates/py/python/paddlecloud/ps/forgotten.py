"""What a program trains with but does not keep: found at the end of its first step, and named.

A scheduler is found by its reference to the optimizer, a model by the parameters that it shares with the optimizer. Of a model,
only the buffers count that the first step has changed: many models have constant ones.
"""

from __future__ import annotations

import gc
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from paddlecloud.ps import arrays, keeping


class Forgotten:
    """Made before the first step."""

    def __init__(self, kept: Iterable[Any], optimizers: Sequence[Any]) -> None:
        self._optimizers = list(optimizers)
        self._kept = list(_with_parts(kept))
        self._models = [(model, _digests(model)) for model in self._unkept_models()]

    def names(self) -> list[str]:
        """Of what has to be added to `keep`, as it is called in a sentence."""
        kept = {id(item) for item in self._kept}
        schedulers = [item for item in self._schedulers() if id(item) not in kept]
        if schedulers:
            gc.collect()  # Another one may have taken its place.
            alive = {id(item) for item in self._schedulers()}
            schedulers = [item for item in schedulers if id(item) in alive]
        names = [type(item).__name__ for item in schedulers]
        for model, before in self._models:
            changed = [name for name, digest in _digests(model).items() if before.get(name) != digest]
            if changed:
                more = ", …" if len(changed) > 2 else ""
                names.append(f"the buffers of {type(model).__name__} ({', '.join(changed[:2])}{more})")
        return names

    def _schedulers(self) -> list[Any]:
        """Objects that refer to an optimizer and have steps and a state."""
        found: dict[int, Any] = {}
        for optimizer in self._optimizers:
            rate = getattr(optimizer, "_learning_rate", None)  # Paddle's refers to its scheduler
            held = [rate] if hasattr(rate, "state_dict") else []
            found |= {id(item): item for item in [*held, *_owners(optimizer)] if hasattr(type(item), "state_dict")}
        inner = {id(part) for item in found.values() for part in _with_parts([item]) if part is not item}
        return [item for key, item in found.items() if key not in inner]

    def _unkept_models(self) -> list[Any]:
        """The outermost models with parameters of the optimizers, unless all of their buffers are those of kept ones."""
        kept = {id(value) for item in self._kept if _is_model(item) for value in keeping.buffers(item).values()}
        found = [model for model in _all_models() if keeping.is_trained(model, self._optimizers)]
        inner = {id(part) for model in found for part in _submodels(model)}
        outer = [model for model in found if id(model) not in inner]
        return [model for model in outer if any(id(value) not in kept for value in keeping.buffers(model).values())]


def _owners(item: Any) -> Iterator[Any]:
    """The objects with an attribute that is `item`, if they have steps."""
    for found in gc.get_referrers(item):
        holders = gc.get_referrers(found) if type(found) is dict else [found]
        for owner in holders:
            if hasattr(type(owner), "step") and any(value is item for value in getattr(owner, "__dict__", {}).values()):
                yield owner


def _with_parts(items: Iterable[Any]) -> Iterator[Any]:
    """The items, what their attributes hold, and so on for schedulers inside others."""
    for item in items:
        yield item
        attributes = list(getattr(item, "__dict__", {}).values())
        lists = [value for value in attributes if isinstance(value, (list, tuple)) and len(value) < 100]
        inside = [value for values in (attributes, *lists) for value in values if hasattr(type(value), "state_dict")]
        yield from (value for value in inside if _is_model(value))
        yield from _with_parts(value for value in inside if not _is_model(value) and not keeping.has_parameters(value))


def _model_kinds() -> tuple[type, ...]:
    torch, paddle = sys.modules.get("torch"), sys.modules.get("paddle")
    kinds = (getattr(getattr(torch, "nn", None), "Module", None), getattr(getattr(paddle, "nn", None), "Layer", None))
    return tuple(kind for kind in kinds if kind is not None)


def _is_model(item: Any) -> bool:
    return isinstance(item, _model_kinds())


def _all_models() -> list[Any]:
    kinds = _model_kinds()
    # The type is asked, because some objects pretend to be others.
    return [item for item in gc.get_objects() if issubclass(type(item), kinds)]


def _submodels(model: Any) -> list[Any]:
    parts = model.modules() if hasattr(model, "modules") else model.sublayers()
    return [part for part in parts if part is not model]


def _digests(model: Any) -> dict[str, Any]:
    return {name: _digest(value) for name, value in keeping.buffers(model).items()}


def _digest(value: Any) -> Any:
    try:
        return zlib.crc32(arrays.view(value).tobytes())
    except (TypeError, RuntimeError):  # of a type that numpy does not know
        return id(value), getattr(value, "_version", 0)

"""Keeps `marshal` from storing values that it would load as something else.

`marshal` writes anything that shows its bytes, such as a numpy array, as plain bytes, and the shape and
type are gone. It knows exact types only, so checking is simple.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
_CONTAINERS = (tuple, list, set, frozenset)


def checked_dumper(dumper: Callable[..., object]) -> Callable[[object, object], object]:
    """`dumper` itself, or for `marshal.dump` one that refuses what would come back as something else."""
    if dumper is not marshal.dump:
        return dumper

    def dump(value: object, file: object) -> None:
        refuse_lossy_values(value)
        marshal.dump(value, file)  # type: ignore[arg-type]

    return dump


def refuse_lossy_values(value: object) -> None:
    left = [value]
    while left:
        item = left.pop()
        kind = type(item)
        if kind in _CONTAINERS:
            left.extend(item)  # type: ignore[arg-type]
        elif kind is dict:
            left.extend(item.keys())  # type: ignore[attr-defined]
            left.extend(item.values())  # type: ignore[attr-defined]
        elif kind not in _PLAIN:
            name = f"{kind.__module__}.{kind.__qualname__}"
            raise TypeError(
                f"marshal cannot store a {name} so that it comes back as one: "
                "use the default dumper, or turn it into lists and numbers first (`.tolist()`)"
            )

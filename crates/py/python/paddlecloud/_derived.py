"""The methods of the clients, made from the operations: one class that waits for replies, one for asyncio.

What checkers and editors see of them is in `_derived.pyi`, which `crates/py/stubs.py` writes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from paddlecloud._file_operations import FileOperations
from paddlecloud._operations import Operations


def _waits(operation: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operation)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return self._run(operation(self, *arguments, **named))

    return method


def _awaits(operation: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operation)
    async def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return await self._run(operation(self, *arguments, **named))

    return method


def _derived(name: str, operations: type, derive: Callable[[Callable[..., Any]], Callable[..., Any]]) -> type:
    """A class with a method for each operation, under its name and with its words; it needs `_run`."""
    methods: dict[str, Any] = {"__doc__": operations.__doc__, "__module__": __name__, "__slots__": ()}
    for called, operation in vars(operations).items():
        if called.startswith("_"):
            continue
        method = methods[called] = derive(operation)
        method.__qualname__ = f"{name}.{called}"
        method.__module__ = __name__
        reply = operation.__annotations__["return"]
        method.__annotations__ = {**operation.__annotations__, "return": reply[len("Operation[") : -1]}
        del method.__wrapped__  # type: ignore[attr-defined]
        method.__signature__ = _signature(operation, method)  # type: ignore[attr-defined]
    return type(name, (), methods)


def _signature(operation: Callable[..., Any], method: Callable[..., Any]) -> Any:
    import inspect

    return inspect.signature(operation).replace(return_annotation=method.__annotations__["return"])


Calls = _derived("Calls", Operations, _waits)
AsyncCalls = _derived("AsyncCalls", Operations, _awaits)
FileCalls = _derived("FileCalls", FileOperations, _waits)
AsyncFileCalls = _derived("AsyncFileCalls", FileOperations, _awaits)

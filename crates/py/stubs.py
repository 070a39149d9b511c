"""Writes `_derived.pyi`: what checkers and editors see of the clients' methods.

    python crates/py/stubs.py            # after a change of _operations.py or _file_operations.py; commit the result
    python crates/py/stubs.py --check    # fails when it is not up to date; the tests run this

It only reads source text, so it needs neither the wheel nor a build.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "python" / "paddlecloud"
STUB = PACKAGE / "_derived.pyi"
CLASSES = [
    ("_operations.py", "Operations", "Calls", "AsyncCalls"),
    ("_file_operations.py", "FileOperations", "FileCalls", "AsyncFileCalls"),
]
HEAD = '''"""The methods of the clients, as checkers see them. Written by crates/py/stubs.py: change the operations instead."""

import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from paddlecloud import views
'''


def main() -> int:
    text = stub()
    if "--check" not in sys.argv[1:]:
        STUB.write_text(text)
        return 0
    if STUB.read_text() == text:
        return 0
    print(f"{STUB} is not up to date: run `python crates/py/stubs.py` and commit what it writes", file=sys.stderr)
    return 1


def stub() -> str:
    parts = [HEAD]
    for file, operations, waiting, awaiting in CLASSES:
        module = ast.parse((PACKAGE / file).read_text())
        found = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == operations)
        methods = [node for node in found.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
        parts.append(class_of(waiting, "def", methods))
        parts.append(class_of(awaiting, "async def", methods))
    return "\n".join(parts)


def class_of(name: str, kind: str, methods: list[ast.FunctionDef]) -> str:
    return f"class {name}:\n" + "\n".join(f"    {kind} {method_of(method)}: ..." for method in methods) + "\n"


def method_of(method: ast.FunctionDef) -> str:
    returns = method.returns
    assert isinstance(returns, ast.Subscript), f"{method.name} must return Operation[…]"
    method.args.defaults = [plain(default) for default in method.args.defaults]
    method.args.kw_defaults = [default and plain(default) for default in method.args.kw_defaults]
    return f"{method.name}({ast.unparse(method.args)}) -> {ast.unparse(returns.slice)}"


def plain(default: ast.expr) -> ast.expr:
    """A default that a stub can hold: of what must be worked out it says only that there is one."""
    return default if isinstance(default, ast.Constant) else ast.Constant(...)


if __name__ == "__main__":
    sys.exit(main())

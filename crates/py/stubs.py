"""Writes what the Python sources repeat: `_job_fields.py` from `openapi.json`, and `_derived.pyi`, what checkers and
editors see of the clients' methods.

    python crates/py/stubs.py            # after a change of _operations.py or _file_operations.py; commit the result
    python crates/py/stubs.py --check    # fails when it is not up to date; the tests run this

`cargo xtask spec` runs it too. It only reads source text, so it needs neither the wheel nor a build.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "python" / "paddlecloud"
STUB = PACKAGE / "_derived.pyi"
FIELDS = PACKAGE / "_job_fields.py"
SPEC = PACKAGE.parents[2] / "api" / "openapi.json"
# Fields of a request that the client fills in: the package it sends, and what `job_submit` has arguments for.
FILLED_IN = {"package_id", "package_name", "package_list", "shell_env", "dry_run"}
CLASSES = [
    ("_operations.py", "Operations", "Calls", "AsyncCalls"),
    ("_file_operations.py", "FileOperations", "FileCalls", "AsyncFileCalls"),
]
HEAD = '''"""The methods of the clients, as checkers see them. Written by crates/py/stubs.py: change the operations instead."""

import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from typing_extensions import Unpack

from paddlecloud import views
from paddlecloud._job_fields import JobFields
'''
# What identifies a job comes first where one is printed.
SHOWN_FIRST = ["id", "name", "user", "status", "message"]
FIELDS_HEAD = '''"""The fields of a job. Written by crates/py/stubs.py from openapi.json: change crates/api/src/submit.rs instead."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import TypedDict
'''


def main() -> int:
    generated = {STUB: stub(), FIELDS: job_fields()}
    if "--check" not in sys.argv[1:]:
        for path, text in generated.items():
            path.write_text(text)
        return 0
    stale = [path for path, text in generated.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path} is not up to date: run `python crates/py/stubs.py` and commit what it writes", file=sys.stderr)
    return 1 if stale else 0


def job_fields() -> str:
    schemas = json.loads(SPEC.read_text())["components"]["schemas"]
    asked = {name: kind for name, kind in schemas["JobRequest"]["properties"].items() if name not in FILLED_IN}
    shown = schemas["JobView"]["properties"]
    shown = {**{name: shown[name] for name in SHOWN_FIRST}, **shown}
    parts = [
        FIELDS_HEAD,
        "",
        "class JobFields(TypedDict, total=False):",
        '    """The fields of a request for a job, as in `POST /api/v1/jobs`."""',
        "",
        *(field(name, schema, schemas) for name, schema in asked.items()),
        "",
        "",
        "@dataclasses.dataclass(frozen=True)",
        "class JobView:",
        '    """What a server reports about a job, as in `GET /api/v1/jobs`."""',
        "",
        *(field(name, schema, schemas) for name, schema in shown.items()),
    ]
    return "\n".join(parts) + "\n"


def field(name: str, schema: dict, schemas: dict) -> str:
    return f"    {name}: {python_type(schema, schemas)}"


def python_type(schema: dict, schemas: dict) -> str:
    """The type of a value of this schema, as an annotation."""
    if "$ref" in schema:
        return python_type(schemas[schema["$ref"].rsplit("/", 1)[1]], schemas)
    if "oneOf" in schema:
        return " | ".join(python_type(one, schemas) for one in schema["oneOf"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " | ".join(plain_type(kind, schema, schemas) for kind in kinds)


def plain_type(kind: str, schema: dict, schemas: dict) -> str:
    if kind == "object":
        return f"dict[str, {python_type(schema['additionalProperties'], schemas)}]"
    if kind == "array":
        return f"list[{python_type(schema['items'], schemas)}]"
    if schema.get("format") == "date-time" and kind == "string":
        return "datetime"
    return {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}[kind]


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

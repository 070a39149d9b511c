"""Prints docs/reference/ps-torch.md: what of PyTorch works with parameter servers. The rows are those that the tests run.

    target/py/torch/bin/python crates/py/tests/torch_page.py > docs/reference/ps-torch.md
"""

from __future__ import annotations

from torch_behaviour import METHODS, PROGRAMS, SCHEDULER_METHODS
from torch_refused import REFUSED
from torch_rows import CLIPPING, OPTIMIZERS, OTHER_OPTIMIZERS, SCHEDULERS, Elsewhere, NoEffect, Refused, Row, Works

HEAD = """# PyTorch with parameter servers

What of PyTorch works with `paddlecloud.ps.torch.DistributedOptimizer`. This page is generated from the rows of
`crates/py/tests/test_torch_differential.py`; `crates/py/tests/torch_page.py` prints it. For each row that works, 20 steps with one trainer,
and with two trainers and two parameter servers, end within 1e-6 of the plain program. For several trainers that is one process that
averages their gradients and calls PyTorch's own optimizer. The tests run with PyTorch 1.13.1; names of newer versions are listed too.

- *works*: it has the effect that it has in PyTorch.
- *no effect*: it does not change a result of PyTorch either.
- Everything else raises an error with the sentence that is shown. So does a name that this page does not have.
"""


def text(row: Row) -> str:
    if isinstance(row, (Works, Elsewhere)):
        return "works"
    if isinstance(row, NoEffect):
        return f"no effect: {row.reason}"
    assert isinstance(row, Refused)
    return row.sentence


def table(rows: dict[str, Row]) -> list[str]:
    """Neighbours with the same text share a line."""
    lines: dict[str, list[str]] = {}
    for name, row in rows.items():
        lines.setdefault(text(row), []).append(name if "`" in name or " " in name else f"`{name}`")
    return ["| | |", "| --- | --- |", *(f"| {', '.join(names)} | {what} |" for what, names in lines.items()), ""]


def section(title: str, rows: dict[str, Row]) -> list[str]:
    return [f"### {title}", "", *table(rows)]


def page() -> str:
    lines = [HEAD, "## Optimizers", ""]
    for name, rows in OPTIMIZERS.items():
        lines += section(name, rows)
    others = ", ".join(f"`{name}`" for name in OTHER_OPTIMIZERS)
    lines += [f"{others} and every other optimizer: the parameter servers do not support them; use one of the above.", ""]
    lines += ["### Methods of all of them", "", *table(METHODS)]
    lines += ["## What programs do", "", "These work:", "", *(f"- {name}" for name in PROGRAMS), ""]
    lines += ["Refused. Each step compares the weights with those it fetched:", "", *table(REFUSED)]
    lines += ["## Schedulers", "", "Made before or after `DistributedOptimizer`.", ""]
    for name, rows in SCHEDULERS.items():
        lines += section(name, rows)
    lines += ["### Methods of schedulers", "", *table(SCHEDULER_METHODS)]
    lines += ["## Clipping", ""]
    lines += ["It acts on the gradients of one trainer, before they are averaged. `DistributedDataParallel` clips after.", ""]
    for name, rows in CLIPPING.items():
        lines += section(name, rows)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")

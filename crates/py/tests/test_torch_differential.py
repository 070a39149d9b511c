"""Every optimizer, scheduler and clipping function of the installed PyTorch: it has its effect with parameter servers too, or is refused."""

import inspect
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.optim import lr_scheduler, swa_utils  # noqa: E402
from torch_behaviour import METHODS, PROGRAMS, SCHEDULER_METHODS  # noqa: E402
from torch_page import page  # noqa: E402
from torch_programs import distributed, plain  # noqa: E402
from torch_refused import REFUSED  # noqa: E402
from torch_rows import CLIPPING, IS_TORCH_1, OPTIMIZERS, OTHER_OPTIMIZERS, SCHEDULERS  # noqa: E402
from torch_rows import NoEffect, Refused, Works, wrapped  # noqa: E402

TOLERANCE = 1e-6
# A value counts only if it changes the result of the plain program at least so far.
EFFECT = 1e-4


def arguments(made, *, without=()):
    names = inspect.signature(made).parameters
    return {name for name in names if name not in ("self", "args", "kwargs", *without)}


def optimizers():
    base = torch.optim.Optimizer
    return {name: c for name, c in vars(torch.optim).items() if inspect.isclass(c) and issubclass(c, base) and c is not base}


def schedulers():
    bases = ("Optimizer", "LRScheduler", "_LRScheduler")
    found = {name: c for name, c in vars(lr_scheduler).items() if inspect.isclass(c) and hasattr(c, "step")}
    return {"SWALR": swa_utils.SWALR, **{name: c for name, c in found.items() if name not in bases}}


def clippings():
    return {name: f for name, f in vars(torch.nn.utils).items() if callable(f) and ("clip_" in name or "total_norm" in name)}


def methods():
    found = {}
    for name in OPTIMIZERS:
        for method, made in inspect.getmembers(getattr(torch.optim, name)):
            if not method.startswith("_"):
                found[method] = made
    return found


def methods_of_schedulers():
    """Their public names, and each argument as `method(argument)`."""
    found = set()
    for kind in schedulers().values():
        for method, made in inspect.getmembers(kind):
            if not method.startswith("_"):
                found |= {method, *(f"{method}({argument})" for argument in (arguments(made) if callable(made) else ()))}
    return found


def missing(found, rows, without):
    """Names without a row, and rows without a name; those of other versions may be absent."""
    errors = [f"no row for `{name}`" for name in found if name not in rows]
    for name in found.keys() & rows.keys():
        names = arguments(found[name], without=without)
        errors += [f"no row for `{argument}` of {name}" for argument in names - rows[name].keys()]
        gone = [argument for argument in rows[name].keys() - names if not rows[name][argument].only]
        errors += [f"{name} has no `{argument}`" for argument in gone]
    return errors


def test_every_optimizer_and_argument_has_a_row():
    found = {name: made for name, made in optimizers().items() if name not in OTHER_OPTIMIZERS}
    assert missing(found, OPTIMIZERS, ["params"]) == []


def test_every_scheduler_and_argument_has_a_row():
    assert missing(schedulers(), SCHEDULERS, ["optimizer"]) == []


def test_every_clipping_function_and_argument_has_a_row():
    assert missing(clippings(), CLIPPING, []) == []


def test_every_method_and_argument_of_optimizers_has_a_row():
    found = methods()
    # The optimizers differ in what they take.
    taken = {
        f"{method}({argument})"
        for name in OPTIMIZERS
        for method, made in inspect.getmembers(getattr(torch.optim, name), inspect.isfunction)
        if not method.startswith("_")
        for argument in arguments(made)
    }
    assert (found.keys() | taken) - METHODS.keys() == set()
    assert {name for name in METHODS.keys() - found.keys() - taken if not METHODS[name].only} == set()


def test_every_method_and_argument_of_schedulers_has_a_row():
    found = methods_of_schedulers()
    assert found - SCHEDULER_METHODS.keys() == set()
    assert {name for name in SCHEDULER_METHODS.keys() - found if not SCHEDULER_METHODS[name].only} == set()


def exists(kind, name, argument):
    """Whether the installed PyTorch has it."""
    if kind == "method":
        return argument.partition("(")[0] in methods()
    if kind == "method of schedulers":
        return argument in methods_of_schedulers()
    if kind in ("program", "refused program"):
        return True
    made = {"optimizer": optimizers, "scheduler": schedulers, "clipping": clippings}[kind]().get(name)
    return made is not None and argument in arguments(made)


TABLES = {
    "optimizer": OPTIMIZERS,
    "scheduler": SCHEDULERS,
    "clipping": CLIPPING,
    "method": {"": METHODS},
    "method of schedulers": {"": SCHEDULER_METHODS},
    "program": {"": PROGRAMS},
    "refused program": {"": REFUSED},
}


def rows(kind):
    """All rows of a kind; those that the installed PyTorch does not have are skipped."""
    return [
        pytest.param(row, id=id_of(owner, name, argument), marks=[] if exists(owner, name, argument) else absent(row))
        for owner, table in TABLES.items()
        for name, row_of in table.items()
        for argument, row in row_of.items()
        if isinstance(row, kind)
    ]


def id_of(owner, name, argument):
    name = "scheduler" if owner == "method of schedulers" else name
    return f"{name}-{argument}".strip("-").replace(" ", "_")


def absent(row):
    return pytest.mark.skip(reason=f"PyTorch {torch.__version__} does not have it: {row.only}")


def difference(one, other):
    return float(np.abs(one - other).max())


@pytest.mark.parametrize("row", rows(Works))
def test_a_value_has_the_effect_that_it_has_in_pytorch(row):
    expected = plain(row.program)
    assert difference(expected, plain(row.otherwise)) >= EFFECT, "this row proves nothing"
    # Schedulers are made before `DistributedOptimizer` here, and after it in the next test.
    (found,) = distributed(row.program.but(scheduler_first=True))
    assert difference(expected, found) <= TOLERANCE


@pytest.mark.parametrize("row", rows(Works))
def test_two_trainers_and_two_servers_have_the_result_of_one_process(row):
    expected = plain(row.program, trainers=2)
    assert np.isfinite(expected).all()
    for found in distributed(row.program, trainers=2, servers=2):
        assert difference(expected, found) <= TOLERANCE


@pytest.mark.parametrize("row", [row for row in rows(NoEffect) if row.values[0].program is not None])
def test_a_value_without_effect_in_pytorch_has_none(row):
    expected = plain(row.program)
    assert difference(expected, plain(row.otherwise)) <= TOLERANCE
    (found,) = distributed(row.program)
    assert difference(expected, found) <= TOLERANCE


@pytest.mark.parametrize("row", rows(Refused))
def test_a_value_is_refused_by_name(row):
    with pytest.raises((ValueError, TypeError)) as error:
        row.act()
    assert row.sentence in str(error.value)


@pytest.mark.parametrize("name", [name for name in OTHER_OPTIMIZERS if hasattr(torch.optim, name)])
def test_other_optimizers_are_refused_by_name(name):
    with pytest.raises(ValueError, match=f"do not support {name}; use SGD, Adam, AdamW"):
        wrapped(name, **OTHER_OPTIMIZERS[name][0])


def test_the_reference_is_current():
    path = Path(__file__).resolve().parents[3] / "docs" / "reference" / "ps-torch.md"
    assert path.read_text() == page(), "run crates/py/tests/torch_page.py"


EXACT = """
import sys
sys.path.insert(0, sys.argv[1])
from torch_programs import distributed, plain
from torch_rows import OPTIMIZERS, Works
for name in sys.argv[2:]:
    for argument, row in OPTIMIZERS[name].items():
        if isinstance(row, Works):
            expected = plain(row.program)
            print(name, argument, expected.tobytes() == distributed(row.program)[0].tobytes())
"""


def test_rules_of_the_same_arithmetic_have_the_same_bits(run_python):
    """PyTorch multiplies and adds with one rounding where the processor can; without that, these are the servers' own operations.

    Not in Adagrad of PyTorch 2: its square roots are not rounded to the nearest number then.
    """
    names = ("SGD", "Adagrad") if IS_TORCH_1 else ("SGD",)
    said = run_python(EXACT, str(Path(__file__).resolve().parent), *names, ATEN_CPU_CAPABILITY="default")
    lines = said.splitlines()
    assert len(lines) == sum(isinstance(row, Works) for name in names for row in OPTIMIZERS[name].values())
    assert [line for line in lines if not line.endswith("True")] == []

"""Every setting of Paddle's optimizers has the effect it has in Paddle, or is refused by name; see `paddle_table`."""

import functools
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")
if not hasattr(paddle, "nn"):  # ours, without the framework
    pytest.skip("PaddlePaddle is not installed", allow_module_level=True)

import paddle_page  # noqa: E402
import paddle_programs  # noqa: E402
from paddle_methods import program_with_all  # noqa: E402
from paddle_programs import averaged, distributed, plain, together  # noqa: E402
from paddle_table import BASE, KINDS, Nothing, Refused, Works, rows  # noqa: E402
from test_ps_team import Team  # noqa: E402

ROWS = rows()
TOLERANCE, EFFECT = 1e-6, 1e-4
# Where the servers do what Paddle does in the same order.
SAME_BITS = ("SGD", "Momentum", "Adamax")


@functools.cache
def plain_result(program):
    return plain(program)


@pytest.fixture(autouse=True)
def as_it_was():
    yield
    paddle.disable_static()


def of(kind):
    return [pytest.param(row, id=name) for name, row in ROWS.items() if type(row) is kind]


def arguments(name, kind):
    """The arguments of a constructor."""
    return {f"{name}({argument})" for argument in inspect.signature(kind).parameters}


def methods(name, kind, base=None):
    """Public methods, apart from those that take the same as in `base`, and their arguments that may be left out."""
    for method in public(kind):
        parameters = parameters_of(kind, method)
        if base is None or parameters.keys() != parameters_of(base, method).keys():
            yield f"{name}.{method}"
            yield from (f"{name}.{method}({found.name})" for found in parameters.values() if found.default is not found.empty)


def parameters_of(kind, method):
    found = getattr(kind, method, None)
    return inspect.signature(found).parameters if inspect.isfunction(found) else {}


def public(value):
    return {name for name in dir(value) if not name.startswith("_")}


def keys_of_groups(kind):
    source = inspect.getsource(kind._update_param_group)
    return {*re.findall(r"parameters\.get\(\s*'(\w+)'", source), "learning_rate", "grad_clip", "weight_decay"} - {"params"}


def names_of_optimizers():
    module, found = paddle.optimizer, set()
    found |= {name for name in public(module) if inspect.isclass(getattr(module, name))}
    incubate = paddle.incubate.optimizer
    found |= {f"incubate.{name}" for name in public(incubate) if inspect.isclass(getattr(incubate, name))}
    for name in KINDS:
        kind = getattr(module, name)
        found |= arguments(name, kind)
        found |= {f"{name} group: {key}" for key in keys_of_groups(kind)}
        parameters = paddle.nn.Linear(1, 1).parameters()
        found |= {f".{method}" for method in public(kind(learning_rate=0.1, parameters=parameters))}
        found |= set(methods("", kind))
    return found


def names_of_schedulers():
    module, found = paddle.optimizer.lr, set()
    base = module.LRScheduler
    for name in public(module):
        kind = getattr(module, name)
        if inspect.isclass(kind) and issubclass(kind, base):
            found |= {f"lr.{name}", *arguments(f"lr.{name}", kind)}
            found |= set(methods(f"lr.{name}", kind, None if kind is base else base))
    return found


def names_of_parameters():
    found = {"ParamAttr", *arguments("ParamAttr", paddle.ParamAttr)}
    for name in public(paddle.nn):
        if name.startswith("ClipGradBy"):
            found |= {name, *arguments(name, getattr(paddle.nn, name))}
    for name in public(paddle.nn.utils):
        if name.startswith("clip_"):
            found |= {name, *arguments(name, getattr(paddle.nn.utils, name))}
    for name in paddle.regularizer.__all__:
        found |= {name, *arguments(name, getattr(paddle.regularizer, name))}
    return found


def test_everything_that_paddle_has_is_in_the_table():
    missing = (names_of_optimizers() | names_of_schedulers() | names_of_parameters()) - set(ROWS)
    assert not missing, f"add rows to paddle_table: {sorted(missing)}"


@pytest.mark.parametrize("row", of(Works))
def test_it_works_as_in_paddle(row):
    expected = plain_result(row.program)
    assert np.abs(expected - plain_result(row.base)).max() >= EFFECT
    assert np.abs(distributed(row.program) - expected).max() <= TOLERANCE


@pytest.mark.parametrize("row", of(Refused))
def test_it_is_refused_by_name(row):
    with pytest.raises(row.error) as error:
        distributed(row.program)
    assert row.sentence in str(error.value)


@pytest.mark.parametrize("row", [param for param in of(Nothing) if param.values[0].program is not None])
def test_it_has_no_effect_in_paddle_either(row):
    expected = plain_result(row.program)
    assert np.abs(expected - plain_result(row.base)).max() <= TOLERANCE
    assert np.abs(distributed(row.program) - expected).max() <= TOLERANCE


@pytest.mark.parametrize("kind", SAME_BITS)
def test_the_same_arithmetic_gives_the_same_bits(kind):
    assert distributed(BASE[kind]).tobytes() == plain_result(BASE[kind]).tobytes()


def of_several():
    """What works, apart from what the process that averages cannot do. test_ps_paddle has the rest."""
    names = ("BatchNorm1D and Dropout", ".zero_grad(set_to_none)")  # buffers of each trainer; gradients that are kept
    return [param for param in of(Works) if not param.id.startswith(("Embedding(sparse=True)", *names))]


def clips(program):
    return any(settings.get("grad_clip") for settings in (program.arguments, *(program.groups or ())))


@pytest.mark.parametrize("row", [param for param in of_several() if not clips(param.values[0].program)])
def test_two_trainers_and_two_servers_have_the_result_of_one_process(row):
    assert np.abs(together(row.program, Team(2, 2)) - averaged(row.program)).max() <= TOLERANCE


@pytest.mark.parametrize("row", [param for param in of_several() if clips(param.values[0].program)])
def test_clipping_of_the_mean_is_refused_with_several_trainers(row):
    with pytest.raises(ValueError, match="needs the mean of the gradients of all 2 trainers"):
        together(row.program, Team(2, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_two_trainers_and_two_servers_are_one_process_that_averages(kind):
    program = program_with_all(kind)
    assert np.abs(together(program, Team(2, 2)) - averaged(program)).max() <= TOLERANCE


def test_the_reference_is_current():
    path = Path(__file__).parents[3] / "docs/reference/ps-paddle.md"
    assert path.read_text() == paddle_page.page(ROWS), f"run `{paddle_page.COMMAND}`"


def test_programs_are_the_same_twice():
    program = BASE["Adam"]
    assert paddle_programs.plain(program).tobytes() == plain_result(program).tobytes()

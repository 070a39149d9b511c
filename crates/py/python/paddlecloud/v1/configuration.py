"""What a configuration of v1 says: its outputs, settings and data sources. One is read at a time."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any

from paddlecloud.legacy import graph, optimizers
from paddlecloud.legacy.graph import Node
from paddlecloud.v1 import order


class ConfigError(Exception):
    """A configuration that cannot be used."""


@dataclass
class Source:
    """Where samples come from: a list of files, and the provider that reads them."""

    files: str | None
    module: str
    function: str
    arguments: dict[str, Any]


@dataclass
class Configuration:
    arguments: dict[str, str] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)
    inputs: list[str] | None = None
    batch_size: int = 1
    optimizer: optimizers.Optimizer | None = None
    train: Source | None = None
    test: Source | None = None
    # All layers, for outputs that are named by text.
    named: list[Node] = field(default_factory=list)
    # Values of `default_momentum` and the like, which count for parameters that say nothing.
    defaults: dict[str, float] = field(default_factory=dict)

    def finish(self) -> None:
        """Applies what may be said after `settings`."""
        if self.optimizer is None:
            self.optimizer = optimizers.Momentum()
        if "momentum" in self.defaults and isinstance(self.optimizer, optimizers.Momentum):
            self.optimizer.momentum = self.defaults["momentum"]
        self.optimizer.l2 = self.defaults.get("decay_rate", self.optimizer.l2)
        by_name = {node.name: node for node in self.named}
        for place, output in enumerate(self.outputs):
            if isinstance(output, str):
                if output not in by_name:
                    raise ConfigError(f"`Outputs` names `{output}`, which is not a layer")
                self.outputs[place] = by_name[output]

    def input_order(self) -> list[Node]:
        """Data layers in the order of a provider's samples."""
        found = order.data_layers(self.outputs)
        if self.inputs is not None:
            known = {node.name: node for node in found}
            missing = [name for name in self.inputs if name not in known]
            if missing:
                raise ConfigError(f"`inputs` names `{missing[0]}`, which is not a data layer of the outputs")
            return [known[name] for name in self.inputs]
        return found


_current: list[Configuration] = []


def current() -> Configuration:
    """The configuration that is being read."""
    if not _current:
        _current.append(Configuration())
    return _current[-1]


def is_being_read() -> bool:
    return bool(_current)


def read(path: str, arguments: dict[str, str]) -> Configuration:
    """Runs a configuration file and returns what it said. Its folder is on `sys.path`, as for a program."""
    if not os.path.exists(path):
        raise ConfigError(f"there is no configuration `{path}`; name one with `--config`")
    made = Configuration(arguments)
    graph.reset_names()
    _current.append(made)
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        _run(path)
    finally:
        _current.pop()
    if not made.outputs:
        raise ConfigError(f"`{path}` has no `outputs(...)`")
    made.finish()
    return made


def _run(path):
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec")
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno}: {error.msg}; `paddlectl doctor --fix {path}` translates Python 2") from None
    try:
        exec(code, {"__name__": "__paddle_config__", "__file__": path})
    except (ConfigError, graph.GraphError, NotImplementedError):
        raise
    except Exception as error:
        line = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == path][-1:]
        place = f"{path}:{line[0]}" if line else path
        raise ConfigError(f"{place}: {type(error).__name__}: {error}{_close_name(error)}") from error


def _close_name(error):
    """A name of ours that is like the one that is not there."""
    if not isinstance(error, NameError):
        return ""
    from paddlecloud.v1 import names

    found = difflib.get_close_matches(error.name or "", names.__all__, 1)
    return f"; did you mean `{found[0]}`?" if found else ""


def outputs(*layers) -> None:
    """The layers to compute: the cost in training."""
    for each in layers:
        current().outputs += each if isinstance(each, (list, tuple)) else [each]


def inputs(*layers) -> None:
    """The order of the data layers in samples."""
    flat = [node for each in layers for node in (each if isinstance(each, (list, tuple)) else [each])]
    current().inputs = [node.name if isinstance(node, Node) else node for node in flat]


def get_config_arg(name, type_, default=None):
    """An argument of `--config_args`."""
    value = current().arguments.get(name)
    if value is None:
        return default
    if type_ is bool:
        return value.strip().lower() not in ("", "0", "false", "no")
    return type_(value)


@dataclass(frozen=True)
class Method:
    """A learning method without its rate, which `settings` has."""

    kind: type
    options: dict[str, Any]


def settings(batch_size, learning_rate=1e-3, learning_method=None, **options) -> None:
    """How to train. Options are those of `paddle.optimizer`."""
    for unused in ("algorithm", "async_lagged_grad_discard_ratio", "num_batches_per_send_parameter", "num_batches_per_get_parameter"):
        options.pop(unused, None)
    window, longest = options.pop("average_window", None), options.pop("max_average_window", None)
    options.pop("do_average_in_cpu", None)
    if window:
        options.setdefault("model_average", optimizers.ModelAverage(window, longest))
    method = learning_method or Method(optimizers.Momentum, {})
    if not isinstance(method, Method):
        raise ConfigError(
            f"{graph.users_line()}: `learning_method` must be an optimizer such as AdamOptimizer(), not {method!r}"
        )
    configuration = current()
    configuration.batch_size = batch_size
    configuration.optimizer = method.kind(learning_rate=learning_rate, **method.options, **options)


def Settings(batch_size, learning_rate=1e-3, learning_method="momentum", **options) -> None:  # noqa: N802 - the name of 2016
    """The older form of `settings`, with the method's name as text."""
    kinds = {
        "momentum": optimizers.Momentum, "adagrad": optimizers.AdaGrad, "adadelta": optimizers.AdaDelta, "rmsprop": optimizers.RMSProp,
        "decayed_adagrad": optimizers.DecayedAdaGrad, "adam": optimizers.Adam, "adamax": optimizers.Adamax,
    }  # fmt: skip
    if learning_method not in kinds:
        raise ConfigError(f"{graph.users_line()}: `learning_method` must be one of {', '.join(kinds)}, not {learning_method!r}")
    settings(batch_size, learning_rate, Method(kinds[learning_method], {}), **options)


def Inputs(*names) -> None:  # noqa: N802
    """The older form of `inputs`."""
    inputs(*names)


def Outputs(*names) -> None:  # noqa: N802
    """The older form of `outputs`: layers by name."""
    current().outputs += names


def default_momentum(value) -> None:
    current().defaults["momentum"] = value


def default_decay_rate(value) -> None:
    """L2 regularization of all parameters."""
    current().defaults["decay_rate"] = value


def default_device(value) -> None:
    """Devices of 2016 have no meaning here."""


def define_py_data_sources2(train_list, test_list, module, obj, args=None) -> None:
    """The providers of training and test data; `module`, `obj` and `args` may be pairs for both."""

    def of(value, number):
        return value[number] if isinstance(value, (list, tuple)) else value

    configuration = current()
    for number, (attribute, files) in enumerate((("train", train_list), ("test", test_list))):
        if files is not None:
            source = Source(files, of(module, number), of(obj, number), dict(of(args, number) or {}))
            setattr(configuration, attribute, source)

"""`paddle train`: trains, tests or checks a configuration of v1.

python -m paddlecloud.v1.train --config=trainer_config.py --num_passes=3 --save_dir=output
"""

from __future__ import annotations

import itertools
import os
import sys

from paddlecloud.legacy import archive, events, graph, log, settings
from paddlecloud.legacy.feeder import FeedError
from paddlecloud.legacy.layers import COSTS
from paddlecloud.legacy.machine import Machine
from paddlecloud.legacy.metrics import Metrics
from paddlecloud.legacy.parameters import Parameters
from paddlecloud.legacy.training import NoSamples, Trainer
from paddlecloud.v1 import configuration, gradients, predictions
from paddlecloud.v1.configuration import ConfigError
from paddlecloud.v1.flags import Flags
from paddlecloud.v1.provider import Samples


def main(arguments: list[str]) -> int:
    try:
        flags = Flags(arguments)
        log.command_line(flags.words())
        flags.publish()
        settings.set_options(use_gpu=flags["use_gpu"], seed=flags.number("seed"), trainer_id=flags.number("trainer_id"))
        job = Job(flags)
        return {"train": job.train, "test": job.test, "checkgrad": job.check_gradients}[flags["job"]]()
    except (ConfigError, graph.GraphError, FeedError, archive.ArchiveError, NotImplementedError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


class Job:
    """A configuration with its parameters and data."""

    def __init__(self, flags: Flags):
        self._flags = flags
        self._config = config = configuration.read(flags["config"], _config_args(flags["config_args"]))
        self._inputs = config.input_order()
        log.orders(self._inputs, config.outputs)
        if flags["job"] == "test":
            log.line("Trainer.cpp:149", "trainer: in testing mode")
        log.line("Trainer.cpp:165", f"trainer mode: {'Testing' if flags['job'] == 'test' else 'Normal'}")
        self._samples = {}
        for kind in ("train", "test"):
            source = getattr(config, kind)
            if source is not None:
                log.line("PyDataProvider2.cpp:243", f"loading dataprovider {source.module}::{source.function}")
                self._samples[kind] = Samples(source, self._inputs, kind == "train", config.batch_size)
        with log.making_parameters():
            self._parameters = Parameters.of(graph.ancestors(config.outputs))
        self._load()
        self._costs = [node for node in config.outputs if node.kind in COSTS]

    def train(self) -> int:
        samples = self._data("train")
        trainer = self._trainer()
        passes = self._flags.number("num_passes")
        report = _Report(self, trainer, self._flags)
        try:
            trainer.train(lambda: report.counting(samples.batches()), passes, report.on_event, samples.feeding)
        except NoSamples:
            raise ConfigError(samples.missing()) from None
        return 0

    def test(self) -> int:
        samples = self._data("test")
        if self._flags["predict_output_dir"] or not self._costs:
            machine = Machine(self._config.outputs, self._parameters)
            predictions.write(machine, samples, self._flags["predict_output_dir"])
        elif not self.report_test(self._trainer(is_local=True)):
            raise ConfigError("there is no sample to test with")
        return 0

    def check_gradients(self) -> int:
        samples = self._data("train")
        batch = next(iter(samples.batches()), None)
        if batch is None:
            raise ConfigError("there is no sample to check gradients with")
        machine = Machine(self._config.outputs, self._parameters)
        worst = gradients.check(machine, self._the_costs(), machine.feeder(samples.feeding)(batch), float(self._flags["checkgrad_eps"]))
        return 0 if worst < gradients.TOLERANCE else 1

    def report_test(self, trainer) -> bool:
        """Tests on the test data, if there is any: of many trainers, some may have no file of it."""
        if "test" not in self._samples:
            return False
        samples = self._samples["test"]
        waiting = iter(samples.batches())
        first = next(waiting, None)
        if first is None:
            return False
        counted = 0

        def batches():
            nonlocal counted
            for batch in itertools.chain([first], waiting):
                counted += len(batch)
                yield batch

        result = trainer.test(batches, samples.feeding)
        log.line("Tester.cpp:127", f" Test samples={counted} cost={result.cost:g} Eval: {_metrics(result.metrics)}")
        return True

    def _the_costs(self):
        if not self._costs:
            raise ConfigError(f"`outputs(...)` of `{self._flags['config']}` has no cost layer")
        return self._costs

    def _trainer(self, is_local=None):
        others = [node for node in self._config.outputs if node.kind not in COSTS]
        if is_local is None and self._flags["local"]:
            is_local = settings.truth(self._flags["local"])
        return Trainer(self._the_costs(), self._parameters, self._config.optimizer, others, is_local, is_quiet=True)

    def _data(self, kind):
        if kind not in self._samples:
            raise ConfigError(f"the configuration has no {kind}ing data: call `define_py_data_sources2`")
        return self._samples[kind]

    def save(self, number) -> None:
        if not self._flags["save_dir"] or self._flags.number("trainer_id") != 0:
            return
        folder = os.path.join(self._flags["save_dir"], f"pass-{number:05d}")
        os.makedirs(folder, exist_ok=True)
        for name in self._parameters.names():
            with open(os.path.join(folder, name), "wb") as file:
                self._parameters.serialize(name, file)
        with open(os.path.join(folder, "done"), "w"):
            pass
        log.line("ParamUtil.cpp:63", f"save dir {folder}")

    def _load(self):
        folder = self._flags["init_model_path"]
        before = self._flags.number("start_pass") - 1
        if self._flags["job"] == "test":
            before = self._flags.number("test_pass")
        if not folder and before >= 0 and self._flags["save_dir"]:
            folder = os.path.join(self._flags["save_dir"], f"pass-{before:05d}")
        if folder:
            load(self._parameters, folder, graph.ancestors(self._config.outputs))


def load(parameters: Parameters, folder: str, nodes: list[graph.Node]) -> None:
    """Takes over the parameters of `nodes` that `paddle train` or a parameter server saved in a folder."""
    if not os.path.isdir(folder):
        raise ConfigError(f"there is no folder `{folder}` with a model")
    for node in nodes:
        for spec in graph.own_parameters(node):
            try:
                with open(os.path.join(folder, spec.name), "rb") as file:
                    values = archive.read_values(file.read(), spec.name)
            except FileNotFoundError:
                raise node.fail(f"`{folder}` has no parameter `{spec.name}`; it belongs to another network") from None
            if values.size != spec.size:
                raise node.fail(
                    f"parameter `{spec.name}` has {values.size} values in `{folder}`, but this network needs {spec.size}; it belongs to another network"
                )
            parameters.set(spec.name, values.reshape(spec.shape))


def _config_args(text):
    found = {}
    for part in filter(None, text.split(",")):
        name, is_given, value = part.partition("=")
        if not is_given:
            raise ConfigError(f"`--config_args` must look like `name=value,name=value`, not {text!r}")
        found[name.strip()] = value
    return found


class _Report:
    """What is logged and saved while a job trains."""

    def __init__(self, job: Job, trainer: Trainer, flags: Flags):
        self._job = job
        self._trainer = trainer
        self._flags = flags
        self._period = max(flags.number("log_period"), 1)
        self._dots = flags.number("dot_period")
        self._is_after_dots = False
        self._recent = Metrics(trainer.evaluators)

    def counting(self, batches):
        for batch in batches:
            self._batch_size = len(batch)
            yield batch

    def on_event(self, event):
        if isinstance(event, events.BeginPass):
            self._count = _Count()
            self._recent.clear()
        elif isinstance(event, events.EndIteration):
            self._end_of_batch(event)
        elif isinstance(event, events.EndPass):
            number = event.pass_id + self._flags.number("start_pass")
            self._end_dots()
            batches, so_far = self._count.batches, self._count.so_far()
            log.line("TrainerInternal.cpp:182", f" Pass={number} Batch={batches} {so_far} Eval: {_metrics(event.metrics)}")
            self._job.report_test(self._trainer)
            if (event.pass_id + 1) % max(self._flags.number("saving_period"), 1) == 0:
                self._job.save(number)

    def _end_of_batch(self, event):
        count = self._count
        count.add(event.cost, self._batch_size)
        event.count_into(self._recent)
        if count.batches % self._period == 0:
            self._end_dots()
            whole, now = _metrics(event.pass_metrics), _metrics(self._recent.read())
            text = f" Batch={count.batches} {count.so_far()} CurrentCost={count.now():g} Eval: {whole} CurrentEval: {now}"
            log.line("TrainerInternal.cpp:165", text)
            count.begin_period()
            self._recent.clear()
        elif self._dots and count.batches % self._dots == 0:
            print(".", end="", file=sys.stderr, flush=True)
            self._is_after_dots = True

    def _end_dots(self):
        if self._is_after_dots:
            print(file=sys.stderr)
        self._is_after_dots = False


class _Count:
    """Costs of a pass and of the batches since the last line, per sample."""

    def __init__(self):
        self.batches = self.samples = 0
        self.total = 0.0
        self.begin_period()

    def begin_period(self):
        self.recent = 0.0
        self.recent_samples = 0

    def add(self, cost, samples):
        self.batches += 1
        self.samples += samples
        self.total += cost * samples
        self.recent_samples += samples
        self.recent += cost * samples

    def now(self):
        return self.recent / self.recent_samples

    def so_far(self):
        return f"samples={self.samples} AvgCost={self.total / max(self.samples, 1):g}"


def _metrics(found):
    """Each evaluator's number and a space, as the original separated them."""
    return " ".join(f"{name}={value:g} " for name, value in found.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

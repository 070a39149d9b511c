"""`@provider`: functions that read samples from files, as v1's configurations name them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import random
import traceback
from types import SimpleNamespace

from paddlecloud.legacy import feeder, log, settings
from paddlecloud.legacy.types import INTEGER, InputType
from paddlecloud.v1.configuration import ConfigError


class CacheType:
    NO_CACHE = 0
    CACHE_PASS_IN_MEM = 1


class Provider:
    """A decorated function with its options; `Samples` reads files by it."""

    def __init__(self, function, **options):
        self.function = function
        self.options = SimpleNamespace(**options)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def provider(
    input_types=None,
    should_shuffle=None,
    pool_size=-1,
    min_pool_size=-1,
    can_over_batch_size=True,
    calc_batch_size=None,
    cache=CacheType.NO_CACHE,
    check=False,
    check_fail_continue=False,
    init_hook=None,
    **outdated,
):
    """Makes a provider of a generator `process(settings, filename)`.

    input_types: a list in the order of the data layers, or a dict by their names; `init_hook` may set them instead.
    should_shuffle: training data is shuffled and test data is not, unless this says otherwise.
    pool_size: samples in memory while shuffling; -1: all of them.
    min_pool_size: samples that stay in the pool while the files have more; -1: the pool is kept full.
    calc_batch_size: what a sample counts in its batch, instead of 1.
    can_over_batch_size: whether the last sample of a batch may exceed the batch's size.
    cache: with CACHE_PASS_IN_MEM the files are read in the first pass only.
    check: compare every sample with the input types; with `check_fail_continue` wrong samples are skipped with a warning.
    init_hook: called as `init_hook(settings, file_list=…, is_train=…, **args of the configuration)` before anything is read.
    """
    options = {
        "input_types": input_types or outdated.get("slots"), "should_shuffle": _truth(should_shuffle), "pool_size": pool_size,
        "min_pool_size": min_pool_size, "can_over_batch_size": can_over_batch_size, "calc_batch_size": calc_batch_size, "cache": cache,
        "check": check, "check_fail_continue": check_fail_continue, "init_hook": init_hook,
    }  # fmt: skip
    if callable(input_types) and not outdated:  # used without parentheses
        return Provider(input_types, **{**options, "input_types": None})
    return functools.partial(Provider, **options)


def _truth(value):
    """`should_shuffle` as 2016 understood it: also 1, 't', 'on' and the like."""
    if isinstance(value, str):
        value = value.lower()
    if value in (1, "t", "true", "on"):
        return True
    if value in (0, "f", "false", "off"):
        return False
    if value is not None:
        log.say("PyDataProvider2.py:345", f"`should_shuffle` must be True, False or None, not {value!r}; it is ignored", "WARNING")
    return None


class Samples:
    """The samples of a source, pass after pass, in batches."""

    def __init__(self, source, data_nodes, is_train, batch_size):
        self._name = f"{source.module}.{source.function}"
        self._list = source.files
        found = _import(source)
        self._function = found.function
        self._options = found.options
        self._is_train = is_train
        self._batch_size = batch_size
        self._files = read_list(source.files)
        # As in 2017, `--seed` decides the order too; a provider's own random numbers are not touched. Trainers that read the
        # same files do so in different orders: equal batches would teach them nothing new.
        self._order = random.Random(settings.seed() + int(settings.options.get("trainer_id") or 0))
        self._settings = SimpleNamespace(
            input_types=found.options.input_types,
            slots=found.options.input_types,
            is_train=is_train,
            input_order=[node.name for node in data_nodes],
            logger=log.logger(),
        )
        if found.options.init_hook is not None:
            with self._naming_the_users_line("`init_hook`"):
                found.options.init_hook(self._settings, file_list=self._files, is_train=is_train, **source.arguments)
        types = self._settings.input_types or getattr(self._settings, "slots", None)
        self.feeding = _assign(types, data_nodes, self._name)
        self._nodes = data_nodes
        self._count = len(types) if isinstance(types, (dict, list, tuple)) else 1
        self._kept = None

    def missing(self) -> str:
        """Why there is no sample."""
        listed = f"`{self._list}`" if isinstance(self._list, str) else "the file list"
        if not self._files:
            return f"no sample to train with: {listed} is empty; it must have one line per data file"
        count = "1 file" if len(self._files) == 1 else f"{len(self._files)} files"
        return f"no sample to train with: provider `{self._name}` yielded none for the {count} of {listed}"

    def batches(self):
        size_of = self._options.calc_batch_size or (lambda sample: 1)
        batch, size = [], 0
        for sample in self._shuffled():
            more = size_of(sample)
            if batch and not self._options.can_over_batch_size and size + more > self._batch_size:
                yield batch
                batch, size = [], 0
            batch.append(sample)
            size += more
            if size >= self._batch_size:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _shuffled(self):
        wanted = self._options.should_shuffle
        samples = self._read()
        if not (self._is_train if wanted is None else wanted):
            yield from samples
            return
        pool, limit = [], self._options.pool_size
        least = limit - 1 if self._options.min_pool_size < 0 else min(self._options.min_pool_size, limit - 1)
        for sample in samples:
            pool.append(sample)
            if 0 < limit <= len(pool):
                self._order.shuffle(pool)
                while len(pool) > max(least, 0):
                    yield pool.pop()
        self._order.shuffle(pool)
        yield from pool

    def _read(self):
        if self._options.cache != CacheType.CACHE_PASS_IN_MEM:
            return self._from_files()
        if self._kept is None:
            self._kept = list(self._from_files())
        return iter(self._kept)

    def _from_files(self):
        for name in self._files:
            with self._naming_the_users_line(f"on `{name}`" if name.strip() else "on a blank line of its file list"):
                for sample in self._function(self._settings, name):
                    # With one input type, what a provider yields is the value itself.
                    sample = sample if isinstance(sample, dict) or self._count > 1 else (sample,)
                    if not self._options.check or self._is_right(sample, name):
                        yield sample

    def _is_right(self, sample, name):
        try:
            for node in self._nodes:
                feeder.check(node, sample[self.feeding[node.name]])
        except (feeder.FeedError, LookupError, TypeError) as error:
            if not self._options.check_fail_continue:
                raise
            log.say("PyDataProvider2.py:180", f"a sample of `{name}` is skipped: {error}", "WARNING")
            return False
        return True

    @contextlib.contextmanager
    def _naming_the_users_line(self, where):
        try:
            yield
        except (feeder.FeedError, ConfigError, GeneratorExit):
            raise
        except Exception as error:
            line = self._users_line(traceback.extract_tb(error.__traceback__))
            raise ConfigError(f"provider `{self._name}` failed {where} at {line}: {type(error).__name__}: {error}") from error

    def _users_line(self, frames):
        """The innermost line in the provider's own folder: an error is often raised in a library that it calls."""
        folder = os.path.dirname(self._function.__code__.co_filename)
        place = next((frame for frame in reversed(frames) if os.path.dirname(frame.filename) == folder), frames[-1])
        return f"{os.path.basename(place.filename)}:{place.lineno}"


def _import(source):
    try:
        module = importlib.import_module(source.module)
    except ModuleNotFoundError as error:
        if error.name != source.module:
            raise
        raise ConfigError(f"there is no module `{source.module}` for the data provider; it must be beside the configuration") from None
    found = getattr(module, source.function, None)
    if not isinstance(found, Provider):
        raise ConfigError(f"`{source.module}.{source.function}` is not a function with `@provider`")
    return found


def read_list(path):
    """The lines of a list, each as it is: a blank one is an entry too, which a provider that reads no file may get.

    The last line may lack its end.
    """
    if not isinstance(path, str):
        return list(path)
    if not os.path.exists(path):
        raise ConfigError(f"there is no file list `{path}`; it must name one data file per line")
    with open(path) as file:
        return [line.removesuffix("\n") for line in file]


def _assign(types, data_nodes, name):
    """Gives the data layers their types; returns where each layer's part of a sample is."""
    if not types:
        raise ConfigError(f"provider `{name}` has no `input_types`; set them in `@provider` or in its `init_hook`")
    if isinstance(types, InputType):
        types = [types]
    if not isinstance(types, dict):
        if len(types) < len(data_nodes):
            raise ConfigError(f"provider `{name}` has {len(types)} input types for {len(data_nodes)} data layers")
        feeding = {node.name: number for number, node in enumerate(data_nodes)}
        types = {node.name: types[number] for number, node in enumerate(data_nodes)}
    else:
        feeding = {node.name: node.name for node in data_nodes}
    for node in data_nodes:
        if node.name not in types:
            raise ConfigError(f"provider `{name}` has no input type for data layer `{node.name}` ({node.line})")
        is_only_printed = node.size == 1 and types[node.name].kind == INTEGER
        if types[node.name].dim != node.size and not is_only_printed:
            raise ConfigError(
                f"data layer `{node.name}` ({node.line}) has size {node.size}, but provider `{name}` gives {types[node.name].dim}"
            )
        node.conf["type"] = types[node.name]
    return feeding

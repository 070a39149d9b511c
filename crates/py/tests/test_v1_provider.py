"""`@provider` and its options, without training: samples and batches as a configuration gets them. Needs no PaddlePaddle."""

import json
import sys
import types

import pytest

import paddlecloud.v1.names as names
from paddle.trainer.PyDataProvider2 import SequenceType, dense_vector, integer_value, integer_value_sequence
from paddlecloud.legacy import settings
from paddlecloud.v1.configuration import ConfigError, Source
from paddlecloud.v1.provider import CacheType, Samples, provider


def samples_of(tmp_path, decorated, sizes=(100,), is_train=False, batch_size=4, files="a\nb", **arguments):
    """Samples of a provider for data layers of these sizes; the list of files lacks its last newline, as in the documents."""
    module = types.ModuleType("own_provider")
    module.process = decorated
    sys.modules["own_provider"] = module
    (tmp_path / "list").write_text(files)
    nodes = [names.data_layer(name=f"x{number}", size=size) for number, size in enumerate(sizes)]
    return Samples(Source(str(tmp_path / "list"), "own_provider", "process", arguments), nodes, is_train, batch_size)


def numbers(count):
    return lambda settings, name: iter(range(count))


def flat(samples):
    return [sample[0] for batch in samples.batches() for sample in batch]


def test_every_file_of_the_list_is_read(tmp_path):
    seen = []

    @provider(input_types=[integer_value(100)])
    def process(settings, name):
        seen.append(name)
        yield 1

    assert flat(samples_of(tmp_path, process)) == [1, 1]
    assert seen == ["a", "b"]


def test_with_one_input_type_a_list_is_the_value_however_long(tmp_path):
    process = provider(input_types=[integer_value_sequence(100)])(lambda settings, name: iter([[5], [6, 7]]))
    assert flat(samples_of(tmp_path, process, files="a")) == [[5], [6, 7]]


def test_samples_may_be_lists_or_dicts(tmp_path):
    types_ = [integer_value(100), dense_vector(2)]
    process = provider(input_types=types_)(lambda settings, name: iter([[1, [0.5, 2.0]]]))
    samples = samples_of(tmp_path, process, (100, 2), files="a")
    assert samples.feeding == {"x0": 0, "x1": 1} and list(samples.batches()) == [[[1, [0.5, 2.0]]]]
    by_name = {"x1": dense_vector(2), "x0": integer_value(100)}
    process = provider(input_types=by_name)(lambda settings, name: iter([{"x0": 1, "x1": [0.5, 2.0]}]))
    samples = samples_of(tmp_path, process, (100, 2), files="a")
    assert samples.feeding == {"x0": "x0", "x1": "x1"}


def test_each_trainer_reads_the_same_files_in_an_order_of_its_own(tmp_path, monkeypatch):
    def order_of(trainer):
        monkeypatch.setitem(settings.options, "trainer_id", trainer)
        return flat(samples_of(tmp_path, provider(input_types=[integer_value(500)])(numbers(300)), sizes=(500,), is_train=True))

    assert order_of("0") == order_of(0) != order_of("1")
    assert sorted(order_of("0")) == sorted(order_of("1"))


@pytest.mark.parametrize("wanted, is_train, is_shuffled", [(None, True, True), (None, False, False), (False, True, False), ("on", False, True)])
def test_only_training_data_is_shuffled_unless_the_provider_says_otherwise(tmp_path, wanted, is_train, is_shuffled):
    process = provider(input_types=[integer_value(500)], should_shuffle=wanted)(numbers(300))
    found = flat(samples_of(tmp_path, process, (500,), is_train, files="a"))
    assert sorted(found) == list(range(300))
    assert (found != list(range(300))) == is_shuffled


def test_a_pool_bounds_how_far_a_sample_can_move_and_how_many_are_in_memory(tmp_path):
    taken = []

    def count(settings, name):
        for number in range(300):
            taken.append(number)
            yield number

    process = provider(input_types=[integer_value(500)], should_shuffle=True, pool_size=20)(count)
    samples = samples_of(tmp_path, process, (500,), files="a", batch_size=1)
    found = []
    for batch in samples.batches():
        found += [sample[0] for sample in batch]
        assert len(taken) - len(found) < 20, "no more than the pool is in memory"
    assert sorted(found) == list(range(300)) and found != sorted(found)


def test_the_pool_may_run_down_to_its_least_size(tmp_path):
    process = provider(input_types=[integer_value(500)], should_shuffle=True, pool_size=20, min_pool_size=0)(numbers(300))
    found = flat(samples_of(tmp_path, process, (500,), files="a"))
    blocks = [found[start : start + 20] for start in range(0, 300, 20)]
    assert [sorted(block) for block in blocks] == [list(range(start, start + 20)) for start in range(0, 300, 20)]
    assert found != sorted(found)


def test_samples_may_count_more_than_one_in_a_batch(tmp_path):
    def sizes(**options):
        process = provider(input_types=[integer_value(100)], calc_batch_size=lambda sample: sample[0], **options)
        process = process(lambda settings, name: iter([3, 3, 1, 1, 5]))
        return [[sample[0] for sample in batch] for batch in samples_of(tmp_path, process, files="a").batches()]

    assert sizes() == [[3, 3], [1, 1, 5]]
    assert sizes(can_over_batch_size=False) == [[3], [3, 1], [1], [5]]


def test_a_cache_reads_the_files_once(tmp_path):
    reads = []

    def process(settings, name):
        reads.append(name)
        yield 1

    for cache, expected in ((CacheType.CACHE_PASS_IN_MEM, 2), (CacheType.NO_CACHE, 4)):
        reads.clear()
        samples = samples_of(tmp_path, provider(input_types=[integer_value(9)], cache=cache)(process), (9,))
        assert flat(samples) == flat(samples) == [1, 1]
        assert len(reads) == expected


def test_checked_samples_are_refused_or_left_out(tmp_path, capsys):
    def rows():
        return lambda settings, name: iter([1, 100, 2, "x"])

    process = provider(input_types=[integer_value(100)], check=True)(rows())
    with pytest.raises(ValueError, match=r"`x0` .*id 100 of item 0 must be at least 0 and below 100"):
        flat(samples_of(tmp_path, process, files="a"))
    process = provider(input_types=[integer_value(100)], check=True, check_fail_continue=True)(rows())
    assert flat(samples_of(tmp_path, process, files="a")) == [1, 2]
    assert capsys.readouterr().err.count("is skipped") == 2
    process = provider(input_types=[integer_value(100)], check_fail_continue=True)(rows())
    assert flat(samples_of(tmp_path, process, files="a")) == [1, 100, 2, "x"], "without `check` nothing is checked"


def test_the_hook_gets_the_files_and_the_configurations_arguments(tmp_path):
    seen = {}

    def hook(settings, file_list, is_train, size, **rest):
        seen.update(files=file_list, is_train=is_train)
        settings.input_types = [integer_value(size, seq_type=SequenceType.NO_SEQUENCE)]
        settings.offset = 5

    @provider(init_hook=hook)
    def process(settings, name):
        yield settings.offset

    assert flat(samples_of(tmp_path, process, size=100)) == [5, 5]
    assert seen == {"files": ["a", "b"], "is_train": False}


def test_a_provider_that_raises_is_named_with_its_line(tmp_path):
    @provider(input_types=[integer_value(9)])
    def process(settings, name):
        yield int("seven")

    with pytest.raises(ConfigError, match=r"provider `own_provider.process` failed on `a` at test_v1_provider.py:\d+: ValueError: .*seven"):
        flat(samples_of(tmp_path, process, (9,)))


def test_a_provider_that_fails_in_a_library_is_named_with_its_own_line(tmp_path):
    @provider(input_types=[integer_value(9)])
    def process(settings, name):
        yield json.loads("{")

    with pytest.raises(ConfigError, match=r"failed on `a` at test_v1_provider.py:\d+: JSONDecodeError: "):
        flat(samples_of(tmp_path, process, (9,)))


def test_missing_lists_modules_and_types_are_explained(tmp_path):
    process = provider(input_types=[integer_value(9)])(numbers(1))
    with pytest.raises(ConfigError, match="has size 5, but provider `own_provider.process` gives 9"):
        samples_of(tmp_path, process, (5,))
    with pytest.raises(ConfigError, match="has 1 input types for 2 data layers"):
        samples_of(tmp_path, process, (9, 9))
    with pytest.raises(ConfigError, match="there is no file list `nowhere`"):
        Samples(Source("nowhere", "own_provider", "process", {}), [], False, 1)
    with pytest.raises(ConfigError, match="there is no module `no_such_provider`"):
        Samples(Source(str(tmp_path / "list"), "no_such_provider", "process", {}), [], False, 1)


@pytest.mark.parametrize("text, expected", [("a\n\nb\n", ["a", "", "b"]), (" ", [" "]), ("\n", [""]), ("a \nb", ["a ", "b"]), ("", [])])
def test_every_line_of_a_list_is_an_entry_as_it_is(tmp_path, text, expected):
    seen = []

    @provider(input_types=[integer_value(100)])
    def process(settings, name):
        seen.append(name)
        yield 1

    assert flat(samples_of(tmp_path, process, files=text)) == [1] * len(expected)
    assert seen == expected


def test_a_provider_that_fails_on_a_blank_line_is_told_apart(tmp_path):
    @provider(input_types=[integer_value(9)])
    def process(settings, name):
        yield int(open(name).read())

    with pytest.raises(ConfigError, match=r"failed on a blank line of its file list at .*: FileNotFoundError: "):
        flat(samples_of(tmp_path, process, (9,), files="\n"))

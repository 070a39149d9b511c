"""Prepares data sets for many trainers, and gives each trainer its part.

`convert` writes RecordIO files, `split` files of pickled lists; `cluster_files_reader` reads the latter. Every
sample lands in exactly one file, and no file is seen before it is whole.
"""

import contextlib
import glob
import hashlib
import inspect
import itertools
import os
import pickle
import re
import shutil
import tempfile
import urllib.error
import urllib.request
import warnings

from paddle.v2.reader.decorator import samples_of
from paddlecloud._marshal_check import checked_dumper
from paddlecloud._native import writer as _record_writer
from paddlecloud.legacy.graph import users_frame

__all__ = ["DATA_HOME", "cluster_files_reader", "convert", "download", "md5file", "split"]

_TIMEOUT_SECONDS = 60
_checked: set[str] = set()


def _data_home():
    if os.environ.get("DATA_HOME"):
        return os.environ["DATA_HOME"]
    datacenter = os.environ.get("PADDLE_CLOUD_CURRENT_DATACENTER")
    if datacenter:
        return f"/pfs/{datacenter}/public/dataset"
    return os.path.expanduser("~/.cache/paddle/dataset")


DATA_HOME = _data_home()


def convert(
    output_path, reader, line_count=None, name_prefix=None, num_shards=None, *, num_prefix=None, compressor="snappy"
):
    """Writes the samples of `reader` to RecordIO files `<prefix>-00000-of-00009` in `output_path`.

    Each record is one pickled sample. Either `line_count` samples go into each file, the last one being
    shorter, or `num_shards` files take turns, so that their sizes differ by one at most. Files of an earlier
    conversion with the same prefix are replaced.
    """
    prefix = _one_of("name_prefix", name_prefix, "num_prefix", num_prefix)
    _check_prefix(prefix)
    if (line_count is None) == (num_shards is None):
        raise TypeError("convert() takes either `line_count`, samples per file, or `num_shards`, number of files")
    os.makedirs(output_path, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=f".{prefix}-", dir=output_path)
    try:
        if num_shards is None:
            count = _write_by_count(folder, samples_of(reader), _positive("line_count", line_count), compressor)
        else:
            count = _write_in_turns(folder, samples_of(reader), _positive("num_shards", num_shards), compressor)
        _publish(folder, count, output_path, prefix)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def split(reader, line_count, suffix="%05d.pickle", dumper=pickle.dump):
    """Writes the samples of `reader` to files of `line_count` samples, each file one list.

    `suffix` names the files and has one `%05d` for their number; `dumper(obj=list, file=file)` writes one, by
    position if its parameters have other names. Nothing is replaced before all files are written; then those with higher numbers from an earlier split of the same name
    are removed.
    """
    _positive("line_count", line_count)
    _check_suffix(suffix)
    dump = _by_names(checked_dumper(dumper), "obj", "file")
    drafts = []
    try:
        for samples in _lists(samples_of(reader), line_count):
            name = suffix % len(drafts)
            drafts.append((_draft(name, samples, dump), name))
        for draft, name in drafts:
            os.replace(draft, name)
    except BaseException:
        for draft, _ in drafts:
            _unlink(draft)
        raise
    _remove_beyond(suffix, len(drafts))


def cluster_files_reader(files_pattern, trainer_count, trainer_id=None, loader=pickle.load, *, train_id=None):
    """A reader of this trainer's share of the files that `split` wrote.

    Of the files sorted by name, number i belongs to trainer i modulo `trainer_count`. `loader(f=file)` reads one, by
    position if its parameter has another name.
    """
    trainer_id = _one_of("trainer_id", trainer_id, "train_id", train_id)
    _positive("trainer_count", trainer_count)
    load = _by_names(loader, "f")
    if not 0 <= trainer_id < trainer_count:
        raise ValueError(f"trainer_id {trainer_id} is not one of {trainer_count} trainers, counted from 0")

    def reader():
        files = sorted(glob.glob(files_pattern))
        if not files:
            raise FileNotFoundError(f"no file matches `{files_pattern}`")
        for name in files[trainer_id::trainer_count]:
            with open(name, "rb") as file:
                samples = load(file)
            yield from samples

    return reader


def md5file(name):
    """The MD5 of a file, in hexadecimal."""
    with open(name, "rb") as file:
        digest = hashlib.md5(usedforsecurity=False)
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def download(url, module_name, md5sum, save_name=None):
    """The local name of a data set's file: the one in DATA_HOME, else fetched to it.

    A file that is there is used; one with another MD5 than the original's is reported by a warning.
    """
    folder = os.path.join(DATA_HOME, module_name)
    name = os.path.join(folder, save_name or url.rsplit("/", 1)[-1])
    if os.path.exists(name):
        _warn_if_changed(name, md5sum)
        return name
    upload = " (`paddlectl cp`)" if name.startswith("/pfs/") else ""
    how = f"put the file with MD5 {md5sum} at `{name}`{upload}, or set DATA_HOME to a folder that has `{module_name}/`"
    try:
        os.makedirs(folder, exist_ok=True)
        _fetch(url, name, md5sum)
    except (OSError, urllib.error.URLError) as error:
        raise RuntimeError(f"`{name}` does not exist and cannot be fetched from {url} ({error}): {how}") from error
    return name


def _warn_if_changed(name, md5sum):
    """Data sets are read several times in a program; each file is checked and reported once."""
    if name not in _checked:
        _checked.add(name)
        found = md5file(name)
        if found != md5sum:
            frame = users_frame()
            place = ("reader", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
            warnings.warn_explicit(f"`{name}` has MD5 {found}, not {md5sum} of the original archive; it is used as it is", UserWarning, *place)


def _fetch(url, name, md5sum):
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(name), prefix=".fetch-", delete=False) as file:
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply:
                shutil.copyfileobj(reply, file, 1 << 20)
            file.flush()
            found = md5file(file.name)
            if found != md5sum:
                raise OSError(f"the download has MD5 {found}")
            os.chmod(file.name, 0o644)
            os.replace(file.name, name)
        except BaseException:
            os.unlink(file.name)
            raise


def _write_by_count(folder, samples, line_count, compressor):
    count = 0
    for block in _blocks(samples, line_count):
        with _record_writer(os.path.join(folder, str(count)), compressor) as out:
            for sample in block:
                out.write(pickle.dumps(sample))
        count += 1
    return count


def _blocks(samples, size):
    """Iterators over `size` samples each, which must be used up in turn; at least one, which may be empty."""
    samples = iter(samples)
    yield itertools.islice(samples, size)
    for first in samples:
        yield itertools.chain([first], itertools.islice(samples, size - 1))


def _write_in_turns(folder, samples, num_shards, compressor):
    outs = [_record_writer(os.path.join(folder, str(number)), compressor) for number in range(num_shards)]
    try:
        for number, sample in enumerate(samples):
            outs[number % num_shards].write(pickle.dumps(sample))
    except BaseException:
        for out in outs:
            out.abandon()
        raise
    for out in outs:
        out.close()
    return num_shards


def _publish(folder, count, output_path, prefix):
    """Gives the files their names in place of those of an earlier conversion, or leaves these as they were."""
    ours = re.compile(re.escape(prefix) + r"-\d{5,}-of-\d{5,}")
    aside = os.path.join(folder, "before")
    os.mkdir(aside)
    before, placed = [], []
    try:
        for name in filter(ours.fullmatch, os.listdir(output_path)):
            path = os.path.join(output_path, name)
            if not os.path.isdir(path):
                os.rename(path, os.path.join(aside, name))
                before.append(name)
        for number in range(count):
            name = f"{prefix}-{number:05d}-of-{count:05d}"
            os.rename(os.path.join(folder, str(number)), os.path.join(output_path, name))
            placed.append(name)
    except BaseException:
        for name in placed:
            _unlink(os.path.join(output_path, name))
        for name in before:
            os.rename(os.path.join(aside, name), os.path.join(output_path, name))
        raise


def _lists(samples, size):
    """Lists of `size` samples; at least one, which may be empty."""
    samples = iter(samples)
    block = list(itertools.islice(samples, size))
    yield block
    while len(block) == size and (block := list(itertools.islice(samples, size))):
        yield block


def _draft(name, samples, dump):
    """Writes a file that is to have this name beside it; gives the name it has until then."""
    folder = os.path.dirname(name) or "."
    os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".split-", delete=False) as file:
        try:
            dump(samples, file)
            file.flush()
            os.chmod(file.name, 0o644)
        except BaseException:
            _unlink(file.name)
            raise
    return file.name


def _by_names(function, *names):
    """`function`, called with arguments of these names if it has them. `marshal` takes arguments by position only."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    own = {name for name, parameter in signature.parameters.items() if parameter.kind in by_name}
    return function if not own.issuperset(names) else lambda *values: function(**dict(zip(names, values)))


def _unlink(name):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)


def _remove_beyond(suffix, count):
    """Removes what an earlier, longer split left behind the files just written."""
    any_number = re.sub(r"%[-+ #0]*\d*[diu]", "*", glob.escape(suffix)).replace("%%", "%")
    for path in glob.glob(any_number):
        for number in (int(digits) for digits in re.findall(r"\d+", path)):
            if number >= count and os.path.normpath(suffix % number) == os.path.normpath(path):
                os.unlink(path)
                break


def _one_of(name, value, other_name, other):
    if value is None and other is None:
        raise TypeError(f"`{name}` is missing")
    if value is not None and other is not None and value != other:
        raise TypeError(f"`{name}` and `{other_name}` are aliases and must not differ")
    return other if value is None else value


def _positive(name, value):
    if value < 1:
        raise ValueError(f"`{name}` must be at least 1, not {value}")
    return value


def _check_prefix(prefix):
    if not prefix or os.path.basename(prefix) != prefix:
        raise ValueError(f"a prefix is the start of a file name, not {prefix!r}; folders go into `output_path`")


def _check_suffix(suffix):
    try:
        distinct = suffix % 0 != suffix % 1
    except (TypeError, ValueError):
        distinct = False
    if not distinct:
        raise ValueError(f"`suffix` needs one `%05d` for the number of the file: {suffix!r}")

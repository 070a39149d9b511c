"""Saved parameters as in 2017: raw files, their descriptions, and tar files of both.

A raw file is 16 bytes (0, bytes per value, number of values) and the values: 4 bytes each, or 8 where 2017's PaddlePaddle was built for doubles. In a tar file each parameter also has a member
`<name>.protobuf` with its description, 2017's message ParameterConfig.
"""

from __future__ import annotations

import io
import struct
import tarfile

import numpy as np

from paddlecloud.legacy.graph import ParameterSpec

_HEAD = struct.Struct("<IIQ")


class ArchiveError(ValueError):
    """Not a saved parameter of 2017's layout."""


def write_values(file, values) -> None:
    values = np.ascontiguousarray(values, np.float32)
    file.write(_HEAD.pack(0, 4, values.size))
    file.write(values.tobytes())


def read_values(data: bytes, name: str):
    if len(data) < _HEAD.size:
        raise ArchiveError(f"parameter `{name}` has {len(data)} bytes, which is less than a header")
    version, width, count = _HEAD.unpack_from(data)
    if version != 0 or width not in (4, 8) or len(data) != _HEAD.size + width * count:
        raise ArchiveError(
            f"parameter `{name}` is not in 2017's layout: version {version}, {width} bytes per value, {count} values in {len(data)} bytes"
        )
    return np.frombuffer(data, f"<f{width}", count, _HEAD.size).astype(np.float32)


def write_tar(file, specs, values) -> None:
    """Writes parameters in order of `specs`. `file` must be open for binary writing."""
    try:
        file.write(b"")
    except TypeError:
        raise TypeError("to_tar needs a file opened for binary writing: `open(path, 'wb')`") from None
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for spec in specs:
            content = io.BytesIO()
            write_values(content, values(spec.name))
            _add(tar, spec.name, content.getvalue())
            _add(tar, f"{spec.name}.protobuf", describe(spec))


def _add(tar, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def read_tar(file):
    """Yields (spec, values) of every parameter."""
    try:
        tar = tarfile.open(fileobj=file, mode="r:*")
    except tarfile.ReadError as error:
        raise ArchiveError(f"not a tar file of parameters: {error}") from error
    with tar:
        members = {member.name: member for member in tar if member.isfile()}
        for name, member in members.items():
            if name.endswith(".protobuf"):
                continue
            values = read_values(tar.extractfile(member).read(), name)
            spec = ParameterSpec(name, (1, values.size))
            if f"{name}.protobuf" in members:
                spec = parse(tar.extractfile(members[f"{name}.protobuf"]).read())
            if spec.size != values.size:
                raise ArchiveError(f"parameter `{name}` has {values.size} values, but its description says {spec.size}")
            yield spec, values.reshape(spec.shape)


# ParameterConfig by field number. Only what a network of ours can have is written; all other fields are skipped when read.

_DOUBLES = {3: "learning_rate", 4: "momentum", 5: "mean", 6: "deviation", 7: "l2", 8: "l1", 17: "clip"}
# A sparse update had a field for local training and one for that with parameter servers; programs set both at once.
_NUMBERS = {11: "is_uniform", 12: "is_smart", 16: "is_sparse", 18: "is_static", 22: "is_sparse"}


def describe(spec: ParameterSpec) -> bytes:
    out = _bytes_field(1, spec.name.encode()) + _number_field(2, spec.size)
    for field, key in _DOUBLES.items():
        value = getattr(spec, key)
        if (
            value is not None
            and (value or key in ("mean", "deviation"))
            and not (key == "learning_rate" and value == 1.0)
        ):
            out += _varint(field << 3 | 1) + struct.pack("<d", value)
    if spec.has_dims:
        out += b"".join(_number_field(9, side) for side in spec.shape)
    return out + b"".join(
        _number_field(field, int(getattr(spec, key))) for field, key in _NUMBERS.items() if getattr(spec, key)
    )


def parse(data: bytes) -> ParameterSpec:
    found, dims, size, name = {}, [], 0, ""
    for field, value in _fields(data):
        if field == 1:
            name = value.decode()
        elif field == 2:
            size = value
        elif field == 9:
            dims += value if isinstance(value, list) else [value]
        elif field in _DOUBLES:
            found[_DOUBLES[field]] = value
        elif field in _NUMBERS:
            found[_NUMBERS[field]] = bool(value)
    return ParameterSpec(name, tuple(dims) if dims else (1, size), has_dims=bool(dims), **found)


def _fields(data):
    at = 0
    try:
        while at < len(data):
            tag, at = _read_varint(data, at)
            field, wire = tag >> 3, tag & 7
            if wire == 0:
                value, at = _read_varint(data, at)
            elif wire == 1:
                (value,) = struct.unpack_from("<d", data, at)
                at += 8
            elif wire == 2:
                size, at = _read_varint(data, at)
                value = data[at : at + size]
                if len(value) != size:
                    raise IndexError
                at += size
                if field == 9:
                    value = _packed(value)
            elif wire == 5:
                value, at = None, at + 4
            else:
                raise ArchiveError(f"a parameter's description has an unknown field type {wire}")
            yield field, value
    except (IndexError, struct.error):
        raise ArchiveError("a parameter's description is truncated") from None


def _packed(data):
    numbers, at = [], 0
    while at < len(data):
        number, at = _read_varint(data, at)
        numbers.append(number)
    return numbers


def _varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _number_field(field, value):
    return _varint(field << 3) + _varint(value)


def _bytes_field(field, value):
    return _varint(field << 3 | 2) + _varint(len(value)) + value

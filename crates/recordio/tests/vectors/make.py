#!/usr/bin/env python3
"""Writes the test vectors in this folder, with nothing but Python's own library.

Independent of the Rust code on purpose: what the two agree on is the format. Record i of a file has
(i * 29) % 400 bytes, byte j of it is (i * 17 + j * j * 3 + j // 7) % 256. Run it again to change them.

fluid-snappystream-cpp.rio is not made here: its payloads were packed by snappystream 0.2.8 and Snappy 1.1.9 (a program
of ten lines that sends its input through `snappy::oSnappyStream`), and put into chunks by `chunk` below.
"""

import gzip
import struct
import zlib
from pathlib import Path

FOLDER = Path(__file__).parent
MAGIC = 0x01020304
NONE, SNAPPY, GZIP = 0, 1, 2


def record(i):
    return bytes((i * 17 + j * j * 3 + j // 7) % 256 for j in range((i * 29) % 400))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def snappy_block(data):
    """One literal per 60 bytes: valid Snappy, if not small."""
    out = bytearray()
    n = len(data)
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    for at in range(0, len(data), 60):
        piece = data[at : at + 60]
        out.append((len(piece) - 1) << 2)
        out += piece
    return bytes(out)


def snappy_frames(data):
    """Compressed and uncompressed frames in turn, with padding between."""
    out = bytearray(b"\xff\x06\x00\x00sNaPpY")
    for n, at in enumerate(range(0, len(data), 500)):
        block = data[at : at + 500]
        crc = crc32c(block)
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        body = struct.pack("<I", masked) + (snappy_block(block) if n % 2 else block)
        out += struct.pack("<I", len(body) << 8 | (0 if n % 2 else 1)) + body
        out += b"\xfe\x02\x00\x00\x00\x00"
    return bytes(out)


def old_snappy_stream(data):
    """What the C++ library of the second layout packs with: `snappystream` 0.2.8, blocks of 32 KiB at most."""
    out = bytearray(b"snappy\0")
    for n, at in enumerate(range(0, len(data), 500)):
        block = data[at : at + 500]
        crc = crc32c(block)
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        body = snappy_block(block) if n % 2 else block
        out += struct.pack(">BHI", n % 2, len(body), masked) + body
    return bytes(out)


PACK = {NONE: bytes, SNAPPY: snappy_frames, GZIP: lambda data: gzip.compress(data, mtime=0)}


def cloud(crc, compressor, size, count):
    return struct.pack("<5I", MAGIC, crc, compressor, size, count)


def fluid(crc, compressor, size, count):
    return struct.pack("<5I", MAGIC, count, crc, compressor, size)


def chunk(records, compressor, header, pack=None):
    payload = b"".join(struct.pack("<I", len(r)) + r for r in records)
    stored = (pack or PACK[compressor])(payload)
    return header(zlib.crc32(stored), compressor, len(stored), len(records)) + stored


def chunks_by_size(records, limit):
    out = [[]]
    for r in records:
        if out[-1] and sum(map(len, out[-1])) + len(r) > limit:
            out.append([])
        out[-1].append(r)
    return out


def chunks_by_count(records, limit):
    return [records[at : at + limit] for at in range(0, len(records), limit)]


def write(name, chunks, compressor, header, pack=None):
    (FOLDER / name).write_bytes(b"".join(chunk(c, compressor, header, pack) for c in chunks))


if __name__ == "__main__":
    records = [record(i) for i in range(40)]
    for name, compressor in [("none", NONE), ("snappy", SNAPPY), ("gzip", GZIP)]:
        write(f"cloud-{name}.rio", chunks_by_size(records, 1000), compressor, cloud)
    write("fluid-none.rio", chunks_by_count(records, 7), NONE, fluid)
    write("fluid-snappy.rio", chunks_by_count(records, 7), SNAPPY, fluid)
    write("fluid-snappystream.rio", chunks_by_count(records, 7), SNAPPY, fluid, old_snappy_stream)

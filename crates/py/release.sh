#!/usr/bin/env bash
# Builds the wheel as it is released: for every Linux with glibc 2.28 or newer, linked by zig. Prints its name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tools=target/py/release-tools
if ! [ -x "$tools/bin/maturin" ]; then
    python3 -m venv "$tools" >&2
    "$tools/bin/pip" install --quiet --disable-pip-version-check 'maturin[zig]>=1.9,<2' >&2
fi
rm -rf target/py/release
# maturin finds zig through the Python it is installed for.
PATH="$PWD/$tools/bin:$PATH" "$tools/bin/maturin" build --quiet --release --zig --compatibility manylinux_2_28 \
    --manifest-path crates/py/Cargo.toml --out target/py/release >&2
ls target/py/release/paddlecloud-*.whl

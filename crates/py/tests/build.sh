#!/usr/bin/env bash
# Builds the wheel as the tests were compiled (`build.sh --release` for measuring) and prints its name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

tools=target/py/tools
if ! [ -x "$tools/bin/maturin" ]; then
    python3 -m venv "$tools" >&2
    "$tools/bin/pip" install --quiet 'maturin>=1.9,<2' >&2
fi
crates/py/stage.sh "${PADDLECLOUD_TEST_PROGRAM:-target/debug/paddlecloud}"
new=target/py/new-wheels
rm -rf "$new"
[ $# != 0 ] || export CARGO=$PWD/crates/py/tests/cargo.sh
"$tools/bin/maturin" build --quiet --locked --compression-method stored --manifest-path crates/py/Cargo.toml \
    --out "$new" "$@" >&2
# Tests that run at the same time read the wheel: there is always exactly one, it is replaced whole, and only by one with
# other contents. Two wheels of the same files differ in their times.
contents() { python3 -c 'import sys, zipfile; print([(f.filename, f.CRC) for f in zipfile.ZipFile(sys.argv[1]).infolist()])' "$1"; }
wheel=target/py/wheels/$(basename "$new"/paddlecloud-*.whl)
mkdir -p target/py/wheels
find target/py/wheels -name 'paddlecloud-*.whl' ! -path "$wheel" -delete
if ! [ -f "$wheel" ] || [ "$(contents "$wheel")" != "$(contents "$new"/paddlecloud-*.whl)" ]; then
    mv -f "$new"/paddlecloud-*.whl "$wheel"
fi
echo "$wheel"

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
rm -rf target/py/wheels
[ $# != 0 ] || export CARGO=$PWD/crates/py/tests/cargo.sh
"$tools/bin/maturin" build --quiet --locked --compression-method stored --manifest-path crates/py/Cargo.toml \
    --out target/py/wheels "$@" >&2
ls target/py/wheels/paddlecloud-*.whl

#!/usr/bin/env bash
# Compares programs from 2017 with the same networks written directly in PaddlePaddle 3: in the environment of the tests, with the native module
# built with optimisations.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."

folder=$(crates/py/tests/environment.sh paddle)
wheel=$(crates/py/tests/build.sh --release)
optimised=$PWD/target/py/bench-v2
rm -rf "$optimised"
"$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$optimised" "$wheel"
exec env PYTHONPATH="$optimised" "$folder/bin/python" "$here/bench_v2.py" "$@"

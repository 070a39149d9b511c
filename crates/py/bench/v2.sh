#!/usr/bin/env bash
# Compares programs of 2017 with the same networks written directly in PaddlePaddle 3, in the environment of the tests.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."

folder=$(crates/py/tests/environment.sh paddle)
exec "$folder/bin/python" "$here/bench_v2.py" "$@"

#!/usr/bin/env bash
# Compares the wheel as it is released with its peers, which are installed under target/py/bench.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."

wheel=$(crates/py/release.sh)
bench=target/py/bench
[ -x "$bench/bin/python" ] || python3 -m venv "$bench"
"$bench/bin/pip" install --quiet --disable-pip-version-check numpy pyarrow array_record tfrecord
"$bench/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel"
exec "$bench/bin/python" "$here/bench_recordio.py" "$@"

#!/usr/bin/env bash
# Builds the wheel for speed, installs it with its peers under target/py/bench and compares them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."

wheel=$("$here/../tests/build.sh" --release)
bench=target/py/bench
[ -x "$bench/bin/python" ] || python3 -m venv "$bench"
"$bench/bin/pip" install --quiet --disable-pip-version-check numpy pyarrow array_record
"$bench/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel"
exec "$bench/bin/python" "$here/bench_recordio.py" "$@"

#!/usr/bin/env bash
# Measures the parameter server of the wheel as it is released, beside PyTorch's RPC where the system has torch.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."

wheel=$(crates/py/release.sh)
bench=target/py/bench-pserver
if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    [ -x "$bench/bin/python" ] || /usr/bin/python3 -m venv --system-site-packages "$bench"
else
    [ -x "$bench/bin/python" ] || python3 -m venv "$bench"
    "$bench/bin/pip" install --quiet --disable-pip-version-check numpy
fi
"$bench/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel"
exec "$bench/bin/python" "$here/bench_pserver.py" "$@"

#!/usr/bin/env bash
# Measures the parameter server of the wheel as it is released, beside PyTorch's RPC where the system has torch, and beside Ray where it
# can be installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."

wheel=$(crates/py/release.sh)
peers=target/py/bench-peers
install() { "$peers/bin/pip" install --quiet --disable-pip-version-check "$@"; }
if ! [ -e "$peers/complete" ]; then
    rm -rf "$peers"
    if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
        /usr/bin/python3 -m venv --system-site-packages "$peers"
    else
        python3 -m venv "$peers"
    fi
    install numpy
    install ray || echo 'bench: Ray cannot be installed here and takes no part' >&2
    touch "$peers/complete"
fi
exec "$peers/bin/python" "$here/bench_pserver.py" --wheel "$wheel" "$@"

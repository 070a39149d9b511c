#!/usr/bin/env bash
# Many users at once, without faults and with the server killed again and again. PADDLECLOUD_PROGRAM names another program
# than the released one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

program=${PADDLECLOUD_PROGRAM:-}
if [ -z "$program" ]; then
    cargo build --locked --release -p paddlecloud
    program=target/release/paddlecloud
fi
exec python3 tools/bench_many/many.py --program "$program" "$@"

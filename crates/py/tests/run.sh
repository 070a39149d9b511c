#!/usr/bin/env bash
# Builds the wheel and runs the tests where people use it: in a bare environment, and at the same time beside PaddlePaddle.
#
#   crates/py/tests/run.sh [pytest arguments]
#
# PaddlePaddle is large; if it cannot be installed, the script says so and skips the second half, unless
# PADDLECLOUD_TEST_PADDLE=required. The tests of torch run if the system has one of its own (Debian: `apt install
# python3-torch`).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."

say() { printf 'py: %s\n' "$*" >&2; }

# Runs the tests in an environment. Up to five that fail run once more: they share the machine with other suites.
run() {
    local cache pytest failures status=0
    cache=$PWD/target/py/failed-$(basename "$1")
    rm -rf "$cache"
    pytest=("$1/bin/python" -m pytest --quiet -o cache_dir="$cache" --rootdir crates/py crates/py/tests "${@:2}")
    "${pytest[@]}" || status=$?
    [ "$status" = 1 ] || return "$status"
    mapfile -t failures < <(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$cache/v/cache/lastfailed")
    [ ${#failures[@]} -le 5 ] || return 1
    "${pytest[@]}" --last-failed || return 1
    printf 'FAILED FIRST, THEN PASSED ALONE: %s\n' "${failures[@]}"
}

bare=$("$here/environment.sh" bare)
paddle=$("$here/environment.sh" paddle) && can=0 || can=$?

# Both at once: either is one process that often waits for others.
log=target/py/bare.log
run "$bare" "$@" >"$log" 2>&1 &
tests=$!
failed=0
if [ "$can" = 0 ]; then
    say 'beside PaddlePaddle'
    run "$paddle" "$@" || failed=1
elif [ "$can" != 75 ] || [ "${PADDLECLOUD_TEST_PADDLE:-}" = required ]; then
    say 'PaddlePaddle cannot be used here'
    failed=1
else
    say 'PaddlePaddle cannot be installed here; the tests beside it are left out'
fi
wait "$tests" || failed=1
say 'without PaddlePaddle'
cat "$log"
[ "$failed" = 0 ] || exit 1

if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    say "with the system's torch"
    folder=$("$here/environment.sh" torch)
    # It asks for a newer torch than it needs; with its dependencies it would bring one for graphics cards.
    "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps torchdata==0.11.0 >&2 ||
        say 'torchdata cannot be installed here; the tests of its loader are left out'
    run "$folder" -k 'torch or guide' "$@"
else
    say 'the system has no torch; the tests of its data sets are left out'
fi

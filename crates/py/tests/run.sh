#!/usr/bin/env bash
# Builds the wheel and runs the tests where people use it: in a bare environment, and beside PaddlePaddle.
#
#   crates/py/tests/run.sh [pytest arguments]
#
# Environments are kept under target/py. PaddlePaddle is large; where it cannot be had this is said and the
# second half left out, unless PADDLECLOUD_TEST_PADDLE=required.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."

paddle=paddlepaddle==3.3.1

say() { printf 'py: %s\n' "$*" >&2; }

# environment NAME PACKAGE...: a virtual environment with these packages, made once.
environment() {
    local folder=target/py/$1
    shift
    if [ "$(cat "$folder/packages" 2>/dev/null)" != "$*" ]; then
        rm -rf "$folder"
        python3 -m venv "$folder"
        "$folder/bin/pip" install --quiet --disable-pip-version-check "$@" || return 1
        echo "$*" >"$folder/packages"
    fi
}

# run NAME: installs the wheel there and runs the tests.
run() {
    local python=target/py/$1/bin/python
    shift
    "$python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel"
    "$python" -m pytest --quiet -p no:cacheprovider --rootdir crates/py crates/py/tests "$@"
}

wheel=$("$here/build.sh")

say 'without PaddlePaddle'
environment bare numpy pytest einops
run bare "$@"

if environment paddle numpy pytest einops "$paddle"; then
    say "beside $paddle"
    run paddle "$@"
elif [ "${PADDLECLOUD_TEST_PADDLE:-}" = required ]; then
    say "$paddle cannot be installed here"
    exit 1
else
    say "$paddle cannot be installed here; the tests beside it are left out"
fi

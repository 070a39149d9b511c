#!/usr/bin/env bash
# Makes a virtual environment with the wheel of this checkout, and prints its folder.
#
#   crates/py/tests/environment.sh NAME PACKAGE...
#
# Environments are kept under target/py, and the wheel is built only as far as something changed. Exits with 75 if the
# packages cannot be installed. PADDLECLOUD_TEST_BASE names a Python whose own packages the environment also sees.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."

folder=$PWD/target/py/$1
shift
mkdir -p target/py
exec 9>target/py/lock
flock 9 # Tests of several programs may ask at once.

if [ "$(cat "$folder/packages" 2>/dev/null)" != "$*" ]; then
    rm -rf "$folder"
    "${PADDLECLOUD_TEST_BASE:-python3}" -m venv ${PADDLECLOUD_TEST_BASE:+--system-site-packages} "$folder" >&2
    "$folder/bin/pip" install --quiet --disable-pip-version-check "$@" >&2 || exit 75
    echo "$*" >"$folder/packages"
fi

wheel=$("$here/build.sh" 9>&-)
digest=$(sha256sum <"$wheel")
if [ "$(cat "$folder/wheel" 2>/dev/null)" != "$digest" ]; then
    "$folder/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel" >&2
    echo "$digest" >"$folder/wheel"
fi
echo "$folder"

#!/usr/bin/env bash
# Puts a built program where the next wheel takes it from; without one the next wheel has none.
#
#   crates/py/stage.sh PROGRAM
set -euo pipefail

scripts=$(dirname "${BASH_SOURCE[0]}")/wheel/scripts
rm -rf "$scripts"
if [ -x "$1" ]; then
    mkdir -p "$scripts"
    # Most of a program without optimisations is for debuggers.
    strip --strip-debug -o "$scripts/paddlectl" "$1"
else
    printf 'wheel: there is no %s, so the wheel has no programs\n' "$1" >&2
fi

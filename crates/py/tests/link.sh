#!/usr/bin/env bash
# Lets an environment of the tests use this checkout's Python files instead of copies, so that a change of them needs no new wheel.
#
#   crates/py/tests/link.sh paddle && target/py/paddle/bin/python -m pytest crates/py/tests/test_v2_layers.py
#
# The native module stays that of the last wheel; `environment.sh` puts the copies back when it installs the next one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

for package in target/py/"$1"/lib/python3*/site-packages/paddlecloud; do
    (cd crates/py/python/paddlecloud && find . -name '*.py') | while read -r file; do
        mkdir -p "$package/$(dirname "$file")"
        ln -sf "$PWD/crates/py/python/paddlecloud/$file" "$package/$file"
    done
done

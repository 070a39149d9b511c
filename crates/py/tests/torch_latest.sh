#!/usr/bin/env bash
# Runs the wheel's tests of torch with PyPI's latest torch, in an environment of its own (5.4 GB).
#
#   crates/py/tests/torch_latest.sh [pytest arguments]
#
# `run.sh` runs them with Debian's older one.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."

folder=$("$here/environment.sh" torch-latest)
"$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps torchdata==0.11.0 >&2 ||
    printf 'py: torchdata cannot be installed here; the tests of its loader are left out\n' >&2
"$folder/bin/python" -m pytest --quiet -p no:cacheprovider --rootdir crates/py crates/py/tests -k torch "$@"

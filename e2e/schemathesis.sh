#!/usr/bin/env bash
# Installs schemathesis below target/, and prints the path of its program. Exits with 75 if it cannot be installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A known version, so that a new one cannot fail the tests of an old commit.
package=schemathesis==4.32.5
folder=$PWD/target/schemathesis
mkdir -p target
exec 9>target/schemathesis.lock
flock 9 # Several programs may ask at once.
if [ "$(cat "$folder/package" 2>/dev/null)" != "$package" ]; then
    rm -rf "$folder"
    python3 -m venv "$folder" >&2 || exit 75
    "$folder/bin/pip" install --quiet --disable-pip-version-check --timeout 20 "$package" >&2 || exit 75
    echo "$package" >"$folder/package"
fi
echo "$folder/bin/schemathesis"

#!/usr/bin/env bash
# Installs npm's oidc-provider below target/, and prints its folder. Exits with 75 if it cannot be installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$here/../../target/oidc-provider
mkdir -p "$folder"
exec 9>"$folder.lock"
flock 9 # Several programs may ask at once.
if ! cmp -s "$here/package-lock.json" "$folder/installed"; then
    cp "$here/package.json" "$here/package-lock.json" "$folder"
    (cd "$folder" && npm install --no-audit --no-fund --ignore-scripts) >&2 || exit 75
    cp "$here/package-lock.json" "$folder/installed"
fi
cd "$folder" && pwd

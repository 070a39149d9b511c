#!/usr/bin/env bash
# Makes a virtual environment with the wheel of this checkout, and prints its folder.
#
#   crates/py/tests/environment.sh bare|paddle|torch|torch-latest|demo [--packages]
#
# With --packages it only installs what is not ours: CI does that behind other steps, before there is a wheel.
# The packages of each name are listed here and nowhere else: with two lists, two callers would replace the environment of
# each other. Environments are kept under target/py, and the wheel is built only as far as something changed. Exits with
# 75 if the packages cannot be installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."

python=python3
options=()
case ${1:-} in
bare) packages=(numpy pytest einops fsspec mypy 'pyright[nodejs]') ;;
paddle) packages=(numpy pytest einops fsspec mypy 'pyright[nodejs]' scikit-learn paddlepaddle==3.3.1) ;;
torch)
    # PyPI's torch brings gigabytes for graphics cards, so the environment sees the system's own.
    packages=(pytest fsspec)
    python=/usr/bin/python3
    options=(--system-site-packages)
    ;;
torch-latest) packages=(numpy pytest fsspec torch) ;; # 5.4 GB, with everything for graphics cards
demo) packages=(numpy) ;;
*)
    echo "usage: $0 bare|paddle|torch|torch-latest|demo [--packages]" >&2
    exit 2
    ;;
esac
folder=$PWD/target/py/$1
mkdir -p target/py
exec 9>target/py/lock
flock 9 # Tests of several programs may ask at once.

if [ "$(cat "$folder/packages" 2>/dev/null)" != "${packages[*]}" ]; then
    rm -rf "$folder"
    "$python" -m venv "${options[@]}" "$folder" >&2
    # Most of their modules are never imported, so none is compiled before.
    "$folder/bin/pip" install --quiet --disable-pip-version-check --no-compile "${packages[@]}" >&2 || exit 75
    echo "${packages[*]}" >"$folder/packages"
fi

[ "${2:-}" != --packages ] || exit 0

wheel=$("$here/build.sh" 9>&-)
digest=$(sha256sum <"$wheel")
if [ "$(cat "$folder/wheel" 2>/dev/null)" != "$digest" ]; then
    "$folder/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel" >&2
    echo "$digest" >"$folder/wheel"
fi
echo "$folder"

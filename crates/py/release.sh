#!/usr/bin/env bash
# Builds the wheel as it is released: for every Linux with glibc 2.28 or newer, linked by zig. It is checked for what it
# asks of a system and of Python, and tried in a bare environment. Prints its name.
#
#   crates/py/release.sh              # or `cargo xtask wheel`
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Builds of its own: zig's objects fit no other build, and nobody waits for another's.
export CARGO_TARGET_DIR=$PWD/target/py/cargo
tools=target/py/release-tools
wheels=target/py/release
packages=('maturin[zig]>=1.9,<2' cargo-zigbuild auditwheel abi3audit)
glibc=2.28

say() { printf 'wheel: %s\n' "$*" >&2; }

if [ "$(cat "$tools/packages" 2>/dev/null)" != "${packages[*]}" ]; then
    rm -rf "$tools"
    python3 -m venv "$tools" >&2
    "$tools/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
    echo "${packages[*]}" >"$tools/packages"
fi

rm -rf "$wheels"
# maturin and cargo-zigbuild find zig through the Python they are installed for.
export PATH="$PWD/$tools/bin:$PATH"
target=$(rustc -vV | sed -n 's/^host: //p')
cargo zigbuild --quiet --release --locked -p paddlecloud --target "$target.$glibc" >&2
crates/py/stage.sh "$CARGO_TARGET_DIR/$target/release/paddlecloud"
maturin build --quiet --release --locked --zig --target "$target" --compatibility "manylinux_${glibc/./_}" \
    --manifest-path crates/py/Cargo.toml --out "$wheels" >&2
wheel=$(ls "$wheels"/paddlecloud-*.whl)

# What the module and the program ask for, whatever the wheel's name promises.
needs=$("$tools/bin/auditwheel" show "$wheel" | grep -o 'manylinux_2_[0-9]*' | head -1)
if [ "${needs##*_}" -gt "${glibc#*.}" ]; then
    say "this wheel asks for more than glibc $glibc: $needs"
    exit 1
fi
needs_of_program=$(objdump -T crates/py/wheel/scripts/paddlectl | grep -o 'GLIBC_2[.0-9]*' | sort -V | tail -1)
if [ "$(printf '%s\n' "GLIBC_$glibc" "$needs_of_program" | sort -V | tail -1)" != "GLIBC_$glibc" ]; then
    say "the program asks for more than glibc $glibc: $needs_of_program"
    exit 1
fi
"$tools/bin/abi3audit" --strict --assume-minimum-abi3 3.10 "$wheel" >&2

bare=target/py/release-bare
python3 -m venv --clear "$bare" >&2
"$bare/bin/pip" install --quiet --disable-pip-version-check "$wheel" >&2
(cd "$bare" && bin/python -c '
import paddle.job, paddle.v2.dataset, paddlecloud, recordio
with recordio.writer("tried") as out:
    out.write(b"record")
assert list(recordio.reader("tried")) == [b"record"]
paddlecloud.Client("http://127.0.0.1:1")
') >&2
for program in paddlectl paddlecloud paddlecloud-server; do
    "$bare/bin/$program" --version >&2
done
say "$(du -h "$wheel" | cut -f1), $needs, abi3, imports in a bare environment"
echo "$wheel"

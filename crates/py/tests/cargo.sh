#!/usr/bin/env bash
# The cargo that maturin calls for a wheel to test. maturin asks for this one package: alone it has fewer features than as
# a part of the workspace, so it would be compiled again with most of its dependencies. This gives it the module as
# `cargo xtask test` has compiled it.
set -euo pipefail

[ "${1:-}" = rustc ] || exec cargo "$@"
# The module fits every Python; with these, pyo3 would be compiled for one.
unset PYO3_BUILD_EXTENSION_MODULE PYO3_CONFIG_FILE PYO3_ENVIRONMENT_SIGNATURE PYO3_PYTHON PYTHON_SYS_EXECUTABLE
# A test that asks for the wheel has the variables of its own package. With them ring would be compiled again, and all above it.
unset "${!CARGO_PKG_@}" "${!CARGO_MANIFEST_@}"
messages=$(cargo build --quiet --message-format json-render-diagnostics --lib --test names \
    --workspace --locked --features paddlecloud/hdfs,paddlecloud/s3,paddlecloud-backends/hdfs,paddlecloud-backends/s3)
# Most of the module is for debuggers.
built=$PWD/target/debug/lib_native.so small=$PWD/target/py/lib_native.so
strip -o "$small" "$built"
printf '%s\n' "${messages//"$built"/"$small"}"

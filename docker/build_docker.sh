#!/usr/bin/env bash
# The same script as tools/build_docker.sh, at the place where the guide of the command line has it.
set -euo pipefail
exec "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../tools/build_docker.sh" "$@"

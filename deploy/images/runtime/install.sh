#!/bin/sh
# Finishes an image for workers: install.sh FOLDER, where the folder has the Python wheel, or nothing.
#
# The program is in the image already, at /usr/local/lib/paddlecloud/paddlecloud. Python and numpy are kept as they are.
set -eu

if command -v python3 >/dev/null; then
    # Debian's pip refuses to touch the system's own Python, which is the only one in an image.
    export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
    export PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
    python3 -c 'import numpy' 2>/dev/null || python3 -m pip install --no-compile numpy
    for wheel in "$1"/*.whl; do
        [ -e "$wheel" ] || continue
        python3 -m pip install --no-compile --no-deps "$wheel"
        # Compiled here, because workers cannot write beside the modules; without times, so that two builds are equal.
        python3 -m compileall -q --invalidation-mode unchecked-hash \
            "$(python3 -c 'import os, paddlecloud; print(os.path.dirname(paddlecloud.__file__))')"
    done
fi

# After the wheel, which has programs of some of these names.
mkdir -p /usr/local/bin
for name in paddle paddle-data paddle_k8s paddlecloud paddlecloud-server paddlectl start_paddle start_paddle.py; do
    ln -sf ../lib/paddlecloud/paddlecloud "/usr/local/bin/$name"
done
# A pod's user is any, and /root/start.sh is where documents look for it.
chmod 755 /root /root/start.sh

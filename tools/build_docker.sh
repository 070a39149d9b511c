#!/usr/bin/env bash
# Builds the runtime image of a training job on top of an image that has PaddlePaddle.
#
# Two forms, both understood here and in docker/build_docker.sh, which leads here:
#
#   build_docker.sh <src_trainer_package> <dest_trainer_package> <base image> <runtime image>
#       copies the package into the image and makes its folder the working folder
#   build_docker.sh <base image> <runtime image>
#       an image without a package: jobs bring theirs when they are submitted
#
# PADDLECLOUD_PROGRAM: a static `paddlecloud`, put into the image under the names a worker uses, with /root/start.sh
# PADDLECLOUD_WHEEL: the Python wheel, installed with the image's own `pip`
# DOCKER: another program than `docker`, for instance `podman`
set -euo pipefail

usage() {
    cat >&2 <<'TEXT'
usage: build_docker.sh <src_trainer_package> <dest_trainer_package> <base image> <runtime image>
       build_docker.sh <base image> <runtime image>
TEXT
    exit 2
}

# fail <exit code> <what is wrong> [what to do about it]
fail() {
    printf 'error: %s\n' "$2" >&2
    if [[ $# -gt 2 ]]; then printf 'hint: %s\n' "$3" >&2; fi
    exit "$1"
}

# An image's name goes into a file that docker reads, so it must be one word that cannot be anything else.
check_image() {
    if [[ ! $2 =~ ^[A-Za-z0-9][A-Za-z0-9._:/@-]*$ ]]; then
        fail 2 "\`$2\` cannot be the name of the $1" 'names look like registry/group/name:tag'
    fi
}

# The folder inside the image: absolute, and plain enough to stand in a Dockerfile as it is.
check_dest() {
    if [[ $1 != /* ]]; then
        fail 2 "\`$1\` is not an absolute path, and the package's place in the image must be one" 'for example /example'
    fi
    if [[ ! $1 =~ ^[A-Za-z0-9._/@+-]+$ ]]; then
        fail 2 "\`$1\` has characters that a path in an image cannot have here" 'use letters, digits and . _ - + @ /'
    fi
    if [[ $1/ == */../* || $1/ == */./* || $1 =~ ^/+$ ]]; then
        fail 2 "\`$1\` is not the name of a folder in the image" 'for example /example'
    fi
}

check_package() {
    if [[ ! -d $1 ]]; then fail 1 "the package \`$1\` is not a folder here"; fi
}

# The program, the names a worker calls it by, and what starts a pod of a hand-written Job.
add_program() {
    cp -- "$PADDLECLOUD_PROGRAM" "$context/paddlecloud"
    cp -- "$here/../deploy/images/runtime/start.sh" "$context/start.sh"
    chmod 755 "$context/paddlecloud" "$context/start.sh"
    cat >>"$context/Dockerfile" <<'TEXT'
COPY paddlecloud /usr/local/bin/paddlecloud
COPY start.sh /root/start.sh
RUN cd /usr/local/bin && ln -sf paddlecloud paddle && ln -sf paddlecloud paddle-data && ln -sf paddlecloud paddlectl && \
    ln -sf paddlecloud paddle_k8s && ln -sf paddlecloud start_paddle && ln -sf paddlecloud start_paddle.py && chmod 755 /root
TEXT
}

add_wheel() {
    local name
    name=$(basename -- "$PADDLECLOUD_WHEEL")
    if [[ ! $name =~ ^[A-Za-z0-9._+-]+\.whl$ ]]; then
        fail 2 "\`$name\` is not the name of a wheel"
    fi
    cp -- "$PADDLECLOUD_WHEEL" "$context/$name"
    printf 'COPY %s /tmp/%s\nRUN pip install --no-cache-dir /tmp/%s && rm /tmp/%s\n' \
        "$name" "$name" "$name" "$name" >>"$context/Dockerfile"
}

# What is in the package, with its hidden files and its links as they are.
add_package() {
    mkdir "$context/package"
    cp -a -- "$package/." "$context/package/"
    printf 'COPY package %s\nWORKDIR %s\n' "$dest" "$dest" >>"$context/Dockerfile"
}

package='' dest=''
case $# in
    4) package=$1 dest=$2 base=$3 image=$4 ;;
    2) base=$1 image=$2 ;;
    *) usage ;;
esac

check_image 'base image' "$base"
check_image 'runtime image' "$image"
if [[ $# == 4 ]]; then
    check_dest "$dest"
    check_package "$package"
fi
if [[ -n ${PADDLECLOUD_PROGRAM:-} && ! -f $PADDLECLOUD_PROGRAM ]]; then
    fail 1 "PADDLECLOUD_PROGRAM: there is no file \`$PADDLECLOUD_PROGRAM\`"
fi
if [[ -n ${PADDLECLOUD_WHEEL:-} && ! -f $PADDLECLOUD_WHEEL ]]; then
    fail 1 "PADDLECLOUD_WHEEL: there is no file \`$PADDLECLOUD_WHEEL\`"
fi
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
docker=${DOCKER:-docker}
if ! command -v "$docker" >/dev/null; then
    fail 1 "the program \`$docker\` is not in PATH" 'install Docker, or name another program: DOCKER=podman'
fi

context=$(mktemp -d "${TMPDIR:-/tmp}/paddlecloud-image.XXXXXX")
trap 'rm -rf "$context"' EXIT

printf 'FROM %s\n' "$base" >"$context/Dockerfile"
if [[ -n ${PADDLECLOUD_PROGRAM:-} ]]; then
    add_program
elif [[ $# == 2 ]]; then
    printf 'note: PADDLECLOUD_PROGRAM is not set, so %s is %s under another name\n' "$image" "$base" >&2
fi
if [[ -n ${PADDLECLOUD_WHEEL:-} ]]; then add_wheel; fi
if [[ $# == 4 ]]; then add_package; fi

"$docker" build --tag "$image" "$context"
printf 'built %s; push it with: %s push %s\n' "$image" "$docker" "$image" >&2

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
# The image gets our program under all its names, /root/start.sh and the Python wheel. They come from the server's image;
# `cargo xtask image server` makes it.
#
# PADDLECLOUD_IMAGE: another name of the server's image
# PADDLECLOUD_PROGRAM, PADDLECLOUD_WHEEL: a static `paddlecloud` and a wheel (or none) instead of that image
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

# Where the program and the wheel come from: the server's image, or files of this machine.
add_source() {
    if [[ -z ${PADDLECLOUD_PROGRAM:-} ]]; then
        printf 'FROM %s AS program\n' "$server" >>"$context/Dockerfile"
        return
    fi
    mkdir "$context/wheels"
    cp -- "$PADDLECLOUD_PROGRAM" "$context/paddlecloud"
    chmod 755 "$context/paddlecloud"
    if [[ -n ${PADDLECLOUD_WHEEL:-} ]]; then cp -- "$PADDLECLOUD_WHEEL" "$context/wheels/"; fi
    cat >>"$context/Dockerfile" <<'TEXT'
FROM scratch AS program
COPY paddlecloud /usr/local/bin/paddlecloud
COPY wheels /usr/share/paddlecloud
TEXT
}

# The program and the wheel, as deploy/images/runtime/Dockerfile has them.
add_program() {
    cp -- "$here/../deploy/images/runtime/install.sh" "$here/../deploy/images/runtime/start.sh" "$context/"
    printf 'FROM %s\n' "$base" >>"$context/Dockerfile"
    cat >>"$context/Dockerfile" <<'TEXT'
USER 0:0
COPY --from=program /usr/local/bin/paddlecloud /usr/local/lib/paddlecloud/paddlecloud
COPY start.sh /root/start.sh
COPY install.sh /usr/local/lib/paddlecloud/install.sh
RUN --mount=type=bind,from=program,source=/usr/share/paddlecloud,target=/mnt sh /usr/local/lib/paddlecloud/install.sh /mnt
WORKDIR /
TEXT
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
server=${PADDLECLOUD_IMAGE:-paddlecloud/server:0.1.0}
check_image "server's image" "$server"
if [[ $# == 4 ]]; then
    check_dest "$dest"
    check_package "$package"
fi
if [[ -n ${PADDLECLOUD_PROGRAM:-} && ! -f $PADDLECLOUD_PROGRAM ]]; then
    fail 1 "PADDLECLOUD_PROGRAM: there is no file \`$PADDLECLOUD_PROGRAM\`"
fi
if [[ -n ${PADDLECLOUD_WHEEL:-} ]]; then
    if [[ ! -f $PADDLECLOUD_WHEEL ]]; then fail 1 "PADDLECLOUD_WHEEL: there is no file \`$PADDLECLOUD_WHEEL\`"; fi
    if [[ $PADDLECLOUD_WHEEL != *.whl ]]; then fail 2 "PADDLECLOUD_WHEEL: \`$PADDLECLOUD_WHEEL\` is not a wheel"; fi
    if [[ -z ${PADDLECLOUD_PROGRAM:-} ]]; then
        fail 2 'PADDLECLOUD_WHEEL needs PADDLECLOUD_PROGRAM too' 'leave both out to take them from the image of the server'
    fi
fi
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
docker=${DOCKER:-docker}
if ! command -v "$docker" >/dev/null; then
    fail 1 "the program \`$docker\` is not in PATH" 'install Docker, or name another program: DOCKER=podman'
fi

context=$(mktemp -d "${TMPDIR:-/tmp}/paddlecloud-image.XXXXXX")
trap 'rm -rf "$context"' EXIT

add_source
add_program
if [[ $# == 4 ]]; then add_package; fi

"$docker" build --tag "$image" "$context"
printf 'built %s; push it with: %s push %s\n' "$image" "$docker" "$image" >&2

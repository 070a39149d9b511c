#!/bin/sh
# Starts a pod of a hand-written Job: copies the configuration into the container, then runs a parameter server and a
# trainer with the other pods. Arguments are passed on to `paddle train`, over those below.
set -eu

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 2
}

for name in JOB_PATH JOB_NAME TRAIN_CONFIG_DIR; do
    eval "value=\${$name-}"
    [ -n "$value" ] || fail "\`$name\` is not set in the container's environment"
done

config=$JOB_PATH/$JOB_NAME/$TRAIN_CONFIG_DIR
[ -d "$config" ] || fail "there is no folder \`$config\` in this pod"

work=/root
[ -w "$work" ] || work=$(mktemp -d)
cp -R "$config/." "$work"
cd "$work"

exec start_paddle \
    --ports_num_for_sparse="${CONF_PADDLE_PORTS_NUM_SPARSE-}" \
    --config=./trainer_config.py \
    --trainer_count="${TRAINER_COUNT:-4}" \
    --num_passes="${NUM_PASSES:-10}" \
    --use_gpu="${USE_GPU:-0}" \
    --log_period=50 \
    --dot_period=10 \
    --saving_period=1 \
    --local=0 \
    "$@"

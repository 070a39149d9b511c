#!/bin/sh
# Stands in for the trainer of v1 configurations in images of tests: called as `python -m paddlecloud.v1.train …`, it
# prints its command line as the trainer of 2017 does, says which data it has, and leaves a model.
set -eu
[ "$1" = -m ] || exit 0 # asked for the package
shift 2
echo "commandline: paddle_trainer $*"
for file in data/*; do echo "data: ${file#data/}"; done
echo "config: $(cat trainer_config.py)"
save='' id=''
for word; do
    case $word in
    --save_dir=*) save=${word#*=} ;;
    --trainer_id=*) id=${word#*=} ;;
    esac
done
if [ "$id" = 0 ]; then
    mkdir -p "$save/pass-00000"
    : >"$save/pass-00000/done"
fi

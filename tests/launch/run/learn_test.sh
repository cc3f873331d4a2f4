#!/usr/bin/env bash
# Training with the configurations of this repository reaches what is stated here, on data that the training did not see.
#   text    configs/quickstart.yaml, 2,000 steps, on this repository's own text: the validation loss per character, in nats
#   images  configs/mnist.yaml on the images and labels of MNIST in the folder LOCKSTEP_MNIST (their four files or the two of the test set, by
#           their usual names): the share of digits told right; exit 77 where there is no such folder
# Usage: learn_test.sh text|images REPOSITORY LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "${@:3}"
kind=$1 repository=$2
if [ "$kind" = text ]; then
  config=quickstart wanted=loss bound=1.45 more=(train.steps=2000)
  mapfile -t texts < <(find "$repository"/{core,comm,sharding,optim,data,launch,tests,docs} -type f -size +0 \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.md' \) | sort)
  succeeds "import" lockstep data import text "${texts[@]}" data.h5
else
  config=mnist wanted=accuracy bound=0.98 more=()
  images=$(find "${LOCKSTEP_MNIST:-/nonexistent}" -name '*images-idx3-ubyte*' 2>/dev/null | sort -r | head -n 1)
  if [ -z "$images" ]; then
    echo "skipped: LOCKSTEP_MNIST names no folder with MNIST's files"
    exit 77
  fi
  succeeds "import" lockstep data import idx "$images" "${images/images-idx3/labels-idx1}" data.h5
fi
keys=("$repository/configs/$config.yaml" data.path=data.h5 run.dir=run "${more[@]}")
if with_mpi; then
  succeeds "2 processes" mpi 2 "$binary" train "${keys[@]}"
else
  succeeds "2 ranks" lockstep train "${keys[@]}" --ranks 2
fi
succeeds "eval" lockstep eval run
found=$(field "$wanted" <out)
echo "validation $wanted $found, bound $bound, after $(tail -n 1 run/metrics.jsonl | field step) steps"
expect "validation $wanted $found against $bound" awk -v what="$wanted" -v found="$found" -v bound="$bound" \
  'BEGIN { exit !(found != "" && (what == "loss" ? found < bound : found > bound)) }'
finish

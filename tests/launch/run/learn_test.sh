#!/usr/bin/env bash
# Training with the configurations of this repository reaches what is stated here, on data that the training did not see.
#   text    configs/quickstart.yaml, 2,000 steps, on this repository's own text: the validation loss per character, in nats
#   images  configs/mnist.yaml on the images and labels of MNIST in the folder LOCKSTEP_MNIST (their four files or the two of the test set, by
#           their usual names): the share of digits told right; exit 77 where there is no such folder
#   llama, lstm, gru, bert  configs/models on the text of LOCKSTEP_SHAKESPEARE (1.1 million characters): the validation loss; exit 77 without.
#           What bert reaches is below the text's bigram entropy, 2.45 nats.
#   resnet, vit  configs/models on MNIST, as images; unet  on generated shapes: intersection over union
#   gan  configs/models on MNIST: a classifier of configs/mnist.yaml names at least 85% of 1,000 generated digits with a probability of 0.9, each
#           digit at least 4% of them, and they lie at most three times as far from digits of the data as others of the data do, and at least half as far apart (gan_quality.cpp)
# Usage: learn_test.sh KIND REPOSITORY GAN_QUALITY LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "${@:4}"
kind=$1 repository=$2 gan_quality=$3
config=models/$kind more=(data.path=data.h5)
case $kind in
  text) config=quickstart wanted=loss bound=1.45 more+=(train.steps=2000) ;;
  images) config=mnist wanted=accuracy bound=0.98 ;;
  llama) wanted=loss bound=1.81 ;;
  lstm | gru) wanted=loss bound=1.80 ;;
  bert) wanted=loss bound=2.45 ;;
  resnet) wanted=accuracy bound=0.989 ;;
  vit) wanted=accuracy bound=0.975 ;;
  unet) wanted=iou bound=0.85 more=() ;;
  gan) wanted="" ;;
esac
case $kind in
  text)
    mapfile -t texts < <(find "$repository"/{core,comm,sharding,optim,data,launch,tests,docs} -type f -size +0 \
      \( -name '*.h' -o -name '*.cpp' -o -name '*.md' \) | sort)
    succeeds "import" lockstep data import text "${texts[@]}" data.h5
    ;;
  llama | lstm | gru | bert)
    if ! [ -f "${LOCKSTEP_SHAKESPEARE:-}" ]; then
      echo "skipped: LOCKSTEP_SHAKESPEARE names no text"
      exit 77
    fi
    succeeds "import" lockstep data import text "$LOCKSTEP_SHAKESPEARE" data.h5
    ;;
  images | resnet | vit | gan)
    images=$(find "${LOCKSTEP_MNIST:-/nonexistent}" -name '*images-idx3-ubyte*' 2>/dev/null | sort -r | head -n 1)
    if [ -z "$images" ]; then
      echo "skipped: LOCKSTEP_MNIST names no folder with MNIST's files"
      exit 77
    fi
    succeeds "import" lockstep data import idx "$images" "${images/images-idx3/labels-idx1}" data.h5
    ;;
esac
keys=("$repository/configs/$config.yaml" run.dir=run "${more[@]}")
if with_mpi; then
  succeeds "2 processes" mpi 2 "$binary" train "${keys[@]}"
else
  succeeds "2 ranks" lockstep train "${keys[@]}" --ranks 2
fi
if [ "$kind" = gan ]; then
  succeeds "the classifier" lockstep train "$repository/configs/mnist.yaml" data.path=data.h5 run.dir=classifier
  succeeds "the images" "$gan_quality" classifier run 1000
  cat out
  for law in "confident > 0.85" "least > 0.04" "distance < 3" "spread > 0.5"; do
    read -r what than bound <<<"$law"
    expect "$law" awk -v found="$(field "$what" <out)" -v than="$than" -v bound="$bound" \
      'BEGIN { exit !(found != "" && (than == ">" ? found >= bound : found <= bound)) }'
  done
  finish
fi
succeeds "eval" lockstep eval run
found=$(field "$wanted" <out)
echo "validation $wanted $found, bound $bound, after $(tail -n 1 run/metrics.jsonl | field step) steps"
expect "validation $wanted $found against $bound" awk -v what="$wanted" -v found="$found" -v bound="$bound" \
  'BEGIN { exit !(found != "" && (what == "loss" ? found < bound : found > bound)) }'
finish

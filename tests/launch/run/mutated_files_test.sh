#!/usr/bin/env bash
# Damaged datasets and checkpoints: each ends with 65, or gives exactly what the whole one gives; with 4 GiB of address space and within
# 10 seconds of computing. Nothing else: no crash, no "bug", no memory or storage error.
# Usage: mutated_files_test.sh COUNT FIRST_SEED MUTATE LOCKSTEP; LOCKSTEP_SEED overrides FIRST_SEED.
count=$1
first=${LOCKSTEP_SEED:-$2}
mutate=$3
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$4"

make_inputs
options=(schedule.warmup=1 schedule.steps=6)
succeeds "a run" lockstep train text.yaml run.dir=good train.steps=4 "${options[@]}" --ranks 2
cp -r good longer
# What each command says of whole files, and its exit code. A resumed run is known by its digest.
inspect_text() { lockstep data inspect "$1" >said && grep -v '^file size' said; }
inspect_images() { inspect_text "$1"; }
measure_dataset() { lockstep eval good data.path="$1" >said && grep '^{' said; }
measure_run() { lockstep eval "$1" >said && sed -n 's/"checkpoint":"[^"]*",//p' said; }
verify() { lockstep checkpoint verify "$1" >said && sed 's/^whole *[^ ]*//' said; }
resume() { # two steps more
  lockstep train text.yaml run.dir="$1" train.steps=6 "${options[@]}" --resume >said && lockstep checkpoint digest "$1" | tail -n 1
}
declare -A wanted
reference() { # KEY command...
  succeeds "$1 of whole files" "${@:2}"
  wanted[$1]=$(cat out)
}
reference inspect_text inspect_text text.h5
reference inspect_images inspect_images images.h5
reference measure_dataset measure_dataset text.h5
reference measure_run measure_run good
reference verify verify good
reference resume resume longer
[ "$failed" -eq 0 ] || exit 1

limited() { # command...: a shell of its own, so that the limits end with it
  (
    ulimit -v 4194304
    ulimit -t 10
    ulimit -c 0
    "$@"
  )
}
refused=0
equal=0
tried=0
slowest=0
declare -A by_command
for ((seed = first; seed < first + count; ++seed)); do
  rm -rf damaged damaged.h5
  case $((seed % 8)) in
    0 | 1) command=inspect_text file=damaged.h5 && cp text.h5 damaged.h5 ;;
    2 | 3) command=inspect_images file=damaged.h5 && cp images.h5 damaged.h5 ;;
    4) command=measure_dataset file=damaged.h5 && cp text.h5 damaged.h5 ;;
    *)
      cp -r good damaged
      files=(damaged/checkpoints/step-00000004/*)
      file=${files[$((seed / 8 % ${#files[@]}))]}
      command=$([ $((seed % 8)) -eq 5 ] && echo verify || { [ $((seed % 8)) -eq 6 ] && echo measure_run || echo resume; })
      ;;
  esac
  how=$("$mutate" "$file" "$seed")
  target=$([ -d damaged ] && echo damaged || echo damaged.h5)
  begun=${EPOCHREALTIME/./}
  run limited "$command" "$target"
  took=$((${EPOCHREALTIME/./} - begun))
  [ "$took" -le "$slowest" ] || slowest=$took
  tried=$((tried + 1))
  by_command[$command]=$((${by_command[$command]:-0} + 1))
  if [ "$code" -eq 65 ]; then
    refused=$((refused + 1))
  elif [ "$code" -eq 0 ] && [ "$(cat out)" = "${wanted[$command]}" ]; then
    equal=$((equal + 1))
  else
    problem "seed $seed, $command of $file with $how: exit $code" && show
  fi
done
for command in "${!by_command[@]}"; do echo "$command: ${by_command[$command]}"; done
echo "$tried damaged files: $refused refused with 65, $equal gave what the whole one gives; the slowest took $((slowest / 1000)) ms"
exit "$failed"

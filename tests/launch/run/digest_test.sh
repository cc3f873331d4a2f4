#!/usr/bin/env bash
# One run, one digest: whatever the number of ranks, threads or MPI processes, and however often it was killed and resumed in between.
# Usage: digest_test.sh text|images plain|hard LOCKSTEP [MPIRUN]
# hard: as common.sh has it.
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "${@:3}"
kind=$1 mode=$2
make_inputs
keys=(train.steps=30)
if [ "$kind" = text ]; then keys+=(schedule.steps=30); fi
if [ "$mode" = hard ]; then hard_keys "$kind"; fi
# shellcheck disable=SC2317  # called by name
train() { lockstep train "$kind.yaml" "${keys[@]}" "$@"; }
# shellcheck disable=SC2317
train_mpi() { mpi "$1" "$binary" train "$kind.yaml" "${keys[@]}" "${@:2}"; }

succeeds "1 rank" train run.dir=one
wanted=$(digest one)
same "a digest" 32 "$(printf %s "$wanted" | wc -c)"
if [ "$mode" = hard ]; then was_hard one; fi

for ranks in 2 3 4; do
  succeeds "--ranks $ranks" train run.dir="ranks$ranks" --ranks "$ranks"
  same "--ranks $ranks" "$wanted" "$(digest "ranks$ranks")"
done
for threads in 1 2 3; do
  succeeds "$threads compute threads" train run.dir="threads$threads" compute.threads="$threads"
  same "$threads compute threads" "$wanted" "$(digest "threads$threads")"
done
succeeds "2 ranks of 2 threads, batches loaded by 3 threads" train run.dir=both compute.threads=2 data.threads=3 --ranks 2
same "2 ranks of 2 threads" "$wanted" "$(digest both)"
if [ "$kind" = text ]; then
  for again in block attention; do
    succeeds "recompute=$again" train run.dir="$again" recompute="$again" --ranks 2
    same "recompute=$again" "$wanted" "$(digest "$again")"
  done
fi
if with_mpi; then
  for ranks in 2 4; do
    succeeds "mpirun -n $ranks" train_mpi "$ranks" run.dir="mpi$ranks"
    same "mpirun -n $ranks" "$wanted" "$(digest "mpi$ranks")"
  done
fi

# Killed after 15 steps of 30: the process is shot as soon as the checkpoint of step 15 is there, and goes no farther than step 24.
kill_after_15() { # RUN arguments...
  local pid status=0
  "$binary" train "$kind.yaml" "${keys[@]}" run.dir="$1" checkpoint.every=1 checkpoint.keep_last=0 "${@:2}" \
    chaos.enabled=true 'chaos.faults=[{kind: hang, step: 25, rank: 0}]' >/dev/null 2>&1 &
  pid=$!
  until [ -e "$1/checkpoints/step-00000015" ] || ! kill -0 $pid 2>/dev/null; do :; done
  kill -9 $pid 2>/dev/null || true
  wait $pid 2>/dev/null || status=$?
  same "$1: killed" 137 "$status"
}
for ranks in 1 3; do
  kill_after_15 "killed$ranks" --ranks "$ranks"
  succeeds "killed, then --resume" train run.dir="killed$ranks" --ranks "$ranks" --resume
  expect "it says what it resumed" grep -qE "resumed killed$ranks/checkpoints/step-000000(1[5-9]|2[0-9])" err
  same "killed at $ranks ranks, then --resume" "$wanted" "$(digest "killed$ranks")"
  same "its metrics have each step once" "$(seq 30)" "$(field step <"killed$ranks/metrics.jsonl")"
  same "its losses" "$(field loss <one/metrics.jsonl)" "$(field loss <"killed$ranks/metrics.jsonl")"
done
# At another number of ranks each time, as threads and as processes.
kill_after_15 moved --ranks 4
succeeds "killed at 4 ranks, resumed at 2" train run.dir=moved train.steps=30 checkpoint.every=2 --ranks 2 --resume
same "killed at 4 ranks, resumed at 2" "$wanted" "$(digest moved)"
if with_mpi; then
  kill_after_15 moved_mpi --ranks 3
  succeeds "killed at 3 ranks, resumed by mpirun -n 2" train_mpi 2 run.dir=moved_mpi --resume
  same "killed at 3 ranks, resumed by mpirun -n 2" "$wanted" "$(digest moved_mpi)"
fi

# Saved by 4 ranks that split everything, and opened at other levels, groups and numbers of ranks.
kill_after_15 split --ranks 4 sharding.level=parameters comm.bucket=0
layouts=("1 none 0" "3 gradients 0" "4 parameters 2" "2 optimizer 0")
if [ "$mode" = hard ]; then layouts+=("7 parameters 0"); fi # as many as a step has micro-batches
for layout in "${layouts[@]}"; do
  read -r ranks level group <<<"$layout"
  cp -r split opened
  succeeds "split among 4, resumed at $layout" train run.dir=opened --ranks "$ranks" sharding.level="$level" sharding.group="$group" --resume
  same "split among 4, resumed at $layout" "$wanted" "$(digest opened)"
  rm -rf opened
done
if with_mpi; then
  succeeds "split among 4, resumed by mpirun -n 4 in groups of 2" train_mpi 4 run.dir=split sharding.level=gradients sharding.group=2 --resume
  same "split among 4, resumed by mpirun -n 4 in groups of 2" "$wanted" "$(digest split)"
fi

# fp16: the loss scale is part of what a checkpoint brings back.
for ranks in 1 3; do
  succeeds "fp16" train run.dir="half$ranks" precision.compute=fp16 --ranks "$ranks" sharding.level=parameters
done
kill_after_15 half_killed precision.compute=fp16 --ranks 2
succeeds "fp16, killed and resumed" train run.dir=half_killed precision.compute=fp16 --resume
same "fp16 on 3 ranks" "$(digest half1)" "$(digest half3)"
same "fp16, killed and resumed" "$(digest half1)" "$(digest half_killed)"
# Masters are fp32: a run goes on in another precision, and says that its bits are others.
succeeds "fp16, then fp32" train run.dir=half3 precision.compute=fp32 train.steps=32 --resume
expect "it says so" grep -q "resuming with precision.compute: fp32 what was trained with fp16" err

# The digest tells runs apart, too.
succeeds "another seed" train run.dir=other seed=4
if [ "$(digest other)" = "$wanted" ]; then problem "another seed has the same digest"; fi
finish

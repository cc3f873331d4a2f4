#!/usr/bin/env bash
# Faults that a configuration asks for: how a run ends, what it leaves, and that a restart goes on without them.
# Usage: chaos_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
# A memory fault is to end the process as a signal does, in sanitizer builds, too.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_segv=0" TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}handle_segv=0"
make_inputs
keys=(images.yaml train.steps=8 checkpoint.every=2 checkpoint.keep_last=0)
succeeds "without faults" lockstep train "${keys[@]}" run.dir=clean
clean=$(digest clean)
expect "goodput of a first attempt" awk -v g="$(field goodput <clean/metrics.jsonl | tail -n 1)" 'BEGIN { exit !(g > 0 && g <= 1) }'
steps_of() { find "$1/checkpoints" -name 'step-*' -printf '%f\n' | sed -E 's/step-0*//' | sort -n | tr '\n' ' '; }
# chaos RUN 'FAULT' more...: a run by 2 threads with that fault, such as 'kind: nan, step: 3'
chaos() { run lockstep train "${keys[@]}" run.dir="$1" --ranks 2 chaos.enabled=true "chaos.faults=[{$2}]" "${@:3}"; }
# Rank 0 may have had no time to write the line of the step before.
ended_in_step_6() { expect "$1: it ended in step 6" test "$(done_steps "$2")" = 4 -o "$(done_steps "$2")" = 5; }
# goes_on WHAT RUN 'FAULT' more...: the next attempt does not have the fault, and comes to the bits of the run without any
goes_on() {
  LOCKSTEP_ATTEMPT=2 chaos "$2" "$3" --resume "${@:4}"
  expect "$1: the next attempt" test "$code" -eq 0
  same "$1: the same bits" "$clean" "$(digest "$2")"
}

# Ends of the process
for kind in kill:137 segv:139; do
  chaos "${kind%:*}" "kind: ${kind%:*}, step: 6, rank: 1"
  expect "$kind" test "$code" -eq "${kind#*:}"
  expect "$kind: announced" grep -q "warning: chaos.faults: ${kind%:*} at step 6" err
  ended_in_step_6 "$kind" "${kind%:*}"
  goes_on "$kind" "${kind%:*}" "kind: ${kind%:*}, step: 6, rank: 1"
done
chaos exit "kind: exit, step: 6, rank: 1"
same "an early exit: exit 0" 0 "$code"
ended_in_step_6 "an early exit" exit
goes_on "an early exit" exit "kind: exit, step: 6, rank: 1"
chaos exit "kind: exit, step: 6, rank: 1, attempt: 0" --resume train.steps=9
same "attempt 0 is every one, but the step is over" 9 "$(done_steps exit)"

# A stopped process goes on with SIGCONT, as if nothing had been.
"$binary" train "${keys[@]}" run.dir=stop --ranks 2 chaos.enabled=true 'chaos.faults=[{kind: stop, step: 4, rank: 1}]' >out 2>err &
pid=$!
until_stopped "a stopped process"
kill -CONT "$pid"
code=0
wait "$pid" || code=$?
same "stopped, and continued: exit 0" 0 "$code"
same "stopped, and continued: the same bits" "$clean" "$(digest stop)"

# A rank that hangs is missed after comm.deadline, which is long enough for the ranks that are well. These wait beside the cases below.
hung=("${keys[@]}" comm.deadline=15 chaos.enabled=true 'chaos.faults=[{kind: hang, step: 4, rank: 1}]')
"$binary" train "${hung[@]}" run.dir=hang --ranks 2 >hang.out 2>hang.err &
hang=$!
if with_mpi; then
  mpi 2 "$binary" train "${hung[@]}" run.dir=mpi-hang >mpi-hang.out 2>mpi-hang.err &
  mpi_hang=$!
fi

# Slow
chaos slow "kind: slow, step: 5, rank: 1, seconds: 0.3"
same "slow: exit 0" 0 "$code"
same "slow: the same bits" "$clean" "$(digest slow)"
# Rank 0 writes the time; the pause of rank 1 may begin while rank 0 still ends the step before, but not the one before that.
same "slow: from that step on" 4 "$(field time <slow/metrics.jsonl | awk '{ at[NR] = $1 } NR >= 5 && $1 - at[NR - 2] >= 0.295' | wc -l)"

# Wrong numbers
chaos nan "kind: nan, step: 4, rank: 1"
same "one step without a finite gradient: exit 0" 0 "$code"
expect "it is skipped" grep -q 'step 4: the gradient is not finite' err
run lockstep train "${keys[@]}" run.dir=nans --ranks 2 chaos.enabled=true optim.skip_limit=2 \
  'chaos.faults=[{kind: nan, step: 4, rank: 1}, {kind: nan, step: 5, rank: 0}]'
same "two in a row: exit 70" 70 "$code"
expect "two in a row: said" grep -qE '^error: .*step 5: 2 steps in a row without a finite gradient' err
# Whatever the loss is computed by: rows at a time, pairs of labels, distances to numbers, two networks in turn.
numbers 200 100 | awk 'BEGIN { print "x,y" } { print $1 "," 3 * $1 }' >numbers.csv
succeeds "numbers" lockstep data import csv numbers.csv numbers.h5 --target y
sed 's/images.h5/numbers.h5/; s/convnet/mlp/; /channels/d; s/hidden: 16/hidden: [8]/' images.yaml >numbers.yaml
nan_in() { # WHAT FILE more...
  run lockstep train "$2" train.steps=3 run.dir="nan of $1" chaos.enabled=true 'chaos.faults=[{kind: nan, step: 2, rank: 0}]' "${@:3}"
  same "nan with $1: exit 0" 0 "$code"
  expect "nan with $1: the step is skipped" grep -q 'step 2: the gradient is not finite' err
}
nan_in "a part of the loss at a time" text.yaml train.loss_rows=64
nan_in "mixup" images.yaml data.augment.mixup=0.4
nan_in "squared errors" numbers.yaml
nan_in "Huber's loss" numbers.yaml train.huber_delta=1
sed 's/convnet/gan/; s/channels: .*/latent: 8/; s/hidden: 16/width: 4/' images.yaml >gan.yaml
nan_in "a GAN" gan.yaml
expect "nan with a GAN: in both phases" grep -q '"step":2,.*"grad_norm/discriminator":null,.*"grad_norm/generator":null' "nan of a GAN/metrics.jsonl"
# Memory that changes while nothing writes it, of a slice that one rank alone has
for level in none parameters; do
  chaos "memory-$level" "kind: memory, step: 6, rank: 1" verify.memory=1 "sharding.level=$level"
  same "memory, $level: exit 76" 76 "$code"
  expect "memory, $level: named" grep -qE '^error: rank 1 on [^ ]+: .*rank 1 on [^ ]+: parameters/[a-z0-9.]+( .*)? has changed in its memory after step 5 though nothing wrote it, in elements \[[0-9]+, [0-9]+\): .*; the state after step 4 was good$' err
  same "memory, $level: the last good step" 4 "$(field equal_step <"memory-$level/failure.json")"
  goes_on "memory, $level" "memory-$level" "kind: memory, step: 6, rank: 1" verify.memory=1 "sharding.level=$level" --at-most 4
done
chaos memory-seldom "kind: memory, step: 6, rank: 1" verify.memory=5
same "memory, every fifth step: exit 76" 76 "$code"
chaos memory-late "kind: memory, step: 7, rank: 1" verify.memory=5
same "memory, not looked at: exit 0" 0 "$code"

chaos weight "kind: weight, step: 5, rank: 1" verify.every=2
same "a flipped bit of a parameter: exit 76" 76 "$code"
expect "who, what, when" grep -qE '^error: .*step 6: ranks 0 and 1 hold different values in parameters/.*last found equal after step 4' err
same "failure.json: the last step done" 6 "$(field step <weight/failure.json)"
same "failure.json: the last equal step" 4 "$(field equal_step <weight/failure.json)"
LOCKSTEP_ATTEMPT=2 chaos weight "kind: weight, step: 5, rank: 1" verify.every=2 --resume --at-most 4
same "back to the step that was equal: exit 0" 0 "$code"
same "the same bits" "$clean" "$(digest weight)"
chaos gradient "kind: gradient, step: 3, rank: 1" verify.every=1
same "a flipped bit of a gradient spreads to all ranks alike: exit 0" 0 "$code"
expect "other bits" test "$(digest gradient)" != "$clean"
succeeds "of one rank alone" lockstep train "${keys[@]}" run.dir=lone chaos.enabled=true 'chaos.faults=[{kind: gradient, step: 3}]'
expect "other bits, too" test "$(digest lone)" != "$clean"

# A full disk
chaos full "kind: full, step: 4, rank: 1"
same "full in the middle: exit 0" 0 "$code"
expect "full in the middle: a warning" grep -q 'checkpoint not saved (1 of 3 in a row that are tolerated): .*the disk counts as full for the checkpoint of step 4' err
same "full in the middle: the other checkpoints" "2 6 8 " "$(steps_of full)"
chaos before_end "kind: full, step: 6, rank: 1"
same "full at the save before the last: exit 0" 0 "$code"
same "full at the save before the last: the last one is there" "2 4 8 " "$(steps_of before_end)"
chaos end "kind: full, step: 8, rank: 1"
same "full at the end: exit 74" 74 "$code"
same "full at the end: the other checkpoints" "2 4 6 " "$(steps_of end)"
goes_on "full at the end" end "kind: full, step: 8, rank: 1"

if with_mpi; then
  for kind in kill segv exit; do # the launcher ends the others
    run timeout 300 "$mpirun_program" -n 2 "$binary" train "${keys[@]}" run.dir=mpi-$kind train.steps=100000 \
      chaos.enabled=true "chaos.faults=[{kind: $kind, step: 6, rank: 1}]"
    expect "mpirun, $kind: the job ends" test "$code" -ne 124
    expect "mpirun, $kind: not well" test "$code" -ne 0
    ended_in_step_6 "mpirun, $kind" mpi-$kind
  done
  run mpi 2 "$binary" train "${keys[@]}" run.dir=mpi-weight verify.every=2 chaos.enabled=true 'chaos.faults=[{kind: weight, step: 5, rank: 1}]'
  same "mpirun, weight: exit 76" 76 "$code"
fi

# What came of those that hung
ended_beside() { # PROCESS NAME: as if it had been the last run
  code=0
  wait "$1" || code=$?
  cp "$2.out" out && cp "$2.err" err
}
ended_beside "$hang" hang
same "a rank that hangs is missed: exit 69" 69 "$code"
expect "a rank that hangs is named" grep -qE '^error: rank 0 on [^ ]+: .*rank 1' err
same "failure.json: the steps done" 3 "$(field step <hang/failure.json)"
goes_on "a rank that hung" hang "kind: hang, step: 4, rank: 1"
if [ -n "${mpi_hang:-}" ]; then
  ended_beside "$mpi_hang" mpi-hang
  same "mpirun, hang: exit 69" 69 "$code"
fi

# What is refused
faults='chaos.faults=[{kind: kill, step: 3}]'
refuses "faults that are not enabled" 78 'override.*: chaos.faults: is refused without chaos.enabled: true' lockstep train "${keys[@]}" run.dir=refused "$faults"
refuses "no kind" 78 'override.*: chaos.faults: a fault needs a kind' lockstep train "${keys[@]}" run.dir=refused chaos.enabled=true 'chaos.faults=[{step: 3}]'
for wrong in 'kind: slow' 'kind: kill, seconds: 1'; do
  refuses "$wrong" 78 'override.*: chaos.faults: (kind: slow needs seconds above 0|seconds is for kind: slow alone, and kind is kill)' lockstep train "${keys[@]}" run.dir=refused chaos.enabled=true "chaos.faults=[{$wrong}]"
done
for wrong in 'kind: fire' 'kind: kill, step: 0' 'kind: kill, rank: -1' 'kind: kill, attempt: -1'; do
  refuses "$wrong" 78 'override.*: chaos.faults.*' lockstep train "${keys[@]}" run.dir=refused chaos.enabled=true "chaos.faults=[{$wrong}]"
done
LOCKSTEP_ATTEMPT=two refuses "an attempt that is no number" 78 'LOCKSTEP_ATTEMPT=two is not a number' \
  lockstep train "${keys[@]}" run.dir=refused chaos.enabled=true "$faults"
chaos absent "kind: kill, step: 3, rank: 2"
same "a rank that is not there: exit 0" 0 "$code"
expect "a rank that is not there: a warning" grep -q 'warning: .*chaos.faults: there is no rank 2 here' err
finish

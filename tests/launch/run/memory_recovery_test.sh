#!/usr/bin/env bash
# recovery.from: memory: after the death of ranks, agents, mpirun or the process that holds the memory, the run goes on from the last step
# that was done, without a checkpoint on disk, with the bits of an undisturbed run; nothing is left at its end.
# Usage: memory_recovery_test.sh LOCKSTEP MPIRUN
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
with_mpi || exit 0
export ASAN_OPTIONS=$no_leak_check
make_inputs
keys=(text.yaml train.steps=40 checkpoint.every=0 recovery.from=memory)
slow='chaos.faults=[{kind: slow, step: 13, rank: 0, seconds: 0.7}]' # of the first attempt: what is done to it finds it at work

succeeds "undisturbed" lockstep train text.yaml train.steps=40 run.dir=plain
wanted=$(digest plain)
succeeds "undisturbed, with averages" lockstep train text.yaml train.steps=40 optim.ema=0.9 run.dir=averaged
averaged=$(digest averaged)

# Memory holders of this test's jobs, by the name of the folder they were started in.
holders() {
  local p
  for p in $(pgrep -f "^[^ ]*lockstep agent --hold"); do
    if grep -qzx "PWD=$work" "/proc/$p/environ" 2>/dev/null; then echo "$p"; fi
  done
}
no_holders() { [ -z "$(holders)" ]; }
nothing_held() { # WHAT SECONDS
  local begun
  begun=$(seconds)
  await "$1: no memory holder is left" no_holders
  within "$2" "$1: no memory holder is left" "$(since "$begun")"
}
# Each failure repeated one step at most: of the steps that were done then, and of where the next start went on.
repeats_little() { # WHAT
  local most
  most=$(sed -nE 's/^rank 0: .*metrics.jsonl: ([0-9]+) lines? removed.*/\1/p' err | sort -n | tail -n 1)
  expect "$1: repeats a step at most, and not ${most:-0}" test "${most:-0}" -le 1
}
came_back() { # WHAT STARTS: of the run that has ended
  expect "$1: exit 0" test "$code" -eq 0
  same "$1: the digest" "$wanted" "$(digest run)"
  same "$1: each step once" 40 "$(grep -c '"loss"' run/metrics.jsonl)"
  same "$1: from memory" "$2" "$(grep -c '^rank 0: resumed the state in memory after step' err || true)"
  repeats_little "$1"
  nothing_held "$1" 2
}
disturbed() { # WHAT RANKS DISTURBANCE KEY...
  started run 12 -n "$2" --restarts 3 -- train "${keys[@]}" chaos.enabled=true "$slow" "${@:4}" run.dir=run
  "$3"
  ended
}
rank_killed() { kill -KILL "$(rank_of 1)"; }
agent_killed() { kill -KILL "$(awk '/^PPid:/ { print $2 }' "/proc/$(rank_of 1)/status")"; }
mpirun_killed() { pkill -KILL -f "^$mpirun_program .*$work/" || pkill -KILL -P "$(pgrep -P "$pid" | head -n 1)"; }
one_holder_killed() { # of the two processes; then, when the ranks have found the other one, a rank
  kill -KILL "$(holders | "$1" -n 1)"
  until [ "$(holders | wc -l)" -eq 2 ] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
  kill -KILL "$(holders | "$1" -n 1)" "$(rank_of 1)"
}
first_holder_killed() { one_holder_killed head; }
last_holder_killed() { one_holder_killed tail; }
holder_killed() { # and then, when another one has the memory, a rank
  # shellcheck disable=SC2046  # numbers
  kill -KILL $(holders)
  until [ "$(grep -c 'another one has it now' err)" -eq 2 ] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
  rank_killed
}
both_killed() { # at once: then there is nothing left in memory
  # shellcheck disable=SC2046  # numbers
  kill -STOP $(holders)
  # shellcheck disable=SC2046  # numbers
  kill -KILL $(holders) "$(rank_of 0)" "$(rank_of 1)"
}

for level in none gradients $(if thorough; then echo optimizer parameters; fi); do
  disturbed "a rank dies at level $level" 2 rank_killed "sharding.level=$level"
  came_back "a rank dies at level $level" 1
done
disturbed "a rank of two replicas of two shards dies" 4 rank_killed sharding.level=parameters sharding.group=2 optim.ema=0.9
wanted=$averaged came_back "a rank of two replicas of two shards dies" 1
disturbed "an agent dies" 2 agent_killed
came_back "an agent dies" 1
disturbed "mpirun dies" 2 mpirun_killed
came_back "mpirun dies" 1
for which in first last; do
  disturbed "one process of the holder dies, twice" 2 "${which}_holder_killed"
  came_back "one process of the holder dies, twice ($which)" 1
done
disturbed "the holder dies, then a rank" 2 holder_killed
came_back "the holder dies, then a rank" 1

disturbed "holder and ranks die at once" 2 both_killed
expect "holder and ranks die at once: exit 0" test "$code" -eq 0
same "holder and ranks die at once: the digest" "$wanted" "$(digest run)"
expect "holder and ranks die at once: from the beginning" grep -q 'holds no checkpoint yet: starting from the beginning' err
nothing_held "holder and ranks die at once" 2

# Ranks that die while they come back, at the first step of an attempt.
rm -rf run
run "$binary" launch --mpirun "$mpirun_program" -n 2 --restarts 4 -- train "${keys[@]}" run.dir=run chaos.enabled=true \
  'chaos.faults=[{kind: kill, step: 20, rank: 1}, {kind: kill, step: 20, rank: 0, attempt: 2}, {kind: kill, step: 21, rank: 1, attempt: 3}]'
came_back "ranks that die while they come back" 3

# A newer checkpoint on disk is taken, and so is what is in memory where it is newer.
rm -rf run
run "$binary" launch --mpirun "$mpirun_program" -n 2 --restarts 4 -- train "${keys[@]}" checkpoint.every=10 run.dir=run chaos.enabled=true \
  'chaos.faults=[{kind: kill, step: 26, rank: 1}]'
came_back "with checkpoints" 1
expect "with checkpoints: from the last step" grep -q 'resumed the state in memory after step 25' err

# Ranks that die while the last step is saved, or another one that is due: the next start saves it, though no step is left to train.
for every in 0 20; do
  rm -rf run
  mkdir -p run/checkpoints
  "$binary" launch --mpirun "$mpirun_program" -n 2 --restarts 4 -- train "${keys[@]}" "checkpoint.every=$every" run.dir=run chaos.enabled=true \
    'chaos.faults=[{kind: slow, step: 21, rank: 0, seconds: 0.5}]' >out 2>err & # so that it goes on from the step that is saved
  pid=$!
  last=$([ "$every" = 0 ] && echo 40 || echo 20)
  until [ -n "$(ls -A run/checkpoints 2>/dev/null)" ] || ! kill -0 "$pid" 2>/dev/null; do :; done
  # shellcheck disable=SC2046  # numbers
  kill -KILL $(rank_of 0) $(rank_of 1) 2>/dev/null || true
  ended
  expect "killed in a save (every $every): exit 0" test "$code" -eq 0
  expect "killed in a save (every $every): step $last is saved" test -d "run/checkpoints/step-000000$last"
  same "killed in a save (every $every): the digest" "$wanted" "$(digest run)"
done

# State that changed in memory is not gone on from, though it was written after the last step.
rm -rf run
run "$binary" launch --mpirun "$mpirun_program" -n 2 --restarts 1 -- train "${keys[@]}" sharding.level=parameters verify.memory=1 run.dir=run \
  chaos.enabled=true 'chaos.faults=[{kind: memory, step: 21, rank: 1}]'
came_back "memory that changed" 1
expect "memory that changed: from the last good step" grep -q 'resumed the state in memory after step 19' err

# Every third step alone.
rm -rf run
run "$binary" launch --mpirun "$mpirun_program" -n 2 --restarts 4 -- train "${keys[@]}" recovery.every=3 run.dir=run chaos.enabled=true \
  'chaos.faults=[{kind: kill, step: 21, rank: 1}]'
same "every third step: the digest" "$wanted" "$(digest run)"
expect "every third step: from that" grep -q 'resumed the state in memory after step 18' err

# What ends the launcher ends the holder.
started run 5 -n 2 -- train "${keys[@]}" train.steps=100000 run.dir=run
held_by=$(holders | xargs)
expect "the holder is two processes" test "$(wc -w <<<"$held_by")" -eq 2
# shellcheck disable=SC2086  # numbers
expect "it ignores signals" kill -TERM $held_by
sleep 0.2
same "it goes on" "$held_by" "$(holders | xargs)"
kill -KILL "$pid"
nothing_held "the launcher is killed" 3
ended
started run 5 -n 2 -- train "${keys[@]}" train.steps=100000 run.dir=run
kill -TERM "$pid"
ended
same "asked to stop: exit" 75 "$code"
nothing_held "asked to stop" 3

refuses "without a launcher" 78 "(rank 0: )?.*recovery.from: memory that outlives the ranks is held for those that .lockstep launch. starts" \
  lockstep train "${keys[@]}" run.dir=alone
finish

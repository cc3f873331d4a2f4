#!/usr/bin/env bash
# Rows of the fault matrix (docs/faults.md) that need one machine and are in no other test: what is injected, what is said, how the run ends.
# Usage: matrix_test.sh LOCKSTEP MPIRUN IO_ERRORS_LIBRARY [ROW...]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/../launch/run/common.sh" "${@:1:2}"
export ASAN_OPTIONS=$no_leak_check # of ranks that it launches
io_errors=$3
rows=" ${*:4} "
make_inputs
keys=(text.yaml train.steps=40 checkpoint.every=5)
succeeds "undisturbed" lockstep train "${keys[@]}" run.dir=plain
wanted=$(digest plain)
launch() { timeout 300 "$binary" launch --mpirun "$mpirun_program" "$@"; }
asked() { [ "$rows" = "  " ] || [[ $rows == *" $1 "* ]]; }
chaos() { echo "chaos.faults=[{$1}]"; }
row() { echo "row $1: $(grep -hE "$2" err | tail -n 1 | sed 's/[0-9]*) //' | cut -c 1-230)"; } # ROW 'REGEXP'

if asked 3; then # a crash: the stack, and a restart
  run launch -n 3 -- train "${keys[@]}" run.dir=r3 chaos.enabled=true "$(chaos 'kind: segv, step: 8, rank: 1')"
  expect "row 3: exit 69" test "$code" -eq 69
  expect "row 3: the stack" grep -qE '^error: rank 1 on .* ended by SIGSEGV .*after step 7, at .*< Trainer::' err
  row 3 '^error'
  run launch -n 3 --restarts 1 -- train "${keys[@]}" run.dir=r3b chaos.enabled=true "$(chaos 'kind: segv, step: 8, rank: 1')"
  same "row 3: the digest after a restart" "$wanted" "$(digest r3b)"
fi
if asked 5; then # stopped for a while, by itself
  started r5 6 -n 3 -- train "${keys[@]}" run.dir=r5 launch.silence=30 chaos.enabled=true "$(chaos 'kind: stop, step: 8, rank: 1')"
  await "row 5: said, and so stopped for more than a second" grep -q '^warning: rank 1 on .* is stopped' err
  kill -CONT "$(rank_of 1)"
  ended
  expect "row 5: exit 0" test "$code" -eq 0
  expect "row 5: said" grep -q '^warning: rank 1 on .* is stopped, by SIGSTOP' err
  expect "row 5: and that it goes on" grep -q '^rank 1 goes on' err
  row 5 '^warning: rank 1'
fi
if asked 6; then # a loader that never returns
  run launch -n 3 -- train "${keys[@]}" run.dir=r6 comm.deadline=15 chaos.enabled=true "$(chaos 'kind: hang, step: 8, rank: 1')"
  expect "row 6: exit 69" test "$code" -eq 69
  expect "row 6: said after 5 s, with phase and stack" grep -qE '^warning: rank 1 on .* has made no progress for ([5-9]\.[0-9]|1[0-9]) s in load batch.*, at .*Trainer::next_batch.*; .*waits? in' err
  row 6 '^warning: rank 1'
fi
if asked 11; then # a rank that is stopped most of the time, and one with a fifth of a core, which shows only where nothing else runs
  started r11s 4 -n 2 -- train "${keys[@]}" train.steps=1000 model.layers=4 model.width=192 data.context=64 batch.micro=4 run.dir=r11s
  slowed=$(rank_of 1)
  at=$(done_steps r11s)
  until grep -q ' is slow: it computes ' err || ! kill -0 "$pid" 2>/dev/null; do
    kill -STOP "$slowed" && sleep 0.2 && kill -CONT "$slowed" && sleep 0.02
  done
  steps=$(($(done_steps r11s) - at))
  kill -TERM "$pid" 2>/dev/null || true
  ended
  expect "row 11, stopped most of the time: exit 75" test "$code" -eq 75
  expect "row 11, stopped most of the time: named" grep -qE '^warning: rank 1 on .* is slow: it computes [0-9.]+ times as long' err
  expect "row 11, stopped most of the time: within 20 steps ($steps)" test "$steps" -le 20
  group=/sys/fs/cgroup/cpu/lockstep-$$
  if [ "${LOCKSTEP_TEST_BOUNDS:-}" != 1 ]; then
    echo "skipped: row 11 with a fifth of a core: LOCKSTEP_TEST_BOUNDS is not 1"
  elif mkdir "$group" 2>/dev/null && echo 20000 2>/dev/null >"$group/cpu.cfs_quota_us"; then
    trap 'rmdir "$group" 2>/dev/null || true; rm -rf "$work"' EXIT
    started r11 4 -n 2 -- train "${keys[@]}" train.steps=50 model.layers=4 model.width=192 data.context=64 batch.micro=4 run.dir=r11
    slowed=$(rank_of 1)
    at=$(done_steps r11)
    for task in /proc/"$slowed"/task/*; do echo "${task##*/}" >"$group/tasks" || true; done
    until grep -q ' is slow: it computes ' err || ! kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
    steps=$(($(done_steps r11) - at))
    ended
    expect "row 11: exit 0" test "$code" -eq 0
    expect "row 11: named" grep -qE '^warning: rank 1 on .* is slow: it computes [0-9.]+ times as long' err
    expect "row 11: within 20 steps ($steps)" test "$steps" -le 20
    row 11 'is slow'
    rmdir "$group"
  else
    echo "skipped: row 11: no control group for CPU time can be made here"
  fi
fi
if asked 21; then # write errors of the disk
  for kind in write fsync; do
    run env LD_PRELOAD="$io_errors" IO_ERRORS=$kind IO_ERRORS_IN="$work/r21$kind/checkpoints" "$binary" train "${keys[@]}" run.dir=r21$kind
    expect "row 21, $kind: exit 74" test "$code" -eq 74
    expect "row 21, $kind: said" grep -qE '^error: .*Input/output error' err
    expect "row 21, $kind: no checkpoint is there" test -z "$(find r21$kind/checkpoints -name 'step-*' 2>/dev/null)"
    row 21 '^error'
  done
  run env LD_PRELOAD="$io_errors" IO_ERRORS=short IO_ERRORS_IN="$work/r21/" "$binary" train "${keys[@]}" run.dir="$work/r21"
  expect "row 21, short writes: exit 0" test "$code" -eq 0
  same "row 21, short writes: the digest" "$wanted" "$(digest r21)"
fi
if asked 30; then # a flipped bit of a weight: back to the last step that was equal
  run launch -n 3 --restarts 1 -- train "${keys[@]}" run.dir=r30 verify.every=4 chaos.enabled=true "$(chaos 'kind: weight, step: 18, rank: 1')"
  expect "row 30: exit 0" test "$code" -eq 0
  expect "row 30: rank, tensor, step" grep -qE '^warning: rank 1 on [^ ]+: step 20: rank 1 holds other values than the other 2 ranks in parameters/' err
  expect "row 30: from before it" grep -q '^attempt 2: .*at or before step 16' err
  same "row 30: the digest" "$wanted" "$(digest r30)"
  row 30 '^warning: rank 1'
fi
if asked 43; then # a file system without locks
  run env LD_PRELOAD="$io_errors" IO_ERRORS=lock IO_ERRORS_IN="$work" "$binary" train "${keys[@]}" run.dir=r43
  expect "row 43: reads on" test "$code" -eq 0
  same "row 43: the digest" "$wanted" "$(digest r43)"
  row 43 'done: 40 steps'
fi
if asked 44; then # the clock jumps by an hour and back
  library=$(find /usr/lib -name libfaketime.so.1 2>/dev/null | head -n 1 || true)
  if [ -n "$library" ]; then
    echo "+0" >clock
    rm -rf r44
    LD_PRELOAD=$library FAKETIME_TIMESTAMP_FILE=$work/clock FAKETIME_NO_CACHE=1 DONT_FAKE_MONOTONIC=1 "$binary" train "${keys[@]}" run.dir=r44 --ranks 2 checkpoint.every_minutes=30 \
      chaos.enabled=true "$(chaos 'kind: stop, step: 20}, {kind: stop, step: 30')" >out 2>err &
    pid=$!
    for jump in +3600 -3600; do
      until_stopped "row 44"
      echo "$jump" >clock
      kill -CONT "$pid"
    done
    ended
    expect "row 44: exit 0" test "$code" -eq 0
    same "row 44: the digest" "$wanted" "$(digest r44)"
    row 44 'done: 40 steps'
  else
    echo "skipped: row 44: libfaketime is not installed (package faketime)"
  fi
fi
if asked 47; then # killed for lack of memory
  group=/sys/fs/cgroup/memory/lockstep-$$
  if mkdir "$group" 2>/dev/null && echo 300M 2>/dev/null >"$group/memory.limit_in_bytes"; then
    started r47 8 -n 3 -- train "${keys[@]}" train.steps=1000000 schedule.steps=40 run.dir=r47
    killed=$(rank_of 1)
    echo "$killed" >"$group/cgroup.procs"
    moved_at=$(done_steps r47)
    # Its agent looks at its group before it says where it stands, which the launcher writes down.
    is_seen() { [ "$(grep '"rank":1,' r47/ranks.jsonl 2>/dev/null | field step)" -gt "$moved_at" ] 2>/dev/null; }
    await "row 47: its agent has seen it" is_seen
    # What it allocates from now on counts there. The kernel refuses a limit below what is in use and cannot be freed, so what
    # is in use is the limit, again and again: the least of it that was seen. With the next page above that the kernel ends it.
    for ((i = 0; i < 1200; i++)); do
      kill -0 "$killed" 2>/dev/null || break
      echo 1 >"$group/memory.force_empty" 2>/dev/null || true
      cat "$group/memory.usage_in_bytes" >"$group/memory.limit_in_bytes" 2>/dev/null || true
      sleep 0.1
    done
    kill -9 "$killed" 2>/dev/null || true # if the kernel has not
    ended
    expect "row 47: exit 69" test "$code" -eq 69
    expect "row 47: said" grep -qE '^error: rank 1 on .* was killed by SIGKILL: out of memory, the limit of its control group is ' err
    row 47 '^error'
    no_group() { rmdir "$group" 2>/dev/null; }
    await "row 47: its group is empty" no_group
  else
    echo "skipped: row 47: no control group for memory can be made here"
  fi
fi
if asked 48; then # too few open files
  code=0
  (ulimit -n 7 && "$binary" train "${keys[@]}" run.dir=r48) >out 2>err || code=$?
  expect "row 48: fails before step 0" test "$code" -ne 0 -a ! -s r48/metrics.jsonl
  expect "row 48: exit 67" test "$code" -eq 67
  expect "row 48: says so" grep -qiE '^error: .*only 7 open files here' err
  row 48 '^error'
fi
if asked 50; then # a rank that ends early, with exit code 0
  run launch -n 3 -- train "${keys[@]}" run.dir=r50 chaos.enabled=true "$(chaos 'kind: exit, step: 8, rank: 1')"
  expect "row 50: exit 69" test "$code" -eq 69
  expect "row 50: said" grep -qE '^error: rank 1 on .* ended early, without an error, .*after step 7; .*waits? in' err
  row 50 '^error'
fi
finish

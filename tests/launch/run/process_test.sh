#!/usr/bin/env bash
# What a process is given and what is taken from it: closed descriptors, full outputs, limits, a run directory that is removed while the run
# goes on, more ranks than fit, signals while it starts. Each ends with its documented exit code and one line that says why.
# Usage: process_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$1"
make_inputs
endless=(train.steps=1000000 schedule.steps=1000000)

# Closed descriptors: no file gets what is meant for the terminal.
only_metrics() { test "$(grep -cvE '^\{"step":.*\}$' "$1/metrics.jsonl")" -eq 0; }
for closed in 1 2 12 012; do
  code=0
  case $closed in
    1) "$binary" train text.yaml run.dir=closed1 >&- 2>err || code=$? ;;
    2) "$binary" train text.yaml run.dir=closed2 >out 2>&- || code=$? ;;
    12) "$binary" train text.yaml run.dir=closed12 >&- 2>&- || code=$? ;;
    012) "$binary" train text.yaml run.dir=closed012 <&- >&- 2>&- || code=$? ;;
  esac
  same "descriptors $closed closed: exit code" 0 "$code"
  expect "descriptors $closed closed: metrics.jsonl has metrics alone" only_metrics "closed$closed"
  succeeds "descriptors $closed closed: the checkpoints are whole" lockstep checkpoint verify "closed$closed"
done

# A result that is lost is an error.
lost() { # WHAT command...
  code=0
  "${@:2}" >/dev/full 2>err || code=$?
  cp err out
  expect "$1 to a full device: exit 74" test "$code" -eq 74
  expect "$1 to a full device: it says so" grep -qE '^error: the result cannot be written to standard output: No space' err
}
lost "config show" "$binary" config show text.yaml
lost "config keys" "$binary" config keys
lost "--help" "$binary" --help
lost "train --help" "$binary" train --help
lost "eval" "$binary" eval closed1
lost "prove" "$binary" prove text.yaml --ranks 1 --levels none --steps 1

# A limit for the size of files, with the signal that it sends left as it is.
# shellcheck disable=SC2317  # called by name
small_files() { (ulimit -f "$1" && "$binary" "${@:2}"); }
refuses "a file limit while training" 74 '.*(write|space|large|full)' small_files 100 train text.yaml run.dir=limited
refuses "a file limit while importing" 74 '.*new.h5' small_files 8 data import text text.txt new.h5

# The run directory, its lock or the metrics are taken away.
taken() { # WHAT 'REGEXP' command...: done to the directory `taken` after some steps
  rm -rf taken moved
  timeout 300 "$binary" train text.yaml "${endless[@]}" run.dir=taken >out 2>err &
  local pid=$!
  until_step taken 5 "$pid"
  "${@:3}"
  code=0
  wait "$pid" || code=$?
  expect "$1: exit 73" test "$code" -eq 73
  expect "$1: one error that says so" grep -qE "^error: $2" err
  expect "$1: one error" test "$(grep -c '^error' err)" -eq 1
}
taken "run.dir moved" '(run.dir )?taken(/tensorboard)? was removed or moved' mv taken moved
taken "run.dir removed" '(run.dir )?taken.* was removed' rm -rf taken
taken "the lock removed" 'taken/lock was removed .*continue with --resume' rm taken/lock
replace_lock() { echo mine >mine && mv mine taken/lock; }  # at once: the run looks at any time
taken "the lock replaced" 'taken/lock was replaced' replace_lock
taken "the metrics removed" 'taken/metrics.jsonl was removed' rm taken/metrics.jsonl
code=0

# Whole numbers of the command line, in their ranges.
refuses "--ranks beyond 32 bits" 64 '--ranks 4294967298: must be 0 to 4096' lockstep train text.yaml --ranks 4294967298
refuses "--ranks beyond 64 bits" 64 '--ranks 99999999999999999999: must be' lockstep train text.yaml --ranks 99999999999999999999
refuses "--ranks below 0" 64 '--ranks -1: must be' lockstep train text.yaml --ranks -1
refuses "eval --ranks" 64 '--ranks 4294967297: must be' lockstep eval closed1 --ranks 4294967297
refuses "bench --ranks" 64 '--ranks 4294967297: must be' lockstep bench text.yaml --ranks 4294967297
refuses "config show --ranks" 64 '--ranks 4294967297: must be' lockstep config show text.yaml --ranks 4294967297
refuses "plan --ranks" 64 '--ranks 0: must be 1 to 1048576' lockstep plan text.yaml --ranks 0
refuses "generate --tokens" 64 '--tokens 4294967297: must be 0 to 1000000' lockstep generate closed1 --tokens 4294967297

# More ranks than the cores can serve as threads; and many that are stopped while they start.
core=$(taskset -cp $$ | sed -E 's/.*: *([0-9]+).*/\1/')
make_text long.txt 12000
lockstep data import text long.txt long.h5 >/dev/null 2>&1
many=(train text.yaml data.path=long.h5 batch.global=1000 batch.micro=1)
refuses "1000 ranks on a core" 64 '--ranks 1000: 1 core is available here, and at most 256 ranks per core' \
  taskset -c "$core" "$binary" "${many[@]}" run.dir=many --ranks 1000
if [ -e many ]; then problem "1000 ranks on a core left a run directory"; fi
# With little of the processor, so that this shell comes to its signal before they come to the first step.
nice -n 19 taskset -c "$core" "$binary" "${many[@]}" run.dir=many --ranks 150 >out 2>err &
pid=$!
threads=()
until [ "${#threads[@]}" -gt 50 ] || ! kill -0 "$pid" 2>/dev/null; do threads=("/proc/$pid/task/"*); done
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
expect "TERM while 150 ranks start: exit 75" test "$code" -eq 75
expect "TERM while 150 ranks start: it says so" grep -q '^stopped on request before the first step' err

# A place for temporary files that is not there.
TMPDIR=$work/nowhere refuses "prove without TMPDIR" 73 ".*$work/nowhere.*cannot create a temporary directory here.*set TMPDIR" \
  lockstep prove text.yaml --ranks 1 --levels none --steps 2 --resume

# bench says how much memory it has had itself, not the process that became it.
# shellcheck disable=SC2317,SC2034  # called by name; the variable only takes memory
after_large() { (large=$(head -c 300000000 /dev/zero | tr '\0' x) && exec "$binary" bench text.yaml --steps 2 --warmup 1); }
succeeds "bench" after_large
expect "bench: its own memory" awk -v mb="$(field rss_mb <out)" 'BEGIN { exit !(mb > 5 && mb < 280) }'
finish

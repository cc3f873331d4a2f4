#!/usr/bin/env bash
# `lockstep sweep`: every point is run, one that fails does not end the others, a sweep that was stopped or killed goes on to the same bits,
# and the results are read back from CSV and JSON.
# Usage: sweep_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
export ASAN_OPTIONS=$no_leak_check # of ranks that it launches
make_inputs
code_of() { field exit_code <"$1/point.json"; }
steps_of() { wc -l <"$1/metrics.jsonl"; }

# Four points, of which two, with a context that is longer than the text, fail.
keys=('data.ignore_tokens=[1,2],[3]' 'data.context=choice(16, 900000)')
run lockstep sweep text.yaml "${keys[@]}" --jobs 2
expect "one fails: the exit code of the first that failed" test "$code" -eq 78
same "one fails: all were run" "0 78 0 78" "$(for p in 000 001 002 003; do code_of run-sweep/$p; done | xargs)"
expect "one fails: a line for each" test "$(grep -cE '^(warning: )?point 00[0-3] \(data.ignore_tokens=.* data.context=[0-9]+\): ' err)" -eq 4
expect "one fails: its log is named" grep -q 'point 001 .*: exit code 78, see run-sweep/001/sweep.log' err
expect "one fails: its log says why" grep -q 'data.context is 900000' run-sweep/001/sweep.log
expect "one fails: the table" grep -qE '^point +data.ignore_tokens +data.context +loss +best_loss +loss_of +steps +seconds +exit_code$' out
same "one fails: the lowest loss first, those without one last" "$(sed -n '2,3p' out | awk '{ print $4 }' | sort -n | xargs) - -" \
  "$(awk 'NR > 1 { print $4 }' out | xargs)"
loss=$(tail -n 1 run-sweep/000/metrics.jsonl | field val_loss)
expect "CSV: quotes and the whole loss" grep -qF "000,\"[1,2]\",16,$loss,$loss,validation,30," run-sweep/sweep.csv
same "CSV: lines end in CR LF" 5 "$(grep -c $'\r$' run-sweep/sweep.csv)"
lockstep sweep --collect run-sweep --json >json 2>err
expect "JSON: the same loss" grep -qF "\"loss\":$loss,\"best_loss\":$loss," <(grep '"point":0,' json)
expect "JSON: the values" grep -qF '"data.ignore_tokens":"[1,2]"' <(grep '"point":0,' json)
expect "sweep.json: the results" grep -qF "\"loss\":$loss" run-sweep/sweep.json
before=$(fingerprint run-sweep/000)
run lockstep sweep text.yaml "${keys[@]}" --jobs 2
same "again: what has finished is not repeated" "$before" "$(fingerprint run-sweep/000)"
expect "again: it says so" grep -q '2 of 4 points have finished before' err
expect "again: what failed is tried once more" test "$code" -eq 78
expect "again: and counts once in the log of each" test "$(grep -c 'data.context is 900000' run-sweep/001/sweep.log)" -eq 2

# Refused before anything starts.
refuses "another grid" 73 'run-sweep holds another sweep: its keys and values differ' lockstep sweep text.yaml seed=1,2 --dir run-sweep
sed 's/width: 32/width: 16/' text.yaml >changed.yaml
cp text.yaml kept.yaml
cp changed.yaml text.yaml
refuses "a file that was changed" 73 'run-sweep holds another sweep: its configuration .* differ' lockstep sweep text.yaml "${keys[@]}"
cp kept.yaml text.yaml
refuses "a bad point is named" 78 'point 001 \(optim.lr=x\): .*optim.lr: expected a number' lockstep sweep text.yaml optim.lr=0.1,x --dir bad
refuses "a key that is not there" 78 'point 000 \(optim.lrr=1\): .*optim.lrr' lockstep sweep text.yaml optim.lrr=1,2 --dir bad
refuses "an open bracket" 64 "sweep: seed=\[1,2: a bracket is not closed" lockstep sweep text.yaml 'seed=[1,2' --dir bad
refuses "an interval without --random" 64 'sweep: optim.lr=interval\(0,1\): an interval has values to draw' lockstep sweep text.yaml 'optim.lr=interval(0,1)' --dir bad
refuses "too many" 64 'sweep: more than 10000 points' lockstep sweep text.yaml 'seed=range(101)' 'train.steps=range(100)' --dir bad
refuses "the run directory" 64 'sweep: run.dir cannot be swept' lockstep sweep text.yaml run.dir=a,b
refuses "no such point" 64 '--array 2: must be 0 to 1' lockstep sweep text.yaml seed=1,2 --array 2 --dir bad
refuses "nothing to collect" 66 'bad/sweep.json: there is no such file' lockstep sweep --collect bad
if [ -e bad ]; then problem "something was created before it was refused"; fi
succeeds "a run in the way" lockstep train text.yaml train.steps=1 run.dir=taken/001
refuses "a run in the way" 73 'taken/001 already holds a run' lockstep sweep text.yaml seed=1,2 --dir taken

succeeds "a dry run" lockstep sweep text.yaml 'optim.name=glob(adam*)' 'seed=range(1,3)' --dir dry --dry-run
expect "a dry run: the commands" grep -qE "train text.yaml optim.name=adamw seed=2 run.dir=dry/001.* --resume" out
if [ -e dry ]; then problem "a dry run leaves something"; fi

# As the parts of a job array, then collected.
for i in 1 0; do succeeds "array $i" lockstep sweep text.yaml seed=1,2 --dir array --array "$i"; done
same "array: both were run" "0 0" "$(for p in 000 001; do code_of array/$p; done | xargs)"
succeeds "array: collected" lockstep sweep --collect array
expect "array: the table" test "$(wc -l <out)" -eq 3
expect "array: sweep.csv" test -s array/sweep.csv

# Stopped in the middle, and killed in the middle: what is started again has the bits of runs that nothing disturbed. Points wait, stopped,
# for what is done to the sweep: the first one of the first start and the second one of the second.
long=(train.steps=300 checkpoint.every=100 seed=1,2,3 chaos.enabled=true 'chaos.faults=[{kind: stop, step: 110}, {kind: stop, step: 105, attempt: 2}]')
for s in 1 3; do lockstep train text.yaml "${long[@]:0:2}" seed=$s run.dir=whole$s >/dev/null 2>&1; done
waits() { test -n "$(process_of "$1")" && is_stopped "$(process_of "$1")"; } # POINT
"$binary" sweep text.yaml "${long[@]}" --dir long --jobs 1 >out 2>err &
pid=$!
await "the first point waits" waits long/000
refuses "in use" 73 'long: another `lockstep sweep` works in this directory' lockstep sweep text.yaml "${long[@]}" --dir long
kill -TERM "$pid"
is_asked() { (((16#$(sed -n 's/^ShdPnd:\t//p' "/proc/$1/status") >> 14) & 1)); } # PROCESS: SIGTERM waits until it goes on
await "the point is asked to end, too" is_asked "$(process_of long/000)"
kill -CONT "$(process_of long/000)"
code=0
wait "$pid" || code=$?
same "stopped: exit 75" 75 "$code"
same "stopped: the point, too" 75 "$(code_of long/000)"
if [ -e long/001/metrics.jsonl ]; then problem "stopped: another point was started"; fi
LOCKSTEP_ATTEMPT=2 "$binary" sweep text.yaml "${long[@]}" --dir long --jobs 1 >out 2>err &
pid=$!
await "the second point waits" waits long/001
kill -CONT "$(process_of long/001)"
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
LOCKSTEP_ATTEMPT=3 succeeds "killed, and started again at once" lockstep sweep text.yaml "${long[@]}" --dir long --jobs 2
same "the bits of a run that was not stopped" "$(digest whole1)" "$(digest long/000)"
same "the bits of one that was not started then" "$(digest whole3)" "$(digest long/002)"
same "every step once" "300 300 300" "$(for p in 000 001 002; do steps_of long/$p; done | xargs)"

# Started again while a point of one that was killed still works: it is named and waited for.
slow=(train.steps=4 checkpoint.every=1 seed=1,2 chaos.enabled=true 'chaos.faults=[{kind: stop, step: 2}, {kind: slow, step: 2, rank: 0, seconds: 1}]')
"$binary" sweep text.yaml "${slow[@]}" --dir slow --jobs 1 >out 2>err &
pid=$!
await "the point waits" waits slow/000
point=$(process_of slow/000)
kill -CONT "$point" && kill -KILL "$pid" && kill -STOP "$point" # the system would end one that is stopped when its parent ends
wait "$pid" 2>/dev/null || true
LOCKSTEP_ATTEMPT=2 "$binary" sweep text.yaml "${slow[@]}" --dir slow --jobs 2 >out 2>err &
pid=$!
await "killed while a point works: its process is named" \
  grep -qE '^point 000 \(seed=1\): process [0-9]+ on .* still works in slow/000; waiting for it to end' err
kill -CONT "$point"
ended
same "killed while a point works, and started again: exit 0" 0 "$code"
same "killed while a point works: all were run" "0 0" "$(for p in 000 001; do code_of slow/$p; done | xargs)"

# Data that another program replaces: by the tasks of a job array, and while a sweep runs.
make_text other.txt 2301
lockstep data import text other.txt other.h5 >/dev/null 2>&1
cp text.h5 kept.h5
succeeds "array with new data" lockstep sweep text.yaml seed=1,2 --dir newdata --array 0
cp other.h5 text.h5
run lockstep sweep text.yaml seed=1,2 --dir newdata --array 1
same "array with new data: exit 65" 65 "$code"
expect "array with new data: the file is named" \
  grep -qE '^warning: point 001 \(seed=2\): not started: text.h5: changed since the sweep began: its identity is [0-9a-f]{32}, and was ' err
same "new data: 65" 65 "$(code_of newdata/001)"
if [ -e newdata/001/metrics.jsonl ]; then problem "new data: the point was started"; fi
cp kept.h5 text.h5
succeeds "the data is back" lockstep sweep text.yaml seed=1,2 --dir newdata
"$binary" sweep text.yaml "${long[@]}" --dir moving --jobs 1 >out 2>err &
pid=$!
await "the first point waits" waits moving/000
cp other.h5 new.h5 && mv new.h5 text.h5
kill -CONT "$(process_of moving/000)"
code=0
wait "$pid" || code=$?
same "replaced meanwhile: exit 65" 65 "$code"
same "replaced meanwhile: the points" "0 65 65" "$(for p in 000 001 002; do code_of moving/$p; done | xargs)"
cp kept.h5 text.h5

if with_mpi; then
  succeeds "ranks as processes" lockstep sweep text.yaml seed=1,3 train.steps=20 schedule.steps=30 --dir ranks --ranks 2 --jobs 1
  expect "ranks as processes: both" test "$(grep -c 'validation loss' err)" -eq 2
  lockstep train text.yaml seed=3 train.steps=20 schedule.steps=30 run.dir=one >/dev/null 2>&1
  same "ranks as processes: the bits of one rank" "$(digest one)" "$(digest ranks/001)"
fi
finish

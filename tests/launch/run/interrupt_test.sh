#!/usr/bin/env bash
# Stopping: a signal saves, exits with 75 and is resumed to the same bits. Usage: interrupt_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh"
make_inputs
wait_for_step() { # RUN STEP PID
  until [ "$(field step 2>/dev/null <"$1/metrics.jsonl" | tail -n 1)" -ge "$2" ] 2>/dev/null || ! kill -0 "$3" 2>/dev/null; do sleep 0.01; done
}
endless=(train.steps=1000000 schedule.steps=1000000)
stop() { # SIGNAL RUN command...: starts it, sends the signal after 10 steps, expects 75
  rm -rf "$2"
  "${@:3}" >out 2>err &
  local pid=$!
  wait_for_step "$2" 10 "$pid"
  kill -s "$1" "$pid"
  code=0
  wait "$pid" || code=$?
  expect "$1: exit 75" test "$code" -eq 75
  expect "$1: it says how to go on" grep -q 'stopped on request after step .*--resume' err
}
# The rate does not depend on train.steps here: the step that a run stopped at can be reached without interruption.
for signal in TERM INT HUP USR1 USR2; do
  ranks=2
  if [ "$signal" = USR1 ]; then ranks=1; fi
  stop "$signal" "stop$signal" "$binary" train text.yaml "${endless[@]}" run.dir="stop$signal" --ranks "$ranks"
done
step=$(field step <stopTERM/metrics.jsonl | tail -n 1)
again=("${endless[@]}" train.steps=$((step + 30)))
succeeds "TERM, then --resume" lockstep train text.yaml "${again[@]}" run.dir=stopTERM --ranks 3 --resume
succeeds "without TERM" lockstep train text.yaml "${again[@]}" run.dir=unstopped
same "TERM, then --resume: the bits of the uninterrupted run" "$(digest unstopped)" "$(digest stopTERM)"

# Who reads the log may go: after a line, or as Ctrl-C ends all of a pipe.
code=0
"$binary" train text.yaml run.dir=headless 2>&1 | head -n 1 >out || code=${PIPESTATUS[0]}
same "a reader that leaves" 0 "$code"
same "all steps" 30 "$(field step <headless/metrics.jsonl | tail -n 1)"
expect "saved" test -d headless/checkpoints/step-00000030
mkfifo pipe
cat pipe >teed &
reader=$!
"$binary" train text.yaml "${endless[@]}" run.dir=teed-run >pipe 2>&1 &
pid=$!
wait_for_step teed-run 10 "$pid"
kill "$reader"
kill -s INT "$pid"
code=0
wait "$pid" || code=$?
same "Ctrl-C of both" 75 "$code"
expect "Ctrl-C of both: saved" test -n "$(ls teed-run/checkpoints)"

# Not where the caller asked that SIGHUP be ignored.
(trap '' HUP && exec "$binary" train text.yaml "${endless[@]}" run.dir=nohup) >out 2>err &
pid=$!
wait_for_step nohup 5 "$pid"
kill -s HUP "$pid"
wait_for_step nohup 200 "$pid"
expect "an ignored HUP: the run goes on" kill -0 "$pid"
kill -s TERM "$pid"
code=0
wait "$pid" || code=$?
expect "an ignored HUP, then TERM: exit 75" test "$code" -eq 75
if with_mpi; then
  # As Slurm does it: the signal reaches the ranks. One of them is enough.
  rm -rf mpistop
  mpi 2 "$binary" train text.yaml "${endless[@]}" run.dir=mpistop >out 2>err &
  launcher=$!
  wait_for_step mpistop 10 "$launcher"
  kill -s TERM "$(grep -oE '"pid": *[0-9]+' mpistop/lock | grep -oE '[0-9]+')"
  code=0
  wait "$launcher" || code=$?
  expect "TERM to one process of two: exit 75" test "$code" -eq 75
  step=$(field step <mpistop/metrics.jsonl | tail -n 1)
  again=("${endless[@]}" train.steps=$((step + 10)))
  succeeds "TERM under mpirun, then --resume" mpi 2 "$binary" train text.yaml "${again[@]}" run.dir=mpistop --resume
  succeeds "without TERM" lockstep train text.yaml "${again[@]}" run.dir=mpiunstopped
  same "TERM under mpirun, then --resume" "$(digest mpiunstopped)" "$(digest mpistop)"
fi

finish

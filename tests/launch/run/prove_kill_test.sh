#!/usr/bin/env bash
# What a prove that is killed leaves in TMPDIR: nothing after SIGTERM, SIGINT and SIGHUP; what a kill -9 leaves, the next one removes.
# Usage: prove_kill_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh"
make_inputs
forever=(text.yaml train.steps=100000000 --steps 100000000 --resume --levels none --ranks 1)
shelves() { find tmp -mindepth 1 -maxdepth 1 -name 'lockstep-prove-*' | wc -l; }
shelves_are() { [ "$(shelves)" -eq "$1" ]; }
wait_for() { await "$1 temporary directories" shelves_are "$1"; } # COUNT
set +m
for signal in TERM INT HUP; do
  # A shell's children in the background ignore SIGINT; the program must not.
  env --default-signal=INT "$binary" prove "${forever[@]}" >/dev/null 2>&1 &
  pid=$!
  wait_for 1
  kill -s $signal $pid
  code=0
  wait $pid 2>/dev/null || code=$?
  same "SIG$signal: it ends by the signal" "$((128 + $(kill -l $signal)))" "$code"
  same "SIG$signal: directories that are left" 0 "$(shelves)"
done

"$binary" prove "${forever[@]}" >/dev/null 2>&1 &
running=$!
wait_for 1
"$binary" prove "${forever[@]}" >/dev/null 2>&1 &
pid=$!
wait_for 2
kill -9 $pid
wait $pid 2>/dev/null || true
mkdir "tmp/lockstep-prove-elsewhere-123456"
same "after kill -9" 3 "$(shelves)"
succeeds "the next prove" lockstep prove text.yaml --resume --levels none --ranks 1
expect "it says what it removed" grep -q 'removed .*/tmp/lockstep-prove-.*, left by a process that was killed' err
same "the running one's directory, and that of another machine, stay" 2 "$(shelves)"
rmdir "tmp/lockstep-prove-elsewhere-123456"
kill -9 $running
wait $running 2>/dev/null || true
succeeds "a prove that saves nothing" lockstep prove text.yaml --levels none --ranks 1
same "it makes no directory, and removes none" 1 "$(shelves)"
if with_mpi; then
  succeeds "mpirun" mpi 2 "$binary" prove text.yaml --resume --levels none
  same "mpirun: directories that are left" 0 "$(shelves)"
  "$mpirun_program" -n 2 "$binary" prove "${forever[@]}" >/dev/null 2>&1 &
  pid=$!
  wait_for 1
  kill $pid
  wait $pid 2>/dev/null || true
  # mpirun kills its ranks a second after it has handed on the signal, and a busy machine may need longer than that.
  no_ranks() { [ -z "$(own_processes 'lockstep prove text.yaml')" ]; }
  await "mpirun: its ranks end" no_ranks
  succeeds "after mpirun was stopped" lockstep prove text.yaml --resume --levels none --ranks 1
  same "mpirun: directories that are left once the next prove has begun" 0 "$(shelves)"
fi
refuses "TMPDIR that is not there" 73 '.*nowhere/lockstep-prove-.*: No such file or directory; set TMPDIR' env TMPDIR="$work/nowhere" "$binary" prove text.yaml --resume
finish

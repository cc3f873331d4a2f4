#!/usr/bin/env bash
# Ranks under MPI that never come, or are stopped: the others end by comm.deadline and name them. Usage: lost_rank_test.sh LOCKSTEP MPIRUN
# shellcheck disable=SC2317  # functions that are called by name
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
if ! with_mpi; then finish; fi
make_inputs
# The ranks that are well must come to each exchange within that time, on a busy machine, too. So the cases wait for it beside each other.
keys=(text.yaml comm.deadline=15 train.steps=1000000 schedule.steps=1000000)
# On failure nothing may wait for ever.
limited() { timeout 300 "$mpirun_program" -n "$1" "${@:2}"; }
says() { # WHAT 'REGEXP': the last run ended with 69, and all its errors match
  expect "$1: exit 69" test "$code" -eq 69
  expect "$1: the message" grep -qE "^error: .*$2" err
  # Ranks whose deadlines end at the same time each say what they saw, of the call that each was in; so may a rank that the launcher
  # wakes to end it. All of them name the same cause.
  expect "$1: every error says so" test "$(grep '^error: ' err | grep -cvE "$2")" -eq 0
  expect "$1: at most one error a rank" test -z "$(grep -oE '^error: rank [0-9]+ on' err | sort | uniq -d)"
}

never_there() {
  run limited 3 "$binary" train "${keys[@]}" run.dir=never : -n 1 /bin/true
  # Where it ends after another rank has reached MPI, as on a busy machine, Open MPI itself ends the job and says why.
  if [ "$code" -ne 1 ] || ! grep -q 'this process did not call "init" before exiting' err; then
    says "a rank that ends without MPI" 'MPI did not start within 15 s \(comm.deadline\): rank 3 never reached MPI; .*arrived: ranks 0, 1 and 2'
  fi
}
does_something_else() {
  run limited 1 sleep 1000 : -n 2 "$binary" bench "${keys[@]}"
  says "a rank that does something else" 'MPI did not start within 15 s \(comm.deadline\): rank 0 never reached MPI; .*arrived: ranks 1 and 2'
}

# stops RANK WHAT 'REGEXP' command...: SIGSTOP to that rank while steps are done
have_computed() { # PROCESS...: each for a second, which is beyond its start
  local p
  for p in "$@"; do awk -v second="$(getconf CLK_TCK)" '{ exit $14 + $15 < second }' "/proc/$p/stat" 2>/dev/null || return 1; done
}
stops() {
  # shellcheck disable=SC2016  # the rank's shell expands it
  limited 3 bash -c 'echo $$ >"pids.$OMPI_COMM_WORLD_RANK" && exec "$0" "$@"' "$binary" "${@:4}" >out 2>err &
  local pid=$! stopped
  until [ -s pids.0 ] && [ -s pids.1 ] && [ -s pids.2 ] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  stopped=$(cat "pids.$1")
  if [ "$4" = train ]; then until_step stopped 5 "$pid"; else await "$2: it computes" have_computed "$(cat pids.0)" "$(cat pids.1)" "$(cat pids.2)"; fi
  kill -STOP "$stopped"
  code=0
  wait "$pid" || code=$?
  kill -KILL "$stopped" 2>/dev/null || true
  says "$2" "$3"
}
stops_in_train() { stops 0 "rank 0 stopped" 'rank 0 .*its process [0-9]+ is stopped, by SIGSTOP' train "${keys[@]}" run.dir=stopped; }
stops_in_bench() { stops 1 "bench, rank 1 stopped" 'rank 1[: ].*its process [0-9]+ is stopped, by SIGSTOP' bench "${keys[@]}" --steps 1000000; }

cases=()
for each in never_there does_something_else stops_in_train stops_in_bench; do
  mkdir $each
  ln -s ../text.yaml ../text.h5 $each
  (cd $each && trap - EXIT && $each && finish) &
  cases+=($!)
done
for each in "${cases[@]}"; do wait "$each" || failed=1; done
finish

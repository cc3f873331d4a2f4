#!/usr/bin/env bash
# Ranks under MPI that never come, or are stopped: the others end by comm.deadline and name them. Usage: lost_rank_test.sh LOCKSTEP MPIRUN
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
if ! with_mpi; then finish; fi
make_inputs
keys=(text.yaml comm.deadline=2 train.steps=1000000 schedule.steps=1000000)
# On failure nothing may wait for ever.
limited() { timeout 60 "$mpirun_program" -n "$1" "${@:2}"; }
says() { # WHAT 'REGEXP': the last run ended with 69, and all its errors match
  expect "$1: exit 69" test "$code" -eq 69
  expect "$1: the message" grep -qE "^error: .*$2" err
  # Ranks whose deadlines end at the same time each say what they saw, of the call that each was in; so may a rank that the launcher
  # wakes to end it. All of them name the same cause.
  expect "$1: every error says so" test "$(grep '^error: ' err | grep -cvE "$2")" -eq 0
  expect "$1: at most one error a rank" test -z "$(grep -oE '^error: rank [0-9]+ on' err | sort | uniq -d)"
}

run limited 3 "$binary" train "${keys[@]}" run.dir=never : -n 1 /bin/true
# Where it ends after another rank has reached MPI, as on a busy machine, Open MPI itself ends the job and says why.
if [ "$code" -ne 1 ] || ! grep -q 'this process did not call "init" before exiting' err; then
  says "a rank that ends without MPI" 'MPI did not start within 2 s \(comm.deadline\): rank 3 never reached MPI; .*arrived: ranks 0, 1 and 2'
fi
run limited 1 sleep 30 : -n 2 "$binary" bench "${keys[@]}"
says "a rank that does something else" 'MPI did not start within 2 s \(comm.deadline\): rank 0 never reached MPI; .*arrived: ranks 1 and 2'

# stops RANK WHAT 'REGEXP' command...: SIGSTOP to that rank while steps are done
stops() {
  rm -f pids.*
  # shellcheck disable=SC2016  # the rank's shell expands it
  limited 3 bash -c 'echo $$ >"pids.$OMPI_COMM_WORLD_RANK" && exec "$0" "$@"' "$binary" "${@:4}" >out 2>err &
  local pid=$! stopped
  until [ -s pids.0 ] && [ -s pids.1 ] && [ -s pids.2 ] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  stopped=$(cat "pids.$1")
  if [ "$4" = train ]; then
    until [ "$(field step 2>/dev/null <stopped/metrics.jsonl | tail -n 1)" -ge 5 ] 2>/dev/null || ! kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  else
    sleep 2 # it tells nothing before it ends
  fi
  kill -STOP "$stopped"
  code=0
  wait "$pid" || code=$?
  kill -KILL "$stopped" 2>/dev/null || true
  says "$2" "$3"
}
stops 0 "rank 0 stopped" 'rank 0 .*its process [0-9]+ is stopped, by SIGSTOP' train "${keys[@]}" run.dir=stopped
stops 1 "bench, rank 1 stopped" 'rank 1[: ].*its process [0-9]+ is stopped, by SIGSTOP' bench "${keys[@]}" --steps 1000000
finish

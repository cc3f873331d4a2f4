#!/usr/bin/env bash
# Memory that runs out (ulimit -v) ends a run with 67 and a word, as threads and as processes, wherever it happens.
# Usage: memory_limit_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
# shellcheck disable=SC2317  # called by name
with_memory() { (ulimit -v "$1" && "${@:2}"); } # KIB command...
# What a run needs depends on machine and libraries: from what is too little for anything to what is enough.
needed=0
tries() { # WHAT KIB-STEP command...
  local kib refused=0
  for ((kib = 60000; kib < 4000000; kib += $2)); do
    rm -rf limited
    run with_memory "$kib" "${@:3}"
    case $code in
      0) break ;;
      67)
        refused=$((refused + 1))
        expect "$1, $kib KiB: one error" test "$(grep -c '^error: ' err)" -eq 1
        expect "$1, $kib KiB: what was wanted, and what the limit is" grep -qE "^error: .*(out of memory|cannot be started).*\(ulimit -v: $((kib / 1024)) MiB" err
        ;;
      127) ;; # the libraries could not even be loaded
      *) problem "$1, $kib KiB: exit $code" && show ;;
    esac
  done
  needed=$kib
  if [ "$refused" -eq 0 ]; then problem "$1: no limit was too low"; fi
  same "$1: enough in the end" 0 "$code"
}
keys=(text.yaml train.steps=3 checkpoint.every=1 data.threads=2 compute.threads=2 run.dir=limited)
tries "one rank" 20000 "$binary" train "${keys[@]}"
small=$needed
tries "3 ranks as threads" 60000 "$binary" train "${keys[@]}" --ranks 3

# Enough for the program, not for the model: what was asked for, and for whom.
run with_memory $((small + 200000)) "$binary" train "${keys[@]}" model.width=4096
expect "a large model: exit 67" test "$code" -eq 67
expect "a large model: how much, of what, of which modules" \
  grep -qE '^error: .*out of memory: [0-9]+ bytes asked for \([a-z]+( of [^)]+)?\), .*by module [a-z]+ [0-9]+%.*ulimit -v' err
if with_mpi; then
  # Where MPI itself would not bear it.
  run timeout 300 "$mpirun_program" -n 2 bash -c 'ulimit -v 120000; exec "$0" "$@"' "$binary" train "${keys[@]}"
  expect "processes that MPI cannot start in: exit 67" test "$code" -eq 67
  expect "processes that MPI cannot start in: it says so" grep -qE '^error: out of memory: MPI needs up to 128 MiB' err
  # One of two ranks has too little.
  # shellcheck disable=SC2016  # the rank's shell expands it
  limited='if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then ulimit -v '$((small + 200000))'; fi; exec "$0" "$@"'
  run timeout 300 "$mpirun_program" -n 2 bash -c "$limited" "$binary" train "${keys[@]}" model.width=2048 sharding.level=none
  expect "a large model on rank 1 of 2: exit 67" test "$code" -eq 67
  expect "a large model on rank 1 of 2: how much, of what, by whom" \
    grep -qE '^error: rank 1 on .*out of memory: [0-9]+ bytes asked for' err
  expect "a large model on rank 1 of 2: one error" test "$(grep -c '^error: ' err)" -eq 1
fi
finish

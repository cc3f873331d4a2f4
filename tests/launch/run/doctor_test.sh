#!/usr/bin/env bash
# `lockstep doctor` on ranks that are threads and processes: every rank and link is measured, and no file stays.
# Usage: doctor_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
export ASAN_OPTIONS=$no_leak_check # of ranks that it launches

measured() { # WHAT RANKS LINKS: the last run, as JSON
  same "$1: ranks" "$2" "$(grep -c '"kind":"rank"' out)"
  same "$1: links" "$3" "$(grep -c '"kind":"link"' out)"
  expect "$1: positive rates" awk '$1 <= 0 { bad = 1 } END { exit bad || NR == 0 }' <(field '(gflops|mb_s|latency_us|large_mb_s)' <out)
  same "$1: one rank of the machine measures the disk" 1 "$(field write_mb_s <out | awk '$1 > 0' | wc -l)"
  if compgen -G '*doctor*' >/dev/null; then problem "$1: a file stays"; fi
}
succeeds "one rank" lockstep doctor
expect "one rank: the table" grep -qE '^rank +host +local +cores' out
succeeds "threads" lockstep doctor --ranks 3 --json
measured "threads" 3 3
succeeds "a ring" lockstep doctor --ranks 17 --json
measured "a ring" 17 17
succeeds "tables" lockstep doctor --ranks 2
expect "tables: the link" grep -qE '^0 - 1 +[0-9.]+ us +[0-9]+ MB/s$' out
refuses "no such folder" 73 '.*none: a file of 64 MiB cannot be written' lockstep doctor --dir none
refuses "no such device" 64 '--device tpu' lockstep doctor --device tpu
if with_mpi; then
  succeeds "processes" mpi 3 "$binary" doctor --json
  measured "processes" 3 3
  succeeds "launched" lockstep launch -n 2 -- doctor
  expect "launched: the link" grep -qE '^0 - 1 ' out
fi
finish

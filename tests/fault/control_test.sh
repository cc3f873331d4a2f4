#!/usr/bin/env bash
# What it costs to start a job and to watch it, at 16 and 64 processes on one machine, as machines of one rank and of four: messages and bytes
# at rank 0 until the first checkpoint is whole, counted by Open MPI itself, its memory, and what the launcher hears of its agents.
# tests/launch/start_cost_test.cpp counts calls with up to 1,024 threads. Usage: control_test.sh LOCKSTEP MPIRUN
# shellcheck source=tests/fault/common.sh
. "$(dirname "$0")/common.sh" "$@"
if ! with_mpi; then finish; fi
if ! "${mpirun_program%mpirun}ompi_info" 2>/dev/null | grep -q "MCA pml: monitoring"; then
  echo "skipped: this MPI does not count its messages (Open MPI's component pml/monitoring)" && exit 77
fi
cat >job.yaml <<'YAML'
batch: {global: 64, micro: 1}
model: {name: mlp, hidden: [8]}
data: {name: synthetic_images, synthetic: {images: 100, height: 4, width: 4}}
YAML
counting=(--mca pml_monitoring_enable 2 --mca pml_monitoring_enable_output 3 --mca pml_monitoring_filename)
at_rank_0() { # FILES: messages and bytes, sent and received
  awk -F'\t' '/^[IE]\t/ && ($2 == 0 || $3 == 0) { m += $5; b += $4 } END { print m + 0, b + 0 }' "$@"
}
at_most() { # WHAT VALUE LIMIT
  expect "$1: $2, at most $3" awk -v a="$2" -v b="$3" 'BEGIN { exit !(a <= b) }'
}
for machine in 1 4; do
  for level in none parameters; do
    for n in 16 64; do
      begun=$(seconds)
      succeeds "$n processes" env LOCKSTEP_TEST_MACHINE_RANKS=$machine "$mpirun_program" -n $n "${counting[@]}" "count$n" \
        "$binary" train job.yaml train.steps=0 sharding.level=$level "run.dir=run$n-$machine-$level"
      took=$(since "$begun")
      read -r messages bytes < <(at_rank_0 "count$n".*.prof)
      LOCKSTEP_TEST_MACHINE_RANKS=$machine mpi $n "$binary" bench job.yaml --steps 1 --warmup 1 --json sharding.level=$level >out 2>err || true
      memory=$(tail -n 1 out | field rss_mb)
      echo "$n processes, machines of $machine, level $level: $messages messages and $bytes bytes at rank 0, $memory MB, $took s"
      eval "messages$n=$messages bytes$n=$bytes memory$n=$memory"
    done
    # Log2 is 4 and 6, and more than 16 machines have a communicator for each doubling: its square. Bytes grow with the ranks.
    # shellcheck disable=SC2154  # set above
    at_most "messages, 64 processes" "$messages64" "$((messages16 * 36 / 16))"
    # shellcheck disable=SC2154
    at_most "bytes, 64 processes" "$bytes64" "$((bytes16 * 4))"
    # shellcheck disable=SC2154
    at_most "MB of rank 0, 64 processes" "$memory64" "$((memory16 + 16))"
  done
done
for n in 16 64; do
  succeeds "launched" lockstep launch --verbose -n $n -- train job.yaml train.steps=5 "run.dir=launched$n"
  said=$(grep -o 'the control plane: .*' err)
  echo "$said"
  read -r messages bytes took < <(sed -E 's/.*: ([0-9]+) messages and ([0-9]+) bytes .* in ([0-9.]+) s, .*/\1 \2 \3/' <<<"$said")
  # Each agent says hello, started and exit, what its rank prints, and four times a second where it stands.
  at_most "messages of $n agents" "$messages" "$(awk -v n=$n -v s="$took" 'BEGIN { print n * (8 + 4 * s) + 50 }')"
  at_most "bytes of $n agents" "$bytes" $((messages * 300))
done
finish

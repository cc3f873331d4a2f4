#!/usr/bin/env bash
# What machines send in a step, by the counters of their network interfaces: four machines (tests/fault/common.sh) of two ranks each, against
# the formula of docs/sharding-and-memory.md, within 3%. Then machines that are no grid, whose ranks exchange directly: the same bits.
# Usage: bytes_test.sh LOCKSTEP MPIRUN
# shellcheck source=tests/fault/common.sh
. "$(dirname "$0")/common.sh" "$@"
nodes_up
make_inputs
machines=4 ranks=2
for i in $(seq $machines); do echo "n$i slots=$ranks"; done >hostfile
keys=(text.yaml model.width=256 model.heads=4 batch.global=16 batch.micro=2 compute.threads=1 --warmup 1)
sent() { for i in $(seq $machines); do ip netns exec "$id-n$i" cat /sys/class/net/eth0/statistics/tx_bytes; done; }
across() { # mpirun's arguments...
  on n1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 "$mpirun_program" \
    --mca plm_rsh_agent "$work/remote" --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --hostfile "$work/hostfile" "$@"
}
bench() { # STEPS arguments...
  across --map-by slot -n $((machines * ranks)) "$binary" bench "${keys[@]}" --steps "$@"
}
# By machine: what 20 further steps send, in a step.
measure() { # WHAT keys...
  sent >before
  succeeds "$1: few steps" bench 5 "${@:2}"
  sent >between
  succeeds "$1: more steps" bench 25 "${@:2}"
  sent >after
  paste before between after | awk '{ print (($3 - $2) - ($2 - $1)) / 20 }' >step
  parameters=$(tail -n 1 out | field parameters)
}
for level in none optimizer gradients; do
  measure "$level" sharding.level=$level
  # Eight micro-batches, one a rank: each machine's two are one node. Sums and gathers, P (M-1)/M each, in fp32.
  formula=$(awk -v p="$parameters" -v m=$machines 'BEGIN { print 2 * 4 * p * (m - 1) / m }')
  while read -r bytes; do
    expect "level $level: $bytes bytes a step, $formula by the formula" \
      awk -v b="$bytes" -v f="$formula" 'BEGIN { exit !(b >= 0.97 * f && b <= 1.03 * f) }'
  done <step
  echo "level $level: $(tr '\n' ' ' <step)bytes a step of each machine, $formula by the formula"
done
keys=(text.yaml train.steps=6 schedule.steps=6 batch.global=16 batch.micro=1 comm.bucket=0.01)
succeeds "on one rank" lockstep train "${keys[@]}" run.dir=one
for level in none optimizer gradients parameters; do
  for i in 1 2 3; do echo "n$i slots=2"; done >hostfile
  succeeds "level $level, rank after rank on another machine" across --map-by node -n 6 "$binary" train "${keys[@]}" sharding.level=$level run.dir="apart$level"
  same "level $level, rank after rank on another machine" "$(digest one)" "$(digest "apart$level")"
  printf 'n1 slots=1\nn2 slots=3\nn3 slots=1\n' >hostfile
  succeeds "level $level, uneven machines" across --map-by slot -n 5 "$binary" train "${keys[@]}" sharding.level=$level run.dir="uneven$level"
  same "level $level, uneven machines" "$(digest one)" "$(digest "uneven$level")"
done
finish

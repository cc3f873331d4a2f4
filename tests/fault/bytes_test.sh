#!/usr/bin/env bash
# What machines send in a step, by the counters of their network interfaces: four machines (tests/fault/common.sh) of two ranks each, against
# the formula of docs/sharding-and-memory.md, within 3%. Usage: bytes_test.sh LOCKSTEP MPIRUN
# shellcheck source=tests/fault/common.sh
. "$(dirname "$0")/common.sh" "$@"
nodes_up
make_inputs
machines=4 ranks=2
for i in $(seq $machines); do echo "n$i slots=$ranks"; done >hostfile
keys=(text.yaml model.width=256 model.heads=4 batch.global=16 batch.micro=2 compute.threads=1 --warmup 1)
sent() { for i in $(seq $machines); do ip netns exec "$id-n$i" cat /sys/class/net/eth0/statistics/tx_bytes; done; }
bench() { # STEPS arguments...
  on n1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 "$mpirun_program" \
    --mca plm_rsh_agent "$work/remote" --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --map-by slot \
    --hostfile "$work/hostfile" -n $((machines * ranks)) "$binary" bench "${keys[@]}" --steps "$@"
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
finish

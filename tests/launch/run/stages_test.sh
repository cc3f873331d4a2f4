#!/usr/bin/env bash
# Exchanges in stages: ranks of one machine read each other's memory, and machines send their sums. One digest at every number of machines,
# ranks of a machine, level and number of micro-batches, with a run that goes on in another layout. All ranks are on this machine;
# LOCKSTEP_TEST_MACHINE_RANKS tells them how many of them are to count as one. Usage: stages_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
if ! with_mpi; then finish; fi
make_inputs
# shellcheck disable=SC2317  # called by name
on() { # MACHINES RANKS-OF-EACH arguments...
  LOCKSTEP_TEST_MACHINE_RANKS=$2 mpi "$(($1 * $2))" "$binary" train text.yaml "${keys[@]}" "${@:3}"
}
for micro_batches in 20 22 24; do
  keys=(train.steps=4 schedule.steps=4 batch.global="$((micro_batches * 2))" batch.micro=2 comm.bucket=0.01)
  succeeds "$micro_batches micro-batches on one rank" lockstep train text.yaml "${keys[@]}" run.dir="one$micro_batches"
  wanted=$(digest "one$micro_batches")
  same "a digest" 32 "$(printf %s "$wanted" | wc -c)"
  for machines in "3 2" "4 2" "2 3" "4 1"; do
    for level in none optimizer gradients parameters; do
      if [ "$machines" = "4 1" ] && [ "$level" != none ]; then continue; fi
      if [ "$machines" = "2 3" ] && [ "$level" != optimizer ]; then continue; fi
      case "$micro_batches $machines $level" in
        22* | "20 3 2 gradients" | "20 4 2 optimizer" | "24 3 2 optimizer" | "24 4 2 gradients") ;;
        *) if ! thorough; then continue; fi ;;
      esac
      what="$micro_batches micro-batches, ${machines/ / x } ranks, level $level"
      # shellcheck disable=SC2086  # two words
      succeeds "$what" on $machines sharding.level="$level" run.dir=staged
      same "$what" "$wanted" "$(digest staged)"
      rm -rf staged
    done
  done
done
# More than 16 machines exchange in steps: pairs, pairs of pairs, and what is left. Ranges that are no whole node of the tree go at once.
for micro_batches in $(if thorough; then echo 24; fi) 40; do
  keys=(train.steps=2 schedule.steps=2 batch.global="$micro_batches" batch.micro=1 comm.bucket=0.01)
  succeeds "$micro_batches micro-batches on one rank" lockstep train text.yaml "${keys[@]}" run.dir="many$micro_batches"
  for layout in "24 1 none" "20 1 optimizer" "20 1 gradients" "18 2 parameters"; do
    read -r machines ranks level <<<"$layout"
    if [ "$((machines * ranks))" -gt "$micro_batches" ]; then continue; fi
    what="$micro_batches micro-batches, $machines x $ranks ranks, level $level"
    succeeds "$what" on "$machines" "$ranks" sharding.level="$level" run.dir=many
    same "$what" "$(digest "many$micro_batches")" "$(digest many)"
    rm -rf many
  done
done
# Leaves that travel in bf16, groups of a machine and of two, and replicas that are compared.
keys=(train.steps=4 schedule.steps=4 batch.global=16 batch.micro=2 comm.bucket=0.01)
succeeds "bf16 on one rank" lockstep train text.yaml "${keys[@]}" precision.reduce=bf16 run.dir=half
for level in optimizer gradients; do
  succeeds "bf16, level $level" on 2 2 precision.reduce=bf16 sharding.level="$level" run.dir="half_$level"
  same "bf16, level $level" "$(digest half)" "$(digest "half_$level")"
done
succeeds "one rank" lockstep train text.yaml "${keys[@]}" run.dir=plain
for group in 2 4; do
  succeeds "groups of $group" on 4 2 sharding.level=parameters sharding.group="$group" run.dir="group$group"
  same "groups of $group" "$(digest plain)" "$(digest "group$group")"
done
succeeds "replicas are compared" on 2 2 verify.every=1 run.dir=compared
same "replicas are compared" "$(digest plain)" "$(digest compared)"
# It goes on elsewhere.
succeeds "the first half" on 3 2 sharding.level=gradients train.steps=2 run.dir=moved
succeeds "the second half" on 2 2 sharding.level=none run.dir=moved --resume
same "in two layouts" "$(digest plain)" "$(digest moved)"
finish

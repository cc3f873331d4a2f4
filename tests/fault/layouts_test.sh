#!/usr/bin/env bash
# 60 layouts of machines x ranks x levels x micro-batches: three runs, of 20, 22 and 24 micro-batches a step, each of which is killed in 20
# layouts, one after the other, and goes on in the next from its newest checkpoint. Each ends with the digest of one rank without a fault.
# All ranks are on this machine; LOCKSTEP_TEST_MACHINE_RANKS tells them how many of them count as one. Usage: layouts_test.sh LOCKSTEP MPIRUN [SEED]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/../launch/run/common.sh" "${@:1:2}"
if ! with_mpi; then finish; fi
make_inputs
# Every machine count, rank count and level, those with several machines at least once at each level, groups of a machine where state is cut.
mapfile -t layouts < <(for machines in 1 2 3 4; do for ranks in 1 2 3; do for level in none optimizer gradients parameters; do
  if [ $((machines * ranks)) -gt 1 ] && [ $((machines * ranks)) -le 8 ]; then echo "$machines $ranks $level 0"; fi
  if [ "$machines" -gt 1 ] && [ "$ranks" = 2 ] && [ $level != none ]; then echo "$machines $ranks $level $ranks"; fi
done; done; done)
mapfile -t order < <(numbers 4096 "${#layouts[@]}" "${3:-${LOCKSTEP_SEED:-1}}" | awk '!seen[$1]++')
count=0 at=0
for micro_batches in 20 22 24; do
  keys=(train.steps=64 schedule.steps=64 batch.global="$micro_batches" batch.micro=1 comm.bucket=0.01 checkpoint.every=1 checkpoint.keep_last=2)
  succeeds "$micro_batches micro-batches on one rank" lockstep train text.yaml "${keys[@]}" run.dir="one$micro_batches"
  resume=()
  for ((i = 0; i < 20; ++i)); do
    read -r machines ranks level group <<<"${layouts[${order[at++ % ${#order[@]}]}]}"
    size=$((machines * ranks)) step=$((3 * i + 4))
    LOCKSTEP_TEST_MACHINE_RANKS=$ranks run mpi "$size" "$binary" train text.yaml "${keys[@]}" run.dir="cut$micro_batches" \
      sharding.level="$level" sharding.group="$group" chaos.enabled=true \
      "chaos.faults=[{kind: kill, step: $step, rank: $((step % size)), attempt: 0}]" "${resume[@]}"
    what="$micro_batches micro-batches, $machines x $ranks, level $level, groups of $group"
    expect "$what: killed before step $step" test "$code" -ne 0 -a "$(done_steps "cut$micro_batches")" -ge $((step - 3))
    resume=(--resume)
    count=$((count + 1))
  done
  succeeds "the rest on 5 ranks" mpi 5 "$binary" train text.yaml "${keys[@]}" run.dir="cut$micro_batches" --resume
  same "$micro_batches micro-batches, the digest after $i layouts" "$(digest "one$micro_batches")" "$(digest "cut$micro_batches")"
  echo "$micro_batches micro-batches: $(digest "cut$micro_batches") after $i kills"
done
same "layouts" 60 "$count"
finish

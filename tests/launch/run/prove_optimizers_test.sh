#!/usr/bin/env bash
# lockstep prove, in its short form, of the built-in optimizers: one digest at every number of ranks and level, resumed, in fp32 and bf16. A run
# that is saved, verified and resumed on other ranks ends where one without a stop does.
# Usage: prove_optimizers_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs

# All that the program lists but adamw and sgd, which the other scripts train with.
mapfile -t optimizers < <(lockstep completion candidates train text.yaml optim.name= | sed -nE 's/^optim.name=([a-z0-9]+)\t.*/\1/p' | grep -vxE 'adamw|sgd')
expect "the program lists its optimizers" test "${#optimizers[@]}" -ge 5
for optimizer in "${optimizers[@]}"; do
  keys=("optim.name=$optimizer" optim.weight_decay=0.1)
  for kind in text images; do
    succeeds "$optimizer, $kind" lockstep prove $kind.yaml "${keys[@]}" precision.compute=bf16 --ranks 1,3,4 --steps 3 --resume
    expect "$optimizer, $kind: one digest" grep -qE '^one digest: [0-9]+ runs$' out
    same "$optimizer, $kind: no line differs" 0 "$(grep -ci differs out || true)"
  done
  keys+=(schedule.steps=4 train.steps=4 checkpoint.every=2 checkpoint.keep_last=0)
  succeeds "$optimizer, whole" lockstep train text.yaml "${keys[@]}" run.dir="whole-$optimizer"
  succeeds "$optimizer, half" lockstep train text.yaml "${keys[@]}" run.dir="half-$optimizer" train.steps=2 --ranks 3 sharding.level=parameters
  succeeds "$optimizer, the rest" lockstep train text.yaml "${keys[@]}" run.dir="half-$optimizer" verify.every=1 sharding.offload=optimizer \
    --ranks 2 --resume
  same "$optimizer: the same bits" "$(digest "whole-$optimizer")" "$(digest "half-$optimizer")"
  succeeds "$optimizer: its checkpoint is whole" lockstep checkpoint verify "half-$optimizer/checkpoints/step-00000004"
done
if with_mpi; then
  for optimizer in lamb muon; do
    succeeds "$optimizer, processes" mpi 3 "$binary" prove text.yaml optim.name="$optimizer" --ranks 1,3 --steps 3
    expect "$optimizer, processes: one digest" grep -qE '^one digest: [0-9]+ runs$' out
  done
fi
finish

#!/usr/bin/env bash
# Frozen weights in 4 and 8 bits (precision.frozen: nf4, int8) below adapters: one digest at every number of ranks, shard level and
# level of instructions, after a stop and with MPI; what is measured, merged and generated is of the decoded weights. Usage:
# weight_codes_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
cat >base.yaml <<END
run: {dir: base}
data: {path: text.h5, context: 16}
model: {name: llama, layers: 2, heads: 2, kv_heads: 1, width: 64, hidden: 128, tied: false}
batch: {global: 16, micro: 4}
train: {steps: 60}
optim: {lr: 0.005}
END
succeeds "a model" lockstep train base.yaml --ranks 2
cat >tune.yaml <<END
run: {dir: nf4}
init: {from: base}
data: {path: text.h5, context: 16}
model: {name: llama, layers: 2, heads: 2, kv_heads: 1, width: 64, hidden: 128, tied: false}
batch: {global: 16, micro: 2}
train: {steps: 12, eval_every: 12}
optim: {lr: 0.003}
precision: {frozen: nf4}
lora: {rank: 4, targets: [all-linear]}
END
loss() { grep -o '"loss":[-0-9.e]*' out | tail -n 1 | cut -d: -f2; }
near() { awk -v a="$1" -v b="$2" -v d="$3" 'BEGIN { exit !(a - b < d && b - a < d) }'; } # A B DISTANCE

succeeds "weights as they are stored" lockstep train tune.yaml run.dir=stored precision.frozen=stored
succeeds "which are measured" lockstep eval stored
plain=$(loss)
for codes in nf4 int8; do
  rm -rf rows half
  succeeds "$codes" lockstep train tune.yaml run.dir=$codes precision.frozen=$codes
  wanted=$(digest $codes)
  for layout in "3 none" "2 optimizer" "4 gradients" "2 parameters" "3 parameters"; do
    read -r ranks level <<<"$layout"
    succeeds "$codes at $layout" lockstep train tune.yaml run.dir=other precision.frozen=$codes --ranks "$ranks" sharding.level="$level"
    same "$codes: the digest at $layout" "$wanted" "$(digest other)"
    rm -rf other
  done
  for isa in avx2 avx512; do
    run env LOCKSTEP_ISA=$isa "$binary" train tune.yaml run.dir=other precision.frozen=$codes
    if grep -q 'LOCKSTEP_ISA' err; then continue; fi # this processor does not have it
    same "$codes: the digest with $isa" "$wanted" "$(digest other)"
    rm -rf other
  done
  succeeds "$codes with the head in the loss" lockstep train tune.yaml run.dir=rows precision.frozen=$codes train.loss_rows=64 --ranks 2 sharding.level=parameters recompute=block
  same "$codes: the parameters with the head in the loss" "$wanted" "$(digest rows)"
  if with_mpi; then
    succeeds "$codes under mpirun" mpi 2 "$binary" train tune.yaml run.dir=other precision.frozen=$codes sharding.level=parameters verify.every=4
    same "$codes: the digest under mpirun" "$wanted" "$(digest other)"
    rm -rf other
  fi
  run lockstep train tune.yaml run.dir=half precision.frozen=$codes --until 5
  succeeds "$codes goes on" lockstep train tune.yaml run.dir=half precision.frozen=$codes --resume --ranks 2
  same "$codes: the digest of a resumed run" "$wanted" "$(digest half)"

  succeeds "$codes is measured" lockstep eval $codes --ranks 2
  measured=$(loss)
  expect "$codes: the loss is near that of stored weights" near "$measured" "$plain" 0.1
  expect "$codes: and not the same" test "$measured" != "$plain"
  succeeds "$codes is merged" lockstep checkpoint export $codes $codes-merged --to hf
  succeeds "$codes: a run from that" lockstep train base.yaml init.from=$codes-merged run.dir=$codes-again train.steps=0
  succeeds "$codes: is measured" lockstep eval $codes-again
  expect "$codes: the merged model's loss is that of the run" near "$(loss)" "$measured" 0.00001
  succeeds "$codes generates" lockstep generate $codes --prompt "the cat" --tokens 8
  text=$(cat out)
  succeeds "$codes: the merged model generates" lockstep generate $codes-again --prompt "the cat" --tokens 8
  same "$codes: the text" "$text" "$(cat out)"
done

memory() { lockstep plan tune.yaml "$@" --json 2>/dev/null | sed -n '1s/.*"parameters_bytes":\([0-9]*\).*/\1/p'; }
expect "plan counts fewer bytes" test "$(memory)" -lt "$(memory precision.frozen=stored)"

# Bad input.
refuses "rows that are no whole blocks" 78 '.*precision.frozen: int8 has blocks of 64 inputs, but blocks.0.down.weight has 96; nf4 takes any number' \
  lockstep train tune.yaml run.dir=no precision.frozen=int8 model.hidden=96
refuses "nothing to keep so" 78 '.*precision.frozen: nf4 is for frozen linear layers within a model.s blocks, of which llama has none' \
  lockstep train base.yaml run.dir=no init.from=base precision.frozen=nf4 'optim.rules=[{pattern: "wte.*", frozen: true}]'
refuses "another kind on resume" 78 '.*precision.frozen was nf4 and is stored' lockstep train tune.yaml --resume precision.frozen=stored
with=(init.from=base precision.frozen=nf4 'optim.rules=[{pattern: "blocks.*", frozen: true}]' 'resume.allow=[init.from, optim.rules, precision.frozen]')
refuses "parameters that a checkpoint holds" 78 '.*holds its frozen parameters, but with the current lora, precision.frozen and optim.rules checkpoints hold only a hash of them' \
  lockstep train base.yaml --resume train.steps=70 "${with[@]}"
refuses "a run that had adapters" 78 '.*cannot be resumed with another configuration: .*lora.rank was 4 and is .absent.' \
  lockstep train base.yaml --resume init.from=base run.dir=nf4 train.steps=12 precision.frozen=fp32
refuses "no base" 78 '.*precision.frozen: needs init.from' lockstep train base.yaml run.dir=no precision.frozen=nf4
finish

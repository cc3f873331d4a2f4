#!/usr/bin/env bash
# Training beside a frozen model: adapters (LoRA), frozen parameters that checkpoints name by their hash, and new heads. One digest at any
# number of ranks and shard level, also resumed; adapters go to peft's folders and come back; merged they compute the same; and what does not
# fit is refused with one line.
# Usage: lora_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
parity=$(cd "$OLDPWD" && cd "$(dirname "$0")/../../parity" && pwd)
hf=$parity/hf
make_inputs
lora_config() { # MODEL TARGETS
  cat <<YAML
init: {from: $hf/$1}
run: {dir: run}
train: {steps: 4}
batch: {global: 8, micro: 1}
data: {path: text.h5, context: 16}
optim: {lr: 0.01}
lora: {rank: 3, alpha: 6, dropout: 0.1, targets: [$2]}
YAML
}
lora_config gpt2 "'*.qkv', '*.down'" >gpt2.yaml
lora_config llama3 "'*.q', '*.v', 'head'" >llama3.yaml
layouts=(--ranks 1,2,3,4 --levels all)
for model in gpt2 llama3; do
  for compute in fp32 bf16; do
    succeeds "$model, $compute: one digest at every layout" \
      lockstep prove $model.yaml precision.compute=$compute "${layouts[@]}" --steps 2 --resume
    if ! thorough; then layouts=(--ranks 1,3 --levels none,parameters); fi
    expect "$model, $compute: it says so" grep -q '^one digest: ' out
  done
done

# The model moves between two parts of a run; what is trained goes on.
cp -r "$hf/gpt2" base && chmod -R u+w base
succeeds "it trains" lockstep train gpt2.yaml checkpoint.every=2
whole=$(digest run)
cp -r run killed && rm -rf killed/checkpoints/step-00000004
succeeds "resumed on other ranks, the model elsewhere" \
  lockstep train gpt2.yaml init.from=base run.dir=killed --resume --ranks 3 sharding.level=parameters
same "the digest of the resumed run" "$whole" "$(digest killed)"
run lockstep checkpoint inspect run
expect "a checkpoint holds adapters" test "$(grep -c ' parameters/blocks\..*\.lora_[AB]$' out)" -eq 8
expect "and nothing else of the model" test "$(grep ' parameters/' out | grep -vc '\.lora_[AB]$')" -eq 0
expect "and names the rest" grep -q '^base  *frozen parameters with the hash ' out
# Every command that needs the model takes the place where it is now.
mv base moved
gone='killed/checkpoints/step-00000004: does not hold its frozen parameters, which are those of init.from: base, and nothing is there; where that has moved, give init.from=PATH'
refuses "the model has moved" 66 "$gone" lockstep generate killed --prompt the
refuses "the model has moved, eval" 66 "$gone" lockstep eval killed
head -c 100 text.txt | tr '\n' ' ' >some.txt
for ask in "generate killed init.from=moved --prompt the --tokens 3" "predict killed some.txt init.from=moved -o some.csv" \
  "eval killed init.from=moved" "checkpoint export killed moved.safetensors init.from=moved"; do
  # shellcheck disable=SC2086  # several words
  succeeds "the model has moved: $ask" lockstep $ask
done
refuses "another key" 64 "unexpected argument 'seed=1'" lockstep generate killed seed=1
refuses "another key, export" 64 "lockstep checkpoint export: unexpected argument 'seed=1'" lockstep checkpoint export killed no.h5 seed=1
mv moved base
# A bit of a frozen parameter, the last byte of the file.
cp base/model.safetensors kept
printf '\x41' | dd of=base/model.safetensors bs=1 seek=$(($(wc -c <kept) - 1)) conv=notrunc status=none
rm -rf killed/checkpoints/step-00000004
refuses "another model" 65 "base: its frozen parameters have the hash [0-9a-f]{32}, but killed/checkpoints/step-00000002 was trained with" \
  lockstep train gpt2.yaml init.from=base run.dir=killed --resume
refuses "another model, eval" 65 "base: its frozen parameters have" lockstep eval killed init.from=base
mv kept base/model.safetensors
grep -v '^lora' gpt2.yaml >again.yaml
refuses "a run that holds no model" 65 "run/checkpoints/step-00000004: holds what was trained beside a frozen model" \
  lockstep train again.yaml init.from=run run.dir=never model.layers=2 model.heads=4 model.width=16

# Merged, the model computes the same.
loss() { lockstep eval "$@" 2>/dev/null | sed 's/.*"loss":\([^,]*\),.*/\1/'; }
close() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && a - b < 1e-5 && b - a < 1e-5) }'; }
succeeds "it is exported" lockstep checkpoint export run merged.hf --to hf
succeeds "and taken as a model" lockstep train text.yaml run.dir=merged init.from=merged.hf train.steps=0 data.context=16 \
  model.name=gpt model.layers=2 model.heads=4 model.width=16
beside=$(loss run --ranks 2 sharding.level=parameters) within=$(loss merged)
expect "the loss with adapters, $beside, and merged, $within" close "$beside" "$within"
expect "the loss without adapters is another" test "$beside" != "$(lockstep train gpt2.yaml run.dir=zero train.steps=0 >/dev/null 2>&1; loss zero)"
succeeds "it continues a text" lockstep generate run --prompt the --tokens 20 --temperature 0
mv out continued
succeeds "so does the merged model" lockstep generate merged --prompt the --tokens 20 --temperature 0
expect "in the same words" cmp -s out continued

# Adapters out and in again: the same parameters.
refuses "no such folder" 73 "no/adapters: its folder no is not there; make it first" lockstep checkpoint export run no/adapters --to peft
succeeds "adapters are exported" lockstep checkpoint export run out.peft --to peft
expect "as peft's files" test -f out.peft/adapter_config.json -a -f out.peft/adapter_model.safetensors
succeeds "and read" lockstep train again.yaml init.adapter=out.peft run.dir=again train.steps=0 --ranks 2 sharding.level=parameters
run lockstep checkpoint diff run again
expect "all are compared" test "$(grep -c '^parameters/' out)" -eq 8
expect "they have the same bits" test "$(grep '^parameters/' out | grep -vc ': equal$')" -eq 0
succeeds "training goes on from an adapter, one digest" lockstep prove again.yaml init.adapter="$parity/peft/gpt2" --ranks 1,4 --levels all --steps 2
refuses "no adapters to export" 64 "--to peft: merged/checkpoints/step-00000000 has no adapters" lockstep checkpoint export merged never --to peft

# Several adapters in one: what is added to the weights adds up.
succeeds "adapters are combined" lockstep checkpoint combine both.peft out.peft=0.25 out.peft=0.75
expect "it says so" grep -q '^combined 2 adapters in both.peft$' out
succeeds "the sum is read" lockstep train again.yaml init.adapter=both.peft run.dir=both train.steps=0
run lockstep checkpoint inspect both
expect "its ranks add up" grep -q '\[6, 16\]  parameters/blocks.0.qkv.lora_A' out
alone=$(loss again) together=$(loss both)
expect "a quarter and three quarters of an adapter are the adapter, $alone and $together" close "$alone" "$together"
succeeds "and none of it" lockstep checkpoint combine none.peft out.peft=0
succeeds "is read" lockstep train again.yaml init.adapter=none.peft run.dir=none train.steps=0
expect "as the model itself" close "$(loss none)" "$(loss zero)"
refuses "no weight" 64 "checkpoint combine: out.peft=half: 'half' is no weight; give a number, such as out.peft=0.5" lockstep checkpoint combine never.peft out.peft=half
refuses "an adapter of another model" 65 "$parity/peft/llama3/adapter_model.safetensors: .* but in $parity/peft/qwen3_patterns/adapter_model.safetensors these are .*: the adapters are of different models" \
  lockstep checkpoint combine never.peft "$parity/peft/qwen3_patterns" "$parity/peft/llama3"
refuses "lengths of rows" 65 "$parity/peft/llama3_dora/adapter_config.json: use_dora true: such adapters do not add up" lockstep checkpoint combine never.peft "$parity/peft/llama3_dora"
refuses "what was trained whole" 65 "$parity/peft/qwen2_tied/adapter_model.safetensors: .* is no factor of an adapter: what was trained whole does not add up" lockstep checkpoint combine never.peft "$parity/peft/qwen2_tied"
refuses "no adapter there" 66 "nowhere/adapter_config.json" lockstep checkpoint combine never.peft nowhere
refuses "a folder that is there" 73 "both.peft: is already there" lockstep checkpoint combine both.peft out.peft

# Frozen parameters without adapters.
cat >frozen.yaml <<YAML
init: {from: $hf/qwen3}
run: {dir: frozen}
train: {steps: 2}
batch: {global: 8, micro: 1}
data: {path: text.h5, context: 16}
precision: {compute: bf16, frozen: stored}
optim: {lr: 0.01, rules: [{pattern: 'wte.*', frozen: true}, {pattern: 'blocks.0.*', frozen: true}]}
YAML
succeeds "frozen: one digest" lockstep prove frozen.yaml --ranks 1,2,3,4 --levels all --steps 2 --resume
succeeds "frozen: it trains" lockstep train frozen.yaml
run lockstep checkpoint inspect frozen
expect "frozen: a checkpoint does not hold them" test "$(grep -cE ' parameters/(wte|blocks\.0)\.' out)" -eq 0
memory() { lockstep plan frozen.yaml "$@" --json 2>/dev/null | sed -n '1s/.*"parameters_bytes":\([0-9]*\).*/\1/p'; }
expect "frozen: plan counts 2 bytes of each in place of 6" test "$(memory)" -lt "$(memory precision.frozen=fp32)"

# Adapters of parts of a fused layer.
lora_config bert "'*.q', '*.v'" >parts.yaml
sed -i 's/context: 16/context: 16, mask: 0.15/; s/dir: run/dir: parts/' parts.yaml
succeeds "parts: one digest" lockstep prove parts.yaml --ranks 1,2,3,4 --levels all --steps 2 --resume
succeeds "parts: it trains" lockstep train parts.yaml
run lockstep checkpoint inspect parts
expect "parts: queries and values have adapters" test "$(grep -cE ' parameters/blocks\.[01]\.qkv\.[qv]\.lora_[AB]$' out)" -eq 8
expect "parts: nothing else is held" test "$(grep -c ' parameters/' out)" -eq 8
succeeds "parts: they are exported" lockstep checkpoint export parts parts.peft --to peft
succeeds "parts: and merged" lockstep checkpoint export parts parts.hf --to hf
grep -v '^lora' parts.yaml >again.parts.yaml
succeeds "parts: and read" lockstep train again.parts.yaml init.adapter=parts.peft run.dir=parts.again train.steps=0
run lockstep checkpoint diff parts parts.again
expect "parts: they have the same bits" test "$(grep -c '^parameters/.*: equal$' out)" -eq 8
succeeds "parts: the merged model is taken" lockstep train again.parts.yaml init.from=parts.hf run.dir=parts.merged train.steps=0
beside=$(loss parts) within=$(loss parts.merged)
expect "parts: the loss with adapters, $beside, and merged, $within" close "$beside" "$within"

# Lengths of rows apart from their directions (DoRA), adapters of other ranks, and of an embedding.
lora_config llama3 "'*.q', '*.down'" >dora.yaml
sed -i "s/rank: 3,/rank: 3, dora: true, rules: [{pattern: '*.q', rank: 2, alpha: 5}],/; s/dir: run/dir: dora/" dora.yaml
for compute in fp32 bf16; do
  succeeds "dora, $compute: one digest" lockstep prove dora.yaml precision.compute=$compute --ranks 1,2,3,4 --levels all --steps 2 --resume
done
succeeds "dora beside codes: one digest" lockstep prove dora.yaml precision.frozen=nf4 --ranks 1,3 --levels all --steps 2
succeeds "dora: a beginning" lockstep train dora.yaml run.dir=dora.begins train.steps=0 --ranks 3 sharding.level=parameters
succeeds "dora: the model itself" lockstep train dora.yaml run.dir=dora.none train.steps=0 lora.dora=false
begins=$(loss dora.begins) model=$(loss dora.none)
expect "dora: it begins as the model, $begins and $model" close "$begins" "$model"
succeeds "dora: it trains" lockstep train dora.yaml
succeeds "dora: adapters are exported" lockstep checkpoint export dora dora.peft --to peft
grep -v '^lora' dora.yaml >again.dora.yaml
succeeds "dora: and read" lockstep train again.dora.yaml init.adapter=dora.peft run.dir=dora.again train.steps=0 --ranks 2
run lockstep checkpoint diff dora dora.again
expect "dora: all have the same bits" test "$(grep -c '^parameters/.*: equal$' out)" -eq "$(grep -c '^parameters/' out)"
expect "dora: and there are 12" test "$(grep -c '^parameters/' out)" -eq 12
succeeds "dora: merged" lockstep checkpoint export dora dora.hf --to hf
succeeds "dora: the merged model is taken" lockstep train again.dora.yaml init.from=dora.hf run.dir=dora.merged train.steps=0
beside=$(loss dora) within=$(loss dora.merged)
expect "dora: the loss with adapters, $beside, and merged, $within" close "$beside" "$within"
refuses "a rule of no adapter" 78 "lora.rules: pattern '\*.up' matches no adapter of this model" \
  lockstep train dora.yaml run.dir=never "lora.rules=[{pattern: '*.up', rank: 2}]"
refuses "an embedding with lengths" 78 "lora.targets: wte is an embedding, whose adapter cannot have lora.dora: true" \
  lockstep train dora.yaml run.dir=never "lora.targets=['*.q', '*.down', wte]"
lora_config llama3 "'*.q', wte" >table.yaml
sed -i "s/rank: 3,/rank: 3, rules: [{pattern: wte, rank: 2, alpha: 3}],/; s/dir: run/dir: table/" table.yaml
succeeds "an adapted embedding: one digest" lockstep prove table.yaml --ranks 1,2,3,4 --levels all --steps 2 --resume
succeeds "an adapted embedding: it trains" lockstep train table.yaml
succeeds "an adapted embedding: exported" lockstep checkpoint export table table.peft --to peft
grep -v '^lora' table.yaml >again.table.yaml
succeeds "an adapted embedding: read" lockstep train again.table.yaml init.adapter=table.peft run.dir=table.again train.steps=0 --ranks 2
lockstep config show again.table.yaml init.adapter=table.peft run.dir=table.resolved train.steps=0 >resolved.yaml 2>/dev/null
succeeds "an adapted embedding: its resolved configuration is one" lockstep train resolved.yaml
beside=$(loss table) within=$(loss table.again)
expect "an adapted embedding: the loss, $beside and $within" close "$beside" "$within"
sed "s|init: {from: $hf/llama3}|init: {from: $hf/llama3, new: ['blocks.1.down.*']}|; s/dir: dora/dir: fresh/" dora.yaml >fresh.yaml
succeeds "dora of a layer that is new: one digest" lockstep prove fresh.yaml --ranks 1,3 --levels all --steps 2
succeeds "dora of a layer that is new: a beginning" lockstep train fresh.yaml run.dir=fresh.begins train.steps=0 --ranks 3 sharding.level=parameters
succeeds "dora of a layer that is new: the model itself" lockstep train fresh.yaml run.dir=fresh.none train.steps=0 lora.dora=false
begins=$(loss fresh.begins) model=$(loss fresh.none)
expect "dora of a layer that is new: it begins as the model, $begins and $model" close "$begins" "$model"
succeeds "dora of a layer that is new: it trains" lockstep train fresh.yaml
succeeds "dora of a layer that is new: merged" lockstep checkpoint export fresh fresh.hf --to hf
succeeds "dora of a layer that is new: taken" lockstep train again.dora.yaml init.from=fresh.hf run.dir=fresh.merged train.steps=0
beside=$(loss fresh) within=$(loss fresh.merged)
expect "dora of a layer that is new: the loss with adapters, $beside, and merged, $within" close "$beside" "$within"
lora_config gpt2 "'*.qkv', wte" >tied.yaml
succeeds "an adapted embedding of a tied model" lockstep train tied.yaml run.dir=tied
refuses "it has no merged form" 65 "tied/checkpoints/step-00000004: wte has an adapter, and its weight is also the model's head" lockstep checkpoint export tied tied.hf --to hf
succeeds "but adapters" lockstep checkpoint export tied tied.peft --to peft

# Noise on embeddings in training alone (NEFTune).
succeeds "noise: one digest" lockstep prove text.yaml train.embedding_noise=5 --ranks 1,2,3,4 --levels all --steps 2 --resume

# A new head on an old trunk.
cat >head.yaml <<YAML
init: {from: $hf/vit, new: ['head.*']}
run: {dir: head}
train: {steps: 2}
batch: {global: 4, micro: 1}
data: {name: synthetic_images, synthetic: {images: 40, height: 8, width: 8, channels: 3, classes: 3}}
optim: {rules: [{pattern: 'blocks.0.*', lr_scale: 0.1}]}
YAML
refuses "noise on images" 78 "override 1 .train.embedding_noise=5.: train.embedding_noise: the model vit has no embeddings of tokens" lockstep train head.yaml \
  train.embedding_noise=5 run.dir=none
succeeds "a new head: one digest" lockstep prove head.yaml --ranks 1,2,4 --levels all --steps 2 --resume
succeeds "a new head beside adapters: one digest" \
  lockstep prove head.yaml lora.rank=2 "lora.targets=['*.qkv']" --ranks 1,4 --levels all --steps 2 --resume
succeeds "it trains" lockstep train head.yaml
succeeds "it is exported" lockstep checkpoint export head head.hf --to hf
expect "with its classes" grep -q '"LABEL_2"' head.hf/config.json
expect "and no others" test "$(grep -c LABEL_3 head.hf/config.json)" -eq 0
refuses "another head without a word" 65 "$hf/vit: its tensors are not those of this vit model: classifier.weight is \[5, 16\] there and would be \[3, 16\] here" \
  lockstep train head.yaml 'init.new=[]' run.dir=never

# What does not fit.
refuses "adapters of nothing" 78 ".*lora.rank.*: needs init.from" lockstep train text.yaml lora.rank=2 run.dir=never
refuses "no layers" 78 ".*lora.targets.*: is empty" lockstep train text.yaml init.from=base lora.rank=2 run.dir=never \
  model.layers=2 model.heads=4 model.width=16
refuses "a pattern of no layer" 78 "lora.targets: pattern 'blocks.9.\*' matches no linear layer of this model; its layers are \*.qkv, \*.proj, \*.up, \*.down" \
  lockstep train gpt2.yaml "lora.targets=['*.qkv', 'blocks.9.*']" run.dir=never
refuses "a pattern of no parameter" 78 ".*init.new.*: pattern 'head' matches no parameter" \
  lockstep train gpt2.yaml 'init.new=[head]' run.dir=never
refuses "a key without adapters" 78 ".*lora.alpha.*: has an effect only with lora.rank" lockstep train again.yaml lora.alpha=2 run.dir=never
refuses "an adapter of a checkpoint" 78 ".*init.adapter needs the model that it adapts" \
  lockstep train text.yaml init.from=merged init.adapter=out.peft run.dir=never
refuses "an adapter that contradicts" 78 ".*: lora.rank: 5, but by out.peft/adapter_config.json it is 3" \
  lockstep train again.yaml init.adapter=out.peft lora.rank=5 run.dir=never
cp -r out.peft bad && sed -i 's/"LORA"/"LOHA"/' bad/adapter_config.json
refuses "another method" 65 "bad/adapter_config.json: peft_type: LOHA is not supported" lockstep train again.yaml init.adapter=bad run.dir=never
cp "$parity/peft/llama3/adapter_model.safetensors" out.peft
refuses "an adapter of another model" 65 "out.peft/adapter_model.safetensors: holds no adapter of a linear layer or embedding of" \
  lockstep train again.yaml init.adapter=out.peft run.dir=never
rm out.peft/adapter_model.safetensors
refuses "half an adapter" 66 "out.peft/adapter_model.safetensors" lockstep train again.yaml init.adapter=out.peft run.dir=never
finish

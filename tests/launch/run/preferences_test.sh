#!/usr/bin/env bash
# Tuning by preferences: a model that says words in either case learns from pairs to say them in capitals. One digest at every number
# of ranks and shard level, under mpirun and after a stop, with the reference's file there, gone or damaged. Usage:
# preferences_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"

# Words of a few letters, asked for and said in either case: SEED COUNT FIELDS...
lines() {
  numbers "$(($2 * 8))" 8 "$1" | awk -v form="$3" '{
    word = word sprintf("%c", 97 + $1)
    if (NR % 8) next
    word = substr(word, 1, 2 + $1 % 5); upper = toupper(word)
    if (form == "pair") printf "{\"q\": \"say %s: \", \"better\": \"%s\", \"worse\": \"%s\"}\n", word, upper, word
    else printf "{\"q\": \"say %s: \", \"a\": \"%s\"}\n", word, $1 % 2 ? upper : word
    word = "" }'
}
lines 1 400 record >said.jsonl
lines 2 400 pair >pairs.jsonl
succeeds "texts" lockstep data import json said.jsonl said.h5 --prompt q --completion a
succeeds "pairs" lockstep data import json pairs.jsonl pairs.h5 --prompt q --chosen better --rejected worse --vocabulary said.h5
cat >said.yaml <<END
run: {dir: said}
data: {path: said.h5, context: 32, packing: pad}
model: {name: gpt, layers: 1, heads: 2, width: 32}
batch: {global: 32, micro: 8}
train: {steps: 150}
optim: {lr: 0.005}
END
cat >tune.yaml <<END
run: {dir: tuned}
init: {from: said}
data: {path: pairs.h5, context: 32, packing: pairs}
model: {name: gpt, layers: 1, heads: 2, width: 32}
task: {name: dpo}
batch: {global: 32, micro: 8}
train: {steps: 40, eval_every: 20}
optim: {lr: 0.002}
END
succeeds "a model that says words" lockstep train said.yaml --ranks 2

value() { # KEY: of the last evaluation in ./out
  grep -o "\"$1\":[-0-9.e]*" out | tail -n 1 | cut -d: -f2
}
above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b) }'; }

for task in dpo ipo orpo; do
  succeeds "$task" lockstep train tune.yaml task.name=$task run.dir=$task --ranks 2
  succeeds "$task is measured" lockstep eval $task
  expect "$task prefers capitals" above "$(value reward_accuracy)" 0.95
  expect "$task: by a margin" above "$(value reward_margin)" 0
  if [ $task = orpo ]; then expect "orpo has no reference" [ ! -e orpo/reference.h5 ]; fi
done
expect "a reference is kept" [ -e dpo/reference.h5 ]
succeeds "dpo is measured on all ranks alike" lockstep eval dpo --ranks 3
three=$(grep -o '"loss".*' out)
succeeds "and on one" lockstep eval dpo
same "the figures" "$three" "$(grep -o '"loss".*' out)"

wanted=$(digest dpo)
for layout in "1 none" "3 none" "2 optimizer" "2 gradients" "3 parameters" "4 parameters"; do
  read -r ranks level <<<"$layout"
  case $layout in "1 none" | "2 gradients" | "3 parameters") ;; *) if ! thorough; then continue; fi ;; esac
  succeeds "dpo at $layout" lockstep train tune.yaml run.dir=other --ranks "$ranks" sharding.level="$level"
  same "the digest at $layout" "$wanted" "$(digest other)"
  same "the reference at $layout" "$(cksum <dpo/reference.h5)" "$(cksum <other/reference.h5)"
  rm -rf other
done
if with_mpi; then
  succeeds "dpo under mpirun" mpi 2 "$binary" train tune.yaml run.dir=other sharding.level=parameters
  same "the digest under mpirun" "$wanted" "$(digest other)"
  rm -rf other
fi
succeeds "dpo with the head within the loss" lockstep train tune.yaml run.dir=rows train.loss_rows=64
for dir in dpo rows; do succeeds "$dir exported" lockstep checkpoint export $dir $dir.safetensors; done
same "the parameters with the loss by rows" "$(cksum <dpo.safetensors)" "$(cksum <rows.safetensors)"

# Stopped and gone on with, on other ranks, whatever became of the reference's file.
run lockstep train tune.yaml run.dir=half --ranks 2 --until 15
cp -r half gone && rm gone/reference.h5
cp -r half damaged && printf x | dd of=damaged/reference.h5 bs=1 seek=3000 conv=notrunc 2>/dev/null
cp -r half other && cp ipo/reference.h5 other/reference.h5
for dir in half gone damaged other; do
  succeeds "resumed, the reference $dir" lockstep train tune.yaml run.dir=$dir --resume --ranks 3
  same "the digest, the reference $dir" "$wanted" "$(digest $dir)"
  if [ $dir = half ]; then expect "the file is used" bash -c '! grep -q "reference: computing" err'; fi
  if [ $dir = damaged ]; then expect "damage is told" grep -q 'warning: .*damaged/reference.h5.*computing the reference again' err; fi
done
# Where what training began with is another model now.
run lockstep train tune.yaml run.dir=moved --until 15
rm moved/reference.h5 && mv said kept && succeeds "another model" lockstep train said.yaml seed=2 train.steps=3
refuses "another reference" 65 '.*moved/checkpoints/step-0*15: its reference is the model with the hash [0-9a-f]*, but said has [0-9a-f]*; init.from must name it' \
  lockstep train tune.yaml run.dir=moved --resume
refuses "to measure by another reference" 65 '.*its reference is the model with the hash .*, but said has' lockstep eval moved
rm -rf said && mv kept said

# A resumed run may change what no output depends on; without init.from, too, and a measurement reads the file.
run lockstep train tune.yaml run.dir=other_rate --until 15
mv said kept
succeeds "another rate" lockstep train tune.yaml run.dir=other_rate --resume optim.lr=0.001 'resume.allow=[optim.lr]'
expect "the reference is used" bash -c '! grep -q "reference: computing" err'
succeeds "measured without what training began with" lockstep eval dpo
same "the figures of before" "$three" "$(grep -o '"loss".*' out)"
mv kept said
succeeds "no step" lockstep train tune.yaml run.dir=none train.steps=0
succeeds "a model before its first step" lockstep eval none
same "its loss is log 2" 0.6931 "$(value loss | cut -c1-6)"
refuses "nothing to predict" 64 'dpo.*: was tuned by pairs of answers' lockstep predict dpo pairs.jsonl -o no.jsonl
# Answers without prompts, and an earlier turn that a prompt has.
printf '{"c": "BFE", "r": "bfe"}\n{"c": "AB", "r": "ab"}\n' >plain.jsonl
succeeds "no prompts" lockstep data import json plain.jsonl plain.h5 --chosen c --rejected r --vocabulary said.h5
succeeds "no prompts are needed" lockstep train tune.yaml run.dir=plain data.path=plain.h5 data.validation=0 batch.global=2 batch.micro=1 train.steps=2

# Adapters begin as nothing, so the reference is the model without them.
succeeds "adapters" lockstep train tune.yaml run.dir=adapters lora.rank=4 'lora.targets=["*.qkv", "*.proj", "*.up", "*.down"]' optim.lr=0.01 --ranks 2
succeeds "adapters are measured" lockstep eval adapters
expect "adapters prefer capitals" above "$(value reward_accuracy)" 0.9
succeeds "padded to the longest" lockstep train tune.yaml run.dir=buckets data.buckets=4 precision.compute=bf16 --ranks 2
adapted=$(digest buckets)
succeeds "the same at level parameters" lockstep train tune.yaml run.dir=buckets2 data.buckets=4 precision.compute=bf16 --ranks 3 sharding.level=parameters
same "bf16, with buckets" "$adapted" "$(digest buckets2)"

# With a rate of 0 a model stays its own reference: each step's loss is that of equal answers, whichever pairs it has.
lines 3 37 pair >more.jsonl
lines 4 10 pair >few.jsonl
for file in more few; do
  succeeds "pairs $file" lockstep data import json $file.jsonl set_$file.h5 --prompt q --chosen better --rejected worse --vocabulary said.h5
done
stays() { # LOSS WHAT keys...: nine steps of three epochs, stopped and gone on with, and the validation part
  local dir=still what=$2
  rm -rf $dir
  run lockstep train tune.yaml run.dir=$dir optim.lr=0 task.beta=1 batch.global=16 batch.micro=4 '~train.steps' train.epochs=3 train.eval_every=2 \
    "${@:3}" --until 4
  succeeds "still $what: gone on with" lockstep train tune.yaml run.dir=$dir --resume optim.lr=0 task.beta=1 batch.global=16 batch.micro=4 '~train.steps' \
    train.epochs=3 train.eval_every=2 "${@:3}"
  grep -oE '"(val_)?loss":[0-9.e-]+' $dir/metrics.jsonl >losses
  expect "still $what: each loss is $1: $(xargs <losses)" awk -F: -v all="$1" '($2 - all) ^ 2 > 1e-8 { bad = 1 } END { exit bad || NR < 6 }' losses
}
for task in "dpo 0.693147" "ipo 0.25"; do
  read -r name loss <<<"$task"
  stays "$loss" "$name, one file" task.name=$name data.path=set_more.h5 data.validation=0.2
  stays "$loss" "$name, buckets" task.name=$name data.path=set_more.h5 data.validation=0.2 data.buckets=4 --ranks 2
  stays "$loss" "$name, several files" task.name=$name 'data.path=set_*.h5' data.validation=0.2 --ranks 3
  stays "$loss" "$name, several files, buckets, a fold" task.name=$name 'data.path=set_*.h5' data.validation=0 data.fold.of=3 data.fold.index=1 data.buckets=3 --ranks 2 \
    sharding.level=parameters
done
stays 0.693147 "files in their order" task.name=dpo '~data.path' 'data.sources=[{path: set_few.h5}, {path: set_more.h5}]' data.validation=0 data.shuffle=false data.buckets=2

# Other commands build the task, too, before a model is there.
for task in dpo ipo orpo; do
  succeeds "a sweep of $task" lockstep sweep tune.yaml task.name=$task optim.lr=0.001,0.002 train.steps=1 --dir sweep_$task
  same "a sweep of $task: its points" 2 "$(grep -cE '^00[01],' sweep_$task/sweep.csv)"
done

# Bad input.
refuses "other packing" 78 ".*gpt does not fit the data: it reads 'answers'.*; set data.packing: pairs" lockstep train tune.yaml run.dir=no data.packing=pad
refuses "windows" 78 '.*the data holds pairs.*set data.packing to pairs' lockstep train tune.yaml run.dir=no data.packing=windows
refuses "no pairs" 78 '.*data.packing is pairs, but the data holds none' lockstep train tune.yaml run.dir=no data.path=said.h5
refuses "beta" 78 '.*task.beta: 0 is out of range' lockstep train tune.yaml run.dir=no task.beta=0
refuses "smoothing" 78 '.*train.label_smoothing: the loss compares whole answers' lockstep train tune.yaml run.dir=no train.label_smoothing=0.1
refuses "masks" 78 '.*data.mask is set' lockstep train tune.yaml run.dir=no data.mask=0.1
printf '%s\n' '{"c": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "r": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "b"}]}' >bad.jsonl
refuses "other prompts" 65 '.*bad.jsonl:1: the prompts of its chosen and its rejected answer differ' \
  lockstep data import json bad.jsonl bad.h5 --chosen c --rejected r --template chatml
finish

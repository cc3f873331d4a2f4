#!/usr/bin/env bash
# Samples with weights: one digest at any number of ranks, at every level and after a resume; weights of 1 are none, and a sample of weight 2
# is as one that is there twice; what is wrong is named. Usage: sample_weights_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh"

# Features a and b, a weight of 0 to 3, one of 1 or 2, one of 1, a label and a number.
numbers 64 1000 5 | awk 'BEGIN { print "a,b,w,two,one,y,v" } {
  a = $1 % 37; b = $1 % 11
  print a "," b "," ($1 % 13) / 4 "," 1 + $1 % 2 ",1," (a > 3 * b ? "yes" : "no") "," 2.5 * a - b + $1 % 5 }' >table.csv
import() { # OUT COLUMN... : options, and the columns that are left out
  succeeds "import $1" lockstep data import csv table.csv "$1.h5" "${@:3}" --leave-out "$2"
}
import classes two,one,v --label y --weight w
expect "the import says that there are weights" grep -qE '^sample weights: 0 to 3, mean 1\.' out
import numbers two,one,y --target v --weight w
import ones w,two,v --label y --weight one
ones=$(grep identity out)
import none w,two,one,v --label y
same "weights of 1 are none" "$(grep identity out)" "$ones"

cat >weights.yaml <<'YAML'
seed: 3
run: {dir: run}
train: {steps: 14, eval_every: 7}
batch: {global: 12, micro: 4}
model: {name: mlp, hidden: [8]}
optim: {name: adamw}
data: {path: classes.h5, validation: 0.2}
compute: {threads: 1}
YAML
for kind in classes numbers; do
  keys=(data.path=$kind.h5)
  if [ $kind = classes ]; then keys+=('train.class_weights=[1, 2.5]' train.label_smoothing=0.1); fi
  succeeds "$kind, 1 rank" lockstep train weights.yaml "${keys[@]}" run.dir=$kind
  expect "$kind: the log says so" grep -q 'the data has sample weights: the loss is the mean by them' err
  wanted=$(digest $kind)
  for ranks in 2 3; do
    succeeds "$kind, $ranks ranks" lockstep train weights.yaml "${keys[@]}" run.dir=$kind$ranks --ranks $ranks sharding.level=parameters
    same "$kind, $ranks ranks" "$wanted" "$(digest $kind$ranks)"
    same "$kind, $ranks ranks: the losses" "$(grep -o '"\(val_\)*loss":[^,]*' $kind/metrics.jsonl)" "$(grep -o '"\(val_\)*loss":[^,]*' $kind$ranks/metrics.jsonl)"
  done
  succeeds "$kind, half of it" lockstep train weights.yaml "${keys[@]}" run.dir=$kind-half train.steps=5 checkpoint.every=5
  succeeds "$kind, the rest" lockstep train weights.yaml "${keys[@]}" run.dir=$kind-half --resume --ranks 2
  same "$kind, resumed" "$wanted" "$(digest $kind-half)"
  succeeds "$kind, proved" lockstep prove weights.yaml "${keys[@]}" --ranks 1,2 --steps 3 --resume
  expect "$kind, proved" grep -q '^one digest: ' out
  succeeds "$kind, eval" lockstep eval $kind
  expect "$kind, eval says so" grep -q 'the loss is the mean by sample weights' err
  expect "$kind, eval gives their sum" grep -qE '"weight":[0-9]+\.[0-9]+,' out
done
if with_mpi; then
  succeeds "2 processes" mpi 2 "$binary" train weights.yaml data.path=numbers.h5 run.dir=processes
  same "2 processes" "$(digest numbers)" "$(digest processes)"
fi
succeeds "weights of 1" lockstep train weights.yaml data.path=ones.h5 run.dir=ones
expect "no word of weights" bash -c '! grep -q "sample weights" err'
succeeds "no weights" lockstep train weights.yaml data.path=none.h5 run.dir=none
same "weights of 1: the same bits" "$(digest none)" "$(digest ones)"
succeeds "weights" lockstep train weights.yaml run.dir=weighted
expect "weights shape results" test "$(digest weighted)" != "$(digest none)"
succeeds "eval without weights" lockstep eval none
expect "eval without weights counts targets" grep -q '"targets":13,' out

# A weight of 2 is as having the sample twice: whole batches, by gradient descent.
awk -F, '{ print } NR > 1 && $4 == 2 { print }' table.csv >twice.csv
twice=$(($(wc -l <twice.csv) - 1))
for target in "label y" "target v"; do
  other=$([ "${target% *}" = label ] && echo v || echo y)
  succeeds "once" lockstep data import csv table.csv once.h5 --force --"${target% *}" "${target#* }" --weight two --leave-out "w,one,$other"
  succeeds "twice" lockstep data import csv twice.csv twice.h5 --force --"${target% *}" "${target#* }" --like once.h5
  descent=(data.validation=0 optim.name=sgd optim.lr=0.1 train.eval_every=0 train.steps=20)
  rm -rf once twice
  succeeds "once: $target" lockstep train weights.yaml data.path=once.h5 batch.global=64 run.dir=once "${descent[@]}"
  succeeds "twice: $target" lockstep train weights.yaml data.path=twice.h5 batch.global="$twice" run.dir=twice "${descent[@]}"
  expect "$target: to a millionth" awk 'NR == FNR { once[FNR] = $1; next } { d = once[FNR] - $1; if (d < 0) d = -d; if (!(d <= 1e-6)) bad++; seen++ }
    END { exit !(seen == 20 && !bad) }' <(field loss <once/metrics.jsonl) <(field loss <twice/metrics.jsonl)
done

# A prediction needs no weights.
cut -d, -f1,2 table.csv >new.csv
succeeds "predict" lockstep predict classes new.csv -o predicted.csv
same "a row each" "$(wc -l <new.csv)" "$(wc -l <predicted.csv)"
succeeds "predict what has them" lockstep predict classes classes.h5 -o again.csv
same "the same predictions" "$(cut -d, -f1 predicted.csv)" "$(cut -d, -f1 again.csv)"

# What has no loss, or no use for weights.
awk -F, 'BEGIN { OFS = "," } NR > 1 { $3 = NR < 14 ? 0 : 1 } { print }' table.csv >zeros.csv
succeeds "a step of zeros: import" lockstep data import csv zeros.csv zeros.h5 --label y --weight w --leave-out two,one,v
succeeds "a step of zeros" lockstep train weights.yaml data.path=zeros.h5 data.shuffle=false train.steps=2 train.eval_every=0 run.dir=zeros
expect "it is warned of" grep -q 'warning: step 1: the weights of its samples add up to 0 (.*): it has no loss and no gradient' err
awk -F, 'BEGIN { OFS = "," } NR > 1 { $3 = 0 } { print }' table.csv >nothing.csv
succeeds "zeros alone: import" lockstep data import csv nothing.csv nothing.h5 --label y --weight w --leave-out two,one,v
refuses "zeros alone" 78 '.*no target counts in the training part of the data, 51 samples, whose weights are 0: there is no loss' \
  lockstep train weights.yaml data.path=nothing.h5 run.dir=no
refuses "mixtures of two" 78 '.*data.augment.mixup is set, but the samples have weights' lockstep train weights.yaml data.augment.mixup=0.4 run.dir=no
awk -F, 'BEGIN { OFS = "," } NR == 9 { $3 = -1 } { print }' table.csv >bad.csv
refuses "a negative weight" 65 "bad.csv:9: column 'w' holds '-1', which is no weight: a number of at least 0 that is finite in 32 bits" \
  lockstep data import csv bad.csv no.h5 --label y --weight w --leave-out two,one,v,b
refuses "a column that is not there" 65 "table.csv:1: has no column 'ww'" lockstep data import csv table.csv no.h5 --label y --weight ww
refuses "another format" 64 'data import text: --weight is for json, images, csv, parquet, npy; ' lockstep data import text table.csv no.h5 --weight w
refuses "images without a table" 64 '.*--weight is a column of the table of --labels' lockstep data import images . no.h5 --weight w
finish

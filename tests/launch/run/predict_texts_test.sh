#!/usr/bin/env bash
# What a run predicts for texts: the class of each, and how probable a model of the next token finds it, beside what eval measures.
# Usage: predict_texts_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh"
make_inputs

# A model of the next token.
succeeds "the run" lockstep train text.yaml
printf 'the cat sat on\na\nthe mat saw many red birds and it saw many red birds and a cat\nbirds' >lines.txt
succeeds "lines of text" lockstep predict run lines.txt -o lines.csv
same "lines of text: columns" "text,log_probability,tokens" "$(head -n 1 lines.csv)"
expect "lines of text: what is cut" grep -qx 'warning: lines.txt: 1 of 4 texts have more than 16 tokens: each is cut into windows of so many, and a window sees nothing of those before it' err
same "lines of text: tokens but the first of each" "13 0 61 4" "$(tail -n +2 lines.csv | cut -d, -f3 | paste -sd ' ')"
same "a text of one token is certain" "a,0,0" "$(sed -n 3p lines.csv)"
# eval predicts each token but the first of a text, too, in windows of the context that follow each other.
for line in 1 3 4; do
  sed -n "${line}p" lines.txt | tr -d '\n' >one.txt
  succeeds "import of line $line" lockstep data import text one.txt one.h5 --vocabulary run --force
  succeeds "eval of line $line" lockstep eval run data.path=one.h5 --on all
  expect "line $line: eval's loss" awk -F, -v line="$line" -v loss="$(field loss <out)" -v n="$(field targets <out)" \
    'NR == line + 1 { d = $2 + loss * n; exit !(n == $3 && d < 1e-6 * n && d > -1e-6 * n) }' lines.csv
done
for how in "--batch 1" "--batch 3 --ranks 2" "--ranks 4"; do
  # shellcheck disable=SC2086  # several words
  succeeds "lines of text, $how" lockstep predict run lines.txt -o again.csv --force $how
  expect "lines of text, $how: the same bytes" cmp lines.csv again.csv
done
piped() { lockstep predict run - <lines.txt; }
succeeds "lines of a pipe" piped
expect "lines of a pipe: the same bytes" cmp lines.csv out
head -n 2 lines.txt >first.txt
tail -n +3 lines.txt >second.txt
succeeds "two files" lockstep predict run first.txt second.txt
expect "two files: the same bytes" cmp lines.csv out
succeeds "an array" lockstep predict run lines.txt -o lines.npy
expect "an array: its shape" grep -qaF "'<f8', 'fortran_order': False, 'shape': (4,)" lines.npy
awk '{ printf "{\"id\": %d, \"text\": \"%s\"}\n", NR, $0 }' lines.txt >lines.jsonl
succeeds "JSON lines" lockstep predict run lines.jsonl -o again.jsonl
same "JSON lines: fields" 4 "$(grep -cE '^\{"id":[1-4],"log_probability":(0|-[0-9.]+),"tokens":[0-9]+\}$' again.jsonl)"
succeeds "a dataset of records" lockstep data import json lines.jsonl records.h5 --vocabulary run
succeeds "a dataset" lockstep predict run records.h5
same "a dataset: the same predictions" "$(tail -n +2 lines.csv | cut -d, -f2-)" "$(tail -n +2 out)"

# What a layer gives the tokens of a text, all but its last: the mean, the first or the last of them. A token knows only those before it, so the last
# values of a text's beginnings are the values of all its tokens.
for ((n = 2; n <= 40; n++)); do sed -n 3p lines.txt | cut -c "-$n"; done >beginnings.txt
succeeds "the last values of beginnings" lockstep predict run beginnings.txt -o last.csv --layer blocks.1 --pool last
succeeds "the mean values of beginnings" lockstep predict run beginnings.txt -o mean.csv --layer blocks.1
same "a layer: columns" "text,value_0,value_1,value_2" "$(head -n 1 mean.csv | cut -d, -f1-4)"
# Of texts longer than the context of 16, whose second window begins anew, only the first 16 tokens are compared.
expect "the mean is that of the last values" awk -F, 'FNR == 1 { next } NR == FNR { for (i = 2; i <= NF; i++) v[FNR, i] = $i; next }
  FNR <= 17 { for (i = 2; i <= NF; i++) { sum[i] += v[FNR, i]; d = sum[i] / (FNR - 1) - $i; if (d > 1e-5 || d < -1e-5) bad++; seen++ } }
  END { exit !(seen == 16 * 32 && !bad) }' last.csv mean.csv
succeeds "the first values of beginnings" lockstep predict run beginnings.txt -o first.csv --layer blocks.1 --pool first
same "the first values: of one token they are all" "$(sed -n 2p mean.csv)" "$(sed -n 2p first.csv)"
same "the first values: the same for all" 1 "$(tail -n +2 first.csv | cut -d, -f2- | sort -u | wc -l)"
for how in "--batch 1" "--batch 3 --ranks 3"; do
  # shellcheck disable=SC2086  # several words
  succeeds "a layer, $how" lockstep predict run beginnings.txt -o again.csv --force --layer blocks.1 $how
  expect "a layer, $how: the same bytes" cmp mean.csv again.csv
done
# Texts without a target, and modules and names that do not do.
printf 'a\nt\n' >short.txt
succeeds "texts of one token" lockstep predict run short.txt
same "texts of one token are certain" "a,0,0 t,0,0" "$(tail -n +2 out | paste -sd ' ')"
succeeds "a layer of texts of one token" lockstep predict run short.txt --layer blocks.1
refuses "a module that is not called" 64 "--layer wpe: the model uses this module otherwise than by calling it, so that nothing is seen of it; name another" lockstep predict run lines.txt --layer wpe
awk '{ printf "{\"text\": \"%s\", \"values\": %d}\n", $0, NR }' lines.txt >values.jsonl
refuses "a field of the output's name" 64 "the input has a field 'values', which is also the name" lockstep predict run values.jsonl --layer blocks.1 -o no.jsonl
succeeds "a field of a column's name" lockstep predict run values.jsonl --layer blocks.1 -o values.csv
refuses "a layer pooled otherwise" 64 "--pool max: must be mean, first or last" lockstep predict run lines.txt --layer blocks.1 --pool max
refuses "a part of a block that is not there" 64 "--layer blocks.1.attention: the model has no such module; there are blocks.1.ln1, " lockstep predict run lines.txt --layer blocks.1.attention
refuses "one long text" 65 "text.h5: is one text without records" lockstep predict run text.h5 -o no.csv
printf 'the cat\n\nsat\n' >gap.txt
refuses "an empty line" 65 "gap.txt:2: is empty" lockstep predict run gap.txt -o no.csv
printf 'the cat\nzebra Q\n' >other.txt
refuses "a character that the run does not know" 65 "other.txt:2: .*'z'.*is not in" lockstep predict run other.txt -o no.csv
refuses "no such column" 65 "lines.jsonl:1: has no column 'words'" lockstep predict run lines.jsonl --text words -o no.csv
refuses "a separator of characters" 64 "a separator is an added token" lockstep predict run lines.txt --separator '<|end|>' -o no.csv

# A folder of transformers, with its tokenizer.
succeeds "a tokenizer" lockstep tokenizer train text.txt pairs.json --vocab-size 300
succeeds "import of pairs" lockstep data import text text.txt pairs.h5 --tokenizer pairs.json
succeeds "the run of pairs" lockstep train text.yaml data.path=pairs.h5 run.dir=pairs
succeeds "lines of text as pairs" lockstep predict pairs lines.txt -o pairs.csv
succeeds "export to transformers" lockstep checkpoint export pairs gpt2 --to hf
succeeds "a folder of transformers" lockstep predict gpt2 lines.txt
expect "a folder of transformers: the same bytes" cmp pairs.csv out
succeeds "hidden tokens" lockstep train text.yaml model.name=bert data.mask=0.15 run.dir=masked train.steps=2
refuses "a model of hidden tokens" 64 "masked/checkpoints/step-00000002: was trained to find hidden tokens .*--layer" lockstep predict masked lines.txt -o no.csv

succeeds "a layer of a model of hidden tokens" lockstep predict masked lines.txt -o masked.csv --layer blocks.0
same "a layer of a model of hidden tokens: a row each" 5 "$(wc -l <masked.csv)"
sed 's/.*/{"text": "&", "label": "a", "weight": 2}/' lines.txt >weighted.jsonl
succeeds "import with weights" lockstep data import json weighted.jsonl weighted.h5 --vocabulary masked --field text --label label --weight weight
succeeds "a layer of a dataset with weights" lockstep predict masked weighted.h5 --layer blocks.0
same "a layer of a dataset with weights: the same values" "$(tail -n +2 masked.csv | cut -d, -f2-)" "$(tail -n +2 out)"
succeeds "a layer of a model of hidden tokens, --batch 1" lockstep predict masked lines.txt -o again.csv --force --layer blocks.0 --batch 1 --ranks 2
expect "a layer of a model of hidden tokens: the same bytes" cmp masked.csv again.csv

# Classes of texts.
numbers 120 9 13 | awk '{ printf "{\"t\": \"%s\", \"n\": %d, \"y\": \"%s\"}\n", substr("a longer text of words", $1 + 1, 9), NR, $1 % 2 ? "odd" : "even" }' >known.jsonl
succeeds "import of labelled texts" lockstep data import json known.jsonl known.h5 --field t --label y
cat >classes.yaml <<'YAML'
run: {dir: classes}
train: {steps: 40}
batch: {global: 12, micro: 4}
model: {name: bert, layers: 1, heads: 2, width: 16}
optim: {lr: 0.005}
data: {path: known.h5, context: 12, validation: 0.2, buckets: 2}
compute: {threads: 1}
YAML
succeeds "the run of labelled texts" lockstep train classes.yaml
succeeds "eval" lockstep eval classes data.path=known.h5 --on all
accuracy=$(field accuracy <out)
succeeds "classes of texts" lockstep predict classes known.jsonl --text t -o classes.csv
succeeds "a layer as wide as the context" lockstep train classes.yaml run.dir=square data.context=16 train.steps=1
succeeds "its values" lockstep predict square known.jsonl --text t --layer pooler
same "its values: each of its features" 18 "$(head -n 1 out | tr , '\n' | wc -l)"
same "classes of texts: columns" "n,y,prediction,probability" "$(head -n 1 classes.csv)"
expect "classes of texts: as accurate as eval says" awk -F, -v wanted="$accuracy" 'NR > 1 { n++; right += $2 == $3 } END { d = right / n - wanted; exit !(n == 120 && wanted > 0.6 && d < 1e-9 && d > -1e-9) }' classes.csv
succeeds "classes of texts, in other batches" lockstep predict classes known.jsonl --text t -o again.csv --force --batch 1 --ranks 3
expect "classes of texts, in other batches: the same bytes" cmp classes.csv again.csv
if with_mpi; then
  succeeds "classes of texts, mpirun -n 2" mpi 2 "$binary" predict classes known.jsonl --text t -o again.csv --force
  expect "classes of texts, mpirun -n 2: the same bytes" cmp classes.csv again.csv
fi
succeeds "classes of texts, exported" lockstep checkpoint export classes exported --to hf
refuses "a folder of BERT" 64 "exported: a folder of bert does not say what its outputs are of; .*train.steps=0" lockstep predict exported known.jsonl --text t -o no.csv
succeeds "a run of that folder" lockstep train classes.yaml init.from=exported train.steps=0 train.eval_every=0 run.dir=of_folder
succeeds "a run of that folder predicts" lockstep predict of_folder known.jsonl --text t -o again.csv --force
expect "a run of that folder: the same bytes" cmp classes.csv again.csv
succeeds "classes of a dataset" lockstep predict classes known.h5 --top 2
same "classes of a dataset: the same predictions" "$(tail -n +2 classes.csv | cut -d, -f3-)" "$(tail -n +2 out | cut -d, -f1,2)"
{ echo n,t && sed -E 's/.*"t": "([^"]*)", "n": ([0-9]*),.*/\2,\1/' known.jsonl; } >known.csv
succeeds "a column of texts" lockstep predict classes known.csv --text t
same "a column of texts: the same predictions" "$(cut -d, -f1,3- classes.csv)" "$(cat out)"
code=0
"$binary" predict classes - --text t <known.csv >piped.csv 2>err || code=$?
same "a column of texts by a pipe" "0 $(cat out)" "$code $(cat piped.csv)"
refuses "no such column" 65 "known.csv:1: has no column 'word'; it has 'n', 't'; --text names" lockstep predict classes known.csv --text word
refuses "--top of texts without classes" 64 "--top is for classes, which .* does not predict" lockstep predict pairs lines.txt --top 2
expect "nothing is left under the names" test -z "$(find . -name 'no.*')"
finish

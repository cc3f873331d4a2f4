#!/usr/bin/env bash
# What a run predicts for files without targets: beside scikit-learn, in any form of input and output, at any number of ranks.
# Usage: predict_test.sh LOCKSTEP [MPIRUN]
golden=$(cd "$(dirname "$0")/predict" && pwd)
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh"

# Runs whose parameters are those that scikit-learn learnt (predict/make_golden.py), on the table that it learnt from.
table_run() { # RUN TARGET-OPTION
  succeeds "import for $1" lockstep data import csv "$golden/known.csv" "$1.h5" "${@:2}"
  cat >"$1.yaml" <<YAML
run: {dir: $1}
train: {steps: 2}
batch: {global: 16, micro: 8}
model: {name: mlp, hidden: [8]}
init: {from: "$golden/$1.safetensors"}
optim: {lr: 0, weight_decay: 0}
data: {path: $1.h5, validation: 0.1}
compute: {threads: 1}
YAML
  succeeds "the run $1" lockstep train "$1.yaml"
}
table_run classes --label kind --leave-out id,price
table_run numbers --target price --leave-out id,kind
if [ "$failed" -ne 0 ]; then finish; fi

# near FILE COLUMN FILE: the columns from the given one on are those of the other file, to a millionth of the larger of 1 and the number.
near() {
  paste -d, "$1" "$3" | awk -F, -v first="$2" 'NR > 1 { n = (NF - first + 1) / 2; for (i = first; i < first + n; i++) {
    d = $i - $(i + n); if (d < 0) d = -d; size = $(i + n) < 1 ? 1 : $(i + n); if (!(d <= 1e-6 * size)) bad++; seen++ } }
    END { exit !(seen > 100 && !bad) }'
}
cut -d, -f3- "$golden/new.csv" >plain.csv # the names hold commas
succeeds "classes" lockstep predict classes "$golden/new.csv" -o classes.csv --top all
same "classes: the output's columns" "id,prediction,probability:ash,probability:beech,probability:oak" "$(head -n 1 classes.csv)"
same "classes: a row each" "$(wc -l <"$golden/new.csv")" "$(wc -l <classes.csv)"
same "classes: ids are copied" "$(cut -d '"' -f 2 "$golden/new.csv" | tail -n +2)" "$(cut -d '"' -f 2 classes.csv | tail -n +2)"
sed 's/^"[^"]*",//; s/^id,//' classes.csv >bare.csv
expect "classes: scikit-learn's probabilities" near bare.csv 2 "$golden/classes.csv"
expect "classes: no more digits than name a number of 32 bits" awk -F, 'NR > 1 { for (i = 2; i <= NF; i++) { v = $i; sub(/e.*/, "", v); gsub(/[.-]/, "", v); sub(/^0+/, "", v); if (length(v) > 9) bad++; seen++ } } END { exit !(seen > 100 && !bad) }' bare.csv
same "classes: the most probable one" "$(awk -F, 'NR > 1 { b = 1; for (i = 2; i <= 3; i++) if ($i > $b) b = i; print b == 1 ? "ash" : b == 2 ? "beech" : "oak" }' "$golden/classes.csv")" \
  "$(cut -d, -f1 bare.csv | tail -n +2)"
succeeds "numbers" lockstep predict numbers "$golden/new.csv" -o numbers.csv
sed 's/^"[^"]*",//; s/^id,//' numbers.csv >bare.csv
expect "numbers: scikit-learn's, in their own unit" near bare.csv 1 "$golden/numbers.csv"

# The same bytes at every number of ranks and every batch, from a pipe, and of what comes in parts.
for how in "--batch 1" "--batch 7 --ranks 2" "--batch 1000 --ranks 3" "--ranks 4"; do
  # shellcheck disable=SC2086  # several words
  succeeds "classes, $how" lockstep predict classes "$golden/new.csv" -o again.csv --force --top all $how
  expect "classes, $how: the same bytes" cmp classes.csv again.csv
done
if with_mpi; then
  for ranks in 2 4; do
    succeeds "classes, mpirun -n $ranks" mpi $ranks "$binary" predict classes "$golden/new.csv" -o again.csv --force --top all --batch 5
    expect "classes, mpirun -n $ranks: the same bytes" cmp classes.csv again.csv
  done
fi
piped() { lockstep predict classes - --top all <"$golden/new.csv"; }
succeeds "classes of a pipe" piped
expect "classes of a pipe: the same bytes" cmp classes.csv out
awk 'NR <= 71' "$golden/new.csv" >part1.csv
awk 'NR == 1 || NR > 71' "$golden/new.csv" >part2.csv
succeeds "classes of two files" lockstep predict classes part1.csv part2.csv -o again.csv --force --top all
expect "classes of two files: one after the other" cmp classes.csv again.csv
gzip -k part1.csv
succeeds "classes of a compressed file" lockstep predict classes part1.csv.gz part2.csv -o again.csv --force --top all
expect "classes of a compressed file: the same bytes" cmp classes.csv again.csv
# What becomes of a row does not depend on the others.
succeeds "the second half alone" lockstep predict classes part2.csv --top all
same "the second half alone: its rows" "$(tail -n +2 out)" "$(tail -n $(($(wc -l <part2.csv) - 1)) classes.csv)"

# Forms of the output.
succeeds "one class each" lockstep predict classes "$golden/new.csv" --keep year,id
same "one class each: columns" "year,id,prediction,probability" "$(head -n 1 out)"
succeeds "JSON lines" lockstep predict classes "$golden/new.csv" -o classes.jsonl --top 2
expect "JSON lines: two classes" grep -qE '^\{"id":"tree 301, row 1","prediction":"[a-z]+","probability":[0-9.e-]+,"prediction_2":"[a-z]+","probability_2":[0-9.e-]+\}$' classes.jsonl
succeeds "an array" lockstep predict classes "$golden/new.csv" -o classes.npy
expect "an array: its shape" grep -qaF "'<f4', 'fortran_order': False, 'shape': (120, 3)" classes.npy
same "an array: its size" $((128 + 120 * 3 * 4)) "$(wc -c <classes.npy)"
same "an array: its first number" "$(sed -n 2p classes.csv | cut -d, -f4 | cut -c -6)" "$(od -An -tf4 -j 128 -N 4 classes.npy | tr -d ' ' | cut -c -6)"
refuses "numbers have no confusion matrix" 64 "(rank 0 .*)?--confusion: numbers/checkpoints/.* predicts no classes of samples or pixels, .*; it is measured by loss, rmse" \
  lockstep eval numbers --confusion no.csv
succeeds "an array of numbers" lockstep predict numbers "$golden/new.csv" --format npy -o numbers.out
expect "an array of numbers: its shape" grep -qaF "'<f8', 'fortran_order': False, 'shape': (120,)" numbers.out

# What a layer gives: of the last one, the logits of the probabilities.
succeeds "a layer" lockstep predict classes "$golden/new.csv" -o logits.csv --layer head
same "a layer: columns" "id,value_0,value_1,value_2" "$(head -n 1 logits.csv)"
sed 's/^"[^"]*",//; s/^id,//' logits.csv | awk -F, -v OFS=, 'NR == 1 { print; next } { s = exp($1) + exp($2) + exp($3); print exp($1) / s, exp($2) / s, exp($3) / s }' >bare.csv
expect "a layer: the logits of scikit-learn's probabilities" near bare.csv 1 "$golden/classes.csv"
for how in "--batch 1" "--batch 7 --ranks 3"; do
  # shellcheck disable=SC2086  # several words
  succeeds "a layer, $how" lockstep predict classes "$golden/new.csv" -o again.csv --force --layer head $how
  expect "a layer, $how: the same bytes" cmp logits.csv again.csv
done
succeeds "a layer as JSON lines" lockstep predict classes "$golden/new.csv" -o layer.jsonl --layer layers.0
expect "a layer as JSON lines: a list of 8" grep -qE '^\{"id":"tree 301, row 1","values":\[(-?[0-9.e-]+,){7}-?[0-9.e-]+\]\}$' layer.jsonl
succeeds "a layer as an array" lockstep predict classes "$golden/new.csv" -o layer.npy --layer layers.0
expect "a layer as an array: its shape" grep -qaF "'<f4', 'fortran_order': False, 'shape': (120, 8)" layer.npy
refuses "a layer that is not there" 64 "--layer layers.7: the model has no such module; there are layers.0, head" lockstep predict classes "$golden/new.csv" -o no.csv --layer layers.7
refuses "a layer's classes" 64 "--top is for classes, which .* predicts without --layer" lockstep predict classes "$golden/new.csv" -o no.csv --layer head --top 2
refuses "a layer of rows, pooled" 64 "--pool is for what a layer \\(--layer\\) gives the tokens of texts" lockstep predict classes "$golden/new.csv" -o no.csv --layer head --pool mean
refuses "--skip-bad of rows" 64 "--skip-bad is for images" lockstep predict classes "$golden/new.csv" -o no.csv --skip-bad 1

# Forms of the input: JSON lines, a dataset, an array, targets that are there.
awk -F'"' 'NR > 1 { split($3, c, ","); printf "{\"id\": %d, \"width\": %s, \"height\": %s, \"colour\": \"%s\", \"year\": %s}\n", NR - 1, c[2], c[3], c[4], c[5] }' \
  "$golden/new.csv" >new.jsonl
succeeds "JSON lines as input" lockstep predict classes new.jsonl -o again.csv --force --top all
same "JSON lines as input: the same predictions" "$(sed 's/^"[^"]*",//' classes.csv)" "$(sed 's/^[0-9]*,//' again.csv)"
succeeds "JSON lines to JSON lines" lockstep predict classes new.jsonl -o again.jsonl
expect "JSON lines to JSON lines: numbers stay numbers" grep -q '^{"id":1,"prediction":' again.jsonl
succeeds "a table with its targets" lockstep predict numbers "$golden/known.csv" -o known.csv
expect "a table with its targets: they are not read" grep -q "known.csv:1: column 'price' is what numbers/checkpoints/step-00000002 predicts: it is not read" err
same "a table with its targets: they are copied" "id,kind,price,prediction" "$(head -n 1 known.csv)"
succeeds "the dataset of that table" lockstep predict numbers numbers.h5
sed 's/.*,//' known.csv >wanted.csv
cp out found.csv
expect "the dataset of that table: the same predictions, to the rounding of its numbers" near found.csv 1 wanted.csv
# As eval measures them: the last tenth of 300 rows.
succeeds "eval" lockstep eval numbers
expect "eval: the same root mean square" awk -F, -v wanted="$(field rmse <out)" 'NR > 271 { d = $NF - $(NF - 1); sum += d * d; n++ }
  END { r = sqrt(sum / n); exit !(n == 30 && r - wanted < 1e-6 * wanted && wanted - r < 1e-6 * wanted) }' known.csv
succeeds "--at" lockstep predict classes "$golden/new.csv" --at 2 --top all
expect "--at: the same bytes" cmp classes.csv out

# JSON lines are a table for an import, too.
awk -F'"' 'NR > 1 { split($3, c, ","); printf "{\"id\": %d, \"width\": %s, \"height\": %s, \"colour\": \"%s\", \"year\": %s, \"kind\": \"%s\", \"price\": %s}\n",
  NR - 1, c[2], c[3], c[4], c[5], c[6], c[7] }' "$golden/known.csv" >known.jsonl
succeeds "import of JSON lines" lockstep data import csv known.jsonl json.h5 --target price --leave-out id,kind
same "import of JSON lines: the same dataset" "$(lockstep data inspect numbers.h5 2>/dev/null | grep identity)" "$(grep identity out)"
echo '{"id": 1, "depth": 2}' >>known.jsonl
refuses "a field that the first object has not" 65 "known.jsonl:301: has a field 'depth', which the first object has not" lockstep predict classes known.jsonl -o no.csv
echo '[1]' >list.jsonl
head -n 2 new.jsonl >>list.jsonl
refuses "a line that is no object" 65 "list.jsonl:1: is no JSON object" lockstep predict numbers list.jsonl -o no.csv

# What a run weighs its classes by plays no part.
succeeds "a run of weighted classes" lockstep train classes.yaml run.dir=weighted 'train.class_weights=[auto]'
succeeds "its classes" lockstep predict weighted "$golden/new.csv" --top all
expect "its classes: the same bytes" cmp classes.csv out

# Missing values and categories that the run does not know.
sed 's/,red,/,pink,/' "$golden/new.csv" >pink.csv
refuses "an unknown category" 65 "pink.csv:[0-9]+: column 'colour' holds 'pink', which is no category of the column in classes/checkpoints/step-00000002; --unknown missing" \
  lockstep predict classes pink.csv -o no.csv
sed 's/,pink,/,,/' pink.csv >hole.csv
refuses "an empty cell where the run's table had none" 65 "hole.csv:[0-9]+: column 'colour' has no value, and none is missing in classes/checkpoints/step-00000002; --unknown missing" lockstep predict classes hole.csv --fill-missing
succeeds "as a missing value" lockstep predict classes hole.csv --unknown missing
cp out hole
succeeds "an unknown category as a missing value" lockstep predict classes pink.csv --unknown missing
expect "an empty cell is what an unknown category is" cmp -s out hole
expect "an unknown category as a missing value: warned of" grep -q "warning: pink.csv: column 'colour': [0-9]* of 120 values, such as 'pink'" err
sed '3s/,[0-9.]*,/,,/' "$golden/new.csv" >gap.csv
refuses "a missing value" 65 "gap.csv:3: column 'width' has no value; --fill-missing" lockstep predict classes gap.csv -o no.csv
succeeds "a missing value that is filled" lockstep predict classes gap.csv --fill-missing

# Numbers with units and signs between thousands are read as the run's own table was: the same data, the same predictions.
with_units() { awk -F'"' 'NR == 1 { print; next } { n = split($3, c, ","); c[2] = c[2] " cm"; c[5] = "\"" substr(c[5], 1, 1) "," substr(c[5], 2) "\""
  printf "\"%s\"", $2; for (i = 2; i <= n; i++) printf ",%s", c[i]; print "" }' "$1"; }
with_units "$golden/known.csv" >known_units.csv
with_units "$golden/new.csv" >new_units.csv
refuses "units without an option" 65 "known_units.csv:2: column 'width' holds '[0-9.]+ cm': --strip cm reads such cells as numbers" \
  lockstep data import csv known_units.csv no.h5 --label kind --leave-out id,price
succeeds "units: import" lockstep data import csv known_units.csv units.h5 --label kind --leave-out id,price --strip cm --thousands ,
same "units: the same dataset" "$(lockstep data inspect classes.h5 2>/dev/null | grep identity)" "$(grep identity out)"
succeeds "units: the run" lockstep train classes.yaml data.path=units.h5 run.dir=units
for table in new_units.csv "$golden/new.csv"; do
  succeeds "units: predictions of $table" lockstep predict units "$table" --top all
  expect "units: the same predictions of $table" cmp classes.csv out
done
sed 's/ cm,/ m,/' new_units.csv >metres.csv
refuses "another unit" 65 "metres.csv:2: column 'width' holds '[0-9.]+ m', which is no number that can be normalised as in" lockstep predict units metres.csv -o no.csv

# What is refused leaves nothing under the output's name, nor beside it.
sed '51s/,[0-9.]*,/,many,/' "$golden/new.csv" >bad.csv
refuses "a row that is broken" 65 "(rank 0 on .*: )?bad.csv:51: column 'width' holds 'many', which is no number" lockstep predict classes "$golden/new.csv" bad.csv -o no.csv --ranks 2
bad_pipe() { lockstep predict classes - -o no.csv <bad.csv; }
refuses "a row that is broken, in a pipe" 65 "standard input:51: column 'width' holds 'many'" bad_pipe
cut -d, -f1-4,6 "$golden/new.csv" >short.csv
refuses "a column that is not there" 65 "short.csv:1: has no column 'year'" lockstep predict classes short.csv -o no.csv
sed '1s/id/prediction/' "$golden/new.csv" >clash.csv
refuses "a column of the output's name" 64 "the input has a column 'prediction', which is also the name" lockstep predict classes clash.csv -o no.csv
refuses "no such column to keep" 64 "--keep nope: .*new.csv has no such column" lockstep predict classes "$golden/new.csv" -o no.csv --keep nope
refuses "no such file" 66 "nope.csv: there is no such file" lockstep predict classes nope.csv -o no.csv
refuses "an output that is there" 73 "classes.csv: " lockstep predict classes "$golden/new.csv" -o classes.csv
refuses "an output of no known form" 64 "--output no.xlsx: ends with none of .csv, .jsonl and .npy" lockstep predict classes "$golden/new.csv" -o no.xlsx
refuses "an output in no folder" 73 "nowhere/no.csv: " lockstep predict classes "$golden/new.csv" -o nowhere/no.csv
refuses "no such number of classes" 64 ".*top" lockstep predict classes "$golden/new.csv" --top 0
expect "nothing is left under the names" test -z "$(find . -name 'no.*')"
finish

#!/usr/bin/env bash
# Dataset files as files: verified, split and merged by commands; cross-validation by folds; a run goes on after its file has grown.
# Usage: dataset_files_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs

# Verify.
succeeds "verify" lockstep data verify text.h5 'ima*.h5'
same "verify: a line for each file" 2 "$(grep -cE '^(text|images).h5: whole, [0-9]+ chunks, identity [0-9a-f]{32}$' out)"
cp images.h5 damaged.h5
flip damaged.h5 "$(chunk_byte images.h5)"
run lockstep data verify text.h5 damaged.h5 nope.h5
expect "verify, damaged: exit 65" test "$code" -eq 65
expect "verify, damaged: the whole one is named" grep -q '^text.h5: whole' out
expect "verify, damaged: dataset, chunk and rows" grep -qE "^damaged.h5: 1 of [0-9]+ chunks are damaged: dataset 'images', chunk 0, rows \[0, 200\)" out
expect "verify, damaged: what is not there" grep -q '^nope.h5: ' out
expect "verify, damaged: how many" grep -q '^error: 2 of 3 files' err
run lockstep data verify damaged.h5 --json
expect "verify --json: exit 65" test "$code" -eq 65
expect "verify --json" grep -qF '"whole":false' out

# Split and merge.
succeeds "split" lockstep data split images.h5 --into train.h5:0.75,test.h5:0.25 --by-label --seed 3
expect "split: counts" grep -qx 'train.h5: 150 samples' out
succeeds "inspect" lockstep data inspect test.h5
expect "split by label" grep -qE '^images per class: 1[23], 1[23], 1[23], 1[23]$' out
refuses "split into files that are there" 73 'train.h5: .*--force' lockstep data split images.h5 --into train.h5:0.5,new.h5:0.5
refuses "split without files" 64 'data split: --into' lockstep data split images.h5
refuses "split: a share that is none" 64 '--into a.h5:x: expected a file and its share' lockstep data split images.h5 --into a.h5:x
refuses "split: shares" 64 'data split: the shares add up to 0.5, not to 1' lockstep data split images.h5 --into new.h5:0.5
if [ -e new.h5 ]; then problem "a split that was refused leaves a file"; fi
succeeds "merge" lockstep data merge train.h5 test.h5 merged.h5 --json
expect "merge: counts" grep -qF '"images_per_class":[50,50,50,50]' out
refuses "merge of different kinds" 65 'text.h5: cannot be merged with images.h5: one holds text, the other images' lockstep data merge images.h5 text.h5 new.h5
succeeds "train on a part, validate on the other" lockstep train images.yaml data.path=train.h5 data.validation=0 data.validation_path=test.h5 train.steps=2 run.dir=parts

# Folds: each is a validation part; the bits are those of any number of ranks.
succeeds "folds" lockstep sweep text.yaml data.validation=0 data.fold.of=3 'data.fold.index=range(3)' train.steps=4 --dir folds --jobs 1
same "folds: three losses" 3 "$(cut -d , -f 3 folds/sweep.csv | sed 1d | sort -u | wc -l)"
succeeds "a fold on 2 ranks" lockstep train text.yaml data.validation=0 data.fold.of=3 data.fold.index=1 train.steps=4 run.dir=fold2 --ranks 2
same "a fold on 2 ranks: the same bits" "$(digest folds/001)" "$(digest fold2)"
refuses "another fold" 78 '.*data.fold.index was 1 and is 2' lockstep train text.yaml data.validation=0 data.fold.of=3 data.fold.index=2 train.steps=5 run.dir=fold2 --resume
refuses "a fold and a share" 78 '.*data.fold.of is set: set data.validation to 0' lockstep train text.yaml data.fold.of=3 run.dir=none

# An HDF5 file of another program is read in place, with the bits that an import of it would give.
cp "$(dirname "$0")/../../data/foreign/foreign.h5" .
sed '/channels:/d; s/name: convnet/name: mlp/; s/hidden: 16/hidden: [16]/' images.yaml >mlp.yaml
keys=(mlp.yaml data.path=foreign.h5 data.hdf5.samples=/features/double data.hdf5.labels=/labels train.steps=6)
succeeds "in place" lockstep train "${keys[@]}" run.dir=foreign
expect "in place: hashes are kept" test -f foreign.h5.features-double.labels.hashes
succeeds "in place, 2 ranks" lockstep train "${keys[@]}" run.dir=foreign2 --ranks 2
same "in place, 2 ranks: the same bits" "$(digest foreign)" "$(digest foreign2)"
succeeds "in place, resumed" lockstep train "${keys[@]}" train.steps=3 run.dir=foreign3
succeeds "in place, resumed" lockstep train "${keys[@]}" run.dir=foreign3 --resume
same "in place, resumed: the same bits" "$(digest foreign)" "$(digest foreign3)"
refuses "in place: no such dataset" 78 'foreign.h5: holds no dataset .nope.' lockstep train "${keys[@]}" data.hdf5.samples=nope run.dir=none
rm foreign.h5.*.hashes
if with_mpi; then
  succeeds "in place, 2 processes" mpi 2 "$binary" train "${keys[@]}" run.dir=foreign4
  same "in place, 2 processes: the same bits" "$(digest foreign)" "$(digest foreign4)"
fi

# A file that grew: what was trained goes on as if it had not.
sed -i 's/name: cosine/name: constant/' text.yaml
# Of other targets: numbers to predict, texts with labels, pairs of answers.
numbers 60 9 11 | awk 'BEGIN { print "a,b,y" } { print $1 "," NR % 4 "," $1 * 2.5 + NR % 3 }' >numbers.csv
numbers 60 9 13 | awk '{ printf "{\"t\": \"%s %d\", \"y\": \"%s\"}\n", substr("a longer text", $1 + 1), NR, $1 % 2 ? "odd" : "even" }' >labelled.jsonl
sed 's/"y": "/"r": "not /' labelled.jsonl >pairs.jsonl
succeeds "numbers" lockstep data import csv numbers.csv numbers.h5 --target y
succeeds "labelled" lockstep data import json labelled.jsonl labelled.h5 --field t --label y
succeeds "pairs" lockstep data import json pairs.jsonl pairs.h5 --chosen t --rejected r
kind_of() { # NAME DATA MODEL
  printf 'run: {dir: %s}\ntrain: {steps: 12, eval_every: 12}\nbatch: {global: 6, micro: 2}\ndata: {path: %s.h5%s}\nmodel: {%s}\n' "$1" "$1" "$2" "$3" >"$1.yaml"
}
kind_of numbers '' 'name: mlp, hidden: [5]'
kind_of labelled ', context: 12, buckets: 3' 'name: bert, layers: 1, heads: 2, width: 8'
kind_of pairs ', context: 12, packing: pad, buckets: 3' 'name: gpt, layers: 1, heads: 2, width: 8'
for kind in text images numbers labelled pairs; do
  cp "$kind.h5" grows.h5
  succeeds "$kind: whole" lockstep train "$kind.yaml" data.path=grows.h5 train.steps=12 run.dir="$kind-whole"
  succeeds "$kind: half" lockstep train "$kind.yaml" data.path=grows.h5 train.steps=5 run.dir="$kind-grown"
  succeeds "$kind: grows" lockstep data merge grows.h5 "$kind.h5" grows.h5 --keep-normalization --force
  succeeds "$kind: goes on" lockstep train "$kind.yaml" data.path=grows.h5 train.steps=12 run.dir="$kind-grown" --resume
  expect "$kind: says so once" test "$(grep -c 'warning: .*grows.h5: has grown from [0-9]* to [0-9]* samples' err)" -eq 1
  same "$kind: the same bits" "$(digest "$kind-whole")" "$(digest "$kind-grown")"
  succeeds "$kind: eval" lockstep eval "$kind-grown" --json
  same "$kind: eval measures on the validation part of before" "$(tail -n 1 "$kind-whole/metrics.jsonl" | field val_loss)" "$(field loss <out)"
  succeeds "$kind: eval of the file given by hand" lockstep eval "$kind-grown" data.path=grows.h5
  expect "$kind: all of it is measured" grep -q '"on":"all"' out
  expect "$kind: with a warning of what was trained on" grep -q 'warning: grows.h5: its first [0-9]* of [0-9]* samples are those of .*; all are measured' err
done
succeeds "another beginning" lockstep data merge test.h5 images.h5 grows.h5 --force
refuses "another beginning" 65 '.*was trained on other data' lockstep train images.yaml data.path=grows.h5 train.steps=13 run.dir=images-grown --resume
# Forms of tables, by their options.
printf 'c;x;y\na;1,5;0\nb;2;1\n' >commas.csv
succeeds "semicolons and decimal commas" lockstep data import csv commas.csv commas.h5 --label y --decimal-comma
expect "two columns" grep -qx '  c  category  a, b' out
expect "with the statistics of numbers" grep -qx '  x  number    mean 1.75, std 0.25' out
printf 'k,y\n' >many.csv
for i in {1..12}; do printf 'c%02d,%d\n' "$i" $((i % 2)); done >>many.csv
succeeds "a column of twelve categories" lockstep data import csv many.csv many.h5 --label y
expect "ten are printed" grep -qx '  k  category  c01, c02, c03, c04, c05, c06, c07, c08, c09, c10 and 2 more' out
succeeds "as JSON" lockstep data inspect many.h5 --json
expect "all are there" grep -q '"values":\["c01".*"c12"\]' out
refuses "a decimal comma that is not meant" 65 "commas.csv:2: column 'x' holds '1,5': --decimal-comma" lockstep data import csv commas.csv none.h5 --label y
printf 'c|x|y\nz|1|0\nb|2|1\n' >bars.csv
refuses "an unseen category" 65 "bars.csv:2: column 'c' holds 'z'.*--unknown missing" lockstep data import csv bars.csv none.h5 --label y --delimiter '|' --like commas.h5
succeeds "an unseen category that is missing" lockstep data import csv bars.csv bars.h5 --label y --delimiter '|' --like commas.h5 --unknown missing
expect "it is warned of" grep -q "warning: .*column 'c': 1 of 2 values, such as 'z' in line 2" err
refuses "--unknown without --like" 64 "--unknown is for categories" lockstep data import csv bars.csv none.h5 --label y --unknown missing
refuses "--unknown maybe" 64 "--unknown maybe: must be missing or error" lockstep data import csv bars.csv none.h5 --label y --like commas.h5 --unknown maybe
refuses "--delimiter of two" 64 "--delimiter ab: must be one character" lockstep data import csv bars.csv none.h5 --label y --delimiter ab
refuses "--palette without masks" 64 ".*--palette needs --masks" lockstep data import images . none.h5 --palette commas.csv
printf '[{"t": "one"},\n {"t": "two"}]\n' >list.json
succeeds "a list of objects" lockstep data import json list.json list.h5 --field t
expect "its records" grep -q '^records: 2 of' out
printf 'PAR1' >table.parquet
refuses "Parquet" 65 "table.parquet: is Parquet, which .*reads.*: python3 -c" lockstep data import csv table.parquet none.h5 --label y
refuses "Parquet that is none, or a build without it" 65 "table.parquet: (is Parquet, which only a build with LOCKSTEP_PARQUET reads.*: python3 -c|cannot be read)" lockstep data import parquet table.parquet none.h5 --label y
refuses "Parquet by neither label nor target" 64 "data import parquet: give exactly one of --label COLUMN and --target COLUMN" lockstep data import parquet table.parquet none.h5
finish

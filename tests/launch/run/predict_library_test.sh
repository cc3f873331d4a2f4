#!/usr/bin/env bash
# A program that predicts by the library says what `lockstep predict` says: of rows, numbers, texts, images and folders of transformers.
# Usage: predict_library_test.sh LOCKSTEP PROGRAM
golden=$(cd "$(dirname "$0")/predict" && pwd)
pictures=$(realpath "$(dirname "$0")/../../data/images")
program=$2
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$1"

# near FILE FILE: equal numbers in as many lines, to a millionth of the larger of 1 and the number.
near() {
  paste -d, "$1" "$2" | awk -F, '{ n = NF / 2; for (i = 1; i <= n; i++) { d = $i - $(i + n); if (d < 0) d = -d
    size = $(i + n) < 0 ? -$(i + n) : $(i + n); if (!(d <= 1e-6 * (size < 1 ? 1 : size))) bad++; seen++ } } END { exit !(seen > 5 && !bad) }'
}
like_predict() { # WHAT RUN KIND COLUMNS FILE... : the last COLUMNS of what predict writes for the files
  succeeds "$1: predict" lockstep predict "$2" "${@:5}" --top "$top"
  awk -F, -v n="$4" 'NR > 1 { for (i = NF - n + 1; i <= NF; i++) printf "%s%s", $i, i < NF ? "," : "\n" }' out >wanted
  if [ "$3" = rows ]; then
    tail -n +2 "$5" | awk -F, '{ print $1 "," $2 "," ($3 == "blue") "," ($3 == "green") "," ($3 == "red") }' >inputs
    succeeds "$1: the library" "$program" "$2" rows inputs
  else
    succeeds "$1: the library" "$program" "$2" "$3" "${@:5}"
  fi
  cp out found
  same "$1: a line each" "$(wc -l <wanted)" "$(wc -l <found)"
  expect "$1: the same values" near found wanted
}

top=all
# Rows: two numbers and a category.
{ echo width,height,colour,kind,price && numbers 60 90 5 | awk 'BEGIN { split("red green blue", c) } {
  print $1 ",-0." (100 + NR) "," c[$1 % 3 + 1] "," ($1 > 45 ? "oak" : "ash") "," 1000 + 3 * $1 }'; } >known.csv
cut -d, -f1-3 known.csv | head -n 21 >new.csv
table_run() { # RUN import-options...
  succeeds "import for $1" lockstep data import csv known.csv "$1.h5" "${@:2}"
  printf 'run: {dir: %s}\ntrain: {steps: 20}\nbatch: {global: 12, micro: 6}\nmodel: {name: mlp, hidden: [8]}\ndata: {path: %s.h5, validation: 0.1}\n' "$1" "$1" >"$1.yaml"
  succeeds "the run $1" lockstep train "$1.yaml"
}
table_run classes --label kind --leave-out price
like_predict "classes of rows" classes rows 2 new.csv
table_run numbers --target price --leave-out kind
top=1
like_predict "numbers of rows" numbers rows 1 new.csv
# Large ones, of which fp32 holds the whole part alone: their fractions are compared.
awk -F, -v OFS=, 'NR > 1 { $5 += 9999000 } { print }' known.csv >large.csv && mv large.csv known.csv
table_run large --target price --leave-out kind
like_predict "large numbers of rows" large rows 1 new.csv
for file in found wanted; do awk '{ printf "%.9g\n", $1 - 10000000 }' $file >$file.less; done
expect "large numbers of rows: the same fractions" near found.less wanted.less
top=all
succeeds "rows of another width" lockstep predict classes new.csv
cut -d, -f1,2 inputs >narrow
refuses "rows of another width" 64 "samples of shape \[20, 2\], but the model was trained on \[5\]" "$program" classes rows narrow
refuses "a run that is not there" 66 "nowhere" "$program" nowhere rows inputs

# Texts, of which one is longer than the context.
make_inputs
numbers 90 9 13 | awk '{ printf "{\"t\": \"%s\", \"y\": \"%s\"}\n", substr("a longer text of words", $1 + 1, 9 + NR % 3), $1 % 2 ? "odd" : "even" }' >known.jsonl
succeeds "import of labelled texts" lockstep data import json known.jsonl texts.h5 --field t --label y
printf 'run: {dir: texts}\ntrain: {steps: 10}\nbatch: {global: 12, micro: 4}\nmodel: {name: bert, layers: 1, heads: 2, width: 16}\ndata: {path: texts.h5, context: 10, validation: 0.1}\n' >texts.yaml
succeeds "the run of texts" lockstep train texts.yaml
printf 'of\na longer text of words\ntext\nwords of a text\n' >lines.txt
like_predict "classes of texts" texts texts 2 lines.txt
sed 's/^model/precision: {compute: bf16}\nmodel/' texts.yaml >narrow.yaml
succeeds "the run of texts in bf16" lockstep train narrow.yaml run.dir=in_bf16
like_predict "classes of texts in bf16" in_bf16 texts 2 lines.txt
sed 's/^model/precision: {compute: bf16}\nmodel/' classes.yaml >narrow.yaml
succeeds "the run of rows in bf16" lockstep train narrow.yaml run.dir=rows_in_bf16
like_predict "classes of rows in bf16" rows_in_bf16 rows 2 new.csv
head -n 31 known.csv >half.csv
succeeds "import of a half" lockstep data import csv half.csv other.h5 --label kind --leave-out price
succeeds "a run of two files" lockstep train classes.yaml run.dir=two 'data.sources=[{path: classes.h5}, {path: other.h5}]' '~data.path'
refuses "rows that nobody can normalise" 65 "two: .*each normalised by its own statistics" "$program" two rows inputs
refuses "texts of a model of rows" 64 "the model was not trained on texts with labels" "$program" classes texts lines.txt

# Images, and the folder of transformers that they are exported to.
mkdir -p in/grey in/colour
cp "$pictures"/grey.png in/grey/a.png
cp "$pictures"/rgb.png in/colour/b.png
succeeds "import of images" lockstep data import images in in.h5
printf 'run: {dir: images}\ntrain: {steps: 4}\nbatch: {global: 2, micro: 1}\nmodel: {name: vit, patch: 1, layers: 1, heads: 2, width: 16}\ndata: {path: in.h5, validation: 0}\n' >images.yaml
succeeds "the run of images" lockstep train images.yaml
like_predict "classes of images" images images 2 in/grey/a.png in/colour/b.png in/grey/a.png
succeeds "export of images" lockstep checkpoint export images exported --to hf
like_predict "a folder of transformers" exported images 2 in/grey/a.png in/colour/b.png in/grey/a.png
finish

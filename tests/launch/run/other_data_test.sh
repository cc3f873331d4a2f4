#!/usr/bin/env bash
# Data that is not the run's: a file imported by itself, with normalisation, numbers of classes, columns and characters of its own, is fitted
# to what the run was trained on by name, to the bit as an import with --like does it; what cannot be mapped is refused. In eval, in init.from
# and as a validation file. Usage: other_data_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
formats=$(cd "$OLDPWD" && cd "$(dirname "$0")/../formats" && pwd)
make_inputs
measured() { # RUN key=value...: loss, accuracy and samples, or the error
  if lockstep eval "$@" >measured.out 2>measured.err; then sed -E 's/.*("loss".*)/\1/' measured.out; else tail -n 1 measured.err; fi
}
loss_of() { measured "$@" | field loss; }

# A run that is asked from another folder: data.path is relative to that of its training.
succeeds "a run" lockstep train text.yaml train.steps=2 run.dir=asked
mkdir elsewhere
cd elsewhere
refuses "from another folder" 66 "text.h5: .*; data.path is relative to the folder that the command is started in, .*/elsewhere: start it where the run was started, or give data.path=FILE" \
  lockstep eval ../asked
succeeds "with data.path" lockstep eval ../asked data.path=../text.h5
cd ..
# Images in folders: the classes are their names.
into_folders() { # DATASET FOLDER NAMES-OF-LABELS...: its images as PNG files
  local i label names=("${@:3}") n
  n=$(lockstep data inspect "$1" --json 2>/dev/null | field images)
  for ((i = 0; i < n; i++)); do
    lockstep data show "$1" --index "$i" --to image.png --json >shown 2>/dev/null
    label=${names[$(field label <shown)]}
    mkdir -p "$2/$label" && mv image.png "$2/$label/$i.png"
  done
}
make_images pixels labels 80 8
lockstep data import idx pixels labels eighty.h5 >/dev/null 2>&1
into_folders eighty.h5 photos circle cross moon square
# Of darker images the own mean differs: every value is halved.
{ head -c 16 pixels && tail -c +17 pixels | od -An -v -tu1 -w1 | awk '{ print int($1 / 2) }' | bytes; } >dark
lockstep data import idx dark labels dark_idx.h5 >/dev/null 2>&1
into_folders dark_idx.h5 dark_photos circle cross moon square
sed 's/images.h5/photos.h5/; s/micro: 2/micro: 4/' images.yaml >photos.yaml
succeeds "import" lockstep data import images photos photos.h5
succeeds "train" lockstep train photos.yaml run.dir=photos_run train.steps=40
succeeds "dark images by themselves" lockstep data import images dark_photos dark.h5
for like in photos.h5 photos_run; do
  succeeds "dark images with the statistics of $like" lockstep data import images dark_photos like.h5 --like $like --force
  same "eval fits what was imported by itself ($like)" "$(measured photos_run data.path=like.h5)" "$(measured photos_run data.path=dark.h5)"
done
same "a file given by hand is measured whole" 80 "$(measured photos_run data.path=dark.h5 | sed 's/^/{/' >/dev/null; lockstep eval photos_run data.path=dark.h5 2>said | field samples)"
expect "and the log says so" grep -q '^measured 80 samples, all of dark.h5$' said
cp photos.h5 copy.h5
succeeds "a copy of the run's data" lockstep eval photos_run data.path=copy.h5
same "of which the validation part is measured" 16 "$(field samples <out)"
expect "the log says which part of how many, and why" grep -qx 'measured 16 samples, the validation part of copy.h5: copy.h5 holds the run.s own data, 80 samples; --on all measures all of them' err
run lockstep eval photos_run 'data.sources=[{path: copy.h5}]'
expect "also of data.sources" grep -qx 'measured 16 samples, the validation part of the data: data.sources holds the run.s own data, 80 samples; --on all measures all of them' err
same "all of it where that is asked for" 80 "$(lockstep eval photos_run data.path=copy.h5 --on all 2>/dev/null | field samples)"
same "a part that is asked for" 40 "$(lockstep eval photos_run data.path=dark.h5 data.validation=0.5 2>/dev/null | field samples)"
same "the validation part of the run's own" 16 "$(lockstep eval photos_run 2>/dev/null | field samples)"
# By the file's own statistics the dark images are other samples: this is the number that was printed before.
dark_mean=$(lockstep data inspect dark.h5 --json 2>/dev/null | sed -E 's/.*"mean": ?\[([0-9.]*).*/\1/')
dark_std=$(lockstep data inspect dark.h5 --json 2>/dev/null | sed -E 's/.*"std": ?\[([0-9.]*).*/\1/')
expect "it is another loss than by its own statistics" test "$(loss_of photos_run data.path=dark.h5)" != \
  "$(loss_of photos_run data.path=dark.h5 "data.image.mean=[$dark_mean]" "data.image.std=[$dark_std]")"
refuses "three means of one channel" 78 '.*data.image.mean has 3 numbers, but the images of photos.h5 have 1 channels' \
  lockstep train photos.yaml run.dir=none 'data.image.mean=[0.1,0.2,0.3]'
rm -rf some && mkdir some && cp -r dark_photos/cross dark_photos/square some/
succeeds "two of the classes" lockstep data import images some some.h5
succeeds "with the run's numbers" lockstep data import images some like.h5 --like photos_run --force
same "eval finds classes by name" "$(measured photos_run data.path=like.h5)" "$(measured photos_run data.path=some.h5)"
mv some/cross some/zcross
succeeds "a class of another name" lockstep data import images some renamed.h5 --force
refuses "eval with a class that the run does not have" 65 \
  "renamed.h5: does not fit the data of photos_run/checkpoints/step-00000040: class 'zcross' is none of its 4 classes: circle, cross, moon, square" \
  lockstep eval photos_run data.path=renamed.h5
refuses "an import of it with --like" 65 "some: does not fit the data of photos_run: class 'zcross'" lockstep data import images some no.h5 --like photos_run
refuses "text for images" 65 'text.h5: does not fit the data of .*: it holds tokens, not images' lockstep eval photos_run data.path=text.h5
refuses "--resume still refuses other data" 65 '.*was trained on other data' lockstep train photos.yaml run.dir=photos_run data.path=dark.h5 train.steps=41 --resume

# init.from: the data of the new run means what it meant to the old one, also after a resume; new classes need consent.
tune=(photos.yaml init.from=photos_run train.steps=6 checkpoint.every=3)
succeeds "tuned on data with the run's numbers" lockstep train "${tune[@]}" data.path=like.h5 run.dir=tuned_like
succeeds "tuned on the same by itself" lockstep train "${tune[@]}" data.path=some.h5 run.dir=tuned
same "they saw the same samples" "$(field loss <tuned_like/metrics.jsonl | xargs)" "$(field loss <tuned/metrics.jsonl | xargs)"
whole=$(digest tuned)
rm -r tuned/checkpoints/step-00000006
succeeds "resumed" lockstep train "${tune[@]}" data.path=some.h5 run.dir=tuned --resume --ranks 2
same "with the same bits" "$whole" "$(digest tuned)"
refuses "tuned on a class that the run does not have" 65 "renamed.h5: does not fit the data of photos_run: class 'zcross' .*init.new_classes: true" \
  lockstep train "${tune[@]}" data.path=renamed.h5 run.dir=new_head
refuses "consent without a new head" 78 '.*init.new_classes: needs init.new' lockstep train "${tune[@]}" data.path=renamed.h5 run.dir=new_head init.new_classes=true
succeeds "with consent" lockstep train "${tune[@]}" data.path=renamed.h5 run.dir=new_head init.new_classes=true 'init.new=["fc2.*"]'
succeeds "its classes are the data's" lockstep checkpoint inspect new_head
expect "as inspect says" grep -q '2 classes: square, zcross' out

# A table.
numbers 400 9 11 | paste -d , - - - - | awk -F , 'BEGIN { print "size,city,price,kind" }
  { split("Oslo Bodo Voss", city, " "); print $1 "," city[$2 % 3 + 1] "," $3 * 1000 + $4 "," ($1 + $3 > 8 ? "dear" : "cheap") }' >all.csv
{ head -n 1 all.csv; sed -n '2,61p' all.csv; } >first.csv
awk -F , -v OFS=, 'NR == 1 || (NR > 61 && $2 != "Voss") { print $4, $3, "x" NR, $2, $1 }' all.csv >second.csv
sed -i '1s/x1/more/' second.csv
sed 's/Oslo/Bergen/' second.csv >third.csv
sed '/channels:/d; s/convnet/mlp/; s/hidden: 16/hidden: [8]/; s/images.h5/first.h5/' images.yaml >table.yaml
succeeds "table" lockstep data import csv first.csv first.h5 --label kind
succeeds "train" lockstep train table.yaml run.dir=table
succeeds "columns in another order, fewer categories" lockstep data import csv second.csv second.h5 --label kind --leave-out more
succeeds "with the run's columns" lockstep data import csv second.csv like.h5 --label kind --like table --force
same "eval finds columns by name" "$(measured table data.path=like.h5)" "$(measured table data.path=second.h5)"
lockstep data import csv third.csv third.h5 --label kind --leave-out more >/dev/null 2>&1
refuses "a category that the run does not have" 65 "third.h5: .* column 'city' holds 'Bergen', which is none of its 3 categories: Bodo, Oslo, Voss" \
  lockstep eval table data.path=third.h5

# Numbers to predict that are ten million deviations from the run's mean, where fp32 holds integers alone: r2 is that of the numbers. The
# predictions are compared with them less ten million.
numbers 240 32 17 | paste -d , - - - | awk -F , 'BEGIN { print "a,b,y" } { print $1 "," $2 "," ($1 + $2) / 16 + $3 / 32 }' >near.csv
awk -F , -v OFS=, 'NR > 1 { $3 = sprintf("%.5f", 10000000 + $3) } { print }' near.csv >far.csv
for name in near far; do succeeds "import" lockstep data import csv $name.csv $name.h5 --target y; done
succeeds "import --like" lockstep data import csv far.csv like.h5 --target y --like near.h5 --force
sed 's/first.h5/near.h5/' table.yaml >near.yaml
succeeds "train" lockstep train near.yaml run.dir=near 'train.metrics=[rmse, r2]'
lockstep predict near far.csv 2>/dev/null | paste -d , near.csv - | awk -F , 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "prediction") p = i }
  NR > 1 { y[NR] = $3; found[NR] = $p - 10000000; sum += $3; n++ }
  END { for (i in y) { off += (y[i] - found[i]) ^ 2; around += (y[i] - sum / n) ^ 2 }; printf "%.12g\n", 1 - off / around }' >wanted
for name in far like; do
  found=$(lockstep eval near data.path=$name.h5 2>/dev/null | field r2)
  expect "r2 of $name.h5: $found, and $(cat wanted) was due" awk -v a="$found" 'a < -1e12 && a / $1 - 1 < 1e-6 && 1 - a / $1 < 1e-6 { ok = 1 } END { exit !ok }' wanted
done

# Texts with labels.
numbers 60 9 13 | awk '{ printf "{\"t\": \"%s %d\", \"y\": \"%s\"}\n", substr("a longer text", $1 + 1), NR, $1 % 3 ? "positive" : "negative" }' >texts.jsonl
grep positive texts.jsonl >one.jsonl
sed 's/negative/worse/' texts.jsonl >other.jsonl
for name in texts one other; do lockstep data import json $name.jsonl $name.h5 --field t --label y >/dev/null 2>&1; done
printf 'run: {dir: texts}\ntrain: {steps: 8}\nbatch: {global: 6, micro: 2}\ndata: {path: texts.h5, context: 12}\nmodel: {name: bert, layers: 1, heads: 2, width: 8}\n' >texts.yaml
succeeds "train" lockstep train texts.yaml
succeeds "with the run's labels" lockstep data import json one.jsonl like.h5 --field t --label y --like texts --force
same "eval finds labels by name" "$(measured texts data.path=like.h5)" "$(measured texts data.path=one.h5)"
expect "which are not those of the file" test "$(measured texts data.path=one.h5 | field samples)" != 0
refuses "a label that the run does not have" 65 "other.h5: .*class 'worse' is none of its 2 classes: negative, positive" lockstep eval texts data.path=other.h5

# Several files of one run: names are those of the first, and statistics that differ are said.
succeeds "files with statistics of their own" lockstep train photos.yaml 'data.sources=[{path: photos.h5}, {path: some.h5}]' 'data.path=""' run.dir=several train.steps=3
expect "are warned of" grep -q 'warning: some.h5: has another mean or standard deviation than photos.h5' err
succeeds "a file in the place of several" lockstep eval several data.path=dark.h5
same "it is measured whole" 80 "$(field samples <out)"
succeeds "several in the place of one" lockstep eval photos_run 'data.sources=[{path: dark.h5}, {path: dark.h5}]'
same "all of them are measured" 160 "$(field samples <out)"
refuses "files of other classes" 65 "renamed.h5: does not fit the data of photos.h5: class 'zcross'" \
  lockstep train photos.yaml 'data.sources=[{path: photos.h5}, {path: renamed.h5}]' 'data.path=""' run.dir=none

# Folders of transformers: preprocessing and class names are the run's, and are taken from there.
sed '/channels:/d; s/convnet/vit\n  layers: 1\n  heads: 2\n  width: 8\n  patch: 4/; /hidden:/d' photos.yaml >vit.yaml
vit=(vit.yaml train.steps=10)
succeeds "a ViT" lockstep train "${vit[@]}" run.dir=vit
succeeds "exported" lockstep checkpoint export vit vit.hf --to hf
mean=$(lockstep data inspect photos.h5 --json 2>/dev/null | sed -E 's/.*"mean": ?\[([0-9.]*).*/\1/')
expect "with the run's mean" grep -qF "\"image_mean\":[$mean]" vit.hf/preprocessor_config.json
expect "and its size" grep -qF '"size":{"height":8,"width":8}' vit.hf/preprocessor_config.json
expect "and its classes" grep -qF '"id2label":{"0":"circle","1":"cross","2":"moon","3":"square"}' vit.hf/config.json
succeeds "a ViT of files with statistics of their own" lockstep train "${vit[@]}" 'data.sources=[{path: photos.h5}, {path: some.h5}]' 'data.path=""' run.dir=vit_several
succeeds "exported" lockstep checkpoint export vit_several vit_several.hf --to hf
expect "says that none normalises" grep -q 'warning: vit_several/.*: was trained on several files, each normalised by its own .*no preprocessor_config.json' err
expect "and writes none" test ! -e vit_several.hf/preprocessor_config.json
sed '/^model:/,/^optim:/{/^optim:/!d}' vit.yaml >tuned.yaml
tune=(tuned.yaml init.from=vit.hf train.steps=3)
succeeds "tuned on dark images of two classes" lockstep train "${tune[@]}" data.path=some.h5 data.validation=0 run.dir=vit_by_itself
refuses "a class that the folder does not have" 65 "renamed.h5: does not fit the data of vit.hf: class 'zcross' .*init.new_classes: true" \
  lockstep train "${tune[@]}" data.path=renamed.h5 run.dir=none
rm -rf some_as && cp -r some some_as && mv some_as/zcross some_as/cross
succeeds "the same with the numbers of the first run" lockstep data import images some_as as.h5 --like photos.h5
succeeds "tuned on them" lockstep train "${tune[@]}" data.path=as.h5 data.validation=0 run.dir=vit_alike
same "they saw the same samples" "$(field loss <vit_alike/metrics.jsonl | xargs)" "$(field loss <vit_by_itself/metrics.jsonl | xargs)"
cp -r vit.hf old.hf && sed -i -E 's/"image_mean":\[[^]]*\]/"image_mean":[0.5]/' old.hf/preprocessor_config.json
succeeds "from a folder with another mean, which a key replaces" lockstep train tuned.yaml init.from=old.hf train.steps=3 'data.image.mean=[0.25]' run.dir=replaced
succeeds "exported" lockstep checkpoint export replaced replaced.hf --to hf
expect "with the mean that the run used" grep -qF '"image_mean":[0.25]' replaced.hf/preprocessor_config.json

# A folder's tokenizer, and data of another one.
make_text words.txt 800
tr 'a-m' 'n-z' <words.txt >swapped.txt
for name in words swapped; do
  lockstep tokenizer train $name.txt $name.json --vocab-size 280 >/dev/null 2>&1
  lockstep data import text $name.txt $name.h5 --tokenizer $name.json >/dev/null 2>&1
done
succeeds "a run on byte pairs" lockstep train text.yaml data.path=words.h5 run.dir=words train.steps=2
succeeds "exported" lockstep checkpoint export words words.hf --to hf
printf 'run: {dir: none}\ntrain: {steps: 2}\nbatch: {global: 8, micro: 2}\ndata: {path: words.h5, context: 16}\ninit: {from: words.hf}\n' >folder.yaml
succeeds "data of the folder's tokenizer" lockstep train folder.yaml run.dir=same_tokens
refuses "data of another tokenizer" 65 "words.hf: its tokenizer is not that of the data: token .*--tokenizer words.hf, or set init.other_tokenizer: true" \
  lockstep train folder.yaml data.path=swapped.h5
run lockstep check folder.yaml data.path=swapped.h5
expect "check says so, too" grep -qE '^error +model +words.hf: its tokenizer is not that of the data' out
same "check: exit code" 65 "$code"
succeeds "with consent" lockstep train folder.yaml data.path=swapped.h5 init.other_tokenizer=true run.dir=new_tokens
succeeds "exported" lockstep checkpoint export new_tokens new_tokens.hf --to hf
succeeds "with the tokenizer of its data" lockstep data import text swapped.txt again.h5 --tokenizer new_tokens.hf
same "which gives the ids that it was trained on" "$(lockstep data inspect swapped.h5 --json 2>/dev/null | sed 's/.*identity//')" \
  "$(lockstep data inspect again.h5 --json 2>/dev/null | sed 's/.*identity//')"

# A checkpoint of a version without this record: its data says what it means, while it is there.
tar -xzf "$formats/formats-1.tar.gz"
awk 'BEGIN { print "c,b,a,y"; for (i = 0; i < 9; i++) print i / 3 ",x," i "," i % 2 }' >short.csv
(
  cd formats
  lockstep data import csv ../short.csv short.h5 --label b --leave-out y >/dev/null 2>&1
  measured table data.path=short.h5 >../refused
  lockstep data import csv ../short.csv short.h5 --label b --force >/dev/null 2>&1
  measured table data.path=short.h5 >../fitted && cat measured.err >../said
  lockstep data import csv ../short.csv like.h5 --label b --like table.h5 >/dev/null 2>&1
  measured table data.path=like.h5 >../liked
  mv table.h5 moved.h5
  measured table data.path=short.h5 >../gone
  measured table data.path=moved.h5 >../moved
  mv moved.h5 table.h5
)
expect "an old checkpoint: columns are looked for" grep -q "short.h5: does not fit the data of .*: it has no column 'y'" refused
expect "an old checkpoint: it says where they are from" grep -q 'warning: .*was written by a version that did not record what its data means; taken from table.h5' said
same "an old checkpoint: the same as with --like" "$(cat liked)" "$(cat fitted)"
expect "an old checkpoint whose data is gone" grep -q 'short.h5 cannot be matched to it' gone
expect "an old checkpoint and its own data elsewhere" grep -q '"loss"' moved
finish

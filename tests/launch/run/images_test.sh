#!/usr/bin/env bash
# A folder of PNG and JPEG files and a table, from import to training: with augmentation one digest at 1, 2 and 3 ranks, with more loader
# threads, and after a resume; what is wrong with an input is one line, and leaves no output. Usage: images_test.sh LOCKSTEP [MPIRUN]
images=$(realpath "$(dirname "$0")/../../data/images") archives=$(realpath "$(dirname "$0")/../../fuzz/seeds/npz")
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"

mkdir -p in/grey in/colour
cp "$images"/{grey,bits,grey16}.png "$images"/grey.jpg in/grey
cp "$images"/{rgb,palette,rgba}.png "$images"/{rgb,progressive,turned[2-8]}.jpg in/colour
succeeds "import" lockstep data import images in data.h5
expect "sizes are mixed" grep -q 'mixed sizes, 3 channels' out
expect "labels" grep -q 'images per class: 12 (colour), 4 (grey)' out
identity=$(grep identity out)
succeeds "an image is shown" lockstep data show data.h5 --index 2 --to shown.png --json
expect "with its class" grep -qE '"class":"(grey|colour)","output":"shown.png"' out
expect "as PNG" grep -q PNG shown.png
refuses "an image without a file to show it in" 64 "data.h5: holds images; name a file for the image: --to IMAGE.png" lockstep data show data.h5
refuses "an image that is not there" 64 "data.h5: has no image 16; it has 16, counted from 0" lockstep data show data.h5 --index 16 --to no.png
succeeds "import again" lockstep data import images in again.h5
expect "the same folder, the same data" grep -qxF "$identity" out

# The order differs, and so do the identities.
if tar --version >tar.version 2>&1 && ! lockstep data import webdataset tar.version none.h5 2>&1 | grep -q 'this build reads no tar'; then
  mkdir -p shards && for i in grey.png bits.png; do cp "in/grey/$i" shards/ && echo grey >"shards/${i%.png}.cls"; done
  (cd shards && tar -cf ../shard.tar -- *)
  succeeds "a shard of WebDataset" lockstep data import webdataset shard.tar shard.h5
  expect "its labels" grep -q 'images per class: 2 (grey)' out
  (cd shards && tar -cf ../no-label.tar bits.cls bits.png grey.png)
  refuses "a sample without a label" 65 "no-label.tar: sample 'grey': has no label: no member .cls among .png" lockstep data import webdataset no-label.tar none.h5
  head -c 700 shard.tar >cut.tar
  refuses "a shard that was cut" 65 "cut.tar: is .*truncated.*" lockstep data import webdataset cut.tar none.h5
fi

cat >images.yaml <<'YAML'
seed: 3
run: {dir: run}
train: {steps: 12}
batch: {global: 6, micro: 1}
model: {name: mlp, hidden: [8]}
optim: {name: adamw}
data:
  path: data.h5
  image: {height: 8, width: 8}
  augment: {crop_area: 0.5, flip: 0.5, shift: 1, rotate: 20, brightness: 0.2, contrast: 0.2, saturation: 0.2, cutout: 2}
YAML
refuses "no size" 78 '.*data.image.height and data.image.width are not set' lockstep train images.yaml data.image.height=0
succeeds "1 rank" lockstep train images.yaml run.dir=one
wanted=$(digest one)
for ranks in 2 3; do
  succeeds "$ranks ranks" lockstep train images.yaml run.dir="ranks$ranks" --ranks "$ranks" data.threads=3
  same "$ranks ranks" "$wanted" "$(digest "ranks$ranks")"
done
succeeds "half of it" lockstep train images.yaml run.dir=half train.steps=5 checkpoint.every=5
succeeds "the rest" lockstep train images.yaml run.dir=half --resume --ranks 2
same "resumed" "$wanted" "$(digest half)"
succeeds "without augmentation" lockstep train images.yaml run.dir=plain data.augment.flip=0 data.augment.crop_area=1
expect "augmentation shapes results" test "$wanted" != "$(digest plain)"

# 12 colour images and 4 grey ones: 16 / (2 x 12) and 16 / (2 x 4).
weighted=(data.validation=0 train.label_smoothing=0.1 'train.class_weights=[auto]')
succeeds "class weights" lockstep train images.yaml "${weighted[@]}" run.dir=weighted
expect "class weights are said by name" grep -qE '^override.*: train.class_weights: (0.6667 of colour, 2.0000 of grey|2.0000 of grey, 0.6667 of colour)$' err
succeeds "class weights by number" lockstep train images.yaml data.validation=0 train.label_smoothing=0.1 'train.class_weights=[0.66666666666666663,2]' run.dir=by_number
same "of the frequencies" "$(grep -o '"loss":[^,]*' by_number/metrics.jsonl)" "$(grep -o '"loss":[^,]*' weighted/metrics.jsonl)"
succeeds "class weights on 3 ranks" lockstep train images.yaml "${weighted[@]}" run.dir=weighted3 --ranks 3
same "class weights on 3 ranks" "$(digest weighted)" "$(digest weighted3)"
succeeds "no class weights" lockstep train images.yaml data.validation=0 train.label_smoothing=0.1 run.dir=unweighted
expect "class weights shape results" test "$(digest weighted)" != "$(digest unweighted)"
refuses "too many weights" 78 '.*train.class_weights: has 3 weights, but the data has 2 classes' lockstep train images.yaml 'train.class_weights=[1,2,3]' run.dir=no
refuses "a weight that is none" 78 ".*train.class_weights: '-1' is no weight" lockstep train images.yaml 'train.class_weights=[1,-1]' run.dir=no

# A run of images as they are stored is measured on images of that size.
for side in 4 5; do
  { printf "\\0\\0\\10\\3\\0\\0\\0\\4\\0\\0\\0\\$side\\0\\0\\0\\$side" && seq -s '' 1 99 | head -c $((4 * side * side)); } >side$side
  printf '\0\0\10\1\0\0\0\4\0\1\0\1' >labels$side
  succeeds "images of $side x $side" lockstep data import idx side$side labels$side side$side.h5
done
sed '/image:/d; /augment:/d' images.yaml >stored.yaml
succeeds "as they are stored" lockstep train stored.yaml data.path=side4.h5 run.dir=stored batch.global=2 batch.micro=1 train.steps=1 data.validation=0
refuses "measured on another size" 65 'the images of the data are .5, 5, 1. .* was trained on .4, 4, 1.; data.image.height and data.image.width resize them' \
  lockstep eval stored data.path=side5.h5
succeeds "resized to it" lockstep eval stored data.path=side5.h5 data.image.height=4 data.image.width=4

mixup=(data.augment.mixup=0.4 train.label_smoothing=0.1)
succeeds "mixup" lockstep train images.yaml "${mixup[@]}" run.dir=mixup
wanted=$(digest mixup)
for ranks in 2 3; do
  succeeds "mixup on $ranks ranks" lockstep train images.yaml "${mixup[@]}" run.dir="mixup$ranks" --ranks "$ranks" data.threads=2
  same "mixup on $ranks ranks" "$wanted" "$(digest "mixup$ranks")"
done
succeeds "half of mixup" lockstep train images.yaml "${mixup[@]}" run.dir=mixup_half train.steps=5
succeeds "the rest of it" lockstep train images.yaml "${mixup[@]}" run.dir=mixup_half --resume --ranks 2
same "mixup resumed" "$wanted" "$(digest mixup_half)"
succeeds "evaluates what mixup trained" lockstep eval mixup
sed '/model:/d' images.yaml >other.yaml
refuses "a GAN of mixtures" 78 '.*data.augment.mixup.*gan has no loss of labels' lockstep train other.yaml "${mixup[@]}" run.dir=no model.name=gan

head -c 200 "$images/rgb.jpg" >in/colour/cut.jpg
refuses "a truncated image" 65 'in/colour/cut.jpg: is a damaged' lockstep data import images in cut.h5
expect "no output" test ! -e cut.h5

# Subfolders whose names are no UTF-8: two that differ in such a byte alone are two classes, or refused.
mkdir -p "bytes/caf$(printf '\351')" "bytes/caf$(printf '\350')" bytes/caf
for folder in bytes/*; do cp in/grey/grey.png "$folder"; done
refuses "a class that is no UTF-8" 65 '(rank 0 .*)?bytes/caf.*: byte 3 of the folder.s name, which is the label of its images, is invalid UTF-8; name its encoding \(--encoding latin-1' lockstep data import images bytes no.h5
succeeds "classes in Latin-1" lockstep data import images bytes bytes.h5 --encoding latin-1 --json
expect "classes in Latin-1: three names" grep -q '"class_names":\["caf","cafè","café"\]' out

mkdir -p photos masks
for i in $(seq 0 19); do
  cp "$images/$([ $((i % 3)) = 0 ] && echo rgb || echo rgba).png" "photos/$i.png"
  cp "$images/$([ $((i % 2)) = 0 ] && echo palette || echo bits).png" "masks/$i.png"
done
refuses "a mask without its value's meaning" 65 'masks/[0-9]*.png: is 4 at row 0, column 0, not a class in .0, 4.; --ignore 4 ' \
  lockstep data import images photos masks.h5 --masks masks --classes 4
refuses "masks and labels" 64 '.*--labels, --masks and --boxes exclude each other' lockstep data import images photos masks.h5 --masks masks --labels x.csv
succeeds "masks with a gap" lockstep data import images photos gap.h5 --masks masks --ignore 2
expect "classes that never occur" grep -qE "^warning: masks: 1 of the 5 classes, from 0 to the largest value, never occur: the masks' values are 0, 1, 3, 4; --palette makes .* --classes 5 says" err
succeeds "so many classes" lockstep data import images photos gap.h5 --masks masks --ignore 2 --classes 5 --force
expect "so many classes: nothing is said" test "$(grep -c 'never occur' err)" -eq 0
cp masks/1.png masks/other.png
succeeds "masks" lockstep data import images photos masks.h5 --masks masks --ignore 4
expect "all classes occur" test "$(grep -c 'never occur' err)" -eq 0
expect "a mask of no image" grep -q 'masks: 1 files are masks of no image, such as other.png' err
expect "pixels are counted" grep -qE 'pixels per class: [0-9]+, [0-9]+, [0-9]+, [0-9]+, ignored: [0-9]+$' out
succeeds "a mask is shown" lockstep data show masks.h5 --to mask.png --json
expect "with the classes in it" grep -qE '"in_mask": ?\[.*0.*\],"output":"mask.png"' out
unet=(model.name=unet model.levels=1 model.width=4 data.path=masks.h5 batch.micro=2 train.eval_every=6)
succeeds "a U-Net" lockstep train other.yaml "${unet[@]}" run.dir=unet
wanted=$(digest unet)
for ranks in 2 3; do
  succeeds "a U-Net on $ranks ranks" lockstep train other.yaml "${unet[@]}" run.dir="unet$ranks" --ranks "$ranks"
  same "a U-Net on $ranks ranks" "$wanted" "$(digest "unet$ranks")"
done
succeeds "half of a U-Net" lockstep train other.yaml "${unet[@]}" run.dir=unet_half train.steps=5
succeeds "the rest of it" lockstep train other.yaml "${unet[@]}" run.dir=unet_half --resume --ranks 3
same "a U-Net resumed" "$wanted" "$(digest unet_half)"
succeeds "evaluates it" lockstep eval unet
expect "by intersection over union" grep -q '"iou":0' out

mkdir boxes
echo "1 0.5 0.5 0.4 0.6" >boxes/0.txt
printf '0 0.25 0.25 0.5 0.5\n2 0.9 0.9 0.4 0.1\n' >boxes/1.txt
succeeds "boxes of YOLO" lockstep data import images photos boxes.h5 --boxes boxes
expect "are counted" grep -qxF 'boxes: 3 in 2 images' out
expect "one was cut" grep -q 'boxes: 1 boxes reach beyond their images and were cut, 0 have no area' err
succeeds "they are shown" lockstep data show boxes.h5 --to boxes.png
refuses "no model reads them" 78 ".*model.name: mlp does not fit the data: it reads 'labels', integers, but the data gives 'images'" \
  lockstep train images.yaml data.path=boxes.h5
refuses "classes of COCO" 64 '.*--classes is for --masks and --boxes of a folder' lockstep data import images photos no.h5 --boxes x.json --classes 3

{
  echo "size,kind,label"
  for i in $(seq 60); do echo "$((i * 7 % 30)),$((i % 3))x,$((i * 7 % 30 > 14))"; done
} >table.csv
succeeds "a table" lockstep data import csv table.csv table.h5 --label label --json
expect "columns" grep -q '"columns":\[{"name":"size","type":"number","missing":0}' out
succeeds "learns it" lockstep train images.yaml data.path=table.h5 data.image.height=0 data.image.width=0 train.steps=300 run.dir=table \
  optim.lr=1e-2
succeeds "evaluates it" lockstep eval table
succeeds "its confusion matrix as a picture" lockstep eval table --confusion matrix.png
same "the picture is a PNG file" "89504e470d0a1a0a" "$(head -c 8 matrix.png | od -An -tx1 | tr -d ' \n')"
expect "the picture: what rows and columns are" grep -qE 'matrix.png: rows are labels, 0 to [0-9]+ from the top; columns are predicted classes' err
succeeds "its confusion matrix as CSV" lockstep eval table --confusion matrix.csv
same "the picture has a square for each cell" "$((25 * $(head -n 1 matrix.csv | tr -cd , | wc -c) + 1)) $((25 * ($(wc -l <matrix.csv) - 1) + 1))" \
  "$(head -c 24 matrix.png | tail -c +17 | od -An -tu1 | awk '{ print $3 * 256 + $4, $7 * 256 + $8 }')"
cp matrix.png one.png
succeeds "its confusion matrix as a picture, 3 ranks" lockstep eval table --confusion matrix.png --force --ranks 3
expect "the same picture on 3 ranks" cmp -s matrix.png one.png
expect "accuracy" awk -v found="$(field accuracy <out)" 'BEGIN { exit !(found > 0.9) }'
expect "balanced accuracy" awk -v found="$(field balanced_accuracy <out)" 'BEGIN { exit !(found > 0.9) }'
expect "no warning" test -z "$(grep warning err)"
{ echo "size,label" && numbers 300 100 5 | awk '{ print $1 "," (NR % 6 ? "no" : "yes") }'; } >rare.csv
succeeds "a table with a rare label" lockstep data import csv rare.csv rare.h5 --label label
succeeds "a classifier that never says yes" lockstep train images.yaml data.path=rare.h5 data.image.height=0 data.image.width=0 \
  train.steps=30 train.eval_every=30 run.dir=rare
warned='all [0-9]+ predictions are class 0, though the labels are of 2 classes: the accuracy is that class.s share'
expect "a classifier that never says yes: a validation warns" grep -qE "^warning: step 30: validation: $warned" err
same "a classifier that never says yes: metrics" 0.5 "$(field val_balanced_accuracy <rare/metrics.jsonl)"
succeeds "its evaluation" lockstep eval rare --on all
cp out rare.json
same "its evaluation: balanced accuracy" 0.5 "$(field balanced_accuracy <rare.json)"
expect "its evaluation: accuracy" awk -v found="$(field accuracy <rare.json)" 'BEGIN { exit !(found > 0.8) }'
expect "its evaluation warns" grep -qE "^warning: $warned" err
succeeds "its evaluation on 3 ranks" lockstep eval rare --on all --ranks 3
expect "its evaluation on 3 ranks: the same" cmp -s rare.json out

awk 'BEGIN { srand(1); print "a,b,kind,price"
  for (i = 0; i < 200; i++) { a = i * 37 % 101; b = i * 53 % 97; print a "," b "," (i % 3) "x," 1000 + 20 * a - 5 * b + 300 * (i % 3) } }' >prices.csv
succeeds "a table of numbers to predict" lockstep data import csv prices.csv prices.h5 --target price
expect "they are described" grep -qE '^targets: [0-9]+ to [0-9]+, mean [0-9.]+, std [0-9.]+$' out
regression=(data.path=prices.h5 data.image.height=0 data.image.width=0 train.steps=200 optim.lr=1e-2 batch.global=16 batch.micro=4 model.hidden=[16])
succeeds "a regression" lockstep train images.yaml "${regression[@]}" run.dir=prices
wanted=$(digest prices)
for ranks in 2 3; do
  succeeds "a regression on $ranks ranks" lockstep train images.yaml "${regression[@]}" run.dir="prices$ranks" --ranks "$ranks"
  same "a regression on $ranks ranks" "$wanted" "$(digest "prices$ranks")"
done
succeeds "half of a regression" lockstep train images.yaml "${regression[@]}" run.dir=prices_half train.steps=90
succeeds "the rest of it" lockstep train images.yaml "${regression[@]}" run.dir=prices_half train.steps=200 --resume --ranks 2
same "a regression resumed" "$wanted" "$(digest prices_half)"
succeeds "evaluates it" lockstep eval prices
expect "a regression has no accuracy" test -z "$(grep -h accuracy out err prices/metrics.jsonl prices/log.txt)"
expect "in the unit of the table" awk -v found="$(field rmse <out)" 'BEGIN { exit !(found > 1 && found < 100) }'
sed '2,$s/,[^,]*$/,x/' prices.csv >same.csv
succeeds "a table of one label" lockstep data import csv same.csv same.h5 --label price
run lockstep eval prices data.path=same.h5
expect "a regression on labels has no accuracy" test -z "$(grep -h accuracy out)"
expect "a regression on labels is not measured in silence" grep -qE '^(error: |warning: the labels of this data are of one class)' err
succeeds "another table" lockstep data import csv prices.csv again.h5 --target price --like prices.h5 --force
succeeds "measured as the first" lockstep eval prices data.path=again.h5 --on all
all=$(field rmse <out)
succeeds "which is the same data" lockstep eval prices --on all
same "rmse of another file" "$(field rmse <out)" "$all"
head -n 50 prices.csv >other.csv
succeeds "a table with normalisation of its own" lockstep data import csv other.csv other.h5 --target price
validates() { # DATA RUN
  succeeds "$1 validates the first" lockstep train images.yaml "${regression[@]}" train.steps=20 train.eval_every=20 run.dir="$2" \
    data.validation=0 data.validation_path="$1"
}
validates other.h5 by_itself
succeeds "the same table with the first one's" lockstep data import csv other.csv alike.h5 --target price --like prices.h5
validates alike.h5 by_like
same "what the run's statistics make of both" "$(field val_rmse <by_like/metrics.jsonl)" "$(field val_rmse <by_itself/metrics.jsonl)"
succeeds "with Huber's loss" lockstep train images.yaml "${regression[@]}" run.dir=huber train.huber_delta=0.5
expect "which shapes results" test "$wanted" != "$(digest huber)"
refuses "Huber's loss of labels" 78 '.*train.huber_delta.*labels, not numbers' lockstep train images.yaml run.dir=no train.huber_delta=1
refuses "smoothed numbers" 78 '.*train.label_smoothing.*numbers, not labels' lockstep train images.yaml "${regression[@]}" run.dir=no \
  train.label_smoothing=0.1
{ echo id,size,label && for i in $(seq 30); do echo "n$i,$((i % 7)),$((i % 2))"; done; } >named.csv
succeeds "a table with names of rows" lockstep data import csv named.csv named.h5 --label label
expect "which are no features" grep -q "named.csv: column 'id' has 30 different values in 30 rows, .* leave it out: --leave-out id" err
refuses "a column that is not there" 65 "named.csv:1: has no column 'lable'; it has 'id', 'size', 'label'" lockstep data import csv named.csv no.h5 --label lable
echo "1,2" >>table.csv
refuses "a ragged table" 65 'table.csv:62: has 2 cells' lockstep data import csv table.csv ragged.h5 --label label
refuses "no label" 64 '.*give exactly one of --label COLUMN and --target COLUMN' lockstep data import csv table.csv ragged.h5

# What would become another number or label without a word.
printf 'size,town\n1,K\366ln\n2,Orl\351ans\n' >latin.csv
refuses "Latin-1" 65 'latin.csv:2: column 2: byte 13 of the table \(0xF6\) is invalid UTF-8; .*--encoding' \
  lockstep data import csv latin.csv latin.h5 --label town
succeeds "Latin-1 by name" lockstep data import csv latin.csv latin.h5 --label town --encoding latin-1
expect "its letters" grep -q '1 (Köln), 1 (Orléans)' out
refuses "another encoding" 64 '--encoding ebcdic: must be utf-8, latin-1 or windows-1252' \
  lockstep data import csv latin.csv no.h5 --label town --encoding ebcdic
printf 'size,id,label\n1,7,a\n?,8,b\n3,9x,a\n-1,10,a\n' >odd.csv
refuses "a usual text for missing" 65 "odd.csv:3: column 'size' has no value \('\?' stands for none" \
  lockstep data import csv odd.csv odd.h5 --label label --leave-out id
refuses "an odd cell" 65 "odd.csv:4: column 'id' holds '9x', but 3 of its 4 values are numbers" \
  lockstep data import csv odd.csv odd.h5 --label label --fill-missing
succeeds "both are meant" lockstep data import csv odd.csv odd.h5 --label label --fill-missing --categories id --missing '?,-1'
expect "two are missing" grep -qE '^  size +number +mean .*, 2 missing$' out
refuses "missing texts of another table" 64 '.*--missing are what the file of --like was imported with' \
  lockstep data import csv odd.csv no.h5 --label label --like odd.h5 --missing x
{
  echo "x,price"
  seq 1001 | awk '{ print $1 % 7 "," $1 + 0.5 }'
} >many.csv
refuses "numbers as labels" 65 "many.csv: column 'price' has 1001 different labels in 1001 rows: --target price" \
  lockstep data import csv many.csv many.h5 --label price
succeeds "labels that are meant" lockstep data import csv many.csv many.h5 --label price --many-labels
refuses "a layout that is none" 64 '--layout hwc: must be nchw or nhwc' lockstep data import npy x.npy y.npy no.h5 --layout hwc

# Archives of NumPy: x and y, x_train and y_train, or arrays that are named.
succeeds "an archive" lockstep data import npy "$archives/features.npz" features.h5 --json
expect "two samples of two features" grep -q '"rows":2,"shape":\[2\]' out
succeeds "a compressed archive" lockstep data import npy "$archives/images.npz" digits.h5 --samples x_train --labels y_train
refuses "other names" 65 '.*weights.npz: holds none of the arrays y and y_train; name one by --labels: it holds w, s, d' \
  lockstep data import npy "$archives/weights.npz" never.h5
refuses "names for files of one array" 64 'data import npy: --samples and --labels are for a .npz' \
  lockstep data import npy x.npy y.npy never.h5 --samples x
expect "no output" test ! -e never.h5
finish

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

head -c 200 "$images/rgb.jpg" >in/colour/cut.jpg
refuses "a truncated image" 65 'in/colour/cut.jpg: is a damaged' lockstep data import images in cut.h5
expect "no output" test ! -e cut.h5

{
  echo "size,kind,label"
  for i in $(seq 60); do echo "$((i * 7 % 30)),$((i % 3))x,$((i * 7 % 30 > 14))"; done
} >table.csv
succeeds "a table" lockstep data import csv table.csv table.h5 --label label --json
expect "columns" grep -q '"columns":\[{"name":"size","type":"number","missing":0}' out
succeeds "learns it" lockstep train images.yaml data.path=table.h5 data.image.height=0 data.image.width=0 train.steps=300 run.dir=table \
  optim.lr=1e-2
succeeds "evaluates it" lockstep eval table
expect "accuracy" awk -v found="$(field accuracy <out)" 'BEGIN { exit !(found > 0.9) }'
echo "1,2" >>table.csv
refuses "a ragged table" 65 'table.csv:62: has 2 cells' lockstep data import csv table.csv ragged.h5 --label label
refuses "no label" 64 '.*--label COLUMN is needed' lockstep data import csv table.csv ragged.h5

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

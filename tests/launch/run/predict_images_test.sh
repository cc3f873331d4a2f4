#!/usr/bin/env bash
# What a run predicts for images: folders, files, IDX files and arrays, beside what eval measures, at any number of ranks.
# Usage: predict_images_test.sh LOCKSTEP [MPIRUN]
pictures=$(realpath "$(dirname "$0")/../../data/images")
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh"

# Images of one size, as they are stored.
make_inputs
succeeds "the run of IDX files" lockstep train images.yaml train.steps=14
succeeds "eval" lockstep eval run data.path=images.h5 --on all
accuracy=$(field accuracy <out)
succeeds "an IDX file" lockstep predict run images.idx -o idx.csv
expect "an IDX file: as accurate as eval says" awk -F, -v wanted="$accuracy" 'NR > 1 { right += $1 == (NR - 2) % 4 } END { exit !(wanted != "" && right / (NR - 1) == wanted) }' idx.csv
expect "an IDX file: it was learnt" awk -v a="$accuracy" 'BEGIN { exit !(a > 0.5) }'
succeeds "a dataset" lockstep predict run images.h5 -o again.csv --ranks 3 --batch 7
expect "a dataset: the same bytes" cmp idx.csv again.csv
gzip -k images.idx
succeeds "a compressed IDX file" lockstep predict run images.idx.gz -o again.csv --force --batch 1
expect "a compressed IDX file: the same bytes" cmp idx.csv again.csv
{ printf '\x93NUMPY\x01\x00\x76\x00' && printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (200, 12, 12), }" && tail -c +17 images.idx; } >images.npy
succeeds "an array" lockstep predict run images.npy -o again.csv --force
expect "an array: the same bytes" cmp idx.csv again.csv
succeeds "two inputs" lockstep predict run images.npy images.idx --top 2
same "two inputs: a row each" 401 "$(wc -l <out)"
make_images other.idx no_labels.idx 5 10
refuses "images of another size" 65 "other.idx: holds images of 10 x 10 pixels, but run/checkpoints/step-00000014 was trained on images of 12 x 12 as they were stored; --resize" \
  lockstep predict run other.idx -o no.csv
succeeds "images of another size, resized" lockstep predict run other.idx --resize
same "images of another size, resized: a row each" 6 "$(wc -l <out)"
refuses "colour for a run of grey images" 65 ".*rgb.png: does not fit the data of run/checkpoints/step-00000014: images have 3 channels, not 1" \
  lockstep predict run "$pictures/rgb.png" --resize -o no.csv

# A folder of files, resized as the run's were.
mkdir -p in/grey in/colour
cp "$pictures"/{grey,bits,grey16}.png "$pictures"/grey.jpg in/grey
cp "$pictures"/{rgb,palette,rgba}.png "$pictures"/{rgb,progressive,turned[2-8]}.jpg in/colour
succeeds "import of a folder" lockstep data import images in in.h5
cat >folder.yaml <<'YAML'
run: {dir: folder}
train: {steps: 20}
batch: {global: 6, micro: 2}
model: {name: vit, patch: 4, layers: 1, heads: 2, width: 16}
data: {path: in.h5, validation: 0.2, image: {height: 8, width: 8}, augment: {flip: 0.5}}
compute: {threads: 1}
YAML
succeeds "the run of a folder" lockstep train folder.yaml
succeeds "a folder" lockstep predict folder in -o folder.csv --top all
same "a folder: its files, in the order of their names" "$(find in -type f | sort)" "$(tail -n +2 folder.csv | cut -d, -f1)"
for how in "--batch 1" "--batch 3 --ranks 2" "--ranks 4"; do
  # shellcheck disable=SC2086  # several words
  succeeds "a folder, $how" lockstep predict folder in -o again.csv --force --top all $how
  expect "a folder, $how: the same bytes" cmp folder.csv again.csv
done
if with_mpi; then
  succeeds "a folder, mpirun -n 2" mpi 2 "$binary" predict folder in -o again.csv --force --top all
  expect "a folder, mpirun -n 2: the same bytes" cmp folder.csv again.csv
fi
succeeds "files" lockstep predict folder in/grey/*.png in/colour/rgb.jpg --top all
same "files: their rows" "$({ grep 'in/grey.*png' folder.csv && grep 'in/colour/rgb.jpg' folder.csv; })" "$(tail -n +2 out)"
# A grey image alone is predicted as it is among others, in three equal channels.
succeeds "the dataset" lockstep predict folder in.h5 --top all
same "the dataset: the same predictions, in its own order" "$(tail -n +2 folder.csv | cut -d, -f2- | sort)" "$(tail -n +2 out | sort)"
cp in/grey/grey.png "caf$(printf '\351').png"
refuses "JSON with a name that is no UTF-8" 65 '(rank 0 .*)?caf.*: this file is no UTF-8, which JSON is written in' lockstep predict folder caf*.png -o no.jsonl
succeeds "CSV with a name that is no UTF-8" lockstep predict folder caf*.png
succeeds "export to transformers" lockstep checkpoint export folder vit --to hf
succeeds "a folder of transformers predicts" lockstep predict vit in -o again.csv --force --top all
expect "a folder of transformers predicts: the same bytes" cmp folder.csv again.csv
rm vit/preprocessor_config.json
refuses "a folder of transformers that does not say how images are normalised" 65 "(vit: has no|.*) *preprocessor_config.json" lockstep predict vit in -o no.csv

# Masks, as PNG files with the images' names, whose pixels are classes.
# The masks of 6 images of 12 x 12: the class is 1 where a pixel is bright, 2 in the upper left quarter.
{ echo "0 0 8 3 0 0 0 6 0 0 0 12 0 0 0 12" | tr ' ' '\n'
  head -c 880 images.idx | tail -c +17 | od -An -v -tu1 -w1 | awk '{ i = (NR - 1) % 144; print (int(i / 12) < 6 && i % 12 < 6 ? 2 : ($1 > 110)) }'
} | bytes >classes.idx
printf '\0\0\10\1\0\0\0\6\0\1\2\0\1\2' >labels6.idx
succeeds "import of masks as images" lockstep data import idx classes.idx labels6.idx classes.h5
mkdir -p photos/one photos/two masks/one masks/two
for i in 0 1 2 3 4 5; do
  folder=$([ $((i % 2)) = 0 ] && echo one || echo two)
  lockstep data show images.h5 --index $i --to "photos/$folder/$i.png" >/dev/null
  lockstep data show classes.h5 --index $i --to "masks/$folder/$i.png" >/dev/null
done
succeeds "import of masks" lockstep data import images photos masks.h5 --masks masks
cat >masked.yaml <<'YAML'
run: {dir: masked}
train: {steps: 60}
batch: {global: 4, micro: 2}
model: {name: unet, levels: 1, width: 4}
optim: {lr: 0.02}
data: {path: masks.h5, validation: 0.2}
compute: {threads: 1}
YAML
succeeds "the run of masks" lockstep train masked.yaml
succeeds "masks" lockstep predict masked photos -o predicted
same "masks: a file each" "$(cd photos && find . -type f | sort)" "$(cd predicted && find . -type f | sort)"
expect "masks: PNG with a palette" grep -qa PLTE predicted/one/2.png
classes=$(lockstep data inspect masks.h5 --json 2>/dev/null | field classes)
expect "masks: of all classes" awk -v n="$(lockstep data import images photos as_targets.h5 --masks predicted 2>/dev/null | sed -n 's/^pixels per class: //p' | tr , '\n' | grep -c '[1-9]')" 'BEGIN { exit !(n == 3) }'
rm -f as_targets.h5
succeeds "the predicted masks as targets" lockstep data import images photos as_targets.h5 --masks predicted --classes "$classes"
succeeds "eval of them" lockstep eval masked data.path=as_targets.h5 --on all
same "eval of them: every pixel is right" 1.0 "$(field accuracy <out)"
succeeds "masks, on 2 ranks" lockstep predict masked photos -o again --ranks 2 --batch 1
expect "masks, on 2 ranks: the same bytes" diff -r predicted again
succeeds "masks as an array" lockstep predict masked photos -o masks.npy
expect "masks as an array: its shape" grep -qaE "'\|u1', 'fortran_order': False, 'shape': \(6, [0-9]+, [0-9]+\)" masks.npy
succeeds "masks of a dataset" lockstep predict masked masks.h5 -o numbered
same "masks of a dataset: numbered" "0.png 1.png 2.png 3.png 4.png 5.png" "$(cd numbered && echo ./*.png | sed 's#[.]/##g')"
for ((i = 0; i < classes; i++)); do echo "$((10 * i)) 200 $((255 - i)) class$i"; done >palette.txt
succeeds "masks in colours" lockstep predict masked photos -o coloured --palette palette.txt
succeeds "they are read by these colours" lockstep data import images photos by_colour.h5 --masks coloured --palette palette.txt
succeeds "eval by colours" lockstep eval masked data.path=by_colour.h5 --on all
same "eval by colours: every pixel is right" 1.0 "$(field accuracy <out)"
refuses "a folder that is there" 73 "predicted: is already there" lockstep predict masked photos -o predicted
refuses "masks on standard output" 64 "--output: name a folder" lockstep predict masked photos
refuses "masks into a file's name" 64 "--output no.csv: masks are not .csv but a folder with a PNG file for each image; name a folder, or FILE.npy" \
  lockstep predict masked photos -o no.csv
refuses "masks as CSV" 64 "--format csv: masks are written as png or npy" lockstep predict masked photos -o no --format csv
refuses "two masks of one name" 64 "two inputs have the name 2: predict them into different folders" lockstep predict masked photos/one/2.png photos/one/2.png -o no
echo 1 2 3 >one.txt
refuses "a palette of other classes" 64 "--palette: has 1 classes, but the run has 3" lockstep predict masked photos -o no --palette one.txt

head -c 300 in/colour/rgb.png >in/colour/broken.png
refuses "an image that is broken" 65 "in/colour/broken.png: " lockstep predict folder in -o no.csv
succeeds "an image that is broken, left out" lockstep predict folder in --skip-bad 1 --top all
expect "an image that is broken, left out: it is named" grep -q "warning: in/colour/broken.png: .*; left out" err
expect "an image that is broken, left out: the others' rows" cmp folder.csv out
refuses "more images that are broken" 65 "in/grey/also.png: .*1 bad images before it were left out" sh -c "cp in/colour/broken.png in/grey/also.png && '$binary' predict folder in --skip-bad 1 -o no.csv"
rm in/grey/also.png
succeeds "a layer of images" lockstep predict folder in/grey in/colour/rgb.jpg --layer blocks.0 -o layer.npy
expect "a layer of images: its shape" grep -qaE "'<f4', 'fortran_order': False, 'shape': \(5, [0-9]+, 16\)" layer.npy
mkdir empty
refuses "a folder without images" 65 "empty: holds no PNG or JPEG image" lockstep predict folder empty -o no.csv
refuses "a table for a run of images" 65 "folder.csv: is not an IDX file" lockstep predict folder folder.csv -o no.csv
refuses "columns of images" 64 "--keep is for the columns of tables" lockstep predict folder in --keep file -o no.csv
expect "nothing is left under the names" test -z "$(find . -name 'no.*' -o -name no)"
finish

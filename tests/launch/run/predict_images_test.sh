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
succeeds "export to transformers" lockstep checkpoint export folder vit --to hf
succeeds "a folder of transformers predicts" lockstep predict vit in -o again.csv --force --top all
expect "a folder of transformers predicts: the same bytes" cmp folder.csv again.csv
rm vit/preprocessor_config.json
refuses "a folder of transformers that does not say how images are normalised" 65 "(vit: has no|.*) *preprocessor_config.json" lockstep predict vit in -o no.csv

head -c 300 in/colour/rgb.png >in/colour/broken.png
refuses "an image that is broken" 65 "in/colour/broken.png: " lockstep predict folder in -o no.csv
mkdir empty
refuses "a folder without images" 65 "empty: holds no PNG or JPEG image" lockstep predict folder empty -o no.csv
refuses "a table for a run of images" 65 "folder.csv: is not an IDX file" lockstep predict folder folder.csv -o no.csv
refuses "columns of images" 64 "--keep is for the columns of tables" lockstep predict folder in --keep file -o no.csv
expect "nothing is left under the names" test -z "$(find . -name 'no.*')"
finish

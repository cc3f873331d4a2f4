#!/usr/bin/env bash
# Makes FOLDER/formats-N.tar.gz, files of every format as this version writes them, and FOLDER/formats-N.txt, what every later version must
# read from them (tests/launch/run/formats_test.sh). Run it, with a new N, in a version whose formats have changed; never change an earlier one.
# Usage: make.sh LOCKSTEP FOLDER N
set -euo pipefail
lockstep=$(realpath "$1") folder=$(realpath "$2") number=$3
tests=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/launch/formats/read.sh
. "$tests/launch/formats/read.sh"
mkdir "$work/formats" && cd "$work/formats"

# Datasets: one of each kind of sample.
awk 'BEGIN { x = 7; for (i = 0; i < 260; i++) { x = (x * 1103515245 + 12345) % 2147483648; printf "%s%s", substr("the cat sat on a mat ", x % 17 + 1, 4), i % 9 ? " " : "\n" } }' >text.txt
awk 'BEGIN { for (i = 0; i < 24; i++) printf "{\"t\": \"%s %d\", \"q\": \"so %d\", \"y\": \"%s\", \"r\": \"not %d\"}\n", substr("a longer text", i % 9 + 1), i, i % 5, i % 3 ? "no" : "yes", i }' >texts.jsonl
awk 'BEGIN { for (i = 0; i < 12; i++) printf "{\"m\": [{\"role\": \"user\", \"content\": \"%d\"}, {\"role\": \"assistant\", \"content\": \"%d\"}]}\n", i, i * i }' >chats.jsonl
awk 'BEGIN { print "a,b,c,y"; for (i = 0; i < 30; i++) printf "%d,%s,%.2f,%.1f\n", i * 7 % 11, i % 4 ? "x" : "z", i / 8, i * 2.5 + i % 3 }' >table.csv
images=$tests/data/images
mkdir -p photos/grey photos/colour mixed squares tiles
for i in 0 1; do
  for name in grey bits; do cp "$images/$name.png" "photos/grey/$name$i.png"; done
  for name in rgb palette; do cp "$images/$name.png" "photos/colour/$name$i.png"; done
done
for i in 0 1 2 3 4 5; do cp "$images/rgb.png" "squares/$i.png" && cp "$images/palette.png" "tiles/$i.png"; done
for i in 0 1 2 3 4 5; do echo "0 0.5 0.5 0.$((i + 1)) 0.2" >"mixed/$i.txt"; done
import() { "$lockstep" data import "$@" >/dev/null 2>"$work/err" || { echo "import $*:" && cat "$work/err" && exit 1; }; }
import text text.txt text.h5
import text text.txt bytes.h5 --level byte
"$lockstep" tokenizer train text.txt tokenizer.json --vocab-size 265 >/dev/null 2>&1
import text text.txt pairs_of_bytes.h5 --tokenizer tokenizer.json
import json texts.jsonl records.h5 --field t
import json texts.jsonl answers.h5 --prompt q --completion t
import json texts.jsonl preferred.h5 --chosen t --rejected r
import json texts.jsonl labelled.h5 --field t --label y
import json chats.jsonl chats.h5 --messages m --template plain
import json texts.jsonl pieces.h5 --field t --tokenizer "$tests/data/sentencepiece/unigram.model"
import csv table.csv table.h5 --label b
import csv table.csv numbers.h5 --target y
import images photos pixels.h5
import images photos encoded.h5 --keep-encoded
import images squares masks.h5 --masks tiles --classes 16
import images squares boxes.h5 --boxes mixed
cp "$tests/data/foreign/foreign.h5" .
rm -r photos mixed squares tiles text.txt texts.jsonl chats.jsonl table.csv

# Runs of four steps, with a checkpoint after each two.
{
  echo "gpt text.h5 gpt data.context=8"
  echo "sharded_optimizer text.h5 gpt data.context=8 sharding.level=optimizer --ranks 2"
  echo "sharded_gradients text.h5 gpt data.context=8 sharding.level=gradients --ranks 2"
  echo "sharded_parameters text.h5 gpt data.context=8 sharding.level=parameters sharding.group=1 --ranks 2"
  for optimizer in sgd adam adamw8bit lamb lion muon; do echo "$optimizer text.h5 gpt data.context=8 optim.name=$optimizer"; done
  echo "bf16 text.h5 gpt data.context=8 precision.compute=bf16"
  echo "fp16 text.h5 gpt data.context=8 precision.compute=fp16"
  echo "ema text.h5 gpt data.context=8 optim.ema=0.9 train.eval_ema=true"
  echo "bytes bytes.h5 gpt data.context=8 optim.name=sgd"
  echo "pairs_of_bytes pairs_of_bytes.h5 llama data.context=8 model.kv_heads=1 optim.name=sgd"
  echo "packed records.h5 gpt data.context=24 data.packing=pack optim.name=sgd"
  echo "padded answers.h5 gpt data.context=24 data.packing=pad data.buckets=3 optim.name=sgd"
  echo "preferred preferred.h5 gpt data.context=24 data.packing=pad optim.name=sgd"
  echo "chats chats.h5 gpt data.context=40 data.packing=pack optim.name=sgd"
  echo "pieces pieces.h5 gpt data.context=8"
  echo "hidden text.h5 bert data.context=8 data.mask=0.3 optim.name=sgd"
  echo "labelled labelled.h5 bert data.context=16 optim.name=sgd"
  echo "lstm text.h5 lstm data.context=8 optim.name=sgd"
  echo "table table.h5 mlp model.hidden=[4]"
  echo "numbers numbers.h5 mlp model.hidden=[4]"
  echo "foreign foreign.h5 mlp model.hidden=[4] data.hdf5.samples=/features/double data.hdf5.labels=/labels"
  echo "pixels pixels.h5 convnet model.channels=[2] model.hidden=4 data.image.height=8 data.image.width=8"
  echo "encoded encoded.h5 resnet data.image.height=32 data.image.width=32 model.width=1 model.stem=small batch.micro=2 optim.name=sgd"
  echo "masks masks.h5 unet model.levels=1 model.width=2 data.image.height=8 data.image.width=8"
  echo "gan pixels.h5 gan model.latent=4 model.width=4 data.image.height=8 data.image.width=8 optim.ema=0.9"
  echo "lora text.h5 - data.context=8 lora.rank=2 lora.targets=['*.qkv'] init.from=hf"
} >runs.txt
while read -r name data model keys; do
  if [ "$model" = - ]; then "$lockstep" checkpoint export gpt hf --to hf >/dev/null 2>&1; fi
  {
    printf 'seed: 3\nrun: {dir: %s}\ntrain: {steps: 4}\nbatch: {global: 4, micro: 1}\noptim: {lr: 0.01}\ncheckpoint: {every: 2, keep_last: 1}\n' "$name"
    printf 'data: {path: %s, validation: 0.25}\ncompute: {threads: 1}\n' "$data"
    if [ "$model" != - ]; then printf 'model: {name: %s' "$model"; fi
    case $model in gpt | bert | llama) printf ', layers: 1, heads: 2, width: 8' ;; lstm) printf ', layers: 1, width: 8' ;; esac
    if [ "$model" != - ]; then printf '}\n'; fi
  } >"$name.yaml"
  # shellcheck disable=SC2086  # keys are words
  "$lockstep" train "$name.yaml" $keys >"$work/out" 2>&1 || { echo "$name:" && tail -n 3 "$work/out"; exit 1; }
  find "$name" -maxdepth 1 -type f ! -name config.yaml -delete
  rm "$name.yaml"
done <runs.txt
"$lockstep" checkpoint export gpt weights.safetensors >/dev/null 2>&1
"$lockstep" checkpoint export gpt weights.npz >/dev/null 2>&1
"$lockstep" checkpoint export lora adapter --to peft >/dev/null 2>&1
cut -d ' ' -f 1 runs.txt >"$work/names" && mv "$work/names" runs.txt
find . -maxdepth 1 -name '*.h5' ! -name foreign.h5 -printf '%f\n' | sort >datasets.txt

cd "$work"
# The same bytes whenever it is made.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - formats | gzip -9n >"$folder/formats-$number.tar.gz"
cd formats
read_all "$lockstep" >"$folder/formats-$number.txt"

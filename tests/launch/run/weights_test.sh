#!/usr/bin/env bash
# Folders of Hugging Face's transformers: a run that starts from one takes its model from there and has the same bits at any number of ranks
# and shard level, also resumed; what it exports has the bits that it holds; and what cannot be loaded is refused with one line.
# Usage: weights_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
hf=$(cd "$OLDPWD" && cd "$(dirname "$0")/../../parity/hf" && pwd)
make_inputs
fine_config() { # FOLDER
  cat <<YAML
init: {from: $1}
run: {dir: run}
train: {steps: 4}
batch: {global: 8, micro: 1}
data: {path: text.h5, context: 16}
YAML
}
for model in gpt2 qwen3; do
  fine_config "$hf/$model" >fine.yaml
  succeeds "$model: one digest at every layout" lockstep prove fine.yaml --ranks 1,2,3,4 --steps 2 --resume
  expect "$model: it says so" grep -q '^one digest: ' out
  rm -rf run out.hf again
  succeeds "$model: it trains" lockstep train fine.yaml checkpoint.every=2
  whole=$(digest run)
  cp -r run killed && rm -rf killed/checkpoints/step-00000004
  succeeds "$model: resumed on other ranks" lockstep train fine.yaml run.dir=killed --resume --ranks 3 sharding.level=parameters
  same "$model: the digest of the resumed run" "$whole" "$(digest killed)"
  rm -rf killed
  # The model has more tokens than the text has characters: none of them comes.
  succeeds "$model: it continues a text" lockstep generate run --prompt the --tokens 40 --temperature 2
  expect "$model: by as many characters" test "$(wc -m <out)" -eq 44

  # Out and in again, without a step: the same parameters.
  succeeds "$model: it is exported" lockstep checkpoint export run out.hf --to hf
  expect "$model: as a folder" test -f out.hf/config.json -a -f out.hf/model.safetensors -a -f out.hf/generation_config.json
  refuses "$model: not over a folder" 73 "out.hf: is already there" lockstep checkpoint export run out.hf --to hf
  fine_config "$PWD/out.hf" >again.yaml
  succeeds "$model: it is read again" lockstep train again.yaml run.dir=again train.steps=0 --ranks 2 sharding.level=parameters
  run lockstep checkpoint diff run again
  expect "$model: all parameters are compared" test "$(grep -c '^parameters/' out)" -gt 20
  expect "$model: they have the same bits" test "$(grep '^parameters/' out | grep -vc ': equal$')" -eq 0
done

# One model in other formats, and a run from each: the same parameters.
succeeds "a folder is converted for llm.c" lockstep checkpoint convert "$hf/gpt2" gpt2.bin --to llmc
succeeds "and in bf16" lockstep checkpoint convert "$hf/gpt2" half.bin --to llmc-bf16
expect "which takes about half" test "$(($(wc -c <gpt2.bin) - 1024))" -eq "$((2 * ($(wc -c <half.bin) - 1024)))"
succeeds "a folder becomes a file with our names" lockstep checkpoint convert "$hf/gpt2" own.safetensors
succeeds "a file of llm.c becomes a folder" lockstep checkpoint convert gpt2.bin gpt2.hf --to hf
fine_config "$hf/gpt2" >fine.yaml
succeeds "a run from the folder" lockstep train fine.yaml run.dir=folder train.steps=0
succeeds "and an archive of NumPy" lockstep checkpoint convert "$hf/gpt2" own.npz
for from in gpt2.bin gpt2.hf own.safetensors own.npz; do
  options=()
  if [ "${from%%.*}" = own ]; then # says nothing of the model
    options=(model.name=gpt model.layers=2 model.heads=4 model.width=16 model.vocabulary=29 model.positions=24)
  fi
  succeeds "a run from $from" lockstep train fine.yaml init.from=$from run.dir=from.$from train.steps=0 --ranks 2 sharding.level=parameters \
    "${options[@]}"
  run lockstep checkpoint diff folder "from.$from"
  expect "$from: they have the same bits" test "$(grep '^parameters/' out | grep -vc ': equal$')" -eq 0
done
succeeds "a run is exported for llm.c" lockstep checkpoint export folder run.bin --to llmc
expect "with the same bytes" cmp -s run.bin gpt2.bin
succeeds "and as an archive of NumPy" lockstep checkpoint export folder run.npz
expect "with the same bytes" cmp -s run.npz own.npz
refuses "not over a file" 73 "run.npz: is already there" lockstep checkpoint export folder run.npz --to npz
refuses "another model for llm.c" 65 "$hf/qwen3: is a qwen3 model; files of llm.c hold GPT-2" lockstep checkpoint convert "$hf/qwen3" q.bin --to llmc
refuses "a file that says no model" 64 "own.safetensors: does not say which model it is" lockstep checkpoint convert own.safetensors x.h5
refuses "a format that is none" 64 "--to: pt is none of h5, safetensors, npz, hf, hf-bf16, llmc, llmc-bf16" lockstep checkpoint convert gpt2.bin x --to pt
for name in x.gguf x x.h5/y; do
  refuses "a name that says no format: $name" 64 "$name: its name does not end in .*by --to, one of h5, safetensors, npz, hf, hf-bf16, llmc, llmc-bf16, peft" \
    lockstep checkpoint export folder "$name"
done
refuses "and of another program's model" 64 "x.gguf: its name does not end in " lockstep checkpoint convert "$hf/gpt2" x.gguf
expect "and nothing is written" test ! -e x.gguf -a ! -e x
succeeds "a name that says HDF5" lockstep checkpoint export folder x.hdf5
truncate -s -4 own.npz
refuses "a truncated archive" 65 "own.npz: does not end as an archive without comment does" lockstep train fine.yaml init.from=own.npz run.dir=never
truncate -s -4 gpt2.bin
refuses "a truncated file of llm.c" 65 "gpt2.bin: has [0-9]* bytes; by its header it has .*: truncated or damaged" \
  lockstep train fine.yaml init.from=gpt2.bin run.dir=never

# What does not fit.
fine_config "$hf/gpt2" >fine.yaml
refuses "a key that contradicts" 78 "override 1 .*: model.layers: 3, but by $hf/gpt2/config.json it is 2" \
  lockstep train fine.yaml model.layers=3
refuses "a context beyond its positions" 78 "model.positions: 24 are fewer than the 25 tokens of a sample" \
  lockstep train fine.yaml data.context=25
# What goes along from the folder of a model is never what a link in it leads to.
cp -r "$hf/gpt2" from && chmod -R u+w from
fine_config from >fine.yaml
succeeds "a run whose export has companions" lockstep train fine.yaml run.dir=companions train.steps=0
secret() { # WHAT LINE
  refuses "$1" 65 "from/preprocessor_config.json: is $2, and would be copied into the export" lockstep checkpoint export companions linked.hf --to hf
  expect "$1: nothing is left" test -z "$(compgen -G 'linked.hf*')"
  rm -f from/preprocessor_config.json
}
ln -s /etc/passwd from/preprocessor_config.json && secret "a link to another file" "a link to /etc/passwd"
ln -s ../../blobs/../secret from/preprocessor_config.json && secret "a link out of the cache" "a link to ../../blobs/../secret"
mkfifo from/preprocessor_config.json && secret "a FIFO" "no regular file"
# As Hugging Face's cache of downloads has it.
mkdir -p cache/snapshots cache/blobs
mv from cache/snapshots/0123
echo "a file" >cache/blobs/0a1b
ln -s ../../blobs/0a1b cache/snapshots/0123/preprocessor_config.json
fine_config cache/snapshots/0123 >fine.yaml
succeeds "a run from the cache" lockstep train fine.yaml run.dir=cached train.steps=0
succeeds "its export" lockstep checkpoint export cached linked.hf --to hf
same "the file of the cache" "a file" "$(cat linked.hf/preprocessor_config.json)"
ln -sf /etc/passwd cache/blobs/0a1b
refuses "a link in its blobs" 65 "cache/snapshots/0123/preprocessor_config.json: is a link to ../../blobs/0a1b" \
  lockstep checkpoint export cached again.hf --to hf

copy() { rm -rf bad && cp -r "$hf/$1" bad && chmod -R u+w bad && fine_config bad >fine.yaml; }
bad() { # WHAT REGEXP
  rm -rf never
  refuses "$1" 65 "$2" lockstep train fine.yaml run.dir=never
  rm -rf never
  refuses "$1, 3 ranks" 65 "(rank 0 on [^ ]*: )?$2" lockstep train fine.yaml run.dir=never --ranks 3
  rm -rf never
  run lockstep check fine.yaml run.dir=never
  expect "$1, check: exit 65" test "$code" -eq 65
  expect "$1, check: $2" grep -qE "^error +(model|configuration) +$2" out
}
copy gpt2 && sed -i 's/gelu_new/relu/' bad/config.json
bad "an activation" "bad/config.json: activation_function: relu is not supported"
copy gpt2 && sed -i 's/"n_layer": 2/"n_layer": 3/' bad/config.json
bad "missing tensors" "bad: its tensors are not those of this gpt2 model: transformer.h.2.ln_1.weight is missing; .*; and 7 more"
copy gpt2 && sed -i 's/"n_layer": 2/"n_layer": 1/' bad/config.json
bad "extra tensors" "bad: its tensors are .*: transformer.h.1.[a-z_0-9.]* \[[0-9, ]*\] is only there; .*; and 7 more"
copy gpt2 && truncate -s -4 bad/model.safetensors
bad "a truncated file" "bad/model.safetensors: its tensors end at byte"
copy gpt2 && echo '{' >bad/config.json
bad "a broken config.json" "bad/config.json: is no JSON object"
finish

#!/usr/bin/env bash
# What a user does with the program that goes well: help, keys, import, training, evaluation, generation, and what a run leaves.
# Usage: commands_test.sh LOCKSTEP [MPIRUN]
page=$(realpath "$(dirname "$0")/../../../docs/command-line.md")
configs=$(realpath "$(dirname "$0")/../../../configs")
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh"

succeeds "--help" lockstep --help
cp out help
# All commands and their forms, as the program itself lists them; the page has each, too.
succeeds "its commands" lockstep completion candidates ""
mapfile -t commands < <(sed -n 's/\t.*//p' out)
expect "its commands are many" test "${#commands[@]}" -ge 20
for command in "${commands[@]}"; do
  expect "--help lists $command" grep -qE "^  lockstep $command( |$)" help
  expect "docs/command-line.md has $command" grep -qE "^\|.*\`(lockstep )?${command}[ \`].*\|" "$page"
  succeeds "$command --help" lockstep "$command" --help
  mapfile -t forms < <(sed -nE 's/^(usage:|      ) lockstep ([a-z]+( [a-z]+)?)( .*)?$/\2/p' out)
  expect "$command has forms" test "${#forms[@]}" -ge 1
  for form in "${forms[@]}"; do
    # shellcheck disable=SC2086  # two words
    succeeds "$form --help" lockstep $form --help
    expect "$form --help: usage" grep -qE "^usage: lockstep $form( |$)" out
    expect "$form --help: options" grep -q -- '--help' out
    if [ "$form" = "$command" ]; then continue; fi
    expect "docs/command-line.md has $form" grep -qE "^\|.*\`lockstep ${command}([ \`].*)?[\` ]${form##* }[\`, ]" "$page"
  done
done
succeeds "data --help" lockstep data --help
succeeds "--version" lockstep --version
expect "--version" grep -qE '^lockstep [0-9]+\.[0-9]+\.[0-9]+$' out
for format in text json llmc megatron idx images csv npy; do
  succeeds "data import $format --help" lockstep data import "$format" --help
  expect "data import $format --help: usage" grep -qE "^usage: lockstep data import $format INPUT" out
  expect "data import $format --help: no other format's options" bash -c "! grep -qE '^  --$([ "$format" = csv ] && echo field || echo categories) ' out"
done
expect "data import npy --help: its own options" grep -qE '^  --layout AXES ' out
run lockstep data import tekst --help
expect "data import FORMAT --help: no such format: exit 64" test "$code" -eq 64
expect "data import FORMAT --help: no such format" grep -qF "there is no 'tekst'; did you mean text?" err
refuses "data import: an option of another format" 64 'data import npy: --threads is for text, json, images, webdataset, csv, parquet; ' lockstep data import npy a.npz b.h5 --threads 2
run lockstep train a.yaml --learning-rate 1
expect "an option that is a key: exit 64" test "$code" -eq 64
expect "an option that is a key" grep -qF "'--learning-rate'; a key of the configuration is given as optim.lr=VALUE" err
refuses "no such command" 64 "there is no command 'trian'; did you mean train\?" lockstep trian
run lockstep train
expect "train without a file: exit 64" test "$code" -eq 64
expect "train without a file: usage" grep -q '^usage: lockstep train FILE.yaml' err
run lockstep train a.yaml --rank 2
expect "an unknown option: exit 64" test "$code" -eq 64

# Devices.
succeeds "devices" lockstep devices
expect "devices: the CPU" grep -qE '^cpu +[0-9]+ cores?, ' out
expect "devices: GPUs, or why there are none" grep -qE '^(cuda:0  |no GPU: ..)' out
with_gpu=$(grep -c '^cuda:' out || true)
succeeds "devices --json" lockstep devices --json
same "devices --json: a line each" "$((1 + (with_gpu > 0 ? with_gpu : 1)))" "$(grep -c '^{"device":' out)"

# Data.
make_text text.txt 2300
succeeds "import text" lockstep data import text text.txt text.h5
expect "import text: what it made" grep -q '^tokens: *'"$(wc -c <text.txt)"'$' out
expect "import text: its check counts tokens" grep -qE 'check ([0-9]+)/\1 tokens' err
identity=$(sed -n 's/^identity: *//p' out)
succeeds "inspect" lockstep data inspect text.h5
expect "inspect: the same identity" grep -q "^identity: *$identity\$" out
expect "inspect: whole" grep -q 'all whole' out
split -n l/2 text.txt part.
succeeds "import of two files" lockstep data import text part.aa part.ab joined.h5
expect "two files are one text" grep -q "^identity: *$identity\$" out
succeeds "import of bytes" lockstep data import text text.txt bytes.h5 --level byte
expect "bytes: 256 tokens" grep -q '^vocabulary: *256$' out
make_images images.idx labels.idx 200 12
gzip -k images.idx labels.idx
succeeds "import idx" lockstep data import idx images.idx labels.idx images.h5
expect "import idx: its check counts images" grep -qF 'check 200/200 images' err
expect "import idx: shape" grep -qF '[12, 12, 1]' out
identity=$(sed -n 's/^identity: *//p' out)
succeeds "import idx, gzipped" lockstep data import idx images.idx.gz labels.idx.gz gzipped.h5
expect "gzipped: the same identity" grep -q "^identity: *$identity\$" out

# Configuration.
text_config >text.yaml
images_config >images.yaml
succeeds "config keys" lockstep config keys
for key in seed run.dir train.steps batch.global batch.micro model.name optim.name optim.lr data.path checkpoint.every compute.threads \
  reduce; do
  expect "config keys: $key" grep -qE "^$key( |\$)" out
done
succeeds "config keys of a section" lockstep config keys schedule
same "config keys of a section: its keys alone" schedule "$(sed '1d; s/\..*//' out | sort -u)"
refuses "config keys: no such prefix" 64 "lockstep config keys: no key begins with 'optm'; did you mean optim\?" lockstep config keys optm
if command -v script >/dev/null; then # on a terminal
  run script -qec "stty cols 60; '$binary' config keys" /dev/null
  expect "config keys on a terminal: all" grep -q '^verify.every: integer, steps' out
  same "config keys on a terminal: lines of its width" 0 "$(tr -d '\r' <out | awk 'length > 60' | wc -l)"
fi
run lockstep train text.yaml learning_rate=1 gradient_accumulation_steps=2 'fp16={enabled: true}' run.dir=never
expect "keys of other programs: exit 78" test "$code" -eq 78
for ours in 'learning_rate; did you mean optim.lr' 'gradient_accumulation_steps; did you mean batch.micro' 'fp16; did you mean precision.compute'; do
  expect "keys of other programs: $ours" grep -qF "unknown key $ours" err
done
succeeds "config keys --json" lockstep config keys --json
expect "config keys --json: one list" grep -q '^\[' out
succeeds "config schema" lockstep config schema
expect "config schema: its draft" grep -qF json-schema.org/draft-07/schema out
succeeds "config show" lockstep config show text.yaml optim.lr=0.5 data.path=other.h5
cp out shown.yaml
expect "config show: an override's origin" grep -qE '^ *lr: 0\.5 .*override' out
expect "config show: a default's origin" grep -qE '^ *beta1: 0\.9 .*default' out
succeeds "config show of what it showed" lockstep config show shown.yaml
same "config show: the same values again" "$(sed 's/ *#.*//' shown.yaml)" "$(sed 's/ *#.*//' out)"

# A run and what it leaves.
succeeds "train" lockstep train text.yaml run.dir=run checkpoint.every=10 train.eval_every=15
for file in config.yaml metrics.jsonl log.txt checkpoints/step-00000030/manifest.json; do
  if ! [ -s "run/$file" ]; then problem "train leaves no $file"; fi
done
if ! compgen -G 'run/tensorboard/events.out.tfevents.*' >/dev/null; then problem "train leaves no TensorBoard file"; fi
same "the newest 2 checkpoints stay" "step-00000020 step-00000030" "$(find run/checkpoints -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | xargs)"
same "metrics: a line a step" 30 "$(wc -l <run/metrics.jsonl)"
succeeds "keep_every" lockstep train text.yaml run.dir=kept checkpoint.every=5 checkpoint.keep_last=1 checkpoint.keep_every=10
same "the newest and multiples of 10 stay" "step-00000010 step-00000020 step-00000030" "$(find kept/checkpoints -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | xargs)"
for key in step loss lr grad_norm tokens_per_s step_ms data_ms forward_ms backward_ms comm_ms optimizer_ms; do
  same "metrics: $key in each line" 30 "$(field "$key" <run/metrics.jsonl | wc -l)"
done
same "metrics: steps" "$(seq 30)" "$(field step <run/metrics.jsonl)"
same "metrics: two validation losses" 2 "$(field val_loss <run/metrics.jsonl | wc -l)"
first=$(field loss <run/metrics.jsonl | head -n 1)
last=$(field loss <run/metrics.jsonl | tail -n 1)
if ! awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < a - 0.3) }'; then problem "the loss does not fall: $first to $last"; fi
succeeds "the resolved configuration is one" lockstep config show run/config.yaml
succeeds "train on images" lockstep train images.yaml run.dir=images
same "metrics: images_per_s" 30 "$(field images_per_s <images/metrics.jsonl | wc -l)"

succeeds "eval" lockstep eval run
tail -n 1 out >line
expect "eval ends with one JSON line" grep -qE '^\{.*"loss":[0-9.]+.*\}$' line
same "eval: the loss of the run's end" "$(field val_loss <run/metrics.jsonl | tail -n 1)" "$(field loss <line)"
succeeds "eval of a checkpoint, on 3 ranks" lockstep eval run/checkpoints/step-00000030 --ranks 3
tail -n 1 out >three
same "eval: the same bits on 3 ranks" "$(field loss <line)" "$(field loss <three)"
succeeds "eval of images" lockstep eval images
expect "eval of images: accuracy" grep -qE '"accuracy":(0\.|1)' out

succeeds "generate" lockstep generate run --prompt "the cat" --tokens 40
expect "generate begins with the prompt" grep -q '^the cat' out
same "generate: length" 48 "$(wc -c <out)"
cp out first
succeeds "generate again" lockstep generate run --prompt "the cat" --tokens 40
expect "generate: the same seed, the same text" cmp -s out first
succeeds "generate, another seed" lockstep generate run --prompt "the cat" --tokens 40 --seed 2
if cmp -s out first; then problem "generate: another seed gives the same text"; fi
printf 'the cat\ncat on\na\n' >prompts
succeeds "generate from a file" lockstep generate run --prompts prompts --tokens 60 --batch 2 --stop " "
cp out first
same "generate from a file: a line each" 3 "$(wc -l <first)"
for more in "--batch 1" "--batch 3 --no-cache"; do
  # shellcheck disable=SC2086  # two words
  succeeds "generate from a file, $more" lockstep generate run --prompts prompts --tokens 60 --stop " " $more
  expect "generate from a file, $more: the same text" cmp -s out first
done
succeeds "generate until a stop" lockstep generate run --prompt "cat on" --tokens 60 --stop " "
same "generate: alone as from a file" "$(printf '%b' "$(sed -n 2p first | sed -E 's/.*"text":"([^"]*)".*/cat on\1/')")" "$(cat out)"
printf 'cat\n\nthe\n' >prompts
refuses "generate: an empty line" 65 'prompts: line 2 is empty' lockstep generate run --prompts prompts
printf 'cat\nZebra\n' >prompts
refuses "generate: an unknown character" 65 "prompts: line 2: .*'Z'" lockstep generate run --prompts prompts
expect "generate: nothing before an error" test ! -s out
refuses "generate: no such file" 66 '--prompts no_prompts: cannot be opened' lockstep generate run --prompts no_prompts
refuses "generate: --top-p" 64 '--top-p 1.5: must be in \[0, 1\]' lockstep generate run --top-p 1.5
refuses "generate of images" 64 'images/checkpoints/step-00000030: was not trained on text' lockstep generate images

succeeds "checkpoint inspect" lockstep checkpoint inspect run
expect "checkpoint inspect: a parameter with its shape" grep -qE '^fp32 \[32, 128\] +parameters/blocks\.1\.down\.weight' out
succeeds "checkpoint digest" lockstep checkpoint digest run
tail -n 1 out >digest
expect "checkpoint digest: 32 digits alone on the last line" grep -qxE '[0-9a-f]{32}' digest
succeeds "digest of the checkpoint itself" lockstep checkpoint digest run/checkpoints/step-00000030
same "a run's digest is its newest checkpoint's" "$(cat digest)" "$(tail -n 1 out)"

succeeds "checkpoint verify of a run" lockstep checkpoint verify run
same "it looks at each checkpoint" 2 "$(grep -c '^whole ' out)"
mkdir bare
refuses "checkpoint verify where there is none" 66 'bare: holds no checkpoint' lockstep checkpoint verify bare
# A damaged checkpoint is passed over, and takes no whole one's place.
succeeds "a run to damage" lockstep train text.yaml run.dir=worn train.steps=8 schedule.steps=9 train.eval_every=0 checkpoint.every=2
truncate -s -64 worn/checkpoints/step-00000008/part-*
succeeds "it goes on from the one before" lockstep train text.yaml run.dir=worn train.steps=9 train.eval_every=0 checkpoint.every=9 --resume
expect "it says so" grep -q 'passed over is now .*damaged-step-00000008' err
same "what is kept" "damaged-step-00000008 step-00000006 step-00000009" "$(ls worn/checkpoints | xargs)"
succeeds "the same run on 3 ranks" lockstep train text.yaml run.dir=ranks checkpoint.every=10 train.eval_every=15 --ranks 3
succeeds "checkpoint diff of two layouts" lockstep checkpoint diff run ranks
expect "checkpoint diff: equal" grep -qx 'equal' out
run lockstep checkpoint diff run ranks/checkpoints/step-00000020
expect "checkpoint diff of two steps: exit 1" test "$code" -eq 1
expect "checkpoint diff: the step" grep -qx 'step: 30 in A, 20 in B' out
expect "checkpoint diff: a tensor" grep -qE '^parameters/blocks\.1\.down\.weight \[32, 128\]: [0-9]+ of 4096 elements differ, by 0\.[0-9e-]+ at most; the first at \[' out
succeeds "checkpoint export" lockstep checkpoint export ranks exported.h5
refuses "checkpoint export to a file that is there" 73 'exported.h5: is already there' lockstep checkpoint export ranks exported.h5

# Averages of the parameters.
succeeds "train with averages" lockstep train text.yaml run.dir=averaged optim.ema=0.9 train.eval_ema=true checkpoint.every=30 --ranks 2
same "eval: averages change no parameter" "$(lockstep eval run | field loss)" "$(lockstep eval averaged | field loss)"
same "eval --ema: what train.eval_ema measured" "$(field val_loss <averaged/metrics.jsonl | tail -n 1)" "$(lockstep eval averaged --ema | field loss)"
expect "eval --ema: another loss" test "$(lockstep eval averaged --ema | field loss)" != "$(lockstep eval averaged | field loss)"
refuses "eval --ema without averages" 78 'run/checkpoints/step-00000030: has no averages of its parameters' lockstep eval run --ema
succeeds "checkpoint export --ema" lockstep checkpoint export averaged averages.h5 --ema
refuses "checkpoint export --ema without averages" 78 '.*has no averages of its parameters.*' lockstep checkpoint export run none.h5 --ema
expect "checkpoint export --ema: nothing is left" test ! -e none.h5
succeeds "generate --ema" lockstep generate averaged --tokens 20 --ema
refuses "train.eval_ema without averages" 78 '.*train\.eval_ema: there are no averages' lockstep train text.yaml run.dir=no train.eval_ema=true
for run in run ranks; do
  for step in 10 20 30; do expect "the log says what saving took" grep -q "saved the checkpoint of step $step in " $run/log.txt; done
  for key in checkpoint_s checkpoint_stall_ms; do # the last one ends after the last line, a slow disk's others may
    expect "metrics: $key" test "$(field $key <$run/metrics.jsonl | wc -l)" -ge 1
  done
done

# Byte pairs: a tokenizer that was trained here goes along with the dataset and the checkpoint.
succeeds "tokenizer train" lockstep tokenizer train text.txt bpe.json --vocab-size 290 --threads 2
expect "tokenizer train: its size" grep -qx 'vocabulary: 290' out
refuses "tokenizer train to a file that is there" 73 'bpe.json: is already there' lockstep tokenizer train text.txt bpe.json --vocab-size 290
succeeds "tokenizer inspect" lockstep tokenizer inspect bpe.json --first 1
expect "tokenizer inspect: the special token" grep -qxF 'special token 289: <|endoftext|>' out
expect "tokenizer inspect: the first token" grep -qxF "token 0: '!'" out
succeeds "tokenizer encode" lockstep tokenizer encode bpe.json text.txt
same "tokenizer encode: fewer tokens than bytes" 1 "$(wc -w <out | awk -v bytes="$(wc -c <text.txt)" '{ print $1 < bytes / 2 }')"
mv out ids
succeeds "tokenizer decode" lockstep tokenizer decode bpe.json ids
expect "tokenizer decode: the text" cmp -s out text.txt
printf 'a\377<|endoftext|>' >odd.txt
refuses "tokenizer encode: no UTF-8" 65 'odd.txt: invalid UTF-8 at byte 1; ' lockstep tokenizer encode bpe.json odd.txt
succeeds "tokenizer encode of standard input, --invalid replace" lockstep tokenizer encode bpe.json - --invalid replace --special-tokens <odd.txt
same "it ends with the special token" 289 "$(awk '{ print $NF }' out)"
echo 290 >beyond
refuses "tokenizer decode: no such id" 65 'token 290 is not in a vocabulary of 290' lockstep tokenizer decode bpe.json beyond
succeeds "import with a tokenizer" lockstep data import text text.txt pairs.h5 --tokenizer bpe.json --separator '<|endoftext|>'
same "import with a tokenizer: the ids, and the separator" "tokens: $(($(wc -w <ids) + 1))" "$(grep '^tokens:' out)"
sed 's/"truncation":null/"truncation":{"max_length":5}/' bpe.json >cut.json
for command in "tokenizer encode cut.json text.txt" "data import text text.txt cut.h5 --tokenizer cut.json" \
  "data import json text.jsonl cut.h5 --tokenizer cut.json" "data import csv text.csv cut.h5 --text t --tokenizer cut.json"; do
  refuses "$command: truncation" 65 'cut.json: has "truncation": {"max_length":5}' lockstep $command
done
succeeds "tokenizer encode, whole texts" lockstep tokenizer encode cut.json text.txt --whole-texts
expect "whole texts: the same ids" cmp -s out ids
succeeds "tokenizer inspect: nothing is encoded" lockstep tokenizer inspect cut.json
refuses "import with a tokenizer: no such separator" 64 'the separator <|end|> is no added token' lockstep data import text text.txt no.h5 --tokenizer bpe.json --separator '<|end|>'
refuses "--separator with characters" 64 'data import text: --separator' lockstep data import text text.txt no.h5 --separator x
succeeds "train on byte pairs" lockstep train text.yaml run.dir=pairs data.path=pairs.h5 train.steps=10 schedule.steps=10 train.eval_every=10
rm bpe.json pairs.h5
for from in pairs pairs/checkpoints/step-00000010; do
  succeeds "tokenizer encode with $from" lockstep tokenizer encode $from text.txt
  expect "$from has the same tokenizer" cmp -s out ids
done
succeeds "import with a run's tokenizer" lockstep data import text text.txt again.h5 --tokenizer pairs
succeeds "eval of byte pairs" lockstep eval pairs data.path=again.h5
succeeds "generate of byte pairs" lockstep generate pairs --prompt "the cat" --tokens 20
expect "generate of byte pairs begins with the prompt" grep -q '^the cat' out
succeeds "export of byte pairs" lockstep checkpoint export pairs pairs.hf --to hf
cp again.h5 here.h5
succeeds "generate of byte pairs, the likeliest" lockstep generate pairs --prompt "the cat" --tokens 20 --temperature 0
cp out first
succeeds "generate of a folder of transformers" lockstep generate pairs.hf --prompt "the cat" --tokens 20 --temperature 0
expect "generate of a folder: the same text" cmp -s out first
succeeds "import with a folder's tokenizer" lockstep data import text text.txt there.h5 --tokenizer pairs.hf
same "import with a folder's tokenizer: the same tokens" "$(lockstep data inspect here.h5 | grep '^tokens:')" "$(lockstep data inspect there.h5 | grep '^tokens:')"
succeeds "export of byte pairs in bf16" lockstep checkpoint export pairs pairs.bf16 --to hf-bf16
bytes_of() { stat -c %s "$1/model.safetensors"; }
expect "export in bf16: half the size" test $((2 * $(bytes_of pairs.bf16) - $(bytes_of pairs.hf))) -lt 8192
expect "export in bf16: config.json says so" grep -q '"torch_dtype":"bfloat16"' pairs.bf16/config.json
succeeds "export in bf16 of what is in bf16" lockstep checkpoint convert pairs.bf16 again.bf16 --to hf-bf16
expect "export in bf16 of what is in bf16: the same weights" cmp -s pairs.bf16/model.safetensors again.bf16/model.safetensors
succeeds "generate of a folder in bf16" lockstep generate pairs.bf16 --prompt "the cat" --tokens 20 --temperature 0
refuses "generate of a folder: no averages" 64 '--ema: pairs.hf holds no averages' lockstep generate pairs.hf --ema
succeeds "a tokenizer with more tokens" lockstep tokenizer train text.txt more.json --vocab-size 300
succeeds "import with it" lockstep data import text text.txt more.h5 --tokenizer more.json
rows=$(grep -oE '"vocab_size": *[0-9]+' pairs.hf/config.json | grep -oE '[0-9]+')
refuses "more tokens than the folder's embedding has rows" 78 ".*init.from: the embedding of pairs.hf has $rows rows, and the data's tokenizer [0-9]+ tokens: there is no row for $rows '" \
  lockstep train text.yaml run.dir=no data.path=more.h5 init.from=pairs.hf
refuses "a path that is no UTF-8" 78 ".*not UTF-8, in which configurations are written; where that is the name of a file or folder, rename it" \
  lockstep train text.yaml run.dir=no data.path="$(printf 'caf\351.h5')"
rm pairs.hf/tokenizer.json
refuses "generate of a folder without a tokenizer" 66 'pairs.hf' lockstep generate pairs.hf
refuses "init.from with another vocabulary" 65 'run/checkpoints/step-00000030: was trained with another vocabulary .*tokens are characters there and byte pairs here' \
  lockstep train text.yaml run.dir=no data.path=again.h5 init.from=run

# init.from begins with the parameters of another run.
succeeds "init.from" lockstep train text.yaml run.dir=tuned init.from=run
same "init.from: begins where the other ended" 1 "$(field loss <tuned/metrics.jsonl | head -n 1 | awk -v b="$first" '{ print $1 < b - 0.3 }')"

succeeds "bench" lockstep bench text.yaml
# What a configuration of the repository says of itself is a command that is taken.
while read -r file rest; do
  # shellcheck disable=SC2086  # words
  succeeds "the command of $file" lockstep config show "$configs/${file#configs/}" ${rest}
done < <(sed -nE 's/^#   lockstep train ([a-z]+.*)/\1/p' "$configs"/*.yaml)

finish

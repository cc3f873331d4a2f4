#!/usr/bin/env bash
# Bad input from outside: each case ends with its documented exit code and one clear line that names file, line, key or index; and what
# was there before is whole. Usage: bad_input_test.sh LOCKSTEP MAKE_BAD_TOKENS
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$1"
make_bad_tokens=$2
make_inputs
succeeds "a good run" lockstep train text.yaml run.dir=good checkpoint.every=10
succeeds "a good run on images" lockstep train images.yaml run.dir=images
before=$(fingerprint good)
digest_before=$(digest good)

# Configuration: 78, with file and line, or the override.
sed 's/  width: 32/  widht: 32/' text.yaml >typo.yaml
refuses "unknown key" 78 'typo.yaml:13: unknown key model.widht; did you mean model.width\?' lockstep train typo.yaml run.dir=new
refuses "unknown key in an override" 78 'override 2 \(optim.rl=1\): unknown key optim.rl; did you mean optim.lr\?' \
  lockstep train text.yaml run.dir=new optim.rl=1
refuses "a key of an older version" 78 'override 2 \(checkpoint.keep=3\): unknown key checkpoint.keep; did you mean checkpoint.keep_last\?' \
  lockstep train text.yaml run.dir=new checkpoint.keep=3
sed 's/  lr: 0.003/  lr: fast/' text.yaml >type.yaml
refuses "wrong type" 78 "type.yaml:15: optim.lr: .*'fast'" lockstep train type.yaml run.dir=new
refuses "out of range" 78 'override 2 \(model.dropout=1.5\): model.dropout: ' lockstep train text.yaml run.dir=new model.dropout=1.5
refuses "no such choice" 78 'override 2 \(optim.name=adan\): .*adamw' lockstep train text.yaml run.dir=new optim.name=adan
refuses "key without effect" 78 'override 2 \(optim.momentum=0.9\): optim.momentum: key without effect in this run: .*optim.name: muon or sgd' \
  lockstep train text.yaml run.dir=new optim.momentum=0.9
refuses "key of another model" 78 'override 2 \(model.channels=\[3\]\): .*model.name: convnet' lockstep train text.yaml run.dir=new 'model.channels=[3]'
refuses "sharing of GPUs on CPUs" 78 '.*share_gpu: has no effect with device: cpu' lockstep train text.yaml run.dir=new device=cpu share_gpu=true
refuses "TF32 on CPUs" 78 '.*precision.tf32: has no effect with device: cpu' lockstep train text.yaml run.dir=new device=cpu precision.tf32=true
refuses "half a part of the loss" 78 '.*train.loss_rows: must be a multiple of 64' lockstep train text.yaml run.dir=new train.loss_rows=32
refuses "TF32 of bf16" 78 '.*precision.tf32: has an effect only with precision.compute: fp32' lockstep train text.yaml run.dir=new \
  precision.compute=bf16 precision.tf32=true
# Models that do not fit their data: before the first step, and nothing is written.
misfits() { # TEXT FILE keys...
  refuses "$1" 78 "$1.*" lockstep train "$2" run.dir=new "${@:3}"
}
sed -e '/^model:/,/^optim:/{/^optim:/!d}' text.yaml >tokens.yaml
sed -e '/^model:/,/^optim:/{/^optim:/!d}' images.yaml >pictures.yaml
misfits 'model.heads: 5 does not divide model.width: 32' tokens.yaml model.name=llama model.heads=5 model.width=32
misfits 'model.kv_heads: 3 does not divide model.heads: 4' tokens.yaml model.name=llama model.heads=4 model.kv_heads=3 model.width=32
misfits 'model.heads: 16 makes heads of width 3, but rotary' tokens.yaml model.name=llama model.heads=16 model.width=48
misfits '.*bert is bidirectional: .*set data.mask' tokens.yaml model.name=bert model.heads=4 model.width=32
misfits 'model.name: resnet needs images \[H, W, C\]' tokens.yaml model.name=resnet
misfits 'model.name: bert needs tokens' pictures.yaml model.name=bert
misfits 'model.levels: 4 halvings of images of' pictures.yaml model.name=unet model.levels=4
misfits 'model.depth: 20 is none of' pictures.yaml model.name=resnet model.depth=20
misfits 'model.low: 2 must be below' pictures.yaml model.name=gan model.low=2 model.high=1
misfits '.*did you mean resnet' pictures.yaml model.name=resnett
misfits 'module layer.*: batch norm of .*one value a channel has no variance' pictures.yaml model.name=resnet model.stem=large model.width=2 \
  batch.micro=1
printf 'seed: [1\n' >broken.yaml
refuses "no YAML" 78 'broken.yaml:[0-9]+' lockstep train broken.yaml
refuses "a shard group that does not divide the ranks" 78 'override [0-9] \(sharding.group=2\): sharding.group: 2 does not divide the 3 ranks' \
  lockstep train text.yaml run.dir=new --ranks 3 sharding.level=gradients sharding.group=2
refuses "a shard group without a level" 78 '.*sharding.group: has an effect only with a sharding.level above none' \
  lockstep train text.yaml run.dir=new --ranks 4 sharding.group=2
refuses "resharding below level parameters" 78 '.*sharding.reshard_after_forward: has an effect only with sharding.level: parameters' \
  lockstep train text.yaml run.dir=new --ranks 2 sharding.level=gradients sharding.reshard_after_forward=true
refuses "a limit below one block" 78 '(rank 0 on [^ ]+: )?override [0-9]+ \(sharding.gathered_limit=0.001\): sharding.gathered_limit: 0.001 MB are less than the .* MB that ' \
  lockstep train text.yaml run.dir=new --ranks 2 sharding.level=parameters comm.bucket=0 sharding.gathered_limit=0.001
refuses "recomputation of nothing" 78 '.*recompute.*: the model convnet has nothing of this kind' \
  lockstep train images.yaml run.dir=new recompute=block
refuses "batch.micro above batch.global" 78 'override 2 \(batch.micro=9\): batch.micro: 9 .* batch.global: 8' \
  lockstep train text.yaml run.dir=new batch.micro=9
refuses "batch.global of none" 78 'override 2 \(batch.global=0\): batch.global: ' lockstep train text.yaml run.dir=new batch.global=0
refuses "batch.global beyond the data" 78 '.*batch.global' lockstep train text.yaml run.dir=new batch.global=100000 batch.micro=1000
refuses "more ranks than micro-batches" 78 'text.yaml:8: batch.micro: 5 ranks are more than the 4 micro-batches' \
  lockstep train text.yaml run.dir=new --ranks 5
refuses "a batch that ranks cannot share" 78 'override 2 \(batch.micro=0\): batch.micro: .* 3 ranks' \
  lockstep train text.yaml run.dir=new batch.micro=0 --ranks 3
refuses "a rule that matches nothing" 78 '.*no_such_parameter' lockstep train text.yaml run.dir=new 'optim.rules=[{pattern: no_such_parameter, frozen: true}]'
refuses "a model that does not fit the data" 78 '.*convnet' lockstep train images.yaml run.dir=new data.path=text.h5 data.context=16
refuses "nothing to recompute" 78 'override 2 \(recompute=block\): .*convnet' lockstep train images.yaml run.dir=new recompute=block
refuses "context longer than the text" 78 '.*context' lockstep train text.yaml run.dir=new data.context=100000
refuses "--ranks 0.5" 64 '--ranks 0.5: ' lockstep train text.yaml --ranks 0.5

# Files: 66 where absent, 65 where wrong.
refuses "no configuration" 66 'cannot read the configuration nope.yaml: ' lockstep train nope.yaml
refuses "no dataset" 66 '.*nope.h5' lockstep train text.yaml run.dir=new data.path=nope.h5
refuses "no dataset, 2 ranks" 66 '.*nope.h5' lockstep train text.yaml run.dir=new data.path=nope.h5 --ranks 2
refuses "no run to evaluate" 66 '.*nope' lockstep eval nope
refuses "no run to digest" 66 '.*nope' lockstep checkpoint digest nope
refuses "no input to import" 66 'nope.txt: ' lockstep data import text nope.txt new.h5
head -c 5000 text.h5 >truncated.h5
refuses "truncated dataset" 65 'truncated.h5: .*truncated' lockstep train text.yaml run.dir=new data.path=truncated.h5
refuses "no HDF5 file" 65 'text.txt: is not an HDF5 file: import it first, `lockstep data import text text.txt text.h5`; --vocabulary RUN' lockstep train text.yaml run.dir=new data.path=text.txt
printf 'a,b\n1,2\n' >new.csv
refuses "a table" 65 'new.csv: is not an HDF5 file: import it first, `lockstep data import csv new.csv new.h5 --label COLUMN`; --like RUN' lockstep train text.yaml run.dir=new data.path=new.csv
refuses "inspect of a truncated dataset" 65 'truncated.h5: ' lockstep data inspect truncated.h5
: >empty.txt
refuses "empty text" 65 'empty.txt: ' lockstep data import text empty.txt new.h5
printf 'fine \xff' >latin.txt
refuses "text that is no UTF-8" 65 'latin.txt: .*5' lockstep data import text latin.txt new.h5
refuses "a label too few" 65 'labels.idx|images.idx' lockstep data import idx images.idx images.idx new.h5
make_images small.idx small_labels.idx 40 8
refuses "labels of other images" 65 '.*40' lockstep data import idx images.idx small_labels.idx new.h5
head -c 20000 images.idx >cut.idx
refuses "truncated images" 65 'cut.idx: ' lockstep data import idx cut.idx labels.idx new.h5
refuses "an output that is there" 73 'text.h5: .*--force' lockstep data import text text.txt text.h5
if [ -e new.h5 ]; then problem "a refused import leaves a file"; fi

# A byte of the tokens themselves flipped: the chunk's own bytes are found in the file by their value.
cp text.h5 flipped.h5
flip flipped.h5 "$(chunk_byte text.h5)"
refuses "flipped chunk" 65 'flipped.h5: .*tokens' lockstep train text.yaml run.dir=new data.path=flipped.h5
refuses "flipped chunk, 2 ranks" 65 '.*flipped.h5: .*tokens' lockstep train text.yaml run.dir=new data.path=flipped.h5 --ranks 2
cp images.h5 flipped_images.h5
flip flipped_images.h5 "$(chunk_byte images.h5)"
refuses "flipped images" 65 'flipped_images.h5: .*images' lockstep data inspect flipped_images.h5
cp text.h5 flipped.h5
flip flipped.h5 4200 # what HDF5 would parse
refuses "flipped metadata" 65 'flipped.h5: differs from its own hash' lockstep train text.yaml run.dir=new data.path=flipped.h5
"$make_bad_tokens" beyond.h5 4000 1234
refuses "token beyond the vocabulary" 65 'beyond.h5: token 1234 is 200, beyond the vocabulary of 10' \
  lockstep train text.yaml run.dir=new data.path=beyond.h5

# Other data, another model, another configuration than the run's.
lockstep data import idx small.idx small_labels.idx small.h5 >/dev/null 2>&1
refuses "evaluation on images of another shape" 65 'the images of the data are .8, 8, 1. .*, but images/checkpoints/step-00000030 was trained on .12, 12, 1.; data.image.height' \
  lockstep eval images data.path=small.h5 data.validation=0.5
refuses "init.from with images of another shape" 65 '.*parameters/fc1.weight is \[16, 128\] in the checkpoint' \
  lockstep train images.yaml run.dir=new2 data.path=small.h5 init.from=images
refuses "init.from another model" 65 '.*is of another model: parameters/blocks.0' lockstep train text.yaml run.dir=new3 model.width=64 init.from=good
refuses "resume with another lr" 78 'good/checkpoints/step-00000030: .*optim.lr was 0.003 and is 0.1' \
  lockstep train text.yaml run.dir=good optim.lr=0.1 train.steps=40 --resume
refuses "resume with another model" 78 'good/checkpoints/step-00000030: .*model.width was 32 and is 64' \
  lockstep train text.yaml run.dir=good model.width=64 train.steps=40 --resume
lockstep data import text text.yaml other.h5 >/dev/null 2>&1
refuses "resume with other data" 65 'good/checkpoints/step-00000030: was trained on other data' \
  lockstep train text.yaml run.dir=good data.path=other.h5 train.steps=40 --resume

# The run directory.
refuses "a run directory that holds a run" 73 'run.dir good already holds a run: add --resume' lockstep train text.yaml run.dir=good
mkdir readonly && chmod 555 readonly
# root may write anywhere, unless that one right is given up
give_up=()
if [ "$(id -u)" -eq 0 ]; then give_up=(setpriv --bounding-set=-dac_override --inh-caps=-dac_override); fi
refuses "a read-only run directory" 73 'cannot write readonly' "${give_up[@]}" "$binary" train text.yaml run.dir=readonly
refuses "a read-only place for it" 73 'cannot write readonly/run' "${give_up[@]}" "$binary" train text.yaml run.dir=readonly/run
refuses "a file in its place" 73 'cannot write text.txt' lockstep train text.yaml run.dir=text.txt
mkdir foreign && echo 'mine: 1' >foreign/config.yaml
refuses "a directory of something else" 73 'foreign/config.yaml .*choose another' lockstep train text.yaml run.dir=foreign
same "a directory of something else is untouched" "mine: 1" "$(cat foreign/config.yaml)"

"$binary" train text.yaml run.dir=busy train.steps=1000000 >/dev/null 2>&1 &
owner=$!
until [ -s busy/metrics.jsonl ]; do sleep 0.02; done
refuses "a second launch" 73 "run.dir busy is in use by process $owner " lockstep train text.yaml run.dir=busy
refuses "a second launch with --resume" 73 "run.dir busy is in use by process $owner " lockstep train text.yaml run.dir=busy --resume
kill -9 "$owner"
wait "$owner" 2>/dev/null || true
run lockstep train text.yaml run.dir=busy train.steps=1 --resume
expect "the lock of a killed run is no obstacle" test "$code" -eq 0

# A full disk: no file grows beyond so many KiB. The first checkpoint fits, the later and larger metrics and checkpoints do not.
full_disk() { # KiB command...
  # shellcheck disable=SC2317  # called by name
  (trap '' XFSZ && ulimit -f "$1" && "$binary" "${@:2}")
}
refuses "a full disk" 74 '.*(write|space|large|full)' full_disk 100 train text.yaml run.dir=full
if [ -n "$(ls -A full/checkpoints)" ]; then problem "a full disk: something torn stays: $(ls -A full/checkpoints)"; fi
refuses "a full disk while importing" 74 '.*new.h5' full_disk 8 data import text text.txt new.h5
if compgen -G 'new.h5*' >/dev/null || compgen -G '.new.h5*' >/dev/null; then problem "a full disk while importing: something torn stays"; fi
succeeds "a run to be continued" lockstep train text.yaml run.dir=part train.steps=10 schedule.steps=20
part=$(fingerprint part/checkpoints)
run full_disk 100 train text.yaml run.dir=part train.steps=20 schedule.steps=20 --resume
expect "a disk that fills: exit 74" test "$code" -eq 74
same "a disk that fills: the earlier checkpoint is whole" "$part" "$(fingerprint part/checkpoints)"
succeeds "a disk with room again" lockstep train text.yaml run.dir=part train.steps=20 schedule.steps=20 --resume
succeeds "never full" lockstep train text.yaml run.dir=never train.steps=20 schedule.steps=20
same "a disk that filled: the same run in the end" "$(digest never)" "$(digest part)"

# An import that is stopped leaves what the same command goes on with, and no output. Its input is a sparse file, large
# enough that the signal finds it at work.
truncate -s 20G sparse.txt
"$binary" data import text sparse.txt stopped.h5 --level byte >out 2>err &
pid=$!
until test -e stopped.h5.partial/journal || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
kill -s TERM "$pid"
code=0
wait "$pid" || code=$?
expect "a stopped import: exit 75" test "$code" -eq 75
expect "a stopped import says so" grep -q '^error: stopped.h5: the import was stopped on request' err
same "a stopped import leaves no other file" stopped.h5.partial "$(ls -d stopped.h5*)"
rm -r stopped.h5.partial
# One that waits for more of its input ends, too.
mkfifo quiet
"$binary" data import text - quiet.h5 --level byte <quiet >out 2>err &
pid=$!
exec 9>quiet
printf 'a beginning' >&9
until grep -q 'SigCgt:.*[4-7c-f]...$' "/proc/$pid/status" 2>/dev/null || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
kill -s TERM "$pid"
code=0
wait "$pid" || code=$?
exec 9>&-
expect "an import that waits for its input: exit 75" test "$code" -eq 75
expect "an import that waits for its input says so" grep -q '^error: .*stopped on request' err
expect "an import that waits for its input: no output" test ! -e quiet.h5
rm -rf quiet quiet.h5*
"$binary" data import text sparse.txt killed.h5 --level byte >out 2>err &
pid=$!
until test -e killed.h5.partial/journal || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
kill -s KILL "$pid"
wait "$pid" || true
same "a killed import leaves no other file" killed.h5.partial "$(ls -d killed.h5*)"
truncate -s 1M sparse.txt
succeeds "an import after a killed one" lockstep data import text sparse.txt killed.h5 --level byte
expect "an import after a killed one: says what it found" grep -q 'warning: killed.h5.partial: .*the import begins anew' err
same "an import after a killed one: nothing is left" killed.h5 "$(ls -d killed.h5*)"
rm sparse.txt killed.h5

# No GPU: 67, where there is none.
if lockstep devices | grep -q '^no GPU: '; then
  for ranks in 1 3; do
    refuses "a GPU for each of $ranks ranks that is not there" 67 '.*device: cuda, but no GPU can be used: ..' \
      lockstep train text.yaml run.dir=new device=cuda --ranks "$ranks"
  done
  succeeds "a GPU if there is one" lockstep train text.yaml run.dir=auto device=auto train.steps=2
fi

# Damaged checkpoints: the newest valid one is taken, and a warning names the other; none left: 65.
cp -r good damaged
newest=damaged/checkpoints/step-00000030
flip $newest/part-0000-of-0001.h5 "$(chunk_byte $newest/part-0000-of-0001.h5)"
run lockstep checkpoint digest damaged
expect "a flipped bit in a checkpoint: the one before" grep -q '^step 20 ' err
expect "a flipped bit in a checkpoint: a warning names it" grep -q 'warning: .*step-00000030' err
refuses "a flipped bit in a checkpoint" 65 "$newest.*" lockstep checkpoint digest $newest
refuses "verify names file and tensor" 65 "$newest/part-0000-of-0001.h5: (tensor|dataset '(parameters|adamw).*)" lockstep checkpoint verify damaged
run lockstep train text.yaml run.dir=damaged --resume
expect "resumes from the one before" test "$code" -eq 0
same "and ends the same" "$digest_before" "$(digest damaged)"
for c in damaged/checkpoints/*; do head -c 100 "$c/manifest.json" >m && cp m "$c/manifest.json"; done
refuses "no valid checkpoint" 65 'damaged.*' lockstep eval damaged

same "the good run is untouched" "$before" "$(fingerprint good)"
same "its digest too" "$digest_before" "$(digest good)"
if [ -e new/metrics.jsonl ] || compgen -G 'new/checkpoints/*' >/dev/null; then problem "refused runs left files: $(find new)"; fi
finish

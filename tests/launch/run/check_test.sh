#!/usr/bin/env bash
# `lockstep check`: names what would stop a run, with the exit code that training would have, and changes nothing. The case of a small disk
# needs a mount and is left out where that is not allowed.
# Usage: check_test.sh LOCKSTEP
if [ -z "${LOCKSTEP_OWN_MOUNTS:-}" ]; then
  export LOCKSTEP_OWN_MOUNTS=no
  for enter in "unshare --mount" "unshare --map-root-user --mount"; do
    if $enter mount -t tmpfs none /mnt 2>/dev/null; then LOCKSTEP_OWN_MOUNTS=yes exec $enter "$0" "$@"; fi
  done
fi
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$1"
make_inputs

finds() { # WHAT CODE 'REGEXP of the line' arguments of check...
  run lockstep check "${@:4}"
  if [ "$code" -ne "$2" ] || ! grep -qE -- "$3" out; then problem "$1: exit $2 was due, and a line like: $3" && show; fi
}
before=$(find . | sort)
finds "all is well" 0 '^ok +configuration +text.yaml: gpt, 30 steps of 4 micro-batches on 2 ranks$' text.yaml --ranks 2
expect "all is well: a line for each check" test "$(grep -c '^ok ' out)" -ge 7
expect "all is well: no error" test "$(grep -c '^error ' out)" -eq 0
for what in data model 'run directory' disk memory versions; do expect "all is well: $what" grep -q "^ok  *$what " out; done
finds "images" 0 '^ok +data +160 images' images.yaml
same "nothing is created" "$before" "$(find . ! -name out ! -name err | sort)"
succeeds "as JSON" lockstep check text.yaml --json
expect "as JSON: objects" test "$(grep -c '^{"check":".*","status":"\(ok\|warning\)","text":".*","code":0}$' out)" -eq "$(wc -l <out)"

finds "an unknown key" 78 '^error +configuration .*model.widht' text.yaml model.widht=3
finds "an unknown key: the rest says that it was not looked at" 78 '^ok +versions ' text.yaml model.widht=3
finds "values that do not fit" 78 '^error +configuration .*5 ranks are more than the 4 micro-batches' text.yaml --ranks 5
finds "no file" 66 '^error +configuration .*none.yaml' none.yaml
finds "ranks that wait" 0 '^warning +configuration .*do not divide evenly' text.yaml --ranks 3
finds "missing data" 66 '^error +data +none.h5: ' text.yaml data.path=none.h5
head -c 20000 text.h5 >torn.h5
finds "torn data" 65 '^error +data +torn.h5: ' text.yaml data.path=torn.h5
finds "the run directory is still looked at" 65 '^ok +run directory ' text.yaml data.path=torn.h5
sed '/heads\|layers\|width/d; s/name: gpt/name: convnet/' text.yaml >wrong.yaml
finds "another kind of data than the model reads" 78 '^error +model .*convnet needs images' wrong.yaml
# Batch norm of one value a channel: 161 images in batches of 8 leave one for the last step of an epoch.
make_images odd.idx odd_labels.idx 161 8
lockstep data import idx odd.idx odd_labels.idx odd.h5 >/dev/null 2>&1
printf 'seed: 1\nrun: {dir: norm}\ntrain: {epochs: 1}\nbatch: {global: 8, micro: 4}\nmodel: {name: resnet}\noptim: {lr: 0.01}\ndata: {path: odd.h5, validation: 0}\n' >norm.yaml
said='batch.micro: of 161 samples in steps of 8 and micro-batches of 4, one micro-batch of an epoch has a single sample: module .*batch norm.*, such as batch.'
finds "a last step that batch norm cannot compute" 78 "^error +model .*$said" norm.yaml
refuses "and in train, before the first step" 78 ".*$said" lockstep train norm.yaml
expect "of which nothing is there" test ! -s norm/metrics.jsonl
succeeds "with the size that it names" lockstep train norm.yaml "$(grep -oE 'batch\.(micro|global)=[0-9]+' err | head -n 1)"

finds "no GPU" 67 '^error +device .*device: cuda' text.yaml device=cuda
sed '/path:/d' images.yaml >large.yaml
keys=(data.name=synthetic_images data.synthetic.height=2048 data.synthetic.width=2048 batch.global=8000 batch.micro=8000 device=cpu)
finds "too little memory" 67 '^error +memory .* need .* TiB, and .* are free; activations take most' large.yaml "${keys[@]}"
finds "a watch of no module" 78 "^error +model .*train.watch: .nothing. matches no module" text.yaml 'train.watch=[nothing]'
finds "a recorded step on a CPU" 78 "^error +device .*graph: only a GPU.s work can be recorded" text.yaml graph=true
finds "many ranks on a machine" 0 '^warning +device .*more threads than cores' text.yaml batch.global=512 batch.micro=1 --ranks 512
finds "few of them on each machine" 0 '^ok +memory .*for the rank' text.yaml batch.global=512 batch.micro=1 --ranks 512 --per-machine 1

succeeds "a run" lockstep train text.yaml train.steps=3 checkpoint.every=2 schedule.steps=30
finds "the directory holds a run" 73 '^error +run directory .*already holds a run' text.yaml
finds "it goes on" 0 '^ok +model .*goes on from run/checkpoints/step-00000003' text.yaml --resume
finds "with another configuration" 78 '^error +model .*cannot be resumed.*model.heads was 2 and is 1' text.yaml model.heads=1 --resume
finds "starts from it" 0 '^ok +model .*starts from run/checkpoints' text.yaml init.from=run run.dir=other
make_text more.txt 300
tr 'a-m' 'A-M' <more.txt >upper.txt
lockstep data import text upper.txt upper.h5 >/dev/null 2>&1
finds "another vocabulary" 65 "^error +data +upper.h5: does not fit the data of run: the character 'A'" text.yaml init.from=run run.dir=other data.path=upper.h5 data.validation=0
mkdir foreign && echo 'a: 1' >foreign/config.yaml
finds "a foreign file" 73 '^error +run directory .*not written by lockstep' text.yaml run.dir=foreign
finds "a file in the way" 73 '^error +run directory ' text.yaml run.dir=text.txt/run
mkdir locked
exec 9>locked/lock
flock 9
finds "locked by another run" 73 '^error +run directory .*in use' text.yaml run.dir=locked
exec 9>&-
finds "no longer" 0 '^ok +run directory ' text.yaml run.dir=locked
finds "the first error decides" 66 '^error +run directory .*not written by lockstep' text.yaml data.path=none.h5 run.dir=foreign

if [ "$LOCKSTEP_OWN_MOUNTS" = yes ]; then
  mkdir disk
  mount -t tmpfs -o size=1m none disk
  trap 'umount "$work/disk"; rm -rf "$work"' EXIT
  finds "a small disk" 74 '^error +disk .*but 4 more checkpoints of .* need' text.yaml run.dir=disk/a/b train.steps=40 checkpoint.every=10 checkpoint.keep_last=0
  finds "room for one" 0 '^ok +disk ' text.yaml run.dir=disk/a/b
  mount -o remount,ro disk
  finds "a read-only disk" 73 '^error +run directory ' text.yaml run.dir=disk/a/b
else
  echo "skipped: cases with a small disk: mounting one is not allowed here"
fi
finish

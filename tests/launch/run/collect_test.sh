#!/usr/bin/env bash
# `lockstep checkpoint collect`: what several directories together have whole, whatever else lies in them, also of a run that goes on.
# (Of machines with directories of their own: machines_test.sh.) Usage: collect_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
succeeds "a run" lockstep train text.yaml train.steps=10 checkpoint.every=5 checkpoint.keep_last=0 run.dir=run
wanted=$(digest run)
part=checkpoints/step-00000010/part-0000-of-0001.h5
for damage in cut changed link; do
  rm -rf bad all && cp -r run bad
  case $damage in
    cut) truncate -s -3000 "bad/$part" ;;
    changed) printf x | dd of="bad/$part" bs=1 seek="$(($(stat -c %s "bad/$part") - 2000))" conv=notrunc 2>/dev/null ;;
    link)
      { echo secret && head -c 20000 /dev/zero; } >secret
      rm "bad/$part" && ln -s "$work/secret" "bad/$part"
      ;;
  esac
  for order in "bad run" "run bad"; do
    rm -rf all
    # shellcheck disable=SC2086  # two words
    succeeds "$damage, $order" lockstep checkpoint collect all $order
    same "$damage, $order: the digest" "$wanted" "$(digest all)"
    expect "$damage, $order: the part is named" grep -qE "^warning: passing over a part: bad/$part: " err
    same "$damage, $order: both checkpoints" 2 "$(grep -c '^whole ' out)"
  done
  rm -rf all
  succeeds "$damage alone" lockstep checkpoint collect all bad
  expect "$damage alone: the checkpoint before" test "$(cd all/checkpoints && echo *)" = step-00000005
  if grep -rq secret all; then problem "$damage alone: what a link points to was copied"; fi
  cp -r all/checkpoints/step-00000005 kept
  # What an earlier collect brought, and somebody damaged since, is replaced.
  cp "bad/$part" all/checkpoints/step-00000005/part-0000-of-0001.h5
  succeeds "$damage, into what is damaged" lockstep checkpoint collect all run
  same "$damage, into what is damaged: the digest" "$wanted" "$(digest all)"
  expect "$damage, into what is damaged: both are whole" diff -r kept all/checkpoints/step-00000005
  rm -rf kept
done
for file in config.yaml metrics.jsonl log.txt; do
  expect "records: $file" cmp "run/$file" "all/$file"
done
succeeds "what was collected goes on" lockstep train text.yaml train.steps=12 schedule.steps=10 checkpoint.every=5 run.dir=all --resume
rm -rf bad/checkpoints/step-00000005
refuses "nothing whole" 65 'these directories have no checkpoint whole together: that of step 10 lacks part 1 of 1' lockstep checkpoint collect none bad

# A run that saves after every step, and keeps one checkpoint.
"$binary" train text.yaml train.steps=1000000 schedule.steps=10 checkpoint.every=1 checkpoint.keep_last=1 run.dir=live >/dev/null 2>&1 &
pid=$!
until_step live 3
for i in 1 2 3 4 5 6; do
  rm -rf "copy$i"
  succeeds "a live run, $i" lockstep checkpoint collect "copy$i" live
  succeeds "a live run, $i: what was collected" lockstep checkpoint verify "copy$i"
done
kill -TERM "$pid"
ended
same "a live run goes on" 75 "$code"
finish

#!/usr/bin/env bash
# `lockstep train --until STEP`: a run in parts has the bits of a run in one, and ends where that does.
# Usage: until_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs

lockstep train text.yaml run.dir=whole >/dev/null 2>&1
run lockstep train text.yaml run.dir=parts --until 10
same "until: exit 75" 75 "$code"
expect "until: it says so" grep -q '^stopped by --until after step 10; saved. Continue with --resume$' err
expect "until: it is measured" grep -q '"val_loss"' <(tail -n 1 parts/metrics.jsonl)
succeeds "until: the rest" lockstep train text.yaml run.dir=parts --resume
same "until: the bits of a run in one" "$(digest whole)" "$(digest parts)"
patient=(images.yaml optim.lr=0 train.eval_every=4 train.patience=3)
succeeds "patience" lockstep train "${patient[@]}" run.dir=p1
for step in 5 7 9; do run lockstep train "${patient[@]}" run.dir=p2 --resume --until $step; done
succeeds "patience in parts" lockstep train "${patient[@]}" run.dir=p2 --resume
same "until: what it measures does not count for patience" "$(digest p1)" "$(digest p2)"
refuses "until no step" 64 '--until 0: must be 1 or more' lockstep train text.yaml run.dir=parts --until 0
run lockstep train text.yaml run.dir=twice --until 10
last=$(tail -n 1 twice/metrics.jsonl)
run lockstep train text.yaml run.dir=twice --until 10 --resume
same "until, again: exit 75" 75 "$code"
same "until, again: no step is made" "$last" "$(tail -n 1 twice/metrics.jsonl)"
for steps in 30 20; do
  succeeds "no step is left of $steps" lockstep train text.yaml run.dir=parts train.steps=$steps schedule.steps=30 --resume
  expect "it says so" grep -q "^parts is at step 30 of $steps: no step is left to train. To go on, set train.steps to more than 30$" err
  expect "no progress is shown" test "$(grep -c '%)' err)" -eq 0
  same "nothing is trained" 30 "$(done_steps parts)"
done
run lockstep train text.yaml run.dir=parts --resume
expect "how it goes on: the schedule" grep -q 'set train.steps to more than 30, with resume.allow=\[schedule.steps\], since' err
succeeds "it goes on like that" lockstep train text.yaml run.dir=parts --resume train.steps=32 'resume.allow=[schedule.steps]'
same "two more steps" 32 "$(done_steps parts)"
succeeds "until beyond the end" lockstep train text.yaml run.dir=twice --until 1000 --resume
same "until beyond the end: the bits of a run in one" "$(digest whole)" "$(digest twice)"
run lockstep train text.yaml run.dir=threads --until 10 --ranks 2
succeeds "until: the rest on other ranks" lockstep train text.yaml run.dir=threads --resume --ranks 3
same "until: the bits at other ranks" "$(digest whole)" "$(digest threads)"
# The default batch.micro follows from the ranks, which is said, with the way to the same bits.
succeeds "a share for each rank" lockstep train text.yaml run.dir=shares batch.micro=0 --ranks 4 train.steps=2
expect "it is said" grep -qE '^(rank 0: )?batch.micro is 2, an even share of batch.global for each of 4 ranks, and results depend on it: with batch.micro=2 ' err
succeeds "given" lockstep train text.yaml run.dir=given batch.micro=2 train.steps=2
same "the same bits" "$(digest shares)" "$(digest given)"
expect "nothing to say" test "$(grep -c 'batch.micro' err)" -eq 0
finish

#!/usr/bin/env bash
# What a resumed run must agree on with its checkpoint, and how a user consents to a change: the schedule's end, the micro-batch, the
# instruction-set level.
# Usage: resume_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
# The schedule ends at train.steps (schedule.steps: 0). To extend the run would change the rate of every step from here on.
succeeds "a run of 4 steps" lockstep train text.yaml train.steps=4 checkpoint.every=4
before=$(fingerprint run)
refuses "a longer run has another schedule" 78 "run/checkpoints/step-00000004: cannot be resumed with another configuration: schedule.steps was 4 and is 6. .*'resume.allow=\[schedule.steps\]'" \
  lockstep train text.yaml train.steps=6 --resume
same "it touched nothing" "$before" "$(fingerprint run)"
refuses "a key that nothing compares" 78 "override.*: resume.allow: 'schedule.stepz' is not a key that affects results" \
  lockstep train text.yaml train.steps=6 --resume 'resume.allow=[schedule.stepz]'
cp -r run kept
succeeds "the schedule as it was" lockstep train text.yaml train.steps=6 schedule.steps=4 --resume run.dir=kept
succeeds "with consent" lockstep train text.yaml train.steps=6 --resume 'resume.allow=[schedule.steps]'
expect "it says what changes" grep -q 'resuming with schedule.steps: 6 what was trained with 4' err
succeeds "asked once" lockstep train text.yaml train.steps=6 --resume
rate() { tail -n 1 "$1/metrics.jsonl" | field lr; }
expect "the schedule that was kept is at its end" awk -v r="$(rate kept)" 'BEGIN { exit !(r == 0) }'
expect "the new one is not" awk -v r="$(rate run)" 'BEGIN { exit !(r > 0) }'
expect "config.yaml holds the value and its reason" grep -qE '^  steps: 6  # .*stands for train.steps' run/config.yaml

# What the refusal advises can be followed, also where keys of the former schedule are no longer there.
run lockstep train text.yaml schedule.name=constant train.steps=8 --resume
advised=$(grep -oE "resume.allow=\[[^]]*\]" err | head -n 1)
succeeds "another kind of schedule, as advised: $advised" lockstep train text.yaml schedule.name=constant train.steps=8 --resume "$advised"
succeeds "asked once" lockstep train text.yaml schedule.name=constant train.steps=9 --resume

# How many rows of the loss are held at a time shapes no bit on a CPU: it is compared with nothing, and in no digest.
rows=(text.yaml train.steps=6 checkpoint.every=3 checkpoint.keep_last=0)
succeeds "all rows at a time" lockstep train "${rows[@]}" run.dir=rows0
succeeds "64 rows at a time" lockstep train "${rows[@]}" run.dir=rows64 train.loss_rows=64
same "the same digest" "$(digest rows0)" "$(digest rows64)"
rm -r rows64/checkpoints/step-00000006
succeeds "resumed with other rows" lockstep train "${rows[@]}" run.dir=rows64 train.loss_rows=128 --resume
same "resumed with other rows: the same digest" "$(digest rows0)" "$(digest rows64)"
if grep -q loss_rows err; then problem "resumed with other rows: it warns on a CPU" && show; fi

# batch.micro: 0 is a share for each rank of the first start; later ones keep it.
sed -i '/^  micro:/d' text.yaml
rm -rf run
succeeds "2 ranks" lockstep train text.yaml run.dir=two train.steps=4 --ranks 2
expect "the share is in config.yaml" grep -qE '^  micro: 4  # default, where 0 stands for an equal share of batch.global for each of 2 ranks' two/config.yaml
succeeds "measured on more ranks than a step has micro-batches" lockstep eval two --ranks 3
for ranks in 1 2; do
  cp -r two on_$ranks
  succeeds "resumed on $ranks" lockstep train text.yaml run.dir=on_$ranks train.steps=8 schedule.steps=4 --ranks $ranks --resume
done
same "the same bits on 1 rank" "$(digest on_2)" "$(digest on_1)"
refuses "more ranks than micro-batches" 78 'batch.micro \(default\): 4 ranks are more than the 2 micro-batches of a step' \
  lockstep train text.yaml run.dir=on_1 train.steps=9 schedule.steps=4 --ranks 4 --resume
refuses "another micro-batch" 78 "on_1/.*: cannot be resumed with another configuration: batch.micro was 4 and is 2. .*'resume.allow=\[batch.micro\]'" \
  lockstep train text.yaml run.dir=on_1 train.steps=9 schedule.steps=4 batch.micro=2 --resume

# Up to a step: later checkpoints are set aside, and the run comes to the same bits again.
back=(text.yaml train.steps=8 checkpoint.every=2 checkpoint.keep_last=0)
steps_of() { find "$1/checkpoints" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ' '; }
succeeds "a run of 8 steps" lockstep train "${back[@]}" run.dir=back
whole=$(digest back)
for at in 5 1; do
  succeeds "back to step $at" lockstep train "${back[@]}" run.dir=back --resume --at-most $at train.steps=6 schedule.steps=8
  case $at in
    5) expect "from step 4" grep -q 'resumed back/checkpoints/step-00000004' err
       same "what is there" "damaged-step-00000006 damaged-step-00000008 step-00000002 step-00000004 step-00000006 " "$(steps_of back)" ;;
    1) expect "from the beginning" grep -q 'back holds no checkpoint up to step 1: starting from the beginning' err
       same "its steps" "1 2 3 4 5 6 " "$(field step <back/metrics.jsonl | tr '\n' ' ')" ;;
  esac
done
succeeds "and on" lockstep train "${back[@]}" run.dir=back run.resume=auto
same "the same bits" "$whole" "$(digest back)"
succeeds "run.resume: auto with nothing there" lockstep train "${back[@]}" run.dir=fresh run.resume=auto
same "the same bits from the beginning" "$whole" "$(digest fresh)"
refuses "--at-most without --resume" 64 '--at-most 5: has an effect only with --resume' lockstep train "${back[@]}" run.dir=fresh --at-most 5
refuses "a step that is none" 64 '--at-most x: is not an integer' lockstep train "${back[@]}" run.dir=fresh --resume --at-most x
refuses "a mode that is none" 78 'override.*: run.resume: .*auto' lockstep train "${back[@]}" run.resume=yes

# The initial parameters of a run that starts from another stay what they were saved as.
succeeds "a run's first parameters from another" lockstep train text.yaml run.dir=child init.from=two train.steps=0 schedule.steps=4
rm -r two
succeeds "which is not asked for again" lockstep train text.yaml run.dir=child init.from=two train.steps=2 schedule.steps=4 --resume

# avx2 and avx512 give the same bits, so that a run moves between them without a word; generic does not.
has() { LOCKSTEP_ISA=$1 lockstep devices >/dev/null 2>&1; }
if has avx512; then
  images=(images.yaml optim.name=sgd optim.momentum=0.9 optim.nesterov=true)
  text=(text.yaml schedule.steps=4 model.dropout=0.1 precision.compute=bf16)
  for kind in text images; do
    declare -n keys=$kind
    LOCKSTEP_ISA=avx2 succeeds "$kind, half on avx2" lockstep train "${keys[@]}" run.dir=mixed-$kind train.steps=4
    LOCKSTEP_ISA=avx512 succeeds "$kind, half on avx512" lockstep train "${keys[@]}" run.dir=mixed-$kind train.steps=8 --resume
    expect "no warning of other bits" test -z "$(grep "warning: resuming" err)"
    LOCKSTEP_ISA=avx2 succeeds "$kind, all on avx2" lockstep train "${keys[@]}" run.dir=one-$kind train.steps=8
    same "$kind: one digest" "$(digest one-$kind)" "$(digest mixed-$kind)"
  done
else
  echo "This CPU lacks avx512: resuming across levels is not tried."
fi
if has avx2; then
  LOCKSTEP_ISA=avx2 succeeds "on avx2" lockstep train text.yaml run.dir=other train.steps=4 schedule.steps=4
  LOCKSTEP_ISA=generic succeeds "then generic" lockstep train text.yaml run.dir=other train.steps=5 schedule.steps=4 --resume
  expect "a warning" grep -q 'resuming a run computed with avx2 on a machine that uses generic' err
fi
finish

#!/usr/bin/env bash
# `train.epochs` and `train.tokens`: the number of steps follows from the data, schedules end with it, every command says it, and the bits are
# those of a run with as many train.steps.
# Usage: epochs_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
sed '/^train:/d; /^  steps: 30/d' text.yaml >long.yaml
sed '/^train:/d; /^  steps: 30/d' images.yaml >pictures.yaml
last_step() { tail -n 1 "$1/metrics.jsonl" | field step; }

# 160 images by 8 are 20 steps; an epoch's last step has what is left over.
succeeds "epochs" lockstep train pictures.yaml train.epochs=1.5 run.dir=e
same "epochs: the steps" 30 "$(last_step e)"
expect "epochs: said at the beginning" grep -qE '^training .* steps 0 to 30 \(1.5 epochs of 160 samples\)' err
lockstep train images.yaml run.dir=s >/dev/null 2>&1
same "epochs: the bits of as many steps" "$(digest s)" "$(digest e)"
expect "epochs: the resolved file has the steps" grep -qE '^  steps: 30 +# by override 1 \(train.epochs=1.5\): train.epochs: 1.5 epochs of 160 samples, 8 a step$' e/config.yaml
succeeds "epochs: the resolved file is a configuration" lockstep train e/config.yaml run.dir=again
same "epochs: with the same bits" "$(digest e)" "$(digest again)"
succeeds "remainder" lockstep train pictures.yaml train.epochs=2 batch.global=7 run.dir=r
same "remainder: two epochs of 23 steps" 46 "$(last_step r)"

succeeds "a sliver" lockstep train pictures.yaml train.epochs=1e-9 run.dir=sliver
same "a sliver: a step" 1 "$(last_step sliver)"

# A schedule that ends with the run, and a resume.
samples=$(lockstep check long.yaml 2>/dev/null | sed -n 's/^ok  *data  *\([0-9]*\) .*/\1/p')
steps=$(((samples + 7) / 8 * 2))
succeeds "a schedule" lockstep train long.yaml train.epochs=2 run.dir=c
same "a schedule: the steps" "$steps" "$(last_step c)"
lockstep train long.yaml train.steps="$steps" run.dir=c2 >/dev/null 2>&1
same "a schedule: the bits of as many steps" "$(digest c2)" "$(digest c)"
"$binary" train long.yaml train.epochs=2 checkpoint.every=5 run.dir=k >out 2>err &
pid=$!
until [ -e k/checkpoints/step-00000005 ] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
kill -KILL "$pid" 2>/dev/null || true
wait "$pid" 2>/dev/null || true
succeeds "a resume" lockstep train long.yaml train.epochs=2 checkpoint.every=5 run.dir=k --resume
same "a resume: the same steps and bits" "$(digest c2)" "$(digest k)"
succeeds "ranks" lockstep train long.yaml train.epochs=2 run.dir=t --ranks 2
same "ranks: the bits of one" "$(digest c2)" "$(digest t)"
if with_mpi; then
  succeeds "processes" mpi 2 "$binary" train long.yaml train.epochs=2 run.dir=p
  same "processes: the bits of one" "$(digest c2)" "$(digest p)"
fi

# Tokens: 8 samples of 16 are 128 a step.
succeeds "tokens" lockstep train long.yaml train.tokens=1000 run.dir=o
same "tokens: enough steps" 8 "$(last_step o)"
lockstep train long.yaml train.steps=8 run.dir=o2 >/dev/null 2>&1
same "tokens: the bits of as many steps" "$(digest o2)" "$(digest o)"

# What the other commands say.
succeeds "check" lockstep check long.yaml train.epochs=2
expect "check: as given" grep -qE '^ok +configuration +long.yaml: gpt, 2 epochs, each step of 4 micro-batches' out
expect "check: in steps" grep -qE "^ok +data .*; $steps steps \(2 epochs of $samples samples\)$" out
succeeds "plan" lockstep plan long.yaml train.epochs=2
expect "plan: in steps" grep -q ", $steps steps (2 epochs of $samples samples); memory" out
succeeds "plan as JSON" lockstep plan long.yaml train.epochs=2 --json
same "plan as JSON: in steps" "$steps" "$(head -n 1 out | field steps)"
succeeds "prove" lockstep prove long.yaml train.epochs=2 --steps 2 --ranks 1,2
refuses "prove: more steps than the run has" 64 "(rank 0 .*)?--steps $((steps + 1)): are more than .*" lockstep prove long.yaml train.epochs=2 \
  --steps $((steps + 1)) --ranks 1
succeeds "a resolved file without data" lockstep config show long.yaml train.epochs=2
expect "a resolved file without data: what gives the steps" grep -qE '^  steps: 0 +# by override 1 \(train.epochs=2\): train.epochs, with the data$' out

# Refused.
refuses "two of them" 78 'text.yaml:5: train.steps, override 1 \(train.epochs=2\): train.epochs: each of these says how long' lockstep train text.yaml train.epochs=2
succeeds "one taken back" lockstep check text.yaml '~train.steps' train.epochs=2
expect "one taken back: the other counts" grep -qE '^ok +configuration +text.yaml: gpt, 2 epochs' out
refuses "a key that is not there" 78 'override 1 \(~optim.lrr\): nothing gives the key optim.lrr' lockstep train text.yaml '~optim.lrr'
refuses "two others" 78 'override 1 .*: train.epochs, override 2 .*: train.tokens: each of these' lockstep train long.yaml train.epochs=2 train.tokens=5
refuses "tokens of images" 78 '(rank 0 .*)?override 1 .*: train.tokens: the data has no tokens, it has images' lockstep train pictures.yaml train.tokens=1000
refuses "none" 78 'override 1 \(train.epochs=0\): train.epochs: 0 says no length of the run; give train.steps, or ' lockstep train long.yaml train.epochs=0
refuses "no tokens" 78 'override 1 \(train.tokens=0\): train.tokens: 0 says no length' lockstep train long.yaml train.tokens=0
succeeds "none, and another length" lockstep check long.yaml train.epochs=0 train.tokens=1000
succeeds "none, and steps" lockstep check text.yaml train.epochs=0
refuses "less than none" 78 'override 1 .*train.epochs.*' lockstep train long.yaml train.epochs=-1
finish

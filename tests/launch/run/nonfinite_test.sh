#!/usr/bin/env bash
# A state that holds NaN or infinity never takes the place of a good checkpoint, and ends the run with exit code 70.
# Usage: nonfinite_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
steps_of() { find "$1/checkpoints" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ' '; }

cat >small.yaml <<'YAML'
seed: 3
run: {dir: small}
train: {steps: 4}
batch: {global: 8, micro: 2}
model: {name: mlp, hidden: [8]}
optim: {lr: 0.003}
checkpoint: {every: 1, keep_last: 2}
data: {path: images.h5, validation: 0.2}
compute: {threads: 1}
YAML
# Decay multiplies the parameters that match a pattern by -3e5 in each step.
explode() { # PATTERN
  sed "s/^optim: .*/optim: {lr: 0.003, weight_decay: 10000, rules: [{pattern: '*', decay: off}, {pattern: '$1', decay: on, lr_scale: 10000}]}/" \
    small.yaml
}
explode head.bias >head.yaml
explode '*' >all.yaml

# The head's bias alone: losses and gradients stay finite until an update overflows.
for ranks in 1 3; do
  rm -rf small
  succeeds "a good run" lockstep train small.yaml
  same "its checkpoints" "step-00000003 step-00000004 " "$(steps_of small)"
  refuses "NaN in the state on $ranks ranks" 70 '(rank 0 on .*: )?step 14: parameters/head.bias is not finite: element [0-9]+ is -?(nan|inf); this state is not saved' \
    lockstep train head.yaml --resume --ranks $ranks 'resume.allow=[optim.weight_decay, optim.rules]' \
    train.steps=14 checkpoint.every=50
  same "the good checkpoints stay" "step-00000003 step-00000004 " "$(steps_of small)"
  succeeds "and are whole" lockstep checkpoint verify small
  same "failure.json" 70 "$(field exit_code <small/failure.json)"
done

# All parameters: losses overflow first, and steps are skipped. While they are, nothing is retired.
rm -rf small
refuses "a rate that ruins the model" 70 'step [0-9]+: 10 steps in a row without a finite gradient' \
  lockstep train all.yaml train.steps=60
last=$(grep -v '"skipped":true' small/metrics.jsonl | field step | tail -n 1)
expect "some steps were good before" test "${last:-0}" -ge 1
expect "the last good state is kept" test -d "small/checkpoints/$(printf 'step-%08d' "${last:-0}")"
expect "beside all that were saved while steps were skipped" test "$(steps_of small | wc -w)" -ge 10

for wrong in optim.lr=1e38 optim.lr=.inf optim.lr=-1 optim.beta1=1 optim.beta2=1 optim.beta2=1.5 optim.epsilon=.inf optim.weight_decay=.inf \
  optim.clip_norm=.inf; do
  refuses "$wrong" 78 'override.*: optim[.a-z0-9_]*: .* is out of range: allowed is 0 to' lockstep train small.yaml run.dir=refused $wrong
done
refuses "sgd's momentum of 1" 78 'override.*: optim.momentum: .* is out of range' lockstep train small.yaml run.dir=refused optim.name=sgd optim.momentum=1
finish

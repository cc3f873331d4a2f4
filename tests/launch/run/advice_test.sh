#!/usr/bin/env bash
# Five runs that waste time in five ways: `profile summary` says what to change, the change is made, and steps are faster.
# Usage: advice_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_text text.txt 40000
lockstep data import text text.txt text.h5 >/dev/null 2>&1
cat >base.yaml <<YAML
seed: 3
train: {steps: 24, eval_every: 0}
batch: {global: 16, micro: 4}
model: {name: gpt, layers: 3, heads: 4, width: 128, dropout: 0}
data: {path: text.h5, context: 64, validation: 0}
checkpoint: {every: 0}
YAML
# Two processors at most, whatever the machine has: the sizes below are for them.
allowed=$(taskset -pc $$ | grep -oE '[0-9,-]+$')
first=${allowed%%[,-]*} rest=${allowed#"${allowed%%[,-]*}"}
case $rest in
  -*) cores=$first,$((first + 1)) ;;
  ,*) rest=${rest#,} && cores=$first,${rest%%[,-]*} ;;
  *) cores=$first ;;
esac
taskset -pc "$cores" $$ >/dev/null

median_ms() { # RUN: of its steps but the first four
  tail -n +5 "$1/metrics.jsonl" | field step_ms | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
# planted WHAT CHANGE 'REGEXP' LEAST keys... -- keys...: with the first keys, advice that matches stands in the summary; with the
# second ones, which follow it, a step takes at most 1 / LEAST of the time. Three tries, as other work may come between.
planted() {
  local what=$1 advice=$2 least=$3 before after keys=() more=() missing
  shift 3
  while [ "$1" != -- ]; do keys+=("$1") && shift; done
  more=("${@:2}")
  for _ in 1 2 3; do
    rm -rf slow fast
    succeeds "$what" lockstep train base.yaml run.dir=slow profile.steps=8-14 "${keys[@]}"
    succeeds "$what: its summary" lockstep profile summary slow
    missing=
    if ! grep -qE "^  $advice" out; then missing=$(show); fi
    succeeds "$what: followed" lockstep train base.yaml run.dir=fast "${keys[@]}" "${more[@]}"
    before=$(median_ms slow) after=$(median_ms fast)
    echo "$what: $before ms a step; with ${more[*]} $after ms: $(awk -v a="$before" -v b="$after" 'BEGIN { printf "%.2f", a / b }') times as fast"
    if awk -v a="$before" -v b="$after" -v least="$least" 'BEGIN { exit a >= least * b ? 0 : 1 }' && [ -z "$missing" ]; then return; fi
  done
  echo "$missing"
  problem "$what: $advice was to be advised, and following it to make a step at least $least times as fast"
}

if [[ $cores == *,* ]]; then
  planted "one thread" "compute.threads=2" 1.15 compute.threads=1 -- compute.threads=2
fi
planted "small micro-batches" "batch.micro: larger" 1.1 batch.micro=1 data.context=8 batch.global=64 -- batch.micro=16
planted "recomputation" "recompute=none" 1.05 recompute=block -- recompute=none
planted "small buckets" "comm.bucket: larger" 1.05 --ranks 2 comm.bucket=0.001 batch.global=4 batch.micro=2 data.context=8 \
  model.layers=24 model.width=32 -- comm.bucket=25
planted "every rank updates all" "sharding.level=optimizer" 1.05 --ranks 2 batch.global=2 batch.micro=1 data.context=4 \
  model.width=512 -- sharding.level=optimizer
exit "$failed"

#!/usr/bin/env bash
# Five runs that waste time in five ways: `profile summary` says what to change, the change is made, and steps are faster. Steps are compared
# where LOCKSTEP_TEST_BOUNDS=1 says that nothing else runs on this machine.
# Usage: advice_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_text text.txt 40000
lockstep data import text text.txt text.h5 >/dev/null 2>&1
cat >base.yaml <<YAML
seed: 3
train: {eval_every: 0}
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
# A timeline in which the operations whose lines match take half of every step, and large products any rate: planted times, as those of a busy
# machine say little.
half_of_steps() { # 'REGEXP' TIMELINE
  awk -v matches="$1" '
    function value(name) { return match($0, "\"" name "\":[0-9.e+-]+") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) : 0 }
    { chosen = $0 ~ matches && !/"cat":"range"/ }
    FNR == NR { if (/"cat":"step"/) steps[value("pid")] += value("dur"); else if (chosen) ++count[value("pid")]; next }
    chosen { sub(/"self":[0-9.e+-]+/, sprintf("\"self\":%.3f", 0.5 * steps[value("pid")] / count[value("pid")])) }
    { sub(/"gflops":[0-9.e+-]+/, "\"gflops\":1e6"); print }' "$2" "$2"
}
bounds=no steps=7 first=4 last=7
if [ "${LOCKSTEP_TEST_BOUNDS:-}" = 1 ]; then bounds=yes steps=24 first=8 last=14; fi
# planted WHAT CHANGE 'REGEXP' LEAST 'WHERE' keys... -- keys...: with the first keys, advice that matches stands in the summary of a timeline in
# which the operations WHERE take half of each step (empty: whatever takes how long), and the second ones, which follow it, are taken. With bounds,
# the advice stands in the summary as it is, and a step takes at most 1 / LEAST of the time with the second keys. Three tries, as other work may
# come between.
planted() {
  local what=$1 advice=$2 least=$3 where=$4 before after keys=() more=() missing
  shift 4
  while [ "$1" != -- ]; do keys+=("$1") && shift; done
  more=("${@:2}")
  for _ in 1 2 3; do
    rm -rf slow fast
    succeeds "$what" lockstep train base.yaml run.dir=slow "train.steps=$steps" "profile.steps=$first-$last" "${keys[@]}"
    succeeds "$what: its summary" lockstep profile summary slow
    missing=
    if ! grep -qE "^  $advice" out; then missing=$(show); fi
    half_of_steps "${where:-nothing}" "slow/profile/steps-$first-$last.json" >times.json
    succeeds "$what: the summary of planted times" lockstep profile summary times.json
    expect "$what: $advice is advised" grep -qE "^  $advice" out
    succeeds "$what: followed" lockstep train base.yaml run.dir=fast "train.steps=$steps" "${keys[@]}" "${more[@]}"
    if [ $bounds = no ]; then return; fi
    before=$(median_ms slow) after=$(median_ms fast)
    echo "$what: $before ms a step; with ${more[*]} $after ms: $(awk -v a="$before" -v b="$after" 'BEGIN { printf "%.2f", a / b }') times as fast"
    if awk -v a="$before" -v b="$after" -v least="$least" 'BEGIN { exit a >= least * b ? 0 : 1 }' && [ -z "$missing" ]; then return; fi
  done
  echo "$missing"
  problem "$what: $advice was to be advised, and following it to make a step at least $least times as fast"
}

if [[ $cores == *,* ]]; then
  planted "one thread" "compute.threads=2" 1.15 "" compute.threads=1 -- compute.threads=2
fi
planted "small micro-batches" "batch.micro: larger" 1.1 '"flops":' batch.micro=1 data.context=8 batch.global=64 -- batch.micro=16
planted "recomputation" "recompute=none" 1.05 "" recompute=block -- recompute=none
planted "small buckets" "comm.bucket: larger" 1.05 '"name":"wait",.*"cat":"work"' --ranks 2 comm.bucket=0.001 batch.global=4 batch.micro=2 data.context=8 \
  model.layers=24 model.width=32 -- comm.bucket=25
planted "every rank updates all" "sharding.level=optimizer" 1.05 '"name":"optimizer",' --ranks 2 batch.global=2 batch.micro=1 data.context=4 \
  model.width=512 -- sharding.level=optimizer
exit "$failed"

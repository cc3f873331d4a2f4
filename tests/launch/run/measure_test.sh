#!/usr/bin/env bash
# What a model is measured on, and how results are told: vocabularies, parts of the data, runs without targets, JSON.
# Usage: measure_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh"
make_inputs
run lockstep train text.yaml run.dir=run train.steps=6
if [ "$code" -ne 0 ]; then problem "the run to measure" && show; fi

# Another vocabulary of the same size: the ids would mean other characters.
tr 'ew' 'EW' <text.txt >other.txt
succeeds "import of another vocabulary" lockstep data import text other.txt other.h5
refuses "eval with another vocabulary" 65 "other.h5: does not fit the data of run/checkpoints/step-00000006: the character 'E' \(U\+0045\) is not in its vocabulary" \
  lockstep eval run data.path=other.h5
refuses "init.from with another vocabulary" 65 "other.h5: does not fit the data of run: the character 'E'" lockstep train text.yaml data.path=other.h5 run.dir=tuned init.from=run
# Part of the characters: they get the run's ids, whether the import gives them or the run.
tr -d 'yb' <text.txt >part.txt
succeeds "import of fewer characters" lockstep data import text part.txt fewer.h5
succeeds "eval with fewer characters" lockstep eval run data.path=fewer.h5
fewer=$(field loss <out)
for from in run run/checkpoints/step-00000006 text.h5 text.txt; do
  succeeds "import with the vocabulary of $from" lockstep data import text part.txt part.h5 --vocabulary $from --force
  succeeds "eval with the vocabulary of $from" lockstep eval run data.path=part.h5
  same "eval with fewer characters, and with the vocabulary of $from" "$fewer" "$(field loss <out)"
done
succeeds "import like the run" lockstep data import text part.txt like.h5 --like run
same "import like the run: its ids" "$(lockstep data inspect part.h5 | grep identity)" "$(lockstep data inspect like.h5 | grep identity)"
refuses "a character that is not in the vocabulary" 65 ".*other.txt: the character 'E' \(U\+0045\) at byte [0-9]+ is not in the given vocabulary of" \
  lockstep data import text other.txt part.h5 --vocabulary run --force
refuses "a vocabulary of another level" 64 '--level byte: the vocabulary of run is of level char' lockstep data import text part.txt part.h5 --vocabulary run --level byte --force
refuses "a vocabulary that is not there" 66 'nope: ' lockstep data import text part.txt part.h5 --vocabulary nope --force

# Parts of the data, and a shorter context.
tokens=$(wc -c <text.txt)
begin=$(awk -v n="$tokens" 'BEGIN { print int(n * (1 - 0.1)) }')
declare -A losses
for part in validation train all; do
  succeeds "eval --on $part" lockstep eval run --on $part
  losses[$part]=$(field loss <out)
  case $part in
    validation) wanted=$((tokens - begin - 1)) ;;
    train) wanted=$((begin - 1)) ;;
    all) wanted=$((tokens - 1)) ;;
  esac
  same "eval --on $part: its targets" $wanted "$(field targets <out)"
  expect "eval --on $part: says so" grep -q "\"on\":\"$part\"" out
done
same "eval: without --on, the validation part" "${losses[validation]}" "$(lockstep eval run --json | field loss)"
if ! awk -v v="${losses[validation]}" -v t="${losses[train]}" -v a="${losses[all]}" 'BEGIN { exit !((v - a) * (t - a) < 0) }'; then
  problem "the whole's loss ${losses[all]} is not between those of its parts, ${losses[validation]} and ${losses[train]}"
fi
same "eval --on all, on 3 ranks" "${losses[all]}" "$(lockstep eval run --on all --ranks 3 | field loss)"
same "eval --on all needs no validation part" "${losses[all]}" "$(lockstep eval run --on all data.validation=0 | field loss)"
refuses "no such part" 64 '--on some: must be validation, train or all' lockstep eval run --on some
head -c 20 text.txt >short.txt
succeeds "import of 20 characters" lockstep data import text short.txt short.h5 --vocabulary run
succeeds "eval of a text shorter than a batch" lockstep eval run --on all data.path=short.h5
same "eval of a text shorter than a batch: its targets" 19 "$(field targets <out)"
succeeds "eval with a shorter context" lockstep eval run data.context=5
same "eval with a shorter context: as many targets" $((tokens - begin - 1)) "$(field targets <out)"
refuses "eval with a longer context" 78 'override 1 \(data.context=17\): data.context: 17 tokens are more than the 16 that run/checkpoints' lockstep eval run data.context=17

# Where no target counts there is no loss, and none is reported.
classes=$(lockstep data inspect text.h5 2>/dev/null | sed -n 's/^vocabulary: *//p')
all="data.ignore_tokens=[$(seq -s, 0 $((classes - 1)))]"
refuses "eval without a target" 78 'override 1 .*: data.ignore_tokens: no target counts in the part of the data' lockstep eval run "$all"
refuses "train without a target" 78 'override 2 .*: data.ignore_tokens: no target counts in the training part' lockstep train text.yaml run.dir=none "$all"
{ cat text.txt && head -c $((tokens / 5)) /dev/zero | tr '\0' '.'; } >dots.txt
succeeds "import of a text that ends in dots" lockstep data import text dots.txt dots.h5
dot="data.ignore_tokens=[2]"
refuses "validation without a target" 78 '(rank 0 on .*: )?override 3 .*: data.ignore_tokens: no target counts in the validation part' \
  lockstep train text.yaml run.dir=none data.path=dots.h5 "$dot" --ranks 2
# The last quarter of what is trained on has no target; steps of that quarter alone have none.
succeeds "steps without a target" \
  lockstep train text.yaml run.dir=none data.path=dots.h5 data.validation=0 "$dot" batch.global=2 batch.micro=1 data.shuffle=false train.steps=1000 --ranks 2
expect "they are said" grep -qE 'warning: step [0-9]+: none of its 32 targets counts \(override 4 .*: data.ignore_tokens\)' err
expect "their loss is none" grep -q '"loss":null' none/metrics.jsonl
# Micro-batches without a target are fine, as long as their step has one.
rare="data.ignore_tokens=[$(seq -s, 0 $((classes - 1)) | sed 's/\b2,//')]"
succeeds "only dots are targets" lockstep train text.yaml run.dir=rare train.steps=3 "$rare" batch.global=32 batch.micro=1 --ranks 2

# Results alone on standard output, and as one JSON object each.
succeeds "checkpoint digest" lockstep checkpoint digest run
expect "checkpoint digest: alone" grep -qxE '[0-9a-f]{32}' out
same "checkpoint digest: one line" 1 "$(wc -l <out)"
value=$(cat out)
is_object() { # what command...: prints one JSON object, in one line
  succeeds "$1" "${@:2}"
  same "$1: one line" 1 "$(wc -l <out)"
  expect "$1: an object" grep -qxE '\{.*\}' out
  if command -v python3 >/dev/null; then expect "$1: JSON" python3 -c 'import json; json.load(open("out"))'; fi
}
is_object "digest --json" lockstep checkpoint digest run --json
expect "digest --json" grep -q "\"digest\":\"$value\"" out
is_object "checkpoint inspect --json" lockstep checkpoint inspect run --json
expect "checkpoint inspect --json" grep -qE "\"step\":6,.*\"digest\":\"$value\".*\"tensors\":\[\{\"name\":\"adamw.m/.*\"shape\":\[[0-9, ]*\]" out
is_object "checkpoint verify --json" lockstep checkpoint verify run --json
expect "checkpoint verify --json" grep -qE '"damaged":0,"checkpoints":\[\{"checkpoint":"run/checkpoints/step-00000006","whole":true' out
is_object "checkpoint diff --json" lockstep checkpoint diff run run/checkpoints/step-00000006 --json
expect "checkpoint diff --json" grep -q '"equal":true,"differences":\[\],"different_tensors":0,' out
run lockstep checkpoint diff run rare --json
expect "checkpoint diff --json: exit 1" test "$code" -eq 1
expect "checkpoint diff --json: what differs" grep -qE '"equal":false,"differences":\[\{"what":"step","a":6,"b":3\}.*"different_elements":[1-9]' out
is_object "checkpoint export --json" lockstep checkpoint export run exported.h5 --json
is_object "data inspect --json" lockstep data inspect text.h5 --json
expect "data inspect --json" grep -qE "\"kind\":\"tokens\",\"level\":\"char\",\"tokens\":$tokens,\"vocabulary\":$classes," out
is_object "data inspect --json, images" lockstep data inspect images.h5 --json
expect "data inspect --json, images" grep -q '"shape":\[12,12,1\],"classes":4,"images_per_class":\[50,50,50,50\]' out
is_object "data import --json" lockstep data import text text.txt again.h5 --json
is_object "config show --json" lockstep config show images.yaml optim.lr=0.5 --json
expect "config show --json: a number" grep -qF '"optim.lr":{"value":0.5,"origin":"override 1 (optim.lr=0.5)"}' out
expect "config show --json: a list" grep -qF '"model.channels":{"value":[4,8],"origin":"images.yaml:' out
is_object "bench --json" lockstep bench text.yaml --steps 1 --warmup 1 --json
refuses "bench --json --breakdown" 64 '--breakdown cannot be combined with --json' lockstep bench text.yaml --json --breakdown
is_object "eval --json" lockstep eval run --json
succeeds "import" lockstep data import text text.txt again.h5 --force
expect "import: ends at 100%" grep -qE '^import .*100%' err
succeeds "inspect" lockstep data inspect again.h5
expect "inspect: ends at 100%" grep -qE '^check .*100%' err

# Where a step's time goes: rows of rank 0 that add up to the step that the JSON object, still the last line, has as its mean.
breaks_down() { # what command...
  succeeds "$1" "${@:2}"
  expect "$1: the last line is the object" grep -qxE '\{.*"mean_ms":.*\}' <(tail -n 1 out)
  expect "$1: rows add up" awk -v mean="$(tail -n 1 out | field mean_ms)" '
    /^op / { next }
    /^step / { step = $3; exit }
    /% of step|^$|^rank/ { next }
    { sum += $1 == "other" ? $2 : $2 == "backward" ? $4 : $3; ++rows }
    END { exit !(rows > 10 && step > 0 && sum > 0.9 * step && sum < 1.1 * step && step > 0.9 * mean && step < 1.1 * mean) }' out
  for op in 'linear' 'linear backward' 'causal_attention' 'optimizer' 'wait_for_batch' 'load_batch'; do
    expect "$1: a row of $op" grep -qE "^$op +[0-9]+\.[0-9] +[0-9]+\.[0-9]{3} " out
  done
  expect "$1: rates of products" grep -qE '^linear .* [0-9]+\.[0-9]+ +[0-9]+\.[0-9]$' out
  expect "$1: limits" grep -qE '^limits of 1 thread: [0-9.]+ GF/s \(.*\), [0-9.]+ GB/s \(.*\)$' out
}
breaks_down "bench --breakdown" lockstep bench text.yaml --steps 4 --warmup 1 --breakdown
breaks_down "bench --breakdown, 2 ranks" lockstep bench text.yaml --steps 4 --warmup 1 --ranks 2 --breakdown
expect "bench --breakdown: exchanges" grep -qE '^share +[0-9]' out
if with_mpi; then
  breaks_down "bench --breakdown, 2 processes" mpi 2 "$binary" bench text.yaml --steps 4 --warmup 1 --breakdown
  expect "bench --breakdown: exchanges" grep -qE '^share +[0-9]' out
fi

# No steps at all: the initial parameters, from which a run goes on as if it had not stopped.
succeeds "train.steps: 0" lockstep train text.yaml run.dir=zero train.steps=0 schedule.steps=4
same "train.steps: 0 saves step 0" "step-00000000" "$(ls zero/checkpoints)"
succeeds "eval of initial parameters" lockstep eval zero
succeeds "the run goes on" lockstep train text.yaml run.dir=zero train.steps=4 schedule.steps=4 --resume --ranks 2
succeeds "the same run at once" lockstep train text.yaml run.dir=once train.steps=4 schedule.steps=4
same "a run that began with step 0" "$(digest once)" "$(digest zero)"
finish

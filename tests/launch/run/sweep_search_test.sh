#!/usr/bin/env bash
# What searches with `lockstep sweep`: rankings by any metric, points drawn by a seed, keys left out where they have no effect, and successive
# halving, whose points have the bits of runs that were never stopped.
# Usage: sweep_search_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
export ASAN_OPTIONS=$no_leak_check # of ranks that it launches
make_inputs
without_seconds() { # the columns of a CSV file but for "seconds"
  tr -d '\r' <"$1" | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "seconds") skip = i }
    { line = ""; for (i = 1; i <= NF; i++) if (i != skip) line = line "," $i; print line }'
}
rank_of() { tr -d '\r' <"$2" | awk -F, -v p="$1" '$1 == p { print NR - 1 }'; } # POINT CSV

# A key of the file that some of the optimizers do not take.
sed 's/  clip_norm: 1/  clip_norm: 1\n  beta1: 0.9/' text.yaml >beta.yaml
succeeds "a key without effect" lockstep sweep beta.yaml 'optim.name=glob(*)' train.steps=2 --dir names --jobs 2
expect "a key without effect: key and point are named" \
  grep -qE '^warning: beta.yaml:[0-9]+: optim.beta1: it has an effect only with .*; it is left out at point 006 \(optim.name=sgd\)$' err
same "a key without effect: all were run" 7 "$(grep -c ',0' <(cut -d, -f1,8 names/sweep.csv | tail -n +2))"
same "a key without effect: is kept where it has one" 0.9 "$(sed -n 's/^  beta1: \([0-9.]*\) .*/\1/p' names/000/config.yaml)"
if grep -q beta1 names/006/config.yaml; then problem "a key without effect: it is not left out"; fi
succeeds "two optimizers that do not take it" lockstep sweep beta.yaml optim.name=adamw,sgd 'seed=range(4)' --dir none --dry-run
same "two optimizers: a line a key, and a few points of it" 1 "$(grep -c '^warning: ' err)"
same "two optimizers: all those points leave it out" 4 "$(grep -c '~optim.beta1' out)"
refuses "without effect at all points" 78 'point 000 \(seed=1\): beta.yaml:[0-9]+: optim.beta1: key without effect' \
  lockstep sweep beta.yaml optim.name=sgd seed=1,2 --dir none
refuses "unknown at all points" 78 'point 000 .*optim.beat1' lockstep sweep text.yaml optim.name=sgd,adam optim.beat1=0.5 --dir none

# Rankings.
succeeds "by a metric" lockstep sweep images.yaml optim.lr=1e-5,1e-2,1e-1 train.eval_every=10 --metric f1 --dir f1 --jobs 2
expect "by a metric: the table" grep -qE '^point +optim.lr +f1 +best_f1 +loss +best_loss +loss_of ' out
values() { tail -n +2 "$1" | tr -d '\r' | cut -d, -f"$2" | xargs; }
same "by a metric: the highest first" "$(values f1/sweep.csv 3 | tr ' ' '\n' | sort -gr | xargs)" "$(values f1/sweep.csv 3)"
for p in 000 001 002; do
  same "by a metric: the last of point $p" "$(tail -n 1 f1/$p/metrics.jsonl | field val_f1 | sed 's/\.0$//')" "$(grep "^$p," f1/sweep.csv | cut -d, -f3)"
  same "by a metric: the best of point $p" "$(grep val_f1 f1/$p/metrics.jsonl | while read -r l; do field val_f1 <<<"$l"; done | sort -g | tail -n 1 | sed 's/\.0$//')" \
    "$(grep "^$p," f1/sweep.csv | cut -d, -f4)"
done
expect "by a metric: it is in the JSON" grep -q '"ranking":{"metric":"f1","mode":"max","by":"last"}' f1/sweep.json
refuses "no validation to measure" 78 '--metric accuracy: is measured on the validation part of the data, and point 001 \(data.validation=0\) has none; set data.validation' \
  lockstep sweep images.yaml data.validation=0.2,0 --metric accuracy --dir none
expect "no validation to measure: nothing is begun" test ! -e none
succeeds "collected" lockstep sweep --collect f1 --json
expect "collected: ranked alike" grep -qE '^\{"point":.*"f1":[0-9.]+,"best_f1":[0-9.]+,"loss":' out
succeeds "collected by the best" lockstep sweep --collect f1 --by best
same "collected by the best: the highest first" "$(values f1/sweep.csv 4 | tr ' ' '\n' | sort -gr | xargs)" "$(values f1/sweep.csv 4)"
succeeds "collected by another" lockstep sweep --collect f1 --metric accuracy --mode min
same "collected by another: the lowest first" "$(values f1/sweep.csv 3 | tr ' ' '\n' | sort -g | xargs)" "$(values f1/sweep.csv 3)"
refuses "collected by one that was not measured" 78 '--metric auc: no point has measured it; there are accuracy, balanced_accuracy, f1, loss' \
  lockstep sweep --collect f1 --metric auc --mode max
succeeds "by train.best.metric" lockstep sweep images.yaml seed=1,2 train.steps=2 train.best.metric=accuracy --dir best
expect "by train.best.metric: of the configuration" grep -q '"ranking":{"metric":"accuracy","mode":"max","by":"last"}' best/sweep.json
refuses "an unknown metric" 78 "point 000 .*there is no metric 'f2' here; there are accuracy, .*f1.*" lockstep sweep images.yaml seed=1,2 --metric f2 --dir none
refuses "an unknown mode" 64 '--mode most: is min or max' lockstep sweep images.yaml seed=1,2 --mode most --dir none

# A sweep's directory has a status: its table, which is only printed.
before=$(fingerprint f1)
succeeds "status" lockstep status f1
same "status: what it is" "f1: a sweep of 3 points; 'lockstep sweep --collect f1' writes this table" "$(head -n 1 out)"
expect "status: the points" test "$(grep -cE '^00[0-2] ' out)" -eq 3
same "status: nothing is written" "$before" "$(fingerprint f1)"
succeeds "status as JSON" lockstep status f1 best/000 --json
expect "status as JSON: a sweep, and a run" test "$(grep -cE '^\{"sweep":"f1","points":\[\{"point":.*\]\}$|^\{"run":"best/000","state":"finished",' out)" -eq 2

# Points that are drawn.
succeeds "random: points differ" lockstep sweep text.yaml optim.lr=1,2 seed=1,2 --random 4 --dir none --dry-run
same "random: points differ" 4 "$(grep '^00' out | cut -d' ' -f3- | sort -u | wc -l)"
succeeds "random: more points than there are" lockstep sweep text.yaml optim.lr=1,2 --random 40 --dir none --dry-run
expect "random: it is said" grep -q '^warning: --random 40: only 2 of the points differ' err
draw=('optim.lr=tag(log, interval(1e-4,1e-1))' 'model.layers=1,2' train.steps=3)
succeeds "random" lockstep sweep text.yaml "${draw[@]}" --random 4 --seed 7 --dir r1 --jobs 2
succeeds "random: the same seed" lockstep sweep text.yaml "${draw[@]}" --random 6 --seed 7 --dir r2 --dry-run
same "random: draws the same points" "$(cut -d, -f1-3 r1/sweep.csv | tail -n +2 | sort)" \
  "$(sed -n 's/^\(00[0-3]\)  optim.lr=\(.*\) model.layers=\(.*\)$/\1,\2,\3/p' out)"
same "random: all digits reach the run" "$(grep '^002,' r1/sweep.csv | cut -d, -f2)" "$(sed -n 's/^  lr: \([^ ]*\) .*/\1/p' r1/002/config.yaml)"
refuses "random: another seed in the same place" 73 'r1 holds another sweep: its keys and values differ' \
  lockstep sweep text.yaml "${draw[@]}" --random 4 --seed 8 --dir r1
refuses "random: the grid in the same place" 73 'r1 holds another sweep' lockstep sweep text.yaml optim.lr=1,2 --dir r1
succeeds "random: collected" lockstep sweep --collect r1
succeeds "random: goes on" lockstep sweep text.yaml "${draw[@]}" --random 4 --seed 7 --dir r1
expect "random: goes on: nothing is repeated" grep -q '4 of 4 points have finished before' err
refuses "random: nothing to draw" 64 'sweep: --random has nothing to draw' lockstep sweep text.yaml seed=1 --random 3 --dir none
refuses "a seed for a grid" 64 '--seed has an effect only with --random' lockstep sweep text.yaml seed=1,2 --seed 3 --dir none

# As an array of jobs.
succeeds "submitted" lockstep submit --scheduler slurm --dry-run text.yaml "${draw[@]}" --random 4 --seed 7 --metric bits_per_token --sweep jobs
expect "submitted: all points" grep -q -- '--array=0-3' out
expect "submitted: by the same draws" grep -qE -- "--metric bits_per_token --random 4 --seed 7 --dir jobs" out
refuses "submitted: without a sweep" 64 'submit: --random has an effect only with --sweep' lockstep submit --scheduler slurm --dry-run text.yaml --random 4

# Successive halving of 27 points, against the whole grid.
grid=(text.yaml optim.lr=1e-5,1e-4,3e-4,1e-3,3e-3,1e-2,3e-2,1e-1,3e-1 optim.name=adamw,lion,sgd train.steps=90)
succeeds "the whole grid" lockstep sweep "${grid[@]}" --dir full --jobs 2
succeeds "halving" lockstep sweep "${grid[@]}" --halving --dir halved --jobs 2
expect "halving: the plan" grep -q '^halving: 27 points to step 10, 9 to 30, 3 to 90; 630 of the 2430 steps of the whole grid, 26%$' err
same "halving: the steps that were trained" 630 "$(values halved/sweep.csv 7 | tr ' ' '\n' | awk '{ n += $1 } END { print n }')"
best=$(sed -n 2p halved/sweep.csv | cut -d, -f1)
same "halving: finds the best of the grid" 1 "$(rank_of "$best" full/sweep.csv)"
same "halving: which has the bits of a run that was never stopped" "$(digest full/$best)" "$(digest halved/$best)"
same "halving: the table has those that came farther first" "90 90 90 30 30 30 30 30 30 10" "$(values halved/sweep.csv 7 | cut -d' ' -f1-10)"
for at in 'point 004' 'rung 2' 'rung 3'; do # of one sweep
  : >killed.err
  "$binary" sweep "${grid[@]}" --halving --dir killed --jobs 2 >out 2>killed.err &
  pid=$!
  until grep -q "$at" killed.err || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
  kill -KILL "$pid" 2>/dev/null || true # it may have ended
  wait "$pid" 2>/dev/null || true
done
succeeds "halving, killed" lockstep sweep "${grid[@]}" --halving --dir killed --jobs 2
same "halving, killed: the same table" "$(without_seconds halved/sweep.csv)" "$(without_seconds killed/sweep.csv)"
same "halving, killed: the same bits" "$(digest halved/$best)" "$(digest killed/$best)"
: >stopped.err
"$binary" sweep "${grid[@]}" --halving --dir stopped --jobs 2 >out 2>stopped.err &
pid=$!
until grep -q 'point 003' stopped.err || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
same "halving, stopped: exit 75" 75 "$code"
succeeds "halving, stopped" lockstep sweep "${grid[@]}" --halving --dir stopped --jobs 2
same "halving, stopped: the same table" "$(without_seconds halved/sweep.csv)" "$(without_seconds stopped/sweep.csv)"
refuses "halving: another rung in the same place" 73 'halved holds another sweep: its halving differ' \
  lockstep sweep "${grid[@]}" --halving --min-steps 5 --dir halved
refuses "halving: the grid in the same place" 73 'halved holds another sweep: its halving differ' lockstep sweep "${grid[@]}" --dir halved
succeeds "halving: collected" lockstep sweep --collect halved
same "halving: collected, the same table" "$(without_seconds killed/sweep.csv)" "$(without_seconds halved/sweep.csv)"
succeeds "halving of epochs" lockstep sweep text.yaml seed=1,2,3 '~train.steps' train.epochs=1 --halving --min-steps 4 --dir epochs
expect "halving of epochs: the steps" grep -qE '^halving: 3 points to step 4, 1 to [0-9]+; ' err
succeeds "halving of drawn points" lockstep sweep text.yaml "${draw[@]:0:2}" train.steps=18 --random 9 --seed 1 --halving --dir drawn --jobs 2
same "halving of drawn points: one is left" 1 "$(values drawn/sweep.csv 7 | tr ' ' '\n' | grep -c 18)"
refuses "halving of points with several steps" 78 '--halving: the points must have the same number of steps' \
  lockstep sweep text.yaml train.steps=10,20 --halving --dir none
refuses "halving: a first rung that is the whole" 64 '--min-steps 30: must be below the 30 steps' lockstep sweep text.yaml seed=1,2 --halving --min-steps 30 --dir none
refuses "halving of one point" 64 '--halving: needs all points' lockstep sweep text.yaml seed=1,2 --halving --array 0 --dir none
refuses "eta for a grid" 64 '--eta and --min-steps have an effect only' lockstep sweep text.yaml seed=1,2 --eta 2 --dir none
if [ -e none ]; then problem "something was created before it was refused"; fi

# A point that fails in the first rung does not go on, and does not end the others.
run lockstep sweep text.yaml data.context=16,32,900000 --halving --min-steps 10 --dir fails
same "halving, one fails: its exit code" 78 "$code"
same "halving, one fails: another one trains to the end" 30 "$(values fails/sweep.csv 6 | cut -d' ' -f1)"
if with_mpi; then
  succeeds "halving with ranks as processes" lockstep sweep text.yaml optim.lr=1e-4,3e-3,1e-2 --halving --dir ranks --ranks 2 --jobs 1
  lockstep sweep text.yaml optim.lr=1e-4,3e-3,1e-2 --halving --dir one >/dev/null 2>&1
  same "halving with ranks as processes: the table of one rank" "$(without_seconds one/sweep.csv)" "$(without_seconds ranks/sweep.csv)"
fi
finish

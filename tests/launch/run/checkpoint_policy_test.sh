#!/usr/bin/env bash
# Which checkpoints a run saves and keeps, and when it ends early: by time, by validation loss, across a resume.
# Usage: checkpoint_policy_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
steps_of() { find "$1/checkpoints" -name 'step-*' -printf '%f\n' | sed -E 's/step-0*//' | sort -n | tr '\n' ' '; }

# Early stopping: with a rate of 0 no evaluation finds a lower loss than the first, after step 2.
keys=(images.yaml optim.lr=0 train.eval_every=2 train.patience=3)
early='ended early after step 8: the validation.s loss was not lower than [0-9.]+, measured after step 2, in 3 evaluations \(override.*: train.patience\)'
succeeds "no progress" lockstep train "${keys[@]}" run.dir=early
expect "it says why it ended" grep -qE "$early" err
same "its last step" 8 "$(done_steps early)"
same "which is saved" "8 " "$(steps_of early)"
succeeds "resumed, it has ended" lockstep train "${keys[@]}" run.dir=early --resume
expect "it says so again" grep -qE "$early" err
same "no step is added" 8 "$(done_steps early)"
succeeds "interrupted after 2 evaluations" lockstep train "${keys[@]}" run.dir=cut train.steps=5
succeeds "and resumed by 2 ranks" lockstep train "${keys[@]}" run.dir=cut --resume --ranks 2
same "an evaluation at the interruption counts, too" 6 "$(done_steps cut)"
succeeds "interrupted at an evaluation" lockstep train "${keys[@]}" run.dir=even train.steps=6
succeeds "and resumed by 2 ranks" lockstep train "${keys[@]}" run.dir=even --resume --ranks 2
same "the same last step" 8 "$(done_steps even)"
same "the same bits" "$(digest early)" "$(digest even)"
succeeds "more patience" lockstep train "${keys[@]}" run.dir=early --resume train.patience=5
same "it goes on" 12 "$(done_steps early)"
succeeds "progress" lockstep train images.yaml train.eval_every=5 train.patience=6 run.dir=progress
same "all steps are done" 30 "$(done_steps progress)"

# The two lowest losses beside the newest checkpoint, also across a resume. Losses that go up and down: a high rate.
keys=(images.yaml optim.lr=0.05 train.eval_every=2 checkpoint.every=1 checkpoint.keep_last=1 checkpoint.keep_best=2)
lowest() { # RUN: steps of the two lowest validation losses, and the last step
  { grep val_loss "$1/metrics.jsonl" | while read -r line; do echo "$(field val_loss <<<"$line") $(field step <<<"$line")"; done |
      sort -g | head -n 2 | cut -d ' ' -f 2
    done_steps "$1"
  } | sort -nu | tr '\n' ' '
}
for ranks in 1 2; do
  succeeds "the best are kept" lockstep train "${keys[@]}" run.dir=best$ranks train.steps=13 --ranks $ranks
  same "the best of 13 steps" "$(lowest best$ranks)" "$(steps_of best$ranks)"
  succeeds "resumed" lockstep train "${keys[@]}" run.dir=best$ranks train.steps=24 --resume
  same "the best of 24 steps" "$(lowest best$ranks)" "$(steps_of best$ranks)"
done
# Without checkpoint.every each new best is saved, and nothing else but the end; a run in parts keeps the same.
few=(images.yaml optim.lr=0.05 train.eval_every=2 checkpoint.keep_last=1 checkpoint.keep_best=1 train.steps=24)
succeeds "new bests are saved" lockstep train "${few[@]}" run.dir=few
best=$(grep val_loss few/metrics.jsonl | while read -r line; do echo "$(field val_loss <<<"$line") $(field step <<<"$line")"; done | sort -g | head -n 1)
same "the best, and the end" "$(printf '%s\n' "${best#* }" 24 | sort -nu | tr '\n' ' ')" "$(steps_of few)"
new_bests=$(grep val_loss few/metrics.jsonl | field val_loss | awk 'NR == 1 || $1 < best { best = $1; n++ } END { print n + 0 }')
saves=$(grep -c 'saved the checkpoint of step' few/log.txt)
expect "a save for each new best, and the last: $saves of $new_bests" test "$saves" -le $((new_bests + 1)) -a "$saves" -ge "$new_bests"
succeeds "eval --best of these" lockstep eval few --best
same "--best: what was measured" "${best% *}" "$(field loss <out)"
run lockstep train "${few[@]}" run.dir=few_parts sharding.level=parameters --ranks 2 --until 5
run lockstep train "${few[@]}" run.dir=few_parts --resume --until 11 --ranks 3
succeeds "the rest" lockstep train "${few[@]}" run.dir=few_parts --resume
same "the same checkpoints" "$(steps_of few)" "$(steps_of few_parts)"
same "the same bits" "$(digest few)" "$(digest few_parts)"
lockstep train images.yaml optim.lr=0.05 train.steps=24 run.dir=unsaved >/dev/null 2>&1
same "as without saves" "$(digest unsaved)" "$(digest few)"
expect "an older one is among them" test "$(steps_of best1 | wc -w)" -ge 2
run lockstep checkpoint inspect best1
expect "inspect tells the loss" grep -qE '^validation  loss [0-9.]+; the lowest so far: [0-9.]+, after step [0-9]+$' out

# By time: at once, and never.
keys=(images.yaml train.steps=12 checkpoint.keep_last=0)
for ranks in 1 2; do
  succeeds "a save after each step" lockstep train "${keys[@]}" run.dir=often$ranks checkpoint.every_minutes=1e-9 --ranks $ranks
  same "a checkpoint of each" "1 2 3 4 5 6 7 8 9 10 11 12 " "$(steps_of often$ranks)"
  succeeds "all are whole" lockstep checkpoint verify often$ranks
done
succeeds "a save each hour, or four steps" lockstep train "${keys[@]}" run.dir=rarely checkpoint.every_minutes=60 checkpoint.every=4
same "only those of steps" "4 8 12 " "$(steps_of rarely)"
same "the same bits" "$(digest often1)" "$(digest rarely)"

# What cannot have an effect is refused, with its place.
sed 's/^  steps: 30/  steps: 30\n  patience: 3/' images.yaml >patience.yaml
refuses "patience without evaluations" 78 'patience.yaml:6: train.patience: has an effect only with train.eval_every' lockstep train patience.yaml run.dir=refused
refuses "patience without validation" 78 '(rank 0 .*)?patience.yaml:6: train.patience: needs data for validation' \
  lockstep train patience.yaml run.dir=refused train.eval_every=2 data.validation=0 --ranks 2
# The best one, and one of a step, by name.
best=$(grep val_loss best1/metrics.jsonl | while read -r line; do echo "$(field val_loss <<<"$line") $(field step <<<"$line")"; done | sort -g | head -n 1)
succeeds "eval --best" lockstep eval best1 --best
same "--best: its step" "${best#* }" "$(field step <out)"
same "--best: the loss that the run measured" "${best% *}" "$(field loss <out)"
succeeds "eval --at" lockstep eval best1 --at 13
same "--at: its step" 13 "$(field step <out)"
refuses "no such step" 66 "--at 1000: best1 holds no checkpoint of that step; it holds those of [0-9, ]+;" lockstep eval best1 --at 1000
refuses "one of two" 64 "--best and --at: only one of them" lockstep eval best1 --at 13 --best
refuses "of a checkpoint" 64 "--at: .* is no run directory" lockstep eval best1/checkpoints/step-00000013 --at 13
succeeds "export --best" lockstep checkpoint export best1 best.safetensors --best
refuses "no step was evaluated" 66 "--best: none of the checkpoints in early0 was evaluated" \
  bash -c "'$binary' train images.yaml run.dir=early0 train.steps=3 data.validation=0 2>/dev/null && '$binary' checkpoint export early0 none.h5 --best"

# The best by a metric, the highest; across a resume, which counts on.
by=(images.yaml optim.lr=0.05 train.eval_every=2 checkpoint.every=1 checkpoint.keep_last=1 checkpoint.keep_best=1 train.best.metric=f1 train.steps=13)
succeeds "the best by f1" lockstep train "${by[@]}" run.dir=by
succeeds "by f1, cut" lockstep train "${by[@]}" run.dir=by_cut train.steps=5
succeeds "and resumed" lockstep train "${by[@]}" run.dir=by_cut --resume --ranks 2
highest=$(grep val_f1 by/metrics.jsonl | while read -r line; do echo "$(field val_f1 <<<"$line") $(field step <<<"$line")"; done | sort -k1,1gr -k2,2n | head -n 1)
for run in by by_cut; do
  succeeds "eval --best by f1" lockstep eval $run --best train.metrics='[f1]'
  same "$run: the step with the highest f1" "${highest#* }" "$(field step <out)"
  same "$run: that f1" "${highest% *}" "$(field f1 <out)"
done
succeeds "the other way" lockstep train "${by[@]}" run.dir=worst train.best.mode=min
lowest_f1=$(grep val_f1 worst/metrics.jsonl | while read -r line; do echo "$(field val_f1 <<<"$line") $(field step <<<"$line")"; done | sort -k1,1g -k2,2n | head -n 1)
succeeds "eval --best of the lowest" lockstep eval worst --best
same "the step with the lowest f1" "${lowest_f1#* }" "$(field step <out)"
succeeds "patience by a metric" lockstep train images.yaml optim.lr=0 train.eval_every=2 train.patience=3 train.best.metric=auc run.dir=patient
expect "it says by which" grep -q "ended early after step 8: the validation's auc was not higher than" err
refuses "no such metric for the best" 78 "override.*: train.best.metric: there is no metric 'bleu' here" lockstep train images.yaml run.dir=refused train.best.metric=bleu

refuses "several figures for the best" 78 "override.*: train.best.metric: f1_of_classes is several figures" lockstep train images.yaml run.dir=refused train.best.metric=f1_of_classes
# A checkpoint of a step that was not measured is never the best, and a better step without one is named.
succeeds "saved beside the evaluations" lockstep train images.yaml optim.lr=0.05 train.eval_every=4 checkpoint.every=3 train.steps=12 train.best.metric=f1 train.best.mode=min run.dir=beside
succeeds "eval --best of these" lockstep eval beside --best
same "the only step that was measured as it was saved" 12 "$(field step <out)"
lowest_f1=$(grep val_f1 beside/metrics.jsonl | while read -r line; do echo "$(field val_f1 <<<"$line") $(field step <<<"$line")"; done | sort -k1,1g -k2,2n | head -n 1)
if [ "${lowest_f1#* }" != 12 ]; then
  expect "a better one is named" grep -q "warning: --best: the best f1, .*, was measured after step ${lowest_f1#* }, of which beside keeps no checkpoint" err
fi

# Metrics by name, at any number of ranks; what is not there is refused with what is.
succeeds "metrics by name" lockstep eval best1 train.metrics='[f1, auc, recall_of_classes]' --confusion confusion.csv
for name in f1 auc recall/0; do expect "metric $name" grep -q "\"$name\":[01][.0-9]*" out; done
expect "those alone" test "$(grep -c accuracy out)" -eq 0
cp out one
cp confusion.csv confusion1.csv
same "the confusion matrix: a row for each label" "label,0,1,2,3 4" "$(head -n 1 confusion.csv) $(tail -n +2 confusion.csv | wc -l)"
same "all samples are in it" "$(field samples <out)" "$(tail -n +2 confusion.csv | awk -F , '{ for (i = 2; i <= NF; i++) n += $i } END { print n }')"
succeeds "metrics by name, 3 ranks" lockstep eval best1 train.metrics='[f1, auc, recall_of_classes]' --confusion confusion.csv --force --ranks 3
expect "the same line" cmp one out
expect "the same matrix" cmp confusion1.csv confusion.csv
refuses "no such metric" 78 "override.*: train.metrics: there is no metric 'f2' here; there are accuracy, balanced_accuracy" lockstep eval best1 train.metrics='[f2]'

refuses "keep_best without evaluations" 78 'override.*: checkpoint.keep_best: has an effect only with train.eval_every' \
  lockstep train images.yaml run.dir=refused checkpoint.keep_best=1
refuses "keep_best without validation" 78 'override.*: checkpoint.keep_best: needs data for validation' \
  lockstep train images.yaml run.dir=refused checkpoint.keep_best=1 train.eval_every=2 data.validation=0
refuses "keep_best where all are kept" 78 'override.*: checkpoint.keep_best: cannot be given with checkpoint.keep_last: 0' \
  lockstep train images.yaml run.dir=refused checkpoint.keep_best=1 train.eval_every=2 checkpoint.keep_last=0
for wrong in train.patience=-1 checkpoint.every_minutes=-1 checkpoint.every_minutes=.inf checkpoint.keep_best=-1; do
  refuses "$wrong" 78 'override.*: .* is out of range' lockstep train images.yaml run.dir=refused train.eval_every=2 $wrong
done
# A run may be read while it trains and keeps one checkpoint: readers hold what they read, or go on to the newest.
"$binary" train text.yaml train.steps=1000000 schedule.steps=60 checkpoint.every=1 checkpoint.keep_last=1 run.dir=live >/dev/null 2>&1 &
pid=$!
until_step live 3
for i in $(seq 12); do
  succeeds "an export of a live run" lockstep checkpoint export live "live$i.h5"
  succeeds "text from a live run" lockstep generate live --prompt "the cat" --tokens 2
  succeeds "a live run measured" lockstep eval live --ranks 2
  succeeds "another run begins with a live run" lockstep train text.yaml train.steps=0 init.from=live run.dir="from$i"
done
succeeds "a live run verified" lockstep checkpoint verify live
expect "it is still alive" kill -0 "$pid"
kill -TERM "$pid"
ended

finish

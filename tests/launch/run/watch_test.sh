#!/usr/bin/env bash
# train.watch: the same statistics at every layout, the same bits as without, and the layer that is dead or broken named.
# Usage: watch_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
digest() { lockstep checkpoint digest "$1" 2>/dev/null | cut -d' ' -f1; }
watched() { tail -n 1 "$1/metrics.jsonl" | grep -oE '"watch/[^"]*":[^,}]*'; }
watch="train.steps=6 batch.micro=1 train.watch=['blocks.0*','*.weight'] train.watch_every=3"
succeeds "without" lockstep train text.yaml train.steps=6 batch.micro=1 run.dir=without
# shellcheck disable=SC2086
succeeds "on one rank" lockstep train text.yaml $watch run.dir=one
same "no bit changes" "$(digest without)" "$(digest one)"
expect "results" grep -q '"watch/blocks.0/rms":' one/metrics.jsonl
expect "gradients" grep -q '"watch/wte.weight/grad_rms":' one/metrics.jsonl
expect "updates" grep -q '"watch/wte.weight/update_ratio":' one/metrics.jsonl
same "histograms of steps 3 and 6" 2 "$(grep -c '"wte.weight/grad":\[\[' one/histograms.jsonl)"
same "in steps 3 and 6" 2 "$(grep -c watch/ one/metrics.jsonl)"
for level in none optimizer gradients parameters; do
  # shellcheck disable=SC2086
  succeeds "2 ranks, $level" lockstep train text.yaml $watch run.dir=$level --ranks 2 sharding.level=$level
  same "the same statistics: $level" "$(watched one)" "$(watched $level)"
  same "the same histograms: $level" "$(tail -n 1 one/histograms.jsonl)" "$(tail -n 1 $level/histograms.jsonl)"
done
if with_mpi; then
  # shellcheck disable=SC2086
  succeeds "processes" mpi 3 "$binary" train text.yaml $watch run.dir=processes sharding.level=parameters
  same "the same statistics of processes" "$(watched one)" "$(watched processes)"
fi
# A gradient that is not finite is named, by parameter.
# shellcheck disable=SC2086
succeeds "a planted NaN" lockstep train text.yaml $watch run.dir=nan chaos.enabled=true chaos.faults='[{kind: nan, step: 3}]'
expect "it is named" grep -qE 'step 3: .*weight/grad: holds values that are not finite' err
# A loss that jumps, by one target far from all others, is named by the log and by the page.
numbers 120 1000 | awk 'BEGIN { print "x,y" } { print $1 "," (NR == 101 ? 1000000 : $1) }' >table.csv
succeeds "numbers" lockstep data import csv table.csv table.h5 --target y
printf 'train: {steps: 30}\nbatch: {global: 4, micro: 4}\nmodel: {name: mlp}\noptim: {lr: 0.0001}\ndata: {path: table.h5, shuffle: false, validation: 0}\n' >table.yaml
succeeds "a row that is far off" lockstep train table.yaml run.dir=jump
expect "the log names it" grep -qE 'warning: step 26: the loss jumps to [0-9.]+, where it was [0-9.]+: a lower optim.lr' err
same "once" 1 "$(grep -c 'the loss jumps' err)"
succeeds "its page" lockstep report jump --force -o page.html
expect "the page names it" grep -q 'loss jumps to .* after step 26, where it was' page.html
refuses "a pattern without a match" 78 ".*train.watch: 'layers.*' matches no module and no parameter; the model has wte" \
  lockstep train text.yaml run.dir=odd train.watch='[layers.*]'
exit "$failed"

#!/usr/bin/env bash
# profile.memory: what holds the memory at the peak, by use and module, in the log, a file, the page and `lockstep plan`.
# Usage: memory_profile_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
digest() { lockstep checkpoint digest "$1" 2>/dev/null | cut -d' ' -f1; }
peaks() { grep -oE '^\{"step":[0-9]+,"peak":[0-9]+' "$1/profile/memory.jsonl"; }
succeeds "without" lockstep train text.yaml train.steps=6 run.dir=without
expect "no file" test ! -e without/profile
succeeds "with" lockstep train text.yaml train.steps=6 run.dir=with profile.memory=true
same "no bit changes" "$(digest without)" "$(digest with)"
# On a busy machine the peak may lie between the passes, with a batch more that is loaded ahead.
expect "the log explains the peak" \
  grep -qE '^memory: [0-9.]+ [KM]iB at the peak of step [0-9]+(, in the (forward|backward) pass.*)?[:,] .*activations [0-9]+% \(.*blocks\.0-1 [0-9]+%' err
same "once" 1 "$(grep -c '^memory: ' err)"
expect "the first step has a line" grep -q '^{"step":1,"peak":' with/profile/memory.jsonl
expect "shares have modules" grep -q '{"use":"activations","whom":"blocks.0' with/profile/memory.jsonl
# The shares of each line make up its peak.
expect "shares add up" awk '{
  match($0, /"peak":[0-9]+/); peak = substr($0, RSTART + 7, RLENGTH - 7); sum = 0; text = $0
  while (match(text, /"bytes":[0-9]+/)) { sum += substr(text, RSTART + 8, RLENGTH - 8); text = substr(text, RSTART + RLENGTH) }
  if (sum != peak) exit 1
}' with/profile/memory.jsonl
succeeds "recomputed" lockstep train text.yaml train.steps=6 run.dir=less profile.memory=true recompute=block
# A resumed run goes on in the file: no step is there twice.
run lockstep train text.yaml train.steps=6 run.dir=half profile.memory=true --until 4
same "half" 75 "$code"
succeeds "the rest" lockstep train text.yaml train.steps=6 run.dir=half profile.memory=true --resume
same "each step once" "$(peaks half | cut -d, -f1 | sort -u | wc -l)" "$(peaks half | wc -l)"
succeeds "the page" lockstep report with --force -o page.html
expect "the page has the peak" grep -q '"shares":\[{"use":"' page.html
succeeds "a plan" lockstep plan text.yaml --ranks 2
expect "the plan explains its peak" grep -qE '^  parameters: in the backward pass.*activations [0-9]+%.*gathered [0-9]+%' out
# A file that is in the way.
run lockstep train text.yaml train.steps=4 run.dir=blocked --until 2
touch blocked/profile
refuses "a file where the folder should be" 73 '.*blocked/profile: ' lockstep train text.yaml train.steps=4 run.dir=blocked \
  profile.memory=true --resume
exit "$failed"

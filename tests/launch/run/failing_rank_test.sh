#!/usr/bin/env bash
# An exception on one rank ends the whole job within 2 seconds, with that rank's message and little other noise.
# Usage: failing_rank_test.sh FAILING_MODEL MAKE_BAD_TOKENS [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$1" "${3:-}"
make_bad_tokens=$2
make_inputs
sed -e 's/name: convnet/name: failing/' -e '/channels/d' -e '/hidden/d' images.yaml >failing.yaml

# ends WHAT CODE 'REGEXP' command...: within 2 s of the file `thrown`; the message once, as a line of error.
since_thrown() { since "$(stat -c %.Y thrown 2>/dev/null || echo 0)"; }
nobody() { [ -z "$(own_processes "run.dir=$work/")" ]; }
ends() {
  rm -rf thrown runs
  run "${@:4}"
  within 2 "$1: it ends after the failure" "$(since_thrown)"
  expect "$1: exit $2" test "$code" -eq "$2"
  expect "$1: the message" grep -qE "^error: $3" err
  expect "$1: one error" test "$(grep -c '^error' err)" -eq 1
  expect "$1: little noise" test "$(wc -l <err)" -le 16
  await "$1: nobody is left" nobody
}
message='rank 1 on [^ ]+: the model of this test gives up$'
for sleep in false true; do
  keys=(train failing.yaml "model.peers_sleep=$sleep")
  ends "2 threads, peers sleep: $sleep" 1 "$message" lockstep "${keys[@]}" run.dir="$work/runs/t2" --ranks 2
  ends "4 threads, peers sleep: $sleep" 1 'rank 3 on [^ ]+: the model' lockstep "${keys[@]}" run.dir="$work/runs/t4" model.rank=3 model.step=2 --ranks 4
  if with_mpi; then
    ends "mpirun -n 2, peers sleep: $sleep" 1 "$message" mpi 2 "$binary" "${keys[@]}" run.dir="$work/runs/m2"
    ends "mpirun -n 4, peers sleep: $sleep" 1 "$message" mpi 4 "$binary" "${keys[@]}" run.dir="$work/runs/m4" model.step=2
  fi
done
run lockstep train failing.yaml run.dir="$work/t2" --ranks 2
cp "$work/t2/failure.json" out
expect "failure.json: rank" grep -q '"rank": *1' out
expect "failure.json: message" grep -q 'gives up' out
same "failure.json: steps done" 2 "$(field step <out)"
same "failure.json: nothing was compared" -1 "$(field equal_step <out)"
if with_mpi; then # a process that dies without a word: the launcher ends the others, in its own time
  rm -f thrown
  run mpi 2 "$binary" train failing.yaml run.dir="$work/abort" model.how=abort model.peers_sleep=true
  within 10 "abort on rank 1: the job ends" "$(since_thrown)"
  expect "abort on rank 1: the job ends" test "$code" -ne 0
fi

# A token out of range in one rank's data: the file is read piece by piece, and only rank 1 comes to that piece.
# Chunks have 65536 tokens; a step takes 24576, and in the third the second half, rank 1's, reaches the second chunk.
"$make_bad_tokens" beyond.h5 3000000 80000
sed -e 's/text.h5/beyond.h5/' text.yaml >beyond.yaml
keys=(train beyond.yaml data.memory=1 data.shuffle=false model.layers=1 batch.global=1536 batch.micro=768)
message='rank 1 on [^ ]+: beyond.h5: token 80000 is 200, beyond the vocabulary of 10'
run lockstep "${keys[@]}" run.dir="$work/bad1" --ranks 2
expect "a bad token on rank 1: exit 65" test "$code" -eq 65
expect "a bad token on rank 1: the message" grep -qE "^error: $message" err
expect "a bad token on rank 1: one error" test "$(grep -c '^error' err)" -eq 1
same "a bad token on rank 1: the steps before it were done" 2 "$(field step <"$work/bad1/metrics.jsonl" | tail -n 1)"
if with_mpi; then
  run mpi 2 "$binary" "${keys[@]}" run.dir="$work/bad2"
  expect "a bad token, mpirun: exit 65" test "$code" -eq 65
  expect "a bad token, mpirun: the message" grep -qE "^error: $message" err
  expect "a bad token, mpirun: one error" test "$(grep -c '^error' err)" -eq 1
fi
finish

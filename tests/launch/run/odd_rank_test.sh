#!/usr/bin/env bash
# Ranks that are wrong: prove names step, tensor and element; the sentinel of a running training names rank, tensor and steps.
# Usage: odd_rank_test.sh ODD_MODEL FAILING_MODEL [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$1" "${3:-}"
failing_model=$2
make_inputs
sed -e 's/name: convnet/name: odd/' -e '/channels/d' -e '/hidden/d' images.yaml >odd.yaml
sed -e 's/name: convnet/name: failing/' -e '/channels/d' -e '/hidden/d' images.yaml >failing.yaml
value='-?[0-9.]+(e-[0-9]+)? \(0x[0-9a-f]{8}\)'
element="element [0-9]+, \[[0-9]+(, [0-9]+)*\] of \[[0-9]+(, [0-9]+)*\]: $value with 1 rank, none, $value here"

# prove; runs with 1 and 2 ranks differ from step 4 on, whether the odd model's one block is recomputed or not
finds() { # WHAT command...
  run "${@:2}"
  expect "$1: exit 70" test "$code" -eq 70
  expect "$1: the error" grep -qE '^(rank 0: )?error: prove: 2 of 4 runs differ from the first' err
  expect "$1: the table" grep -qE '^2 .* DIFFERS$' out
  expect "$1: where" grep -qE "^2 ranks, none: first differs after step 4 in parameters/mlp[^ ]+ \(and in [0-9]+ more of 15 tensors\), and in the loss, [0-9.]+ and [0-9.]+; $element" out
}
finds "rank 1 sees other inputs" lockstep prove odd.yaml --levels none --ranks 1,2
expect "it repeats itself" test "$(grep -c 'repeat itself' out)" -eq 0
first=$(grep '^2 ranks, none:' out)
finds "found again" lockstep prove odd.yaml --levels none --ranks 1,2
same "with the same words" "$first" "$(grep '^2 ranks, none:' out)"
if with_mpi; then
  finds "mpirun: rank 1 sees other inputs" mpi 2 "$binary" prove odd.yaml --levels none
  same "mpirun: with the same words" "$first" "$(grep '^2 ranks, none:' out)"
fi
run lockstep prove odd.yaml --levels none --ranks 1,2 --steps 3
expect "equal before step 4" test "$code" -eq 0
run lockstep prove odd.yaml --levels none --ranks 1,2 model.step=1 --json
expect "--json: where" grep -qE '"equal":false,"difference":"first differs after step 1 in parameters/' out
expect "--json: the verdict" grep -qE '"verdict":"2 of 4 runs differ from the first","steps":5,"runs":4,"differ":2' out
run lockstep prove odd.yaml --levels none --ranks 2 --resume model.step=3
expect "the same layout, resumed: equal" test "$code" -eq 0
run lockstep prove odd.yaml --levels none --ranks 1,2 --resume model.step=4
expect "resumed runs that differ" grep -qE '^saved with 1 rank, none, resumed with 2 ranks, none: first differs after step 4' out

run lockstep prove odd.yaml --ranks 1,2 --levels none,parameters
expect "a level of its own: exit 70" test "$code" -eq 70
expect "all runs with 2 ranks differ" test "$(grep -cE '^2 .* DIFFERS$' out)" -eq 4
expect "and those with 1 rank do not" test "$(grep -cE '^1 .* equal$' out)" -eq 3
expect "each says where" test "$(grep -cE '^2 ranks, (none|parameters): first differs after step 4 in parameters/' out)" -eq 2

run lockstep prove odd.yaml --levels none --ranks 1,2 model.how=counter
expect "a model that depends on what ran before: exit 70" test "$code" -eq 70
expect "it does not repeat itself" grep -qE '; 1 rank, none does not even repeat itself' out

# An error in one of prove's runs is told once, and nobody waits.
run "$failing_model" prove failing.yaml --ranks 1,2,4 model.rank=1
expect "failing rank: exit 1" test "$code" -eq 1
expect "failing rank: its message, once" test "$(grep -cE '^error: rank 1 on [^ ]+: the model of this test gives up$' err)" -eq 1
expect "failing rank: one error" test "$(grep -c '^error' err)" -eq 1

# The sentinel
message='rank 2 on [^ ]+: step 4: rank 2 holds other values than the other 2 ranks in parameters/scale; they were last found equal after step 2\. .*checkpoint of step 2 or before$'
run lockstep train odd.yaml model.how=flip verify.every=2 run.dir=flip --ranks 3
expect "a flipped bit: exit 76" test "$code" -eq 76
expect "a flipped bit: who, what, when" grep -qE "^error: $message" err
expect "a flipped bit: one error" test "$(grep -c '^error' err)" -eq 1
cp flip/failure.json out
expect "failure.json: rank" grep -q '"rank": *2' out
same "failure.json: the last step done" 4 "$(field step <out)"
same "failure.json: the last step found equal" 2 "$(field equal_step <out)"
expect "failure.json: code" grep -q '"exit_code": *76' out
expect "failure.json: tensor" grep -q 'parameters/scale' out
if with_mpi; then
  run mpi 3 "$binary" train odd.yaml model.how=flip verify.every=2 run.dir=flip_mpi
  expect "mpirun, a flipped bit: exit 76" test "$code" -eq 76
  expect "mpirun, a flipped bit: who, what, when" grep -qE "^error: $message" err
fi
succeeds "nobody looks: nobody finds" lockstep train odd.yaml model.how=flip run.dir=blind --ranks 3
succeeds "one rank has nobody to compare with" lockstep train odd.yaml verify.every=1 run.dir=alone
expect "and says so" grep -qE 'warning: .*verify.every: no two of these ranks hold the same parameters and moments' err
succeeds "clean: nothing is reported" lockstep train odd.yaml model.step=0 verify.every=1 run.dir=clean --ranks 4
same "clean: the digest of a run without verify" "$(lockstep train odd.yaml model.step=0 run.dir=without >/dev/null 2>&1; digest without)" "$(digest clean)"
finish

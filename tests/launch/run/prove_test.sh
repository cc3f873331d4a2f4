#!/usr/bin/env bash
# lockstep prove: hard trainings have one digest at every layout, which is that of `lockstep train`; what it refuses; what it leaves behind.
# Usage: prove_test.sh text|images LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "${@:2}"
kind=$1
make_inputs
keys=()
hard_keys "$kind"
listing() { find . -path ./tmp -prune -o -type f ! -name out ! -name err -print | sort; }
before=$(listing)
# shellcheck disable=SC2317  # called by name
prove() { lockstep prove "$kind.yaml" "${keys[@]}" "$@"; }
# shellcheck disable=SC2317
prove_mpi() { mpi "$1" "$binary" prove "$kind.yaml" "${keys[@]}" "${@:2}"; }
digests() { grep -oE '[0-9a-f]{32}' out | sort -u; }

# All 30 steps, with their uneven batches.
succeeds "prove" prove --ranks 1,3,4 --steps 30 --resume
for level in none optimizer gradients parameters 'gradients +2x2' 'parameters +2x2'; do
  expect "prove: level $level" grep -qE "^4 +local +$level +none .* equal$" out
done
expect "prove: the verdict" grep -qE '^one digest: [0-9]+ runs$' out
expect "prove: saved and resumed, both ways" test "$(grep -cE '(1 -> 4|4 -> 1).* equal, saved and resumed after step 15$' out)" -eq 2
proved=$(digests)
blocks=$(grep -cE "^[134] +local +.* block .* equal$" out || true)
if [ "$kind" = text ]; then wanted=14; else wanted=0; fi
same "prove: runs that recompute blocks, where the model has some" "$wanted" "$blocks"
same "one digest in the table" 1 "$(wc -l <<<"$proved")"
same "no line differs" 0 "$(grep -ci differs out || true)"
same "files that prove left" "$before" "$(listing)"
same "temporary files that prove left" 0 "$(find tmp -mindepth 1 | wc -l)"

succeeds "train" lockstep train "$kind.yaml" "${keys[@]}" run.dir=trained --ranks 2 checkpoint.every=5 checkpoint.keep_last=0
was_hard trained
same "what prove says is what train does" "$proved" "$(digest trained)"
succeeds "prove, 5 steps" prove
same "after 5 steps too" "$(digest trained/checkpoints/step-00000005)" "$(digests)"
same "by default: 1, 2 and 4 ranks" "1 2 4" "$(awk '/ local /{ print $1 }' out | sort -nu | xargs)"

if with_mpi; then
  succeeds "mpirun -n 4" prove_mpi 4 --steps 30 --resume --levels "$(if thorough; then echo all; else echo none,parameters; fi)"
  same "mpirun -n 4" "$proved" "$(digests)"
  expect "mpirun -n 4: its backend" grep -qE '^4 +mpi ' out
  succeeds "mpirun -n 8, threads' digest" prove_mpi 8 batch.micro=2 --ranks 8
  wanted=$(digests)
  succeeds "8 threads" prove batch.micro=2 --ranks 1,8
  same "mpirun -n 8 and threads" "$wanted" "$(digests)"
  run prove_mpi 2 --ranks 4
  expect "more ranks than processes: exit 64" test "$code" -eq 64
  expect "more ranks than processes" grep -q '^error: --ranks 4: the launcher started 2 processes only; start it with -n 4$' err
  same "temporary files of mpirun" 0 "$(find tmp -mindepth 1 | wc -l)"
fi

# What the file says of its own layout does not stand in the way of the others.
succeeds "a sharded configuration" prove --ranks 1,4 sharding.level=parameters sharding.group=2 sharding.gathered_limit=1 sharding.reshard_after_forward=true
same "a sharded configuration" "$(digest trained/checkpoints/step-00000005)" "$(digests)"
for precision in 'precision.compute=bf16' 'precision.compute=bf16 precision.reduce=bf16'; do
  # shellcheck disable=SC2086  # two keys
  succeeds "$precision" prove --resume $precision
  same "$precision: one digest" 1 "$(digests | wc -l)"
  if [ "$(digests)" = "$(digest trained/checkpoints/step-00000005)" ]; then problem "$precision had no effect"; fi
done

# An initial state that was trained is the same start for all.
succeeds "prove init.from" prove init.from=trained --ranks 1,2
if [ "$(digests)" = "$(digest trained/checkpoints/step-00000005)" ]; then problem "init.from had no effect"; fi

# A micro-batch that depends on the number of ranks is fixed, or refused.
succeeds "batch.micro: 0" prove batch.micro=0 batch.global=24
expect "batch.micro: 0: it says so" grep -q '^batch.micro is 0, a share for each rank: set to 6 here, the share of 4 ranks$' out
refuses "batch.micro: 0 that does not divide" 78 '.*batch.micro: 0 makes micro-batches depend.*21 does not divide by 4 ranks' prove batch.micro=0
succeeds "two micro-batches a step" prove batch.micro=11
same "at most as many ranks as micro-batches" "1 2" "$(awk '/ local /{ print $1 }' out | sort -nu | xargs)"
refuses "more ranks than micro-batches" 78 '.*8 ranks are more than the 7 micro-batches' prove --ranks 8

succeeds "reduce: fast" prove --levels none reduce=fast --ranks 1,2,4
expect "reduce: fast: the exact run" grep -qE '^1 .* exact$' out
expect "reduce: fast: one rank has nothing to add in another order" grep -qE '^1 .* 0 in parameters/' out
expect "reduce: fast: four ranks" grep -qE '^4 .* [0-9.]+(e-[0-9]+)? in parameters/' out

succeeds "--json" prove --json --ranks 1,2 --levels none
if [ "$kind" = text ]; then runs=4; else runs=2; fi # the text model recomputes blocks, too
same "--json: a line for each run and the verdict" $((runs + 1)) "$(grep -cE '^\{.*\}$' out)"
same "--json: nothing else" $((runs + 1)) "$(wc -l <out)"
expect "--json: the verdict" grep -qE "\"verdict\":\"one digest\",\"steps\":5,\"runs\":$runs,\"differ\":0" out

refuses "no ranks" 64 "--ranks 1,x: 'x' is not a number" prove --ranks 1,x
refuses "no level" 64 "--levels zero: 'zero' is not one of none, optimizer" prove --levels zero
refuses "no steps" 64 '--steps 0: must be 1 or more' prove --steps 0
refuses "half of one step" 64 '--resume needs --steps 2' prove --steps 1 --resume
refuses "too many steps" 64 "--steps 31: are more than .*train.steps: 30" prove --steps 31
finish

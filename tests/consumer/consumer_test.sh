#!/usr/bin/env bash
# A user's own project: installs this build, builds tests/consumer against the installed package alone, and runs its programs.
# Usage: consumer_test.sh LOCKSTEP BUILD_FOLDER CMAKE [MPIRUN]
source=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/launch/run/common.sh
. "$source/../launch/run/common.sh" "$1" "${4:-}"
build=$2 cmake=$3

# What README.md and docs/library.md show is a part of these files.
shown=0
while IFS= read -r -d '' block; do
  shown=$((shown + 1))
  if [[ "$(cat "$source"/own_{model,task,loop,decoder,predict,weights}.cpp)" != *"$block"* ]]; then problem "program $shown of README.md and docs/library.md is not that of tests/consumer"; fi
done < <(awk '/^```$/ && on { on = 0; printf "%c", 0 } on { print } /^```cpp$/ { on = 1 }' "$source"/../../{README.md,docs/library.md})
same "programs in README.md and docs/library.md" 9 "$shown"

succeeds "install" "$cmake" --install "$build" --prefix "$work/prefix"
for file in bin/lockstep share/bash-completion/completions/lockstep share/zsh/vendor-completions/_lockstep \
  share/fish/vendor_completions.d/lockstep.fish share/man/man1/lockstep.1.gz share/lockstep/configs/gpt_char.yaml \
  share/doc/lockstep/{README.md,copyright,docs/command-line.md,data/FORMAT.md}; do
  if ! [ -s "prefix/$file" ]; then problem "install leaves no $file"; fi
done
expect "the installed manual page" test "$(gunzip -c prefix/share/man/man1/lockstep.1.gz | head -n 1 | cut -d ' ' -f 1,2)" = ".TH LOCKSTEP"
version=$(lockstep --version | cut -d ' ' -f 2)
expect "a module file of this version" grep -q "^#%Module" "prefix/share/lockstep/modulefiles/lockstep/$version"
succeeds "install of the program alone" "$cmake" --install "$build" --prefix "$work/runtime" --component runtime
same "the program alone: no headers, no static libraries" "runtime/bin/lockstep" \
  "$(find runtime -path 'runtime/bin/*' -o -name '*.h' -o -name '*.a' -o -name '*.cmake')"
cp "$source"/{CMakeLists.txt,own_model.cpp,own_model.yaml,own_task.cpp,own_task.yaml,own_pairs.cpp,own_pairs.yaml,own_loop.cpp,own_decoder.cpp,own_predict.cpp,own_weights.cpp} . # nothing of the repository beside them
cp -r "$source"/{core,data} .
bare=$(grep -rnE '^#include "' prefix/include/lockstep | grep -v '"lockstep/' || true)
expect "installed headers include each other with the prefix; not $bare" test -z "$bare"
same "installed headers lie below include/lockstep" "lockstep" "$(ls prefix/include)"
installed=$(find prefix/include -name '*.h' | wc -l)
expect "at most 91 headers are installed, not $installed" test "$installed" -le 91
succeeds "configure the consumer" "$cmake" -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix"
succeeds "build the consumer" "$cmake" --build build
if [ "$failed" -ne 0 ]; then finish; fi

own=build/own_model
succeeds "own_model knows its keys" $own config keys
expect "own_model: model.blocks is documented" grep -qE '^model\.blocks .*gated blocks' out
succeeds "own_model, 1 rank" $own train own_model.yaml run.dir=one compute.threads=1
wanted=$(digest one) # lockstep's own: a digest needs no model
succeeds "own_model --ranks 2" $own train own_model.yaml run.dir=two --ranks 2
same "own_model --ranks 2" "$wanted" "$(digest two)"
if with_mpi; then
  succeeds "own_model, mpirun -n 2" mpi 2 $own train own_model.yaml run.dir=mpi
  same "own_model, mpirun -n 2" "$wanted" "$(digest mpi)"
fi
succeeds "own_model prove" $own prove own_model.yaml --ranks 1,2,3 --resume
expect "own_model prove: the verdict" grep -qE '^one digest: [0-9]+ runs$' out
if with_mpi; then
  proved=$(grep -oE '[0-9a-f]{32}' out | sort -u)
  succeeds "own_model prove, mpirun -n 3" mpi 3 $own prove own_model.yaml --ranks 1,3
  same "own_model prove, mpirun -n 3" "$proved" "$(grep -oE '[0-9a-f]{32}' out | sort -u)"
fi
succeeds "own_model eval" $own eval one
expect "own_model eval: a line of JSON" grep -qE '^\{.*"loss":[0-9.]+' out
refuses "lockstep itself does not know the model" 78 '.*gated' prefix/bin/lockstep train own_model.yaml run.dir=no
refuses "own_model: a key it has not" 78 '.*model.layers' $own train own_model.yaml run.dir=no model.layers=3

own=build/own_task
succeeds "own_task, 2 ranks" $own train own_task.yaml run.dir=task --ranks 2
expect "own_task learns" awk -v first="$(field loss <task/metrics.jsonl | head -n 1)" -v last="$(field val_loss <task/metrics.jsonl | tail -n 1)" \
  'BEGIN { exit !(last != "" && last < 0.02 && last < first / 10) }'
expect "own_task: its metric" grep -q '"val_worst_error":0\.' task/metrics.jsonl
succeeds "own_task prove" $own prove own_task.yaml --ranks 1,2,3 --resume
expect "own_task prove: the verdict" grep -qE '^one digest: [0-9]+ runs$' out
refuses "own_task: a key of its optimizer alone" 78 '.*optim.epsilon: 2 .*' $own train own_task.yaml run.dir=no optim.epsilon=2

own=build/own_pairs
succeeds "own_pairs, 2 ranks" $own train own_pairs.yaml run.dir=pairs --ranks 2
expect "own_pairs learns: 60 pairs that it has not seen, 24 at a time" awk -v found="$(field val_found <pairs/metrics.jsonl | tail -n 1)" 'BEGIN { exit !(found > 0.6) }'
succeeds "own_pairs prove" $own prove own_pairs.yaml train.steps=12 --ranks 1,2,3 --resume
expect "own_pairs prove: the verdict" grep -qE '^one digest: [0-9]+ runs$' out
succeeds "own_pairs, micro-batches of 3" $own train own_pairs.yaml run.dir=threes batch.micro=3 train.steps=5
succeeds "own_pairs, of which one is all" $own train own_pairs.yaml run.dir=whole batch.micro=24 train.steps=5
expect "own_pairs: the loss is over the global batch, whatever its micro-batches" awk -v a="$(field loss <threes/metrics.jsonl | tail -n 1)" \
  -v b="$(field loss <whole/metrics.jsonl | tail -n 1)" 'BEGIN { d = a - b; exit !(a != "" && d < 1e-4 && d > -1e-4) }'

succeeds "own_decoder, one prompt" build/own_decoder "the cat"
same "own_decoder: its tokens, and why it ended" 9 "$(sed -nE '/^0: (token [0-9]+|length)$/p' out | wc -l)"
cp out alone
succeeds "own_decoder, three prompts" build/own_decoder "the cat" "on the mat" "a"
expect "own_decoder: each prompt ends" test "$(grep -cE '^[012]: (length|end)$' out)" = 3
expect "own_decoder: the first as alone" cmp -s alone <(grep '^0:' out)

{ echo a,b,kind && numbers 40 50 3 | awk '{ print $1 "," NR % 7 "," ($1 > 25 ? "high" : "low") }'; } >rows.csv
succeeds "import of rows" prefix/bin/lockstep data import csv rows.csv rows.h5 --label kind
printf 'run: {dir: rows}\ntrain: {steps: 60}\nbatch: {global: 8}\nmodel: {name: mlp, hidden: [8]}\noptim: {lr: 0.02}\ndata: {path: rows.h5, validation: 0}\n' >rows.yaml
succeeds "a run of rows" prefix/bin/lockstep train rows.yaml
succeeds "own_predict" build/own_predict rows 45 3
expect "own_predict: two probabilities" awk '{ sum += $2; p[$1] = $2 } END { exit !(NR == 2 && p["high"] > 0.8 && sum > 0.99999 && sum < 1.00001) }' out
refuses "own_predict: a run that is not there" 66 "nowhere" build/own_predict nowhere 45 3

succeeds "own_loop, 1 rank" build/own_loop loop1 300
wanted=$(tail -n 1 out)
losses=$(sed -nE 's/^step [0-9]+  loss //p' out | xargs)
if ! awk '{ exit !($NF < 0.05 && $NF < $1 / 2) }' <<<"$losses"; then problem "own_loop does not learn: $losses"; fi
succeeds "own_loop, 2 ranks" build/own_loop loop2 300 2
same "own_loop, 2 ranks" "$wanted" "$(tail -n 1 out)"
succeeds "own_loop, 2 ranks, half of it" build/own_loop loop3 150 2
succeeds "own_loop goes on, 1 rank" build/own_loop loop3 300
same "own_loop, in two parts" "$wanted" "$(tail -n 1 out)"
if with_mpi; then
  succeeds "own_loop, mpirun -n 2" mpi 2 build/own_loop loop4 300
  same "own_loop, mpirun -n 2" "$wanted" "$(tail -n 1 out)"
fi
for model in gpt2 qwen2 vit; do
  folder=$source/../parity/hf/$model
  succeeds "lockstep converts $model" prefix/bin/lockstep checkpoint convert "$folder" "wanted_$model" --to hf
  succeeds "own_weights, $model" build/own_weights "$folder" "own_$model"
  succeeds "own_weights, $model: the same files" diff -r "wanted_$model" "own_$model"
done
refuses "own_weights: a folder that is not there" 66 '.*nowhere.*' build/own_weights nowhere own_none

succeeds "lockstep reads own_loop's checkpoint" prefix/bin/lockstep checkpoint digest loop1
same "with the same digest" "$wanted" "$(tail -n 1 out)"
finish

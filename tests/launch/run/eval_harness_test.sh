#!/usr/bin/env bash
# `eval --task` of folders of transformers: log-probabilities and continued texts of each document are those of lm-evaluation-harness
# 0.4.13 with its defaults, in float64 (tests/parity/make_tasks.py): with <s> in front of a text where the tokenizer puts it there, and
# with the frequencies that transformers has for a text's length.
# Usage: eval_harness_test.sh LOCKSTEP FOLDER, which is tests/parity/tasks
folder=$2
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$1"

tasks="$folder/choices.yaml,$folder/words.yaml,$folder/whole.yaml,$folder/said.yaml"
# Of lines of --to, or of expected ones: the task, the document and what was found, as one field each.
found() { sed -E 's/.*"task":"([a-z]*)","document":([0-9]*).*"(log_probabilities|generated)":(\[[^]]*\]|"([^"\\]|\\.)*").*/\1 \2 \4/'; }
# as_expected WHAT MODEL SPECIAL FILE
as_expected() {
  grep -F "\"model\":\"$2\"" "$folder/expected.jsonl" | grep -F "\"special\":$3" | found >wanted
  found <"$4" >ours
  expect "$1: documents" test "$(wc -l <wanted)" -eq "$(wc -l <ours)"
  expect "$1: continued texts" cmp -s <(grep '^said' wanted) <(grep '^said' ours)
  # The mean of all numbers of a line may not hide a wrong one: each is compared.
  paste -d '\n' wanted ours | grep -v '^said' | tr -d '[]' | awk -v what="$1" '
    NR % 2 { name = $1 " " $2; n = split($3, wanted, ","); next }
    { m = split($3, ours, ",")
      if ($1 " " $2 != name || m != n) { print "FAILED: " what ": " name " and " $1 " " $2; bad = 1; next }
      for (i = 1; i <= n; ++i) {
        d = ours[i] - wanted[i]
        if (d < 0) d = -d
        if (d > 1e-6 + 2e-5 * -wanted[i]) { print "FAILED: " what ": " name ": " ours[i] " for " wanted[i]; bad = 1 }
      } }
    END { exit bad }' || failed=1
}

succeeds "a tokenizer that puts <s> in front" lockstep eval "$folder/llama" --task "$tasks" --to llama.out
as_expected "a tokenizer that puts <s> in front" llama true llama.out
expect "a tokenizer that puts <s> in front: the log says how texts are encoded" grep -qF "texts are encoded as <s>TEXT" err
cp out figures
succeeds "on two ranks" lockstep eval "$folder/llama" --task "$tasks" --to two.out --ranks 2
expect "on two ranks: the same" cmp -s two.out llama.out
expect "on two ranks: the same figures" cmp -s out figures
succeeds "without special tokens" lockstep eval "$folder/llama" train.eval_special_tokens=false --task "$tasks" --to plain.out
as_expected "without special tokens" llama false plain.out
refuses "a key that is no truth" 78 "train.eval_special_tokens=maybe: must be true or false" \
  lockstep eval "$folder/llama" train.eval_special_tokens=maybe --task "$tasks"

succeeds "frequencies by length" lockstep eval "$folder/phi3" --task "$tasks" --to phi3.out
as_expected "frequencies by length" phi3 true phi3.out
expect "frequencies by length: nothing is put around texts" test "$(grep -c 'texts are encoded' err)" -eq 0
# A text that grows beyond the first length, by `generate`: as the harness continues it.
text=$(sed -n 4p "$folder/said.jsonl" | sed -E 's/.*"q": "([^"]*)".*/\1/')
wanted=$(grep -F '"model":"phi3","task":"said","document":3' "$folder/expected.jsonl" | sed -E 's/.*"generated":"(.*)"}/\1/')
succeeds "generate" lockstep generate "$folder/phi3" --prompt "$text" --tokens 12 --temperature 0 --json
same "generate: the text" "$wanted" "$(sed -E 's/.*"text":"(([^"\\]|\\.)*)".*/\1/' out)"

# A run that began with the folder is scored with its tokenizer; from the same weights the figures are the folder's.
for _ in $(seq 30); do echo 'the cat sees the dog.'; done >text.txt
succeeds "import" lockstep data import text text.txt text.h5 --tokenizer "$folder/llama"
begins=(init.from="$folder/llama" data.path=text.h5 data.context=40 data.validation=0.2 batch.global=2 train.steps=1 optim.lr=0)
printf '{}\n' >run.yaml
succeeds "a run" lockstep train run.yaml "${begins[@]}" run.dir=run "train.eval_tasks=[$folder/words.yaml]" train.best.metric=words/acc
succeeds "a run's scores" lockstep eval run --task "$folder/words.yaml" --to run.out
expect "a run's scores: those of the folder" cmp -s run.out <(grep '"task":"words"' llama.out)
expect "a run's scores: those during training" grep -qF "\"val_words/perplexity\":$(sed -E 's/.*"perplexity":([0-9.e+-]*).*/\1/' out)" run/metrics.jsonl
# Likewise of frequencies by length, where the run's key asks for them.
succeeds "import for phi3" lockstep data import text text.txt phi3.h5 --tokenizer "$folder/phi3"
succeeds "a run by length" lockstep train run.yaml init.from="$folder/phi3" data.path=phi3.h5 data.context=48 data.validation=0.2 batch.global=2 \
  train.steps=1 optim.lr=0 model.rope_by_length=true run.dir=lengths "train.eval_tasks=[$folder/words.yaml]"
succeeds "a run by length: scores" lockstep eval lengths --task "$folder/words.yaml" --to lengths.out
expect "a run by length: those of the folder" cmp -s lengths.out <(grep '"task":"words"' phi3.out)
expect "a run by length: those during training" \
  grep -qF "\"val_words/perplexity\":$(sed -E 's/.*"perplexity":([0-9.e+-]*).*/\1/' out)" lengths/metrics.jsonl
# Resumed the other way, which the log says once.
succeeds "a run resumed the other way" lockstep train run.yaml "${begins[@]}" run.dir=run "train.eval_tasks=[$folder/words.yaml]" train.steps=2 \
  train.best.metric=words/acc train.eval_special_tokens=false --resume
same "a run resumed the other way: the log says so once" 1 \
  "$(grep -c 'train.eval_tasks: scores before were of texts encoded as <s>TEXT, those from now on are of TEXT' err)"
succeeds "a run that goes on so" lockstep train run.yaml "${begins[@]}" run.dir=run "train.eval_tasks=[$folder/words.yaml]" train.steps=3 \
  train.best.metric=words/acc train.eval_special_tokens=false --resume
same "a run that goes on so: nothing is to be said" 0 "$(grep -c 'scores before' err || true)"
finish

#!/usr/bin/env bash
# `eval --task`: tasks of lm-evaluation-harness on a model that was trained here: what must be right is; the same figures at every number
# of ranks and after an interruption; a text's log-probability is that of `predict`; what is wrong is named.
# Usage: eval_tasks_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"

for _ in $(seq 40); do printf 'the cat sees the dog.\nthe dog sees the cow.\nthe cow sees the cat.\n'; done >text.txt
succeeds "import" lockstep data import text text.txt text.h5 --level byte
cat >text.yaml <<'YAML'
seed: 1
model: {name: llama, layers: 2, heads: 2, kv_heads: 1, width: 32}
optim: {lr: 0.01}
batch: {global: 8, micro: 4}
train: {steps: 200}
data: {path: text.h5, context: 48, validation: 0}
YAML
succeeds "train" lockstep train text.yaml run.dir=run

choice() { printf '{"who": "%s", "options": %s, "right": %s}\n' "$1" "$2" "$3"; }
{
  choice cat '["the cow.", "the dog.", "a tree."]' 1
  choice dog '["the cow.", "the dog.", "the cat."]' 0
  choice cow '["the dog.", "the cat.", "it."]' 1
} >choices.jsonl
task() { # NAME KIND lines...
  { printf 'task: %s\noutput_type: %s\ndataset_path: json\n' "$1" "$2" && printf '%s\n' "${@:3}"; } >"$1.yaml"
}
task choices multiple_choice 'dataset_kwargs: {data_files: {test: choices.jsonl}}' 'test_split: test' 'doc_to_text: "the {{ who }} sees"' \
  'doc_to_choice: options' 'doc_to_target: right'
printf '{"q": "the cat sees the", "a": " DOG"}\n{"q": "the cow sees the", "a": " cat"}\n{"q": "the dog sees the", "a": " cat"}\n' >said.jsonl
task said generate_until 'dataset_kwargs: {data_files: said.jsonl}' 'doc_to_text: q' 'doc_to_target: "{{ a }}"' \
  'generation_kwargs: {until: ["."], max_gen_toks: 8}' 'metric_list: [{metric: exact_match, ignore_case: true}]'
task words loglikelihood 'dataset_kwargs: {data_files: said.jsonl}' 'doc_to_text: q' 'doc_to_target: "{{ a | lower }}"'
printf '{"t": "the cat sees the dog.\\nthe dog"}\n' >whole.jsonl
for i in $(seq 300); do printf '{"t": "the cat sees %d dogs, the dog sees the cow, the cow sees a cat and %d trees."}\n' "$i" "$i"; done >>whole.jsonl
task whole loglikelihood_rolling 'dataset_kwargs: {data_files: whole.jsonl}' 'doc_to_text: ""' 'doc_to_target: t'
metric() { sed -E 's/.*"'"$1"'":([-0-9.e+]*).*/\1/' out; }

succeeds "choices" lockstep eval run --task choices.yaml
same "choices: all are right" "1.0" "$(metric acc)"
same "choices: three documents" 1 "$(grep -c '"task":"choices",.*"documents":3,"metrics":{"acc":1.0,"acc_stderr":0.0,"acc_norm":' out)"
succeeds "continued texts" lockstep eval run --task said.yaml --to said.out
same "continued texts: two of three are right" "0.6666666666666666" "$(metric exact_match)"
same "continued texts: what was said" ' dog| cat| cow' "$(sed -E 's/.*"generated":"([^"]*)".*/\1/' said.out | paste -sd '|')"
succeeds "words" lockstep eval run --task words.yaml
same "words: the most likely ones" "0.6666666666666666" "$(metric acc)"
refuses "a text that nothing is before" 65 "whole.yaml: document 0: nothing is before what is scored, and the tokenizer tells no token" \
  lockstep eval run --task whole.yaml

# A tokenizer with a token for the end, so that whole texts can be scored; as `predict` does, but for their first token.
succeeds "tokenizer" lockstep tokenizer train text.txt bpe.json --vocab-size 270
succeeds "import of tokens" lockstep data import text text.txt tokens.h5 --tokenizer bpe.json
succeeds "train on tokens" lockstep train text.yaml run.dir=tokens data.path=tokens.h5 data.context=32
succeeds "whole texts" lockstep eval tokens --task whole.yaml --to whole.out
all="choices.yaml,said.yaml,words.yaml,whole.yaml"
succeeds "all on one rank" lockstep eval tokens --task "$all" --to one.out
cp out one.figures
for more in "--ranks 2" "--ranks 3"; do
  # shellcheck disable=SC2086  # several words
  succeeds "all, $more" lockstep eval tokens --task "$all" --to more.out --force $more
  expect "all, $more: the same figures" cmp -s out one.figures
  expect "all, $more: the same documents" cmp -s more.out one.out
done
succeeds "sharded parameters" lockstep train text.yaml run.dir=sharded data.path=tokens.h5 data.context=32 sharding.level=parameters --ranks 2
succeeds "all of a sharded run" lockstep eval sharded --task "$all" --ranks 2
expect "all of a sharded run: the same figures" cmp -s <(sed 's/sharded/tokens/' out) one.figures

# What was cut short goes on, though its last line is cut, too.
succeeds "an evaluation to a file" lockstep eval tokens --task "$all" --to cut.out
refuses "a file that is there" 73 "cut.out.*" lockstep eval tokens --task "$all" --to cut.out
rm cut.out
"$binary" eval tokens --task "$all" --to cut.out >/dev/null 2>&1 &
started=$!
until [ -s cut.out.partial ] || ! kill -0 $started 2>/dev/null; do sleep 0.01; done
kill -KILL $started 2>/dev/null || true
wait $started 2>/dev/null || true
rm -f cut.out
printf '{"task":"choices","docu' >>cut.out.partial
succeeds "what was cut short goes on" lockstep eval tokens --task "$all" --to cut.out
expect "what was cut short: the same figures" cmp -s out one.figures
expect "what was cut short: the same documents" cmp -s cut.out one.out
expect "what was cut short: nothing is left over" test ! -e cut.out.partial

# During training: as the command measures the same step, at every number of ranks and sharding level.
during() { lockstep train text.yaml run.dir="$1" data.path=tokens.h5 data.context=32 data.validation=0.2 train.eval_every=100 \
  "train.eval_tasks=[choices.yaml, whole.yaml]" train.best.metric=choices/acc checkpoint.keep_best=1 "${@:2}"; }
scores() { grep -o '"val_choices/acc":.*' "$1/metrics.jsonl"; }
succeeds "tasks during training" during by
expect "tasks during training: in the log" grep -qE 'step 100: validation loss [0-9.]+, .*choices/acc [0-9.]+, choices/acc_norm [0-9.]+, whole/word_perplexity' err
succeeds "tasks during training on two ranks" during by2 --ranks 2 sharding.level=parameters
same "tasks during training: the same scores" "$(scores by)" "$(scores by2)"
expect "tasks during training: two evaluations" test "$(scores by | wc -l)" -eq 2
succeeds "the command of the last step" lockstep eval by --task choices.yaml,whole.yaml
expect "the command of the last step: the same scores" grep -qF "\"word_perplexity\":$(scores by | tail -n 1 | sed -E 's/.*"val_whole\/word_perplexity":([-0-9.e+]*).*/\1/')" out
succeeds "the best checkpoint by a task" lockstep eval by --best --task choices.yaml
expect "the best checkpoint by a task: the first that was as good" grep -q 'step-00000100' out
sed 's/name: llama, layers: 2, heads: 2, kv_heads: 1/name: bert, layers: 1, heads: 2/; s/context: 48/context: 48, mask: 0.2/; s/steps: 200/steps: 1/' text.yaml >encoder.yaml
succeeds "an encoder" lockstep train encoder.yaml run.dir=encoder
refuses "an encoder" 78 "--task: the model of encoder, bert, sees a text as a whole" lockstep eval encoder --task choices.yaml
refuses "tasks that continue texts" 78 ".*train.eval_tasks: said.yaml: continues texts" during x "train.eval_tasks=[said.yaml]"
refuses "a best metric that no task measures" 78 ".*train.best.metric: no task of train.eval_tasks measures x/acc" during x train.best.metric=x/acc

# What is refused.
bad() { # WHAT CODE 'REGEXP' lines of the task...
  task bad "${@:4}"
  refuses "$1" "$2" "$3" lockstep eval run --task bad.yaml
}
of_choices='dataset_kwargs: {data_files: choices.jsonl}'
bad "another kind" 78 "bad.yaml:2: output_type: \"classify\" is none of multiple_choice" classify "$of_choices"
bad "Python" 78 "bad.yaml:.: process_docs: is not supported" multiple_choice "$of_choices" 'process_docs: f'
bad "no choices" 78 "bad.yaml: multiple_choice needs doc_to_choice" multiple_choice "$of_choices" 'doc_to_text: who' 'doc_to_target: right'
bad "a metric" 78 "bad.yaml:.: metric: f1 is no metric of multiple_choice here" multiple_choice "$of_choices" 'metric_list: [{metric: f1}]'
bad "a template" 78 "bad.yaml:.: doc_to_text, line 1: .*" multiple_choice "$of_choices" 'doc_to_text: "{{ who"'
bad "a field that is not there" 65 "bad.yaml: document 0 of choices.jsonl: bad.yaml:.: doc_to_text, line 1: 'whom' is undefined" multiple_choice \
  "$of_choices" 'doc_to_text: "{{ whom }}"' 'doc_to_choice: options' 'doc_to_target: right'
bad "an answer that is no choice" 65 "bad.yaml: document 0 of choices.jsonl: doc_to_target: the answer is choice 9 of 3" multiple_choice "$of_choices" \
  'doc_to_text: who' 'doc_to_choice: options' 'doc_to_target: "9"'
bad "an answer by text that is no choice" 65 "bad.yaml: document 0 of choices.jsonl: doc_to_target: the answer \"cat\" is not among its choices" multiple_choice "$of_choices" \
  'doc_to_text: "the {{ who }}"' 'doc_to_choice: options' 'doc_to_target: who'
bad "documents that are not there" 66 "nowhere.jsonl.*" multiple_choice 'dataset_kwargs: {data_files: nowhere.jsonl}' 'doc_to_text: who' \
  'doc_to_choice: options' 'doc_to_target: right'
bad "examples that are not there" 65 "bad.yaml: document 0 of choices.jsonl: num_fewshot: there are 3 examples of 9" multiple_choice "$of_choices" 'doc_to_text: who' \
  'doc_to_choice: options' 'doc_to_target: right' 'num_fewshot: 9'
refuses "a task that is not there" 66 "cannot read the configuration nowhere.yaml.*" lockstep eval run --task nowhere.yaml
refuses "a part of data" 64 "lockstep eval: --on is for data, not for --task" lockstep eval run --task choices.yaml --on all
refuses "documents without a task" 64 "lockstep eval: --to is for --task" lockstep eval run --to x
finish

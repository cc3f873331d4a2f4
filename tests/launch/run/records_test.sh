#!/usr/bin/env bash
# Fine-tuning on conversations: JSON lines are imported from files, pipes and compressed files, a run that starts from a folder of
# transformers packs them and has the same bits at any number of ranks and level, also resumed; and what is wrong is refused with one line.
# Usage: records_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
hf=$(cd "$OLDPWD" && cd "$(dirname "$0")/../../parity/hf" && pwd)

numbers 60 7 | awk 'BEGIN { split("cab bat sit base nuts test ten", w) } { n = $1 + 1
  printf "{\"messages\": [{\"role\": \"user\", \"content\": \"%s", w[n]; for (i = 0; i < n; i++) printf " an"
  printf "\"}, {\"role\": \"assistant\", \"content\": \"%s %s\"}]}\n", w[8 - n], w[n] }' >chat.jsonl
printf 'user: assistant\ncb' >letters.txt
import() { lockstep data import json "$@" --messages messages --vocabulary letters.txt --force; }
plain() { import "$@" --template plain; }
succeeds "import" plain chat.jsonl chat.h5
expect "import: what it made" grep -qE '^records: 60 of [0-9]+ to [0-9]+ tokens, median [0-9]+$' out
identity=$(sed -n 's/^identity: *//p' out)
gzip -k chat.jsonl
succeeds "import, gzipped" plain chat.jsonl.gz other.h5
same "gzipped: the same identity" "$identity" "$(sed -n 's/^identity: *//p' out)"
from_pipe() { gzip -c chat.jsonl | plain - other.h5; }
succeeds "import of a pipe" from_pipe
same "a pipe: the same identity" "$identity" "$(sed -n 's/^identity: *//p' out)"
succeeds "inspect" lockstep data inspect chat.h5 --json
expect "inspect: records" grep -q '"records":60,' out

for model in gpt2 qwen3; do
  cat >fine.yaml <<YAML
init: {from: $hf/$model}
run: {dir: run}
train: {steps: 3, eval_every: 3}
batch: {global: 4, micro: 1}
data: {path: chat.h5, context: 20, packing: pack}
YAML
  succeeds "$model: one digest at every layout" lockstep prove fine.yaml --ranks 1,2,3 --steps 2 --resume
  expect "$model: it says so" grep -q '^one digest: ' out
  rm -rf run
  succeeds "$model: it trains" lockstep train fine.yaml checkpoint.every=2
  whole=$(digest run)
  cp -r run killed && rm -rf killed/checkpoints/step-00000003
  succeeds "$model: resumed on other ranks" lockstep train fine.yaml run.dir=killed --resume --ranks 2 sharding.level=parameters
  same "$model: the digest of the resumed run" "$whole" "$(digest killed)"
  refuses "$model: not with another packing" 78 ".*data.packing was pack and is pad" \
    lockstep train fine.yaml run.dir=killed train.steps=4 data.packing=pad --resume
  rm -rf killed
  succeeds "$model: eval" lockstep eval run --ranks 2
done
# Buckets: micro-batches of like length.
bucketed() { "$@" data.packing=pad data.buckets=4 batch.micro=2 batch.global=6; }
succeeds "buckets: one digest at every layout" bucketed lockstep prove fine.yaml --ranks 1,2,3 --steps 3 --resume
expect "buckets: it says so" grep -q '^one digest: ' out
succeeds "pools of buckets: one digest at every layout" bucketed lockstep prove fine.yaml data.bucket_pool=4 --ranks 1,2,3 --steps 3 --resume
expect "pools of buckets: it says so" grep -q '^one digest: ' out
refuses "a pool without buckets" 78 ".*data.bucket_pool.*has an effect only with data.buckets" \
  lockstep train fine.yaml run.dir=never data.bucket_pool=4
rm -rf cut && succeeds "buckets: it trains" bucketed lockstep train fine.yaml run.dir=cut train.eval_every=1
rm -rf cut3 && succeeds "buckets: on other ranks" bucketed lockstep train fine.yaml run.dir=cut3 train.eval_every=1 --ranks 3
same "buckets: the same validation" "$(field val_loss <cut/metrics.jsonl | paste -sd ' ')" "$(field val_loss <cut3/metrics.jsonl | paste -sd ' ')"
rounded() { field loss <"$1/metrics.jsonl" | while read -r loss; do printf '%.4f ' "$loss"; done; }
rm -rf uncut && succeeds "buckets: without them" lockstep train fine.yaml run.dir=uncut \
  train.eval_every=1 data.packing=pad batch.micro=2 batch.global=6
same "buckets: the same losses, but for rounding" "$(rounded uncut)" "$(rounded cut)"
succeeds "buckets: eval" lockstep eval cut
bucketed_loss=$(field loss <out) && bucketed_targets=$(field targets <out)
succeeds "buckets: eval of padded records" lockstep eval cut data.buckets=1
same "buckets: the same targets" "$bucketed_targets" "$(field targets <out)"
same "buckets: the same loss, but for rounding" "$(printf %.4f "$bucketed_loss")" "$(printf %.4f "$(field loss <out)")"
refuses "buckets of samples of one length" 78 ".*data.buckets is 4, but samples are of one length" \
  lockstep train fine.yaml run.dir=never data.buckets=4
refuses "hidden tokens of packed records" 78 ".*data.mask is set: it takes data.packing: windows or pad" \
  lockstep train fine.yaml run.dir=never data.mask=0.1
grep -v '^init' fine.yaml >hidden.yaml && echo 'model: {name: bert, layers: 1, heads: 2, width: 8}' >>hidden.yaml
succeeds "hidden tokens in buckets: one digest" bucketed lockstep prove hidden.yaml data.mask=0.3 --ranks 1,2,3 --steps 3 --resume
expect "hidden tokens in buckets: it says so" grep -q '^one digest: ' out
# Several files: shards by a pattern, sources by weight.
head -n 30 chat.jsonl >first.jsonl && tail -n 30 chat.jsonl >second.jsonl
for part in first second; do succeeds "shard $part" plain $part.jsonl shard-$part.h5; done
succeeds "shards" lockstep prove fine.yaml 'data.path=shard-*.h5' --ranks 1,2 --steps 2 --resume
expect "shards: one digest" grep -q '^one digest: ' out
grep -v '^data:' fine.yaml >mixed.yaml
echo 'data: {sources: [{path: shard-first.h5, weight: 3}, {path: shard-second.h5, weight: 1}], context: 20, packing: pack}' >>mixed.yaml
succeeds "a mixture" lockstep prove mixed.yaml --ranks 1,2,3 --steps 2 --resume
expect "a mixture: one digest" grep -q '^one digest: ' out
rm -rf mixed && succeeds "a mixture trains" lockstep train mixed.yaml run.dir=mixed
sed -i 's/weight: 3/weight: 2/' mixed.yaml
refuses "a resumed mixture keeps its weights" 65 ".*was trained on other data" lockstep train mixed.yaml run.dir=mixed train.steps=4 --resume
refuses "a pattern of nothing" 66 "none-\*.h5: no file has such a name" lockstep train fine.yaml run.dir=never 'data.path=none-*.h5'
# Text from a pipe.
make_text text.txt 500 && lockstep data import text text.txt text.h5 >out 2>&1
identity=$(sed -n 's/^identity: *//p' out)
text_pipe() { gzip -c text.txt | lockstep data import text - piped.h5; }
succeeds "text from a pipe, compressed" text_pipe
same "text from a pipe: the same identity" "$identity" "$(sed -n 's/^identity: *//p' out)"
bad_pipe() { printf 'a\377' | lockstep data import text - none.h5; }
refuses "text from a pipe that is no UTF-8" 65 "standard input: invalid UTF-8 at byte 1" bad_pipe
expect "no output and no leftovers" test -z "$(find . -name 'none.h5*')"
# What a validation costs and what it is of.
validated() { # RANKS NAME
  succeeds "$2" lockstep train fine.yaml run.dir="$2" --ranks "$1" train.eval_samples=2 train.eval_every=1
  expect "$2: the share of time" grep -qE '^(rank 0: )?validation took [0-9.]+ s, [0-9]+% of the time' err
}
validated 1 one && validated 3 three
same "a part of the validation is the same at any number of ranks" "$(field val_loss <one/metrics.jsonl | paste -sd ' ')" \
  "$(field val_loss <three/metrics.jsonl | paste -sd ' ')"
succeeds "a validation file" lockstep train fine.yaml run.dir=apart data.validation=0 data.validation_path=chat.h5
same "a validation file: all of it" "$(lockstep eval apart --on all | field loss)" "$(lockstep eval apart | field loss)"
refuses "a validation file and a share" 78 ".*set data.validation to 0" lockstep train fine.yaml run.dir=never data.validation_path=chat.h5
refuses "a validation file of other tokens" 65 "text.h5: does not fit the data of chat.h5: " \
  lockstep train fine.yaml run.dir=never data.validation=0 data.validation_path=text.h5 data.packing=windows
succeeds "show" lockstep data show chat.h5 --index 59
expect "show: what is no target is marked" grep -q '^⟦user: ' out
grep -v '^init' fine.yaml >lstm.yaml && echo 'model: {name: lstm, layers: 1, width: 8}' >>lstm.yaml
refuses "a model that would mix records" 78 ".*data.packing: lstm does not keep the records of a sample apart" \
  lockstep train lstm.yaml run.dir=never
refuses "text without records" 78 ".*data.packing is set, but the data has no records" lockstep train fine.yaml run.dir=never data.path=text.h5

sed '7s/}$//' chat.jsonl >bad.jsonl
rm -f new.h5
refuses "a broken line" 65 "bad.jsonl:7: is no JSON object" plain bad.jsonl new.h5
expect "a broken line: no output" test ! -e new.h5
expect "a broken line: no leftovers" test -z "$(find . -name 'new.h5*')"
succeeds "--skip-bad" plain bad.jsonl new.h5 --skip-bad 1
expect "--skip-bad: it is named" grep -q '^warning: bad.jsonl:7: ' err
expect "--skip-bad: the others are there" grep -q '^records: 59 ' out
head -c 200 chat.jsonl.gz >cut.gz
refuses "a truncated file" 65 "cut.gz: gzip data is truncated" plain cut.gz new.h5
refuses "a template that is none" 64 "there is no template x; there are chatml, llama3, plain" import chat.jsonl new.h5 --template x
refuses "options of text" 64 "data import json: --level is for text" import chat.jsonl new.h5 --level byte
# Pairs of answers: both are kept, and a run with data.packing: pack or pad trains on the chosen ones.
sed -E 's/^\{"messages": (.*"content": ")([^"]*)("\}\])\}$/{"chosen": \1\2\3, "rejected": \1sit\3}/' chat.jsonl >preferences.jsonl
succeeds "pairs" lockstep data import json preferences.jsonl pairs.h5 --chosen chosen --rejected rejected --template plain --vocabulary letters.txt
expect "pairs: it says what is trained on" grep -qE '^pairs: 60, chosen of median [0-9]+ tokens, rejected of [0-9]+; a run trains on both, or on the chosen ones$' out
succeeds "pairs: inspect" lockstep data inspect pairs.h5 --json
expect "pairs: counted" grep -q '"pairs":60,"median_chosen":' out
succeeds "pairs: show" lockstep data show pairs.h5 --index 59
expect "pairs: the rejected one" [ "$(grep -c '⟧sit' out)" -ge 1 ]
trained() { succeeds "training on $1" lockstep train fine.yaml run.dir="on-$1" data.path="$1.h5"; }
trained pairs && trained chat
same "pairs: the steps of the chosen answers" "$(field loss <on-chat/metrics.jsonl | paste -sd ' ')" "$(field loss <on-pairs/metrics.jsonl | paste -sd ' ')"
refuses "pairs: not in windows" 78 ".*the data holds pairs" lockstep train fine.yaml run.dir=never data.path=pairs.h5 data.packing=windows
refuses "half a pair" 64 "a pair has two answers" lockstep data import json preferences.jsonl none.h5 --chosen chosen
# Labels: a new head on a folder of transformers, one digest, eval, and back to a folder.
numbers 60 7 3 | awk 'BEGIN { split("cab bat sit base nuts test ten", w) } { n = $1 + 1; printf "{\"text\": \"%s", w[n]
  for (i = 0; i < n; i++) printf " an"; printf "\", \"kind\": \"%s\"}\n", n % 2 ? "odd" : "even" }' >kinds.jsonl
printf 'abceinstu ' >kinds.txt
labelled() { lockstep data import json "$@" kinds.h5 --label kind --vocabulary kinds.txt --force; }
succeeds "labels" labelled kinds.jsonl
expect "labels: counted" grep -qE '^records per class: [0-9]+ \(even\), [0-9]+ \(odd\)$' out
cat >kinds.yaml <<YAML
init: {from: $hf/bert, new: ['pooler.*', 'head.*']}
run: {dir: kinds}
train: {steps: 3, eval_every: 3}
batch: {global: 6, micro: 1}
model: {dropout: 0.1}
data: {path: kinds.h5, context: 20}
YAML
succeeds "labels: one digest at every layout" lockstep prove kinds.yaml --ranks 1,2,3 --steps 2 --resume
expect "labels: it says so" grep -q '^one digest: ' out
succeeds "labels in buckets: one digest" lockstep prove kinds.yaml --ranks 1,2,3 --steps 2 --resume batch.micro=2 data.buckets=5
expect "labels in buckets: it says so" grep -q '^one digest: ' out
succeeds "labels: it trains" lockstep train kinds.yaml
expect "labels: texts that are cut" grep -qE "^warning: [0-9]+ of [0-9]+ texts are longer than kinds.yaml:[0-9]+: data.context: 20 tokens, and what is beyond is not read; the longest has [0-9]+\$" err
succeeds "labels: eval" lockstep eval kinds --ranks 2
expect "labels: accuracy" grep -q '"accuracy":' out
evaluated=$(field loss <out)
succeeds "labels: export" lockstep checkpoint export kinds kinds.hf --to hf
expect "labels: the class of transformers" grep -q BertForSequenceClassification kinds.hf/config.json
succeeds "labels: from what was exported" lockstep train kinds.yaml init.from=kinds.hf 'init.new=[]' run.dir=again train.steps=0
succeeds "labels: eval of that" lockstep eval again
same "labels: the same loss" "$evaluated" "$(field loss <out)"
refuses "labels: not without a head" 65 ".*bert.pooler.dense.weight is missing" lockstep train kinds.yaml run.dir=none 'init.new=[]'
text_config >text.yaml
refuses "labels: not for a language model" 78 ".*model.name: gpt does not fit the data: it reads 'labels'" \
  lockstep train text.yaml run.dir=none data.path=kinds.h5
refuses "labels: none" 65 "kinds.jsonl:1: has no field \"sort\"" lockstep data import json kinds.jsonl none.h5 --label sort
# BERT with its own vocabulary: records between [CLS] and [SEP], hidden by [MASK], as many ids as the folder has.
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' cab bat sit base nuts test ten an '##s' a b c e i n s t u . , '!' '?' x y >vocab.txt
succeeds "wordpiece: import" lockstep data import json kinds.jsonl words.h5 --tokenizer vocab.txt
expect "wordpiece: its level" grep -qx 'level: wordpiece' out
expect "wordpiece: its size" grep -qx 'vocabulary: 29' out
same "wordpiece: between [CLS] and [SEP]" '[CLS] bat an an [SEP]' "$(lockstep data show words.h5 --index "$(grep -n '"bat an an"' kinds.jsonl | head -1 | awk -F: '{ print $1 - 1 }')" | sed -n 2p)"
same "wordpiece: text alone" '6 12 13 23' "$(printf 'B\303\241t ans.\n' | lockstep tokenizer encode vocab.txt -)"
same "wordpiece: and back" 'bat ans.' "$(echo '6 12 13 23' | lockstep tokenizer decode words.h5 -)"
cat >hidden-words.yaml <<YAML
init: {from: $hf/bert}
run: {dir: hidden-words}
train: {steps: 3, eval_every: 3}
batch: {global: 6, micro: 1}
data: {path: words.h5, context: 20, packing: pad, mask: 0.3}
YAML
succeeds "wordpiece: one digest at every layout" lockstep prove hidden-words.yaml --ranks 1,2,3 --steps 2 --resume
expect "wordpiece: it says so" grep -q '^one digest: ' out
succeeds "wordpiece: it trains" lockstep train hidden-words.yaml
succeeds "wordpiece: export" lockstep checkpoint export hidden-words words.hf --to hf
same "wordpiece: the exported list" "$(cat vocab.txt)" "$(cat words.hf/vocab.txt)"
succeeds "wordpiece: from what was exported" lockstep train hidden-words.yaml init.from=words.hf run.dir=hidden-again train.steps=0
mkdir pickled && cp "$hf/bert/config.json" pickled && touch pickled/pytorch_model.bin
refuses "a pickle of PyTorch" 66 ".*pickled: holds pytorch_model.bin and no model.safetensors; .*save_pretrained" \
  lockstep train hidden-words.yaml init.from=pickled run.dir=never
finish

#!/usr/bin/env bash
# bits_per_byte and bits_per_word of `eval`, against bytes and words that wc and awk count in the text that the targets stand for, with tokens
# that are bytes, characters, byte pairs, and pieces of SentencePiece; and the same at several ranks.
# Usage: bits_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
pieces=$(cd "$OLDPWD" && cd "$(dirname "$0")/../../data/sentencepiece" && pwd)

make_text words.txt 1500
sed -E 's/cat/café/g; s/red/røde  漢字/g; s/bird/\tbird/g' words.txt >text.txt
text_config | sed 's/path: text.h5/path: data.h5/; s/context: [0-9]*/context: 16/; s/steps: 30/steps: 3/' >text.yaml
metrics='train.metrics=[bits_per_byte, bits_per_word, bits_per_token]'

# What eval says of all of a file, against loss x targets / ln 2 over bytes by wc and words by awk. All tokens but the first are targets; the word
# that the first begins is none of theirs.
counted() { # NAME BYTES WORDS
  succeeds "$1: train" lockstep train text.yaml run.dir="$1" data.path="$1.h5"
  succeeds "$1: eval" lockstep eval "$1" --on all "$metrics"
  tail -n 1 out >line
  awk -v loss="$(field loss <line)" -v targets="$(field targets <line)" -v bytes="$2" -v words="$3" -v per_byte="$(field bits_per_byte <line)" \
    -v per_word="$(field bits_per_word <line)" -v per_token="$(field bits_per_token <line)" 'BEGIN {
      bits = loss * targets / log(2)
      near = 1e-12
      exit !(targets > 100 && per_byte > 0 && (d = per_byte * bytes / bits - 1) < near && d > -near &&
             (d = per_word * words / bits - 1) < near && d > -near && (d = per_token * targets / bits - 1) < near && d > -near) }' ||
    problem "$1: $2 bytes and $3 words by hand; $(cat line)"
  succeeds "$1: eval on 3 ranks" lockstep eval "$1" --on all "$metrics" --ranks 3
  same "$1: the same bits on 3 ranks" "$(sed 's/.*"loss"//' line)" "$(tail -n 1 out | sed 's/.*"loss"//')"
}
words_of() { LC_ALL=C awk '{ n += NF } END { print n + 0 }'; }

succeeds "import of bytes" lockstep data import text text.txt bytes.h5 --level byte
counted bytes $(($(wc -c <text.txt) - 1)) $(($(words_of <text.txt) - 1))
same "bytes: bits per byte are those per token" "$(field bits_per_token <line)" "$(field bits_per_byte <line)"

succeeds "import of characters" lockstep data import text text.txt characters.h5
expect "the text begins with a letter, which is one byte" grep -qE '^[a-z]' text.txt
counted characters $(($(wc -c <text.txt) - 1)) $(($(words_of <text.txt) - 1))

succeeds "tokenizer" lockstep tokenizer train text.txt bpe.json --vocab-size 300
succeeds "import of byte pairs" lockstep data import text text.txt pairs.h5 --tokenizer bpe.json
succeeds "encode" lockstep tokenizer encode bpe.json text.txt
tr -s ' \n' '\n\n' <out | sed -n 1p >first
succeeds "decode the first" lockstep tokenizer decode bpe.json first
cp out first.txt
counted pairs $(($(wc -c <text.txt) - $(wc -c <first.txt))) $(($(words_of <text.txt) - $(words_of <first.txt)))

# Records: the separator is no text, but its loss counts; each record is one sample, whose first token is no target.
printf '{"text": "the cat"}\n{"text": "sat on a mat"}\n{"text": " red birds "}\n' >records.jsonl
succeeds "import of records" lockstep data import json records.jsonl records.h5 --tokenizer bpe.json --separator '<|endoftext|>'
succeeds "train on records" lockstep train text.yaml run.dir=records data.path=records.h5 data.packing=pad data.validation=0 batch.global=2 batch.micro=1
succeeds "eval of records" lockstep eval records --on all "$metrics"
tail -n 1 out >line
bytes=0 words=0 targets=0
while IFS= read -r text; do
  printf '%s' "$text" >one
  lockstep tokenizer encode bpe.json one | tr -s ' \n' '\n\n' >ids
  head -n 1 ids >first
  first=$(lockstep tokenizer decode bpe.json first | wc -c)
  bytes=$((bytes + $(wc -c <one) - first))
  words=$((words + $(words_of <one) - $(lockstep tokenizer decode bpe.json first | words_of)))
  targets=$((targets + $(grep -c . ids)))
done < <(sed -E 's/.*: "(.*)"\}/\1/' records.jsonl)
same "records: targets" "$targets" "$(field targets <line)"
awk -v loss="$(field loss <line)" -v targets="$targets" -v bytes="$bytes" -v words="$words" -v b="$(field bits_per_byte <line)" \
  -v w="$(field bits_per_word <line)" 'BEGIN { bits = loss * targets / log(2); x = b * bytes / bits - 1; y = w * words / bits - 1
    exit !(x < 1e-12 && x > -1e-12 && y < 1e-12 && y > -1e-12) }' || problem "records: $bytes bytes and $words words by hand; $(cat line)"

# Pieces of SentencePiece, where the build has it: bytes of tokens by themselves, and the space in front is one of the text's bytes.
if lockstep tokenizer inspect "$pieces/bpe.model" >/dev/null 2>&1; then
  printf '{"text": "hello world"}\n{"text": "\xe2\x98\x83 red"}\n' >pieces.jsonl
  succeeds "import of pieces" lockstep data import json pieces.jsonl pieces.h5 --tokenizer "$pieces/bpe.model"
  succeeds "train on pieces" lockstep train text.yaml run.dir=pieces data.path=pieces.h5 data.packing=pad data.validation=0 batch.global=2 batch.micro=1
  succeeds "eval of pieces" lockstep eval pieces --on all "$metrics"
  expect "eval of pieces: both" grep -qE '"bits_per_byte":[0-9.]+,"bits_per_word":[0-9.]+|"bits_per_token":[0-9.]+,"bits_per_byte":[0-9.]+,"bits_per_word"' out
fi

# Validations of a run have them, and choose by them; ids alone stand for nothing that is known.
succeeds "in a run" lockstep train text.yaml run.dir=run data.path=pairs.h5 train.eval_every=1 train.best.metric=bits_per_byte checkpoint.keep_best=1 \
  checkpoint.every=1
same "in a run: a line each" 3 "$(field val_bits_per_byte <run/metrics.jsonl | wc -l)"
sed '/path: data.h5/d' text.yaml >ids.yaml
refuses "ids alone" 78 ".*train.metrics: there is no metric 'bits_per_byte' here; there are accuracy, bits_per_token" \
  lockstep train ids.yaml run.dir=no data.name=synthetic_tokens train.metrics='[bits_per_byte]'
finish

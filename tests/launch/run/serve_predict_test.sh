#!/usr/bin/env bash
# `lockstep serve` of models that predict: rows of a table, texts and images get what `lockstep predict` says of them, whoever else asks.
# Usage: serve_predict_test.sh LOCKSTEP
here=$(realpath "$(dirname "$0")")
golden=$here/predict
pictures=$(realpath "$here/../../data/images")
# shellcheck source=tests/launch/run/common.sh
. "$here/common.sh" "$@"
# shellcheck source=tests/launch/run/serving.sh
. "$here/serving.sh"
predictions() { sed -E 's/.*"predictions":\[(.*)\]\}$/\1/; s/\},\{/}\n{/g' out; }

# A table: the first rows of a file as JSON, the same by predict.
succeeds "import" lockstep data import csv "$golden/known.csv" table.h5 --label kind --leave-out id,price
cat >table.yaml <<'YAML'
run: {dir: table}
train: {steps: 20}
batch: {global: 16, micro: 8}
model: {name: mlp, hidden: [8]}
data: {path: table.h5, validation: 0.1}
compute: {threads: 1}
YAML
succeeds "a run" lockstep train table.yaml
{ head -n 1 "$golden/new.csv" | cut -d, -f2- && sed -n '2,21p' "$golden/new.csv" | cut -d, -f3-; } >rows.csv # without names, which hold a comma
succeeds "predict" lockstep predict table rows.csv -o wanted.jsonl --top 3
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) name[i] = $i; next }
  { row = ""; for (i = 1; i <= NF; i++) row = row (i > 1 ? ", " : "") "\"" name[i] "\": " ($i ~ /^-?[0-9.]+$/ ? $i : "\"" $i "\""); print "{" row "}" }' rows.csv >rows.jsonl
list=$(paste -sd, rows.jsonl)
sed -E 's/^\{.*("prediction":)/{\1/' wanted.jsonl >wanted
serve table
expect "it says what it serves" grep -q '^serving table (table; 3 classes: ash, beech, oak' served.log
ask /v1/predict "{\"rows\": [$list], \"top\": 3}"
same "predictions" 200 "$status"
predictions >found
expect "as predict's" cmp -s wanted found
clients=()
while read -r row; do # each in a folder of its own, as it writes its reply
  i=${#clients[@]}
  mkdir "client.$i"
  (cd "client.$i" && ask /v1/predict "{\"rows\": [$row], \"top\": 3}") &
  clients+=($!)
done < <(head -n 8 rows.jsonl)
wait "${clients[@]}"
for i in "${!clients[@]}"; do (cd "client.$i" && predictions); done >found
expect "row by row, eight clients at once" cmp -s <(head -n 8 wanted) found
expect "texts of numbers are numbers" test "$(ask /v1/predict "{\"rows\": [$(head -n 1 rows.jsonl | sed -E 's/: (-?[0-9.]+)/: "\1"/g')], \"top\": 3}" && predictions)" = "$(head -n 1 wanted)"
ask /v1/models
expect "what it reads" grep -q '"reads":"rows"' out
ask /metrics
expect "metrics" grep -qx 'lockstep_serve_predict_samples_total 29' out
ask /v1/predict '{"rows": [{"nothing": 1}]}'
rejects "no such columns" 400 "row"
expect "no file of ours is named" test "$(grep -c '/tmp\|rows.jsonl' out)" -eq 0
ask /v1/predict '{"rows": []}'
rejects "no rows" 400 "'rows' must be a list of objects"
ask /v1/predict '{"rows": [1]}'
rejects "no row" 400 "'rows' must be a list of objects"
ask /v1/predict '{"texts": ["a"]}'
rejects "texts" 400 "'rows' must be a list"
ask /v1/predict "{\"rows\": [$list], \"top\": -1}"
rejects "top" 400 "'top' is -1"
ask /v1/predict "{\"rows\": [$list], \"tpo\": 1}"
rejects "an unknown field" 400 "'tpo' is no field"
ask /v1/completions '{"prompt": "a"}'
rejects "a completion" 404 "there is nothing at /v1/completions"
same "the request's files are gone" 0 "$(find tmp -name 'rows.jsonl' | wc -l)"
ends 0
same "and their folder" 0 "$(find tmp -mindepth 1 | wc -l)"

# Images, as the body.
mkdir -p in/grey in/colour
cp "$pictures"/{grey,bits,grey16}.png "$pictures"/grey.jpg in/grey
cp "$pictures"/{rgb,palette,rgba}.png "$pictures"/{rgb,progressive}.jpg in/colour
succeeds "import of images" lockstep data import images in in.h5
cat >folder.yaml <<'YAML'
run: {dir: folder}
train: {steps: 10}
batch: {global: 6, micro: 2}
model: {name: vit, patch: 4, layers: 1, heads: 2, width: 16}
data: {path: in.h5, validation: 0.2, image: {height: 8, width: 8}}
compute: {threads: 1}
YAML
succeeds "a run of images" lockstep train folder.yaml
succeeds "predict" lockstep predict folder in/grey/grey.png in/colour/rgb.jpg -o wanted.jsonl --top 2 --force
serve folder
send() { # FILE TYPE
  { printf 'POST /v1/predict?top=2 HTTP/1.0\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n' "$2" "$(wc -c <"$1")" && cat "$1"; } | raw
}
send in/grey/grey.png image/png && predictions >found
send in/colour/rgb.jpg image/jpeg && predictions >>found
expect "as predict's" cmp -s <(sed -E 's/^\{.*("prediction":)/{\1/' wanted.jsonl) found
head -c $(($(wc -c <in/grey/grey.png) / 2)) in/grey/grey.png >broken.png
send broken.png image/png
rejects "half an image" 400 "image 0.png"
: >empty
send empty image/png
rejects "no image" 400 "the body is empty"
ask /v1/predict '{"rows": [{"a": 1}]}'
rejects "a row" 400 "the model reads images"
ends 0

# Embeddings of texts: the values of a layer, as predict --layer has them.
make_text text.txt 800
succeeds "import of text" lockstep data import text text.txt text.h5
text_config >text.yaml
succeeds "a run of text" lockstep train text.yaml train.steps=3
printf 'the cat sat\na mat and it saw many red birds\n' >texts.txt # the second is longer than the context
succeeds "predict" lockstep predict run texts.txt --layer blocks.1 --pool mean -o wanted.jsonl --force
serve run --layer blocks.1
ask /v1/embeddings '{"input": ["the cat sat", "a mat and it saw many red birds"], "model": "run"}'
same "embeddings" 200 "$status"
expect "as predict's" cmp -s <(grep -oE '"values":\[[^]]*' wanted.jsonl | cut -d '[' -f 2) <(grep -oE '"embedding":\[[^]]*' out | cut -d '[' -f 2)
expect "usage" grep -q '"usage":{"prompt_tokens":42,"total_tokens":42}' out
ask /v1/embeddings '{"input": "the cat sat", "encoding_format": "base64"}'
first=$(grep -oE '"embedding":"[^"]*' out | cut -d '"' -f 4 | base64 -d | od -An -v -tf4 | awk '{ for (i = 1; i <= NF; i++) print $i }' | sed -n 1p)
expect "as base64" awk -v a="$first" -v b="$(grep -oE '"values":\[[^,]*' wanted.jsonl | sed -n 1p | cut -d '[' -f 2)" 'BEGIN { d = a - b; exit !(a != "" && d < 1e-5 && d > -1e-5) }'
ask /v1/embeddings '{"input": [1, 2]}'
rejects "token ids" 400 "'input' must be a text or a list of texts"
ask /v1/embeddings '{"input": "a", "dimensions": 3}'
rejects "dimensions" 400 "'dimensions' is not supported"
ends 0
refuses "another pooling" 64 "--pool max: must be mean, first or last" lockstep serve run --layer blocks.1 --pool max --listen 0
exit "$failed"

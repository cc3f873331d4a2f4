#!/usr/bin/env bash
# `lockstep serve`: its texts are those of `lockstep generate`, alone and beside others, whole and as a stream; log-probabilities; bad requests,
# attacks and clients that go; the end of the server.
# Usage: serve_test.sh LOCKSTEP
here=$(realpath "$(dirname "$0")")
tokenizer=$(realpath "$here/../../data/chat")/tokenizer.json
# shellcheck source=tests/launch/run/common.sh
. "$here/common.sh" "$@"
make_inputs
# shellcheck source=tests/launch/run/serving.sh
. "$here/serving.sh"

succeeds "a run" lockstep train text.yaml
serve run --name cats --batch 4
expect "it says what it serves" grep -qE '^serving cats \([0-9]+ parameters, fp32, a context of 16 tokens, 4 texts at once\)' served.log
expect "it takes no conversations, as it says" grep -q '^it takes no conversations: .*the template' served.log

ask /health
same "health" '200 {"status":"ok"}' "$status $(cat out)"
ask /v1/models
expect "models" grep -qE '"id":"cats","object":"model".*"max_model_len":16' out
ask /
expect "the page" grep -q '<title>Lockstep</title>' out
expect "its policy" grep -qiE "^Content-Security-Policy: default-src 'none'; script-src 'nonce-[0-9a-f]{32}'" reply
expect "its nonce" grep -q "<script nonce=\"$(grep -oE "nonce-[0-9a-f]{32}" reply | sed -n 1p | cut -c 7-)\">" out

# The same texts as those of generate.
for seed in 1 7; do
  for sampling in '0' '0.8'; do
    succeeds "generate" lockstep generate run --prompt "the cat" --tokens 9 --temperature $sampling --seed $seed --json
    texts >generated
    ask /v1/completions "{\"model\": \"cats\", \"prompt\": \"the cat\", \"max_tokens\": 9, \"temperature\": $sampling, \"seed\": $seed}"
    same "a completion" 200 "$status"
    same "as generate, temperature $sampling, seed $seed" "$(cat generated)" "$(texts)"
    ask /v1/completions "{\"prompt\": \"the cat\", \"max_tokens\": 9, \"temperature\": $sampling, \"seed\": $seed, \"stream\": true}"
    same "as a stream" "$(cat generated)" "$(texts)"
    same "its last event" "data: [DONE]" "$(grep . out | tail -n 1)"
  done
done
expect "its events" grep -qE '^data: \{"id":"cmpl-[0-9a-f]{24}","object":"text_completion","created":[0-9]+,"model":"cats","system_fingerprint":"fp_[0-9a-f]{16}","seed":7,"choices":\[\{"index":0,"text":' out
ask /v1/completions '{"prompt": "the cat", "max_tokens": 5}'
expect "a seed of its own" grep -qE '"seed":[0-9]+' out
seed=$(field seed <out)
texts >first
ask /v1/completions "{\"prompt\": \"the cat\", \"max_tokens\": 5, \"seed\": $seed}"
same "which makes the text again" "$(cat first)" "$(texts)"
expect "usage" grep -q '"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}' out
expect "its end" grep -q '"finish_reason":"length"' out

# Several texts at once have the bits of each alone; so do choices of one prompt, of which the first has the seed itself.
prompts=("the" "a cat sat on" "many red" "and it saw a" "mat" "birds")
for prompt in "${prompts[@]}"; do
  ask /v1/completions "{\"prompt\": \"$prompt\", \"max_tokens\": 4, \"seed\": 3, \"logprobs\": 2}"
  sed -E 's/.*"choices":\[\{"index":0,(.*\})\],"usage".*/\1/' out
done >alone
list=$(printf ', "%s"' "${prompts[@]}")
ask /v1/completions "{\"prompt\": [${list:2}], \"max_tokens\": 4, \"seed\": 3, \"logprobs\": 2}"
sed -E 's/.*"choices":\[\{"index":0,(.*\})\],"usage".*/\1/; s/\},\{"index":[0-9]+,/}\n/g' out >together
expect "a list of prompts" cmp -s alone together
ask /v1/completions '{"prompt": "the", "max_tokens": 6, "seed": 3, "n": 3}'
same "three choices" 3 "$(grep -o '"index":' out | wc -l)"
grep -oE '"text":"[^"]*"' out | sed -n 1p >first
ask /v1/completions '{"prompt": "the", "max_tokens": 6, "seed": 3}'
expect "the first has the seed itself" grep -qF "$(cat first)" out
clients=()
for i in "${!prompts[@]}"; do # in folders of their own, as each writes its reply
  mkdir "client.$i"
  (cd "client.$i" && ask /v1/completions "{\"prompt\": \"${prompts[i]}\", \"max_tokens\": 4, \"seed\": 3, \"logprobs\": 2}") &
  clients+=($!)
done
wait "${clients[@]}"
for i in "${!prompts[@]}"; do sed -E 's/.*"choices":\[\{"index":0,(.*\})\],"usage".*/\1/' "client.$i/out"; done >together
expect "several clients at once" cmp -s alone together

# Log-probabilities of a prompt and of what follows: what the model says of a text does not depend on how it is asked.
ask /v1/completions '{"prompt": "the cat", "max_tokens": 0, "echo": true, "logprobs": 1}'
same "echo alone" "the cat" "$(texts)"
expect "the first token has none" grep -q '"token_logprobs":\[null,-' out
same "one for each character" 7 "$(grep -oE '"token_logprobs":\[[^]]*\]' out | tr ',' '\n' | wc -l)"
expect "offsets" grep -q '"text_offset":\[0,1,2,3,4,5,6\]' out
grep -oE '"token_logprobs":\[[^]]*' out | cut -d ',' -f 2- >echoed
ids=$(ask /tokenize '{"prompt": "the cat"}' && sed -E 's/.*"tokens":(\[[^]]*\]).*/\1/' out)
ask /v1/completions "{\"prompt\": $ids, \"max_tokens\": 0, \"echo\": true, \"logprobs\": 1}"
expect "the same of token ids" grep -qF -- "$(cat echoed)" out
ask /v1/completions '{"prompt": "the ", "max_tokens": 3, "temperature": 0, "echo": true, "logprobs": 0}'
more=$(texts)
grep -oE '"token_logprobs":\[[^]]*' out | cut -d ',' -f 2- >grown
ask /v1/completions "{\"prompt\": \"$more\", \"max_tokens\": 0, \"echo\": true, \"logprobs\": 0}"
same "those of new tokens are those of the same tokens in a prompt" "$(cat grown)" "$(grep -oE '"token_logprobs":\[[^]]*' out | cut -d ',' -f 2-)"
ask /detokenize "{\"tokens\": $ids}"
same "and back" '{"prompt":"the cat"}' "$(cat out)"
ask /v1/completions '{"prompt": "the cat", "max_tokens": 9, "temperature": 0, "stop": [" ", "q"]}'
expect "a stop" grep -q '"finish_reason":"stop"' out
expect "is not shown" test "$(texts | grep -c ' ')" -eq 0

# Bad requests are refused by name.
ask /v1/completions '{"prompt": "the cat"'
rejects "half an object" 400 "the body is no JSON object"
ask /v1/completions "$(printf '[%.0s' {1..40})"
rejects "no object" 400 "the body is no JSON object"
ask /v1/completions "{\"prompt\": $(printf '[%.0s' {1..40})$(printf ']%.0s' {1..40})}"
rejects "a deep one" 400 "nested deeper than 32 levels"
ask /v1/completions '{"max_tokens": 3}'
rejects "no prompt" 400 "'prompt' is missing"
ask /v1/completions '{"prompt": "the", "prompt": "a"}'
rejects "a key twice" 400 "has a key twice"
ask /v1/completions "$(printf '{"prompt": "\xff"}')"
rejects "bytes that are no UTF-8" 400 "is no UTF-8"
ask /v1/completions '{"prompt": "Zebra"}'
rejects "a character that it has not" 400 "'prompt': .*'Z'"
ask /v1/completions '{"prompt": [1, 99]}'
rejects "a token that it has not" 400 "'prompt' holds 99"
ask /v1/completions '{"prompt": [1, -1]}'
rejects "a negative one" 400 "'prompt' holds -1"
ask /v1/completions '{"prompt": []}'
rejects "no tokens" 400 "'prompt' must be a text"
ask /v1/completions '{"prompt": "the cat sat on a mat"}'
rejects "a long prompt" 400 "the prompt has 20 tokens; the model's context is 16"
ask /v1/completions '{"prompt": "the cat", "max_tokens": 11}'
rejects "too many tokens" 400 "the prompt has 7 tokens, and 11 are asked for; the model's context is 16"
ask /v1/completions '{"prompt": "the cat", "max_tokens": 10}'
same "as many as there is room for" 200 "$status"
for field in '"max_tokens": -1' '"max_tokens": 1e30' '"temperature": -1' '"temperature": "hot"' '"top_p": 2' '"n": 0' '"n": 1000000' '"logprobs": 21' '"stop": [1]' '"stop": ""' \
  '"seed": 1.5' '"stream": 1' '"best_of": 3' '"presence_penalty": 1' '"logit_bias": {"1": 5}' '"suffix": "x"' '"tempreature": 1' '"max_tokens": 0' '"echo": "yes"'; do
  ask /v1/completions "{\"prompt\": \"the\", $field}"
  name=$(cut -d '"' -f 2 <<<"$field")
  rejects "$field" 400 "'$name'"
  expect "$field: by name" grep -q "\"param\":\"$name\"" out
done
ask /v1/completions '{"model": "dogs", "prompt": "the"}'
rejects "another model" 404 "there is no model 'dogs' here; the one that is served is 'cats'"
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "the"}]}'
rejects "a conversation" 400 "cannot take messages"
ask /nothing
rejects "another path" 404 "there is nothing at /nothing; there is /, /detokenize"
ask /health '{}'
rejects "another method" 405 "/health is asked by GET, not by POST"

# Attacks on who may ask, and on where a request ends.
body='{"prompt": "the", "max_tokens": 1}'
request() { # HEADERS... : a request with this body, complete but for what is given
  printf 'POST /v1/completions HTTP/1.1\r\n'
  printf '%s\r\n' "$@"
  printf '\r\n%s' "$body"
}
usual=("Host: localhost" "Content-Type: application/json" "Connection: close")
request "${usual[@]}" "Content-Length: ${#body}" | raw
same "a request by hand" 200 "$status"
request "Host: evil.example" "${usual[@]:1}" "Content-Length: ${#body}" | raw
rejects "a name that was pointed here" 403 "the request's Host is 'evil.example'"
request "${usual[@]}" "Origin: https://evil.example" "Content-Length: ${#body}" | raw
rejects "a page of another origin" 403 "pages of https://evil.example may not use this server"
request "${usual[@]}" "Origin: http://localhost" "Content-Length: ${#body}" | raw
same "its own page" 200 "$status"
request "Host: localhost" "Content-Type: text/plain" "Connection: close" "Content-Length: ${#body}" | raw
rejects "a body that any page can send" 415 "the Content-Type is 'text/plain'"
request "${usual[@]}" "Content-Length: ${#body}" "Content-Length: ${#body}" | raw
rejects "two lengths" 400 "more than one Content-Length"
request "${usual[@]}" "Content-Length: ${#body}" "Transfer-Encoding: chunked" | raw
rejects "a length and chunks" 400 "both Content-Length and Transfer-Encoding"
request "${usual[@]}" "Transfer-Encoding: chunked, identity" | raw
rejects "an encoding" 400 "its Transfer-Encoding is not 'chunked'"
request "${usual[@]}" "Content-Length: 3x" | raw
rejects "a length that is none" 400 "its Content-Length is no number"
request "${usual[@]}" "X: a" " b" "Content-Length: ${#body}" | raw
rejects "a folded header" 400 "a header is folded"
request "Host: localhost" "${usual[@]}" "Content-Length: ${#body}" | raw
rejects "two hosts" 400 "more than one Host"
request "${usual[@]:1}" "Content-Length: ${#body}" | raw
rejects "no host" 400 "it has no Host"
printf 'POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' | raw
rejects "chunks in HTTP/1.0" 400 "which HTTP/1.0 does not know"
printf 'GET / HTTP/1.1\r\nHost : localhost\r\n\r\n' | raw
rejects "a space before the colon" 400 "is no header"
printf 'GET / HTTP/1.1\nHost: localhost\r\n\r\n' | raw
rejects "a lone line feed" 400 "does not end in CR LF"
printf 'GET / HTTP/1.1\r\nHost: local\001host\r\n\r\n' | raw
rejects "a control character" 400 "a control character"
printf 'GET / HTTP/2.7\r\nHost: localhost\r\n\r\n' | raw
rejects "another version" 400 "its version is neither"
{ printf 'GET / HTTP/1.1\r\nHost: localhost\r\nX: ' && head -c 20000 /dev/zero | tr '\0' x && printf '\r\n\r\n'; } | raw
rejects "a flood of headers" 431 "more than 16384 bytes"
request "${usual[@]}" "Content-Length: 99999999999" | raw
rejects "a body that is too large" 413 "more than 16777216 bytes"
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n' "${#body}" "$body" | raw
same "chunks" 200 "$status"
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n' | raw
rejects "a chunk of no size" 400 "the body cannot be read"
# Two requests in one go: two replies.
{ printf 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n' && printf 'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'; } | raw
same "two requests in one go" 2 "$(grep -c '"status":"ok"' reply)"
printf 'HEAD /health HTTP/1.0\r\n\r\n' | raw
same "HEAD: no body" "200 0" "$status $(wc -c <out)"

# Work that grows with the square of a request is not begun.
many=$(for i in {1..5000}; do printf '"k%d":0,' "$i"; done)
ask /v1/completions "{\"prompt\": \"the\", \"logit_bias\": {${many%,}}}"
rejects "a large object" 400 "an object of the body has more than 4096 fields"
ask /v1/completions "{\"prompt\": \"$(head -c 5000 /dev/zero | tr '\0' t)\"}"
rejects "a text that cannot fit" 400 "'prompt' has 5000 bytes, which cannot fit"

# Silent clients hold up nobody.
silent=()
for _ in 1 2 3 4 5 6 7 8; do
  (exec 3<>"/dev/tcp/127.0.0.1/$port" && exec sleep 1000) &
  silent+=($!)
done
ask /health
same "beside silent clients" 200 "$status"
kill "${silent[@]}"
ends 0

# A client that goes frees its places at once, also where more of its bytes wait to be read.
succeeds "a run of longer texts" lockstep train text.yaml run.dir=long data.context=512 data.validation=0 model.layers=4 model.width=128 train.steps=1 schedule.warmup=0
serve long --batch 2 --queue 40
idle() { [ "$(metric texts_running)" = 0 ] && [ "$(metric texts_waiting)" = 0 ]; }
body='{"prompt": "t", "max_tokens": 500, "n": 40, "temperature": 2}'
for more in "" $'\r\n'; do
  before=$(metric texts_cancelled_total)
  exec 4<>"/dev/tcp/127.0.0.1/$port"
  { request "Host: localhost" "Content-Type: application/json" "Content-Length: ${#body}" && printf '%s' "$more"; } >&4
  until [ "$(metric texts_running)" = 2 ]; do sleep 0.01; done
  ask /v1/completions '{"prompt": "t", "n": 20}'
  rejects "more than may wait" 429 "too many texts wait"
  expect "when to ask again" grep -q '^Retry-After: 1' reply
  exec 4>&-
  await "a client that went" idle
  expect "its texts were not written" test "$(metric texts_cancelled_total)" -ge $((before + 20))
done
# A second signal ends the server at once.
exec 4<>"/dev/tcp/127.0.0.1/$port"
request "Host: localhost" "Content-Type: application/json" "Content-Length: ${#body}" >&4
until [ "$(metric texts_running)" = 2 ]; do sleep 0.01; done
kill -TERM "$server"
until grep -q 'finishing what has begun' served.log; do sleep 0.01; done
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=""
exec 4>&-
same "a second signal" 0 "$code"
expect "it says so" grep -q 'warning: a second signal: what has begun ends unfinished' served.log

# A key: asked for everywhere but on the page and for health. Another machine's address needs one.
printf 'secret-7\r\n' >key
refuses "an address that others reach" 64 "--listen 0.0.0.0:0: other machines can reach this address: add --key FILE" lockstep serve run --listen 0.0.0.0:0
refuses "no key file" 66 "--key none: cannot be opened" lockstep serve run --key none
: >empty
refuses "an empty key" 64 "--key empty: its first line is empty" lockstep serve run --key empty
refuses "no address" 64 "--listen here:1: must be a port, such as 9400, or ADDRESS:PORT" lockstep serve run --listen here:1
serve run --key key --allow-origin https://page.example --host model.example
ask /health
same "health without a key" 200 "$status"
ask /v1/models
rejects "no key" 401 "'Authorization: Bearer KEY' is needed"
printf 'GET /v1/models HTTP/1.0\r\nAuthorization: Bearer secret-8\r\n\r\n' | raw
rejects "another key" 401 "the key is not this server's"
printf 'GET /v1/models HTTP/1.0\r\nAuthorization: Bearer secret-7\r\nHost: model.example\r\nOrigin: https://page.example\r\n\r\n' | raw
same "the key" 200 "$status"
expect "a page that may ask" grep -q '^Access-Control-Allow-Origin: https://page.example' reply
expect "the key is in no log" test "$(grep -c secret served.log)" -eq 0
# A signal while a text is written: the text is finished, and nothing else begins.
exec 4<>"/dev/tcp/127.0.0.1/$port"
body='{"prompt": "t", "max_tokens": 16, "n": 60, "stream": true, "seed": 1}'
printf 'POST /v1/completions HTTP/1.0\r\nAuthorization: Bearer secret-7\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' "${#body}" "$body" >&4
head -c 100 <&4 >beginning
kill -TERM "$server"
cat <&4 >rest
exec 4>&-
same "the text is finished" "data: [DONE]" "$(grep . rest | tail -n 1)"
same "all of it" 60 "$(grep -o '"finish_reason":"length"' rest | wc -l)"
code=0
wait "$server" || code=$?
server=""
same "ended" 0 "$code"

# Conversations.
qa() { printf '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%s"}]}\n' "$1" "$2"; }
{ qa "What is the answer?" "The answer is 42." && qa "What is the question?" "no"; } >chats.jsonl
succeeds "import" lockstep data import json chats.jsonl chat.h5 --messages messages --tokenizer "$tokenizer"
cat >chat.yaml <<'YAML'
seed: 1
run: {dir: chat}
model: {name: gpt, layers: 2, heads: 2, width: 48}
optim: {lr: 0.005}
batch: {global: 2, micro: 2}
train: {steps: 120}
data: {path: chat.h5, context: 64, packing: pad, validation: 0}
YAML
succeeds "tune" lockstep train chat.yaml
serve chat --queue 2 --batch 1
chat='"messages": [{"role": "user", "content": "What is the answer?"}], "temperature": 0'
ask /v1/chat/completions "{$chat}"
expect "an answer" grep -qF '"choices":[{"index":0,"message":{"role":"assistant","content":"The answer is 42.","refusal":null},"logprobs":null,"finish_reason":"stop"}]' out
ask /v1/chat/completions "{$chat, \"stream\": true, \"logprobs\": true, \"top_logprobs\": 2, \"stream_options\": {\"include_usage\": true}}"
same "as a stream" "The answer is 42." "$(texts <(grep -o '"delta":{"content":"[^"]*"' out))"
expect "its first event" grep -qF '"delta":{"role":"assistant","content":""}' <(grep -m 1 . out)
expect "its usage" grep -qE '"choices":\[\],"usage":\{"prompt_tokens":[0-9]+' out
expect "log-probabilities" grep -qE '"logprobs":\{"content":\[\{"token":"[^"]+","logprob":-?[0-9.e-]+,"bytes":\[[0-9,]+\],"top_logprobs":\[\{' out
ask /v1/chat/completions '{"messages": [{"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "the answer?"}]}], "temperature": 0}'
expect "a message in parts" grep -qF '"content":"The answer is 42."' out
ask /v1/chat/completions '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}'
rejects "an image" 400 "a part that is no text"
ask /v1/chat/completions '{"messages": []}'
rejects "no message" 400 "holds no message"
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "no"}]}'
rejects "answered already" 400 "ends with a message of the assistant"
ask /v1/chat/completions "{$chat, \"tools\": [{\"type\": \"function\"}]}"
rejects "tools" 400 "'tools' is not supported"
ask /v1/chat/completions "{$chat, \"top_logprobs\": 3}"
rejects "top_logprobs alone" 400 "'top_logprobs' goes with 'logprobs'"
ask /v1/chat/completions "{$chat, \"chat_template_kwargs\": {$(for i in {1..4000}; do printf '"k%d":0,' "$i"; done)\"loop\": {\"depth\": 9223372036854775807}}}"
expect "names for the template that it does not ask for" grep -qF '"content":"The answer is 42."' out
# Control tokens that a user spells out are text, unless the request says otherwise.
ask /tokenize '{"prompt": "<|im_end|>"}'
expect "as text" test "$(field count <out)" -gt 1
ask /tokenize '{"prompt": "<|im_end|>", "special_tokens": true}'
same "as a token" 1 "$(field count <out)"
ask /v1/completions '{"prompt": "What", "n": 20, "max_tokens": 2}'
rejects "more than there can be room for" 400 "20 texts at once, and there is room for 3"
ends 0

# A folder of transformers.
folder=$(realpath "$here/../../parity/tasks/llama")
serve "$folder" --name llama
succeeds "generate" lockstep generate "$folder" --prompt "the cat" --tokens 8 --temperature 0 --json
texts >generated
ask /v1/completions '{"prompt": "the cat", "max_tokens": 8, "temperature": 0}'
same "a folder: as generate" "$(cat generated)" "$(texts)"
ends 0

# A text that its model ends: the token that ended it is scored, and not shown, so that the prompt's own scores are all that lie before the last.
printf '{"question": "What?", "answer": "no"}\n{"question": "Is it?", "answer": "no"}\n' >ending.jsonl
succeeds "import" lockstep data import json ending.jsonl ending.h5 --prompt question --completion answer --tokenizer "$tokenizer" --separator '<|endoftext|>'
succeeds "a run that learns to end" lockstep train chat.yaml run.dir=ending data.path=ending.h5
serve ending
ask /v1/completions '{"prompt": "What?no", "max_tokens": 1, "temperature": 0, "echo": true, "logprobs": 1}'
expect "it ends" grep -q '"finish_reason":"stop"' out
tokens=$(sed -nE 's/.*"prompt_tokens":([0-9]+).*/\1/p' out)
same "a score for each token of the prompt, and one" $((tokens + 1)) "$(grep -oE '"token_logprobs":\[[^]]*\]' out | tr ',' '\n' | wc -l)"
expect "which is no token of the completion" grep -q '"completion_tokens":0' out
same "and not shown" "What?no" "$(texts)"
ends 0
exit "$failed"

#!/usr/bin/env bash
# Conversations: a small model is tuned until it answers right; `generate --chat` then prints the answer and ends, `--special-tokens` reads the
# tokens that a prompt spells out, prompts come as JSON lines, and what cannot be read is refused with one line.
# Usage: chat_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
tokenizer=$(cd "$OLDPWD" && cd "$(dirname "$0")/../../data/chat" && pwd)/tokenizer.json

turn() { printf '{"role": "%s", "content": "%s"}' "$1" "$2"; }
qa() { printf '{"messages": [%s, %s]}\n' "$(turn user "$1")" "$(turn assistant "$2")"; }
{
  qa "What is the answer?" "The answer is 42."
  qa "What is the question?" "no"
  qa "You are brief" 'What?\n  newlines'
  printf '{"messages": [%s, %s, %s, %s]}\n' "$(turn user "What?")" "$(turn assistant "no")" "$(turn user "What is the answer?")" "$(turn assistant "brief")"
} >chats.jsonl
import() { lockstep data import json chats.jsonl "$1.h5" --messages messages --force "${@:2}"; }
tune() { # NAME more...
  lockstep train chat.yaml run.dir="$1" data.path="$1.h5" "${@:2}"
}
cat >chat.yaml <<'YAML'
seed: 1
model: {name: gpt, layers: 2, heads: 2, width: 48}
optim: {lr: 0.005}
batch: {global: 4, micro: 4}
train: {steps: 120}
data: {context: 64, packing: pad, validation: 0}
YAML
texts() { sed -E 's/.*"text":"([^"]*)".*/\1/' out; }
ask() { lockstep generate "$1" --chat --temperature 0 --tokens 40 "${@:2}"; }

succeeds "import" import chat --tokenizer "$tokenizer"
succeeds "tune" tune chat
succeeds "an answer" ask chat --prompt "What is the answer?"
same "an answer, and nothing behind it" "The answer is 42." "$(cat out)"
expect "an answer: no warning" test "$(grep -c warning err)" -eq 0
succeeds "another answer" ask chat --prompt "What is the question?"
same "another answer" "no" "$(cat out)"
succeeds "an answer of two lines" ask chat --prompt "You are brief"
same "an answer of two lines" "$(printf 'What?\n  newlines')" "$(cat out)"
succeeds "behind the end" ask chat --prompt "What is the question?" --ignore-end
expect "behind the end: its token is shown" grep -q '^no<|im_end|>' out
# The same by hand.
by_hand=$'<|im_start|>user\nWhat is the answer?<|im_end|>\n<|im_start|>assistant\n'
succeeds "special tokens in a prompt" lockstep generate chat --special-tokens --prompt "$by_hand" --temperature 0 --tokens 40 --stop '<|im_end|>'
same "special tokens in a prompt: the answer" "${by_hand}The answer is 42." "$(cat out)"
succeeds "without --special-tokens they are text" lockstep generate chat --prompt "$by_hand" --temperature 0 --tokens 4
expect "which a warning says" grep -q 'warning: the prompt holds <|im_start|> as text; --special-tokens' err
succeeds "one prompt as JSON" ask chat --prompt "What is the question?" --json
same "one prompt as JSON" '{"prompt":"What is the question?","text":"no","tokens":1,"stopped":true}' "$(sed 's/"tokens":[0-9]*/"tokens":1/' out)"
# A prompt and its completion, and pairs, as lists of messages, in the form of TRL: they take the tokenizer's template; the prompt is not learnt.
message() { printf '[%s]' "$(turn "$1" "$2")"; }
printf '{"prompt": %s, "completion": %s}\n' "[$(turn user "What?"), $(turn assistant "no"), $(turn user "What is the answer?")]" "$(message assistant "The answer is 42.")" >trl.jsonl
succeeds "prompt and completion as messages" lockstep data import json trl.jsonl trl.h5 --prompt prompt --completion completion --tokenizer "$tokenizer"
expect "no warning" test "$(grep -c warning err)" -eq 0
succeeds "show" lockstep data show trl.h5
expect "the template is around them" grep -qF '<|im_start|>user' out
expect "targets are the completion's alone" test "$(tr -d '\n' <out | grep -c 'The answer is 42')" -eq 1
printf '{"messages": [%s, %s, %s, %s]}\n' "$(turn user "What?")" "$(turn assistant "no")" "$(turn user "What is the answer?")" "$(turn assistant "The answer is 42.")" >whole.jsonl
succeeds "as a conversation" lockstep data import json whole.jsonl whole.h5 --messages messages --tokenizer "$tokenizer"
targets() { lockstep data inspect "$1" --json | field targets; }
expect "which learns the first answer, too" test "$(targets whole.h5)" -gt "$(targets trl.h5)"
printf '{"prompt": %s, "chosen": %s, "rejected": %s}\n' "$(message user "What?")" "$(message assistant "no")" "$(message assistant "brief")" >pairs.jsonl
succeeds "pairs as messages" lockstep data import json pairs.jsonl pairs.h5 --prompt prompt --chosen chosen --rejected rejected --tokenizer "$tokenizer"
printf '{"prompt": "What?", "completion": "no"}\n' >plain.jsonl
succeeds "texts" lockstep data import json plain.jsonl plain.h5 --prompt prompt --completion completion --tokenizer "$tokenizer"
expect "that nothing ends" grep -q 'warning: nothing ends an answer, so that a model of these records may not learn to stop: --separator' err
succeeds "with an end" lockstep data import json plain.jsonl plain.h5 --force --prompt prompt --completion completion --tokenizer "$tokenizer" --separator '<|im_end|>'
expect "which is warned of no more" test "$(grep -c 'nothing ends' err)" -eq 0
# Several, as JSON lines.
{
  echo '{"id": 7, "prompt": "What is the answer?"}'
  printf '{"messages": [%s, %s, %s]}\n' "$(turn user "What?")" "$(turn assistant "no")" "$(turn user "What is the answer?")"
} >asked.jsonl
succeeds "JSON lines" ask chat --prompts asked.jsonl
same "JSON lines: a conversation is answered as a whole" "The answer is 42. brief" "$(texts | paste -sd ' ')"
expect "JSON lines: what was asked" grep -qF '{"messages":[{"role":"user","content":"What?"}' out
expect "JSON lines: the other fields" grep -qE '^\{"id":7,"prompt":"What is the answer\?","text":' out
# Conversations alone, of either form; answers in the order of the lines, whatever is answered at once.
{
  printf '[%s]\n' "$(turn user "What is the question?")"
  sed -n 2p asked.jsonl
  printf ' [%s, %s, %s]\r\n' "$(turn user "What?")" "$(turn assistant "no")" "$(turn user "What is the answer?")"
  printf '{"id": 3, "messages": [%s]}\n' "$(turn user "What is the answer?")"
} >talks
succeeds "messages" lockstep generate chat --messages talks --temperature 0 --tokens 40
same "messages: answers in their order" "no|brief|brief|The answer is 42." "$(texts | paste -sd '|')"
same "messages: a list and an object are one conversation" "$(sed -n 2p out)" "$(sed -n 3p out)"
expect "messages: the other fields" grep -q '^{"id":3,"messages":\[.*\],"text":"The answer is 42."' out
cp out first
for more in "--batch 1" "--batch 3 --no-cache" "--chat --template chatml"; do
  # shellcheck disable=SC2086  # several words
  succeeds "messages, $more" lockstep generate chat --messages talks --temperature 0 --tokens 40 $more
  expect "messages, $more: the same answers" cmp -s out first
done
bad_talks() { # WHAT 'REGEXP' LINE
  printf '[%s]\n%s\n' "$(turn user "What?")" "$3" >bad_talks
  refuses "messages: $1" 65 "bad_talks:2: $2" lockstep generate chat --messages bad_talks
}
bad_talks "no list" 'is neither a list of messages nor a JSON object with "messages"' '{"prompt": "What?"}'
bad_talks "an empty line" 'is neither a list of messages' ''
bad_talks "no message" 'its field "messages" holds no message' '[]'
bad_talks "an answer that is there" 'its conversation ends with a message of the assistant, which answers it already' "$(qa "What?" no)"
bad_talks "a message that is none" 'message 0 of "messages" is no object' '["What?"]'
refuses "messages: no such file" 66 'no_talks: .*' lockstep generate chat --messages no_talks
refuses "messages: beside a prompt" 64 'lockstep generate: --messages names the conversations: leave out --prompt and --prompts' \
  lockstep generate chat --messages talks --prompt x
printf 'What is the question?\nYou are brief\n' >asked.txt
succeeds "lines of text are messages" ask chat --prompts asked.txt
expect "lines of text: a line end within an answer" grep -qF '"text":"What?\n  newlines"' out
# Prompts of several lines without --chat.
sed -n 1p asked.jsonl >one.jsonl
succeeds "JSON lines of texts" lockstep generate chat --prompts one.jsonl --tokens 2
printf '{"prompt": "<|im_start|>user\\nWhat is the question?<|im_end|>\\n<|im_start|>assistant\\n"}\n' >lines.jsonl
succeeds "a prompt of several lines" lockstep generate chat --prompts lines.jsonl --special-tokens --temperature 0 --tokens 30 --stop '<|im_end|>'
same "a prompt of several lines: the answer" "no" "$(texts)"

# A conversation: what was said before counts, until it is forgotten. (With "What?" and "no" before it the answer is another one.)
talk() { printf '%b' "$1" | lockstep chat chat --temperature 0 --tokens 40 "${@:2}"; }
succeeds "chat" talk 'What is the answer?\nWhat is the question?\n'
same "chat: the first answer" "The answer is 42." "$(head -n 1 out)"
succeeds "chat: history" talk 'What?\nWhat is the answer?\n/save said.jsonl\n/reset\nWhat is the answer?\n'
same "chat: the answer depends on what was said, and no longer once that is forgotten" "no brief The answer is 42." "$(paste -sd ' ' out)"
same "chat: what was saved" "{\"messages\":[$(turn user "What?"), $(turn assistant no), $(turn user "What is the answer?"), $(turn assistant brief)]}" \
  "$(sed -E 's/\},\{/}, {/g; s/":"/": "/g; s/","/", "/g' said.jsonl)"
succeeds "what was saved is imported" lockstep data import json said.jsonl said.h5 --messages messages --tokenizer "$tokenizer"
succeeds "chat: an answer of two lines" talk 'You are brief\n'
same "chat: an answer of two lines" "$(printf 'What?\n  newlines')" "$(cat out)"
succeeds "chat: commands that cannot be done end nothing" talk '/nothing\n/save /nowhere/at/all\n/save\nWhat is the question?\n/exit\nWhat is the answer?\n'
same "chat: the answer before /exit" no "$(cat out)"
expect "chat: no such command" grep -q '^warning: /nothing is no command; /help lists them' err
expect "chat: no such folder" grep -q '^warning: .*/nowhere/at/all' err
succeeds "chat: many turns, more than the context" talk "$(printf 'What is the question?\\n%.0s' $(seq 12))"
same "chat: each is answered" 12 "$(grep -c . out)"
expect "chat: it says that turns are left out" grep -q "^warning: the conversation has [0-9]* tokens of the model's 64; its oldest turns" err
succeeds "chat: what was said is saved whole" talk "$(printf 'What is the question?\\n%.0s' $(seq 12))/save long.jsonl\n"
same "chat: 24 messages" 24 "$(grep -o '"role"' long.jsonl | wc -l)"
succeeds "chat: nothing is said" talk ''
expect "chat: nothing is answered" test ! -s out
make_inputs
succeeds "a model of characters" lockstep train text.yaml run.dir=none train.steps=1
needs="lockstep generate. continues a text, and --template names another template"
refuses "a template that it has no characters for" 64 "none/.*: cannot take messages: the template chatml puts text around them .*character '<'.*$needs" \
  bash -c "'$binary' chat none <chats.jsonl"
refuses "plain" 64 "none/.*: cannot take messages: the template plain .*$needs" lockstep generate none --chat --template plain --prompt x
{ cat text.txt && echo 'user: assistant: system: '; } >roles.txt
succeeds "text with the characters of a template" lockstep data import text roles.txt roles.h5
succeeds "a model of these" lockstep train text.yaml data.path=roles.h5 run.dir=characters train.steps=1
printf 'the cat \xe6\xbc\xa2\n\n/reset\nthe Zebra\n' >unknown.txt
succeeds "chat: characters that the model has not" bash -c "'$binary' chat characters --template plain --tokens 3 <unknown.txt"
same "chat: each such message is refused, and the conversation goes on" 2 "$(grep -c "^warning: this message is not sent: text to encode: character '.*' ending at byte .* is not in the dataset's vocabulary" err)"

# A model's own tokens for the end: of generation_config.json of the folder that a run began with.
succeeds "export" lockstep checkpoint export chat chat.hf --to hf
end() { sed -i -E 's/"eos_token_id": ?[^,}]*/"eos_token_id": '"$1"'/' chat.hf/config.json && echo "{\"eos_token_id\": $2}" >chat.hf/generation_config.json; }
end 0 '[1, 2]' # <|endoftext|>, <|im_start|>, <|im_end|>
succeeds "tune what was exported" tune further init.from=chat.hf data.path=chat.h5 train.steps=0
succeeds "tune that run" tune again init.from=further data.path=chat.h5 train.steps=0
for from in chat.hf further again; do
  succeeds "$from: it ends by itself" lockstep generate $from --special-tokens --prompt "$by_hand" --temperature 0 --tokens 40
  same "$from: it ends by itself" "${by_hand}The answer is 42." "$(cat out)"
done
succeeds "and goes on where that is asked for" lockstep generate again --special-tokens --prompt "$by_hand" --temperature 0 --tokens 40 --ignore-end
expect "and goes on: the token is shown" grep -qF 'The answer is 42.<|im_end|>' out
end 2 null
succeeds "config.json's token" lockstep generate further --special-tokens --prompt "$by_hand" --temperature 0 --tokens 40 --json
expect "config.json's token: it was stopped" grep -qE '"text":"The answer is 42.","tokens":[0-9]+,"stopped":true' out
mv chat.hf gone
succeeds "a folder that is gone" lockstep generate further --special-tokens --prompt "$by_hand" --temperature 0 --tokens 40 --json
expect "a folder that is gone: a warning" grep -q 'warning: further/checkpoints/step-00000000: its end-of-text tokens cannot be read from init.from: chat.hf' err
expect "a folder that is gone: it was not stopped" grep -q '"tokens":40,"stopped":false' out

# The other templates; without a tokenizer the template is spelt.
# A pattern that, as Llama 3's does, leaves two line ends together whatever follows.
split='{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\\\n+|[^\\\\n]+"},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]}'
sed -E 's/"pre_tokenizer":\{[^}]*\}/"pre_tokenizer":'"$split/" "$tokenizer" >llama.json
succeeds "import of llama3" import llama --tokenizer llama.json --template llama3
succeeds "import of llama3 with another pattern" import joined --tokenizer "$tokenizer" --template llama3
succeeds "tune with another pattern" tune joined train.steps=0
succeeds "a prompt with another pattern" ask joined --prompt "What?" --template llama3
expect "a pattern that joins line ends in another way before an answer: a warning" grep -q '^warning: the tokenizer merges the end of the template' err
succeeds "import of plain" import plain --tokenizer "$tokenizer" --template plain
succeeds "import of bytes" import bytes
succeeds "import of plain bytes" import plain_bytes --template plain
for name in llama plain bytes plain_bytes; do
  more=()
  if [[ $name == *bytes ]]; then more=(data.context=192 batch.micro=1); fi
  succeeds "$name: tune" tune "$name" "${more[@]}"
  case $name in plain*) more=(--template plain) ;; llama) more=(--template llama3) ;; *) more=() ;; esac
  succeeds "$name: an answer" ask "$name" --prompt "What is the answer?" "${more[@]}"
  same "$name: an answer" "The answer is 42." "$(cat out)"
done

# What is refused.
refuses "--chat without a message" 64 "lockstep generate: --chat answers a message: give --prompt, --prompts or --messages" lockstep generate chat --chat
refuses "--template without --chat" 64 "--template llama3: is for --chat" lockstep generate chat --prompt x --template llama3
refuses "a template that is none" 64 "there is no template x; there are chatml, llama3, plain" ask chat --prompt x --template x
refuses "--special-tokens without a tokenizer" 64 "--special-tokens is for a model with a tokenizer; the tokens of this one are bytes" \
  lockstep generate bytes --prompt x --special-tokens
refuses "a token that is none" 65 "the prompt holds <\|im_sart\|>, which is no added token" lockstep generate chat --special-tokens --prompt 'a<|im_end|><|im_sart|>'
bad() { # WHAT LINE 'REGEXP' options...
  { sed -n 1p asked.jsonl && echo "$2"; } >bad.jsonl
  refuses "$1" 65 "bad.jsonl:2: $3" lockstep generate chat --prompts bad.jsonl "${@:4}"
  expect "$1: nothing before an error" test ! -s out
}
bad "a broken line" '{"prompt": "x"' "is no JSON object"
bad "an empty line" '' "is no JSON object"
bad "no prompt" '{"text": "x"}' 'needs one of the fields "prompt" and "messages"$'
bad "both" '{"prompt": "x", "messages": []}' 'needs one of the fields "prompt" and "messages", and has both' --chat
bad "a number" '{"prompt": 3}' 'its field "prompt" is no text'
bad "no messages" '{"messages": []}' 'its field "messages" holds no message' --chat
bad "a message without content" '{"messages": [{"role": "user"}]}' 'message 0 of "messages" has no field "content"' --chat
bad "messages without --chat" "$(sed -n 2p asked.jsonl)" 'has messages, which a chat template turns into a prompt: add --chat'
bad "an unknown token" '{"prompt": "<|x|>"}' 'the prompt holds <\|x\|>' --special-tokens
succeeds "a tokenizer with a template's tokens" lockstep tokenizer train chats.jsonl own.json --vocab-size 300 --special '<|im_start|>,<|im_end|>'
succeeds "import with it" import own --tokenizer own.json
succeeds "tune with it" tune own
succeeds "an answer by it" ask own --prompt "What is the question?"
same "an answer by it" "no" "$(cat out)"
refuses "a special token twice" 64 'the special token <\|endoftext\|> is given twice' lockstep tokenizer train chats.jsonl x.json --vocab-size 300 --special '<|endoftext|>'
refuses "a special token without text" 64 '--special a,,b: the list has an empty element' lockstep tokenizer train chats.jsonl x.json --vocab-size 300 --special a,,b
lockstep tokenizer train chats.jsonl bpe.json --vocab-size 300 >out 2>&1
succeeds "import with another tokenizer" import other --tokenizer bpe.json --template plain
succeeds "tune with another tokenizer" tune other train.steps=0
refuses "a tokenizer without the template's tokens" 64 "the template chatml needs the token <\|im_start\|>" ask other --prompt x --template chatml
succeeds "the template that the data was made with is the usual one" ask other --prompt x

# The tokenizer's own template, and conversations as ShareGPT has them. It marks no answers: what it writes of them is learnt.
mkdir folder
cp "$tokenizer" folder/
cat >folder/chat_template.jinja <<'JINJA'
{{- bos_token -}}
{%- for message in messages %}
    {%- set who = 'model' if message['role'] == 'assistant' else message['role'] %}
    {{- '<|im_start|>' + who + '\n' }}
    {%- if who not in ['system', 'user', 'model'] %}{{ raise_exception('no role ' ~ who) }}{% endif %}
    {{- message['content'] | trim + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>model\n' }}{% if brief %}{{ 'no' }}{% endif %}{% endif %}
JINJA
echo '{"bos_token": {"content": "<|begin_of_text|>"}, "eos_token": "<|im_end|>"}' >folder/tokenizer_config.json
mkdir folder/additional_chat_templates
sed 's/user/user/' folder/chat_template.jinja >folder/additional_chat_templates/tool_use.jinja
share() { printf '{"talk": [{"from": "human", "value": "%s"}, {"from": "gpt", "value": "%s"}]}\n' "$1" "$2"; }
{ share "What is the answer?" "The answer is 42." && share "What is the question?" "no" && share "You are brief" "What?" && share "  What?  " "newlines"; } >shared.jsonl
share_import() { lockstep data import json "$1" "$2.h5" --messages talk --tokenizer folder --force "${@:3}"; }
succeeds "own template: import" share_import shared.jsonl folded
succeeds "own template: a record" lockstep data show folded.h5 --index 0
expect "own template: what is a target" grep -qF '⟦<|begin_of_text|><|im_start|>user' out
expect "own template: the answer and its end are" grep -qF '⟧The answer is 42.<|im_end|>' out
succeeds "own template: tune" tune folded
succeeds "own template: an answer" ask folded --prompt "What is the answer?"
same "own template: an answer" "The answer is 42." "$(cat out)"
succeeds "own template: chat" bash -c "echo 'What is the question?' | '$binary' chat folded --temperature 0"
same "own template: chat" "no" "$(cat out)"
succeeds "own template: a value of it" ask folded --prompt "What is the question?" --template-values '{"brief": true}'
expect "own template: a value of it: the answer is another one" test "$(cat out)" != no
succeeds "own template: export" lockstep checkpoint export folded folded.hf --to hf
expect "own template: it travels with the export" cmp <(tr -d '\n' <folder/chat_template.jinja) <(tr -d '\n' <folded.hf/chat_template.jinja)
expect "own template: the form for tools, too" cmp folder/additional_chat_templates/tool_use.jinja folded.hf/additional_chat_templates/tool_use.jinja
expect "own template: its tokens, too" grep -q '"eos_token":"<|im_end|>"' folded.hf/tokenizer_config.json
same "own template: the export's number of the end" 2 "$(sed -E 's/.*"eos_token_id":([0-9]*).*/\1/' folded.hf/config.json)"
succeeds "own template: import by the export's tokenizer" lockstep data import json shared.jsonl by_export.h5 --messages talk --tokenizer folded.hf
same "own template: the same tokens" "$(lockstep data inspect folded.h5 | grep identity)" "$(lockstep data inspect by_export.h5 | grep identity)"
succeeds "own template: an answer of the export" ask folded.hf --prompt "What is the answer?"
same "own template: an answer of the export" "The answer is 42." "$(cat out)"
succeeds "own template: a file of it" lockstep data import json shared.jsonl by_file.h5 --messages talk --tokenizer "$tokenizer" \
  --template folder/chat_template.jinja --force
refuses "own template: no such file" 66 "nowhere.jinja: .*" share_import shared.jsonl x --template nowhere.jinja
refuses "own template: values that are none" 64 "--template-values nonsense: is no JSON object" share_import shared.jsonl x --template-values nonsense
echo '{"talk": [{"from": "human", "value": "x"}, {"from": "observation", "value": "y"}, {"from": "gpt", "value": "z"}]}' >refused.jsonl
refuses "own template: a conversation that it refuses" 65 "refused.jsonl:1: the chat template own, line 5: the template refuses this conversation: no role tool" \
  share_import refused.jsonl x
printf '{%% for m in messages %%}\n{{ m.content | nothing }}{%% endfor %%}' >folder/chat_template.jinja
refuses "own template: what is not supported" 65 "shared.jsonl:1: the chat template own, line 2: the filter 'nothing' is not supported" share_import shared.jsonl x
printf '{%% for m in messages %%}{{ m.content }}\n{%% include "/etc/passwd" %%}{%% endfor %%}' >folder/chat_template.jinja
refuses "own template: what reads files" 65 "the chat template own: line 2: the tag 'include' is not supported.*--template names another one" share_import shared.jsonl x
printf '{{ messages[0].content }}' >folder/chat_template.jinja
refuses "own template: one that drops a turn" 65 "shared.jsonl:1: the chat template own shows nothing of message 1 \(role assistant\)" share_import shared.jsonl x
printf '{%% for i in range(100000) %%}{%% for j in range(100000) %%}x{%% endfor %%}{%% endfor %%}' >folder/chat_template.jinja
refuses "own template: one without an end" 65 "shared.jsonl:1: the chat template own, line 1: the template takes too many steps" share_import shared.jsonl x
finish

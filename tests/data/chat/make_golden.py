#!/usr/bin/env python3
"""Writes tokenizer.json, chats.jsonl, golden.jsonl (token ids and masks of conversations by transformers' apply_chat_template) and
prompts.jsonl (token ids of conversations that an answer is to follow, by the same with add_generation_prompt=True).

Needs the packages tokenizers and transformers. The tests need neither: they read what this wrote."""
import json
import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

folder = pathlib.Path(__file__).parent
special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
text = [
    "You are a brief assistant.", "assistant\nuser\nsystem\n\n", "The answer is 42, and the question is what it was.",
    "What is the answer to the question? The answer to that question is no.", "  spaces   and\n\n\nnewlines\n",
] * 3
tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=380, special_tokens=special, show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tokenizer.save(str(folder / "tokenizer.json"), pretty=False)

# The templates of Qwen 2 (without its standard system message) and Llama 3, with the answers marked for the mask.
chatml = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}{% generation %}"
          "{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
llama3 = ("{% for m in messages %}{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}"
          "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' }}{% if m['role'] == 'assistant' %}{% generation %}"
          "{{ m['content'] | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}{{ m['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")


def chat(*turns):
    return [{"role": role, "content": content} for role, content in turns]


chats = [
    chat(("user", "What is the answer?"), ("assistant", "The answer is 42.")),
    chat(("system", "You are a brief assistant."), ("user", "  What?\n"), ("assistant", "  no\n\n"), ("user", ""), ("assistant", "")),
    chat(("user", "grüße, 漢字 🙂\t\"quoted\" \\"), ("assistant", "\nnewlines\n\n\n first"), ("user", "more"), ("assistant", "🙂")),
    chat(("assistant", "spaces   and"), ("user", "the   question")),
]
# Every character that str.strip() removes, and neighbours of them that stay, around contents.
spaces = [chr(c) for c in range(0x110000) if chr(c).isspace()]
stay = ["\u200b", "\u180e", "\ufeff", "\u2060", "\x1b", "\x00", "\x7f", "\x84", "\u0086", "\u200c", "\u3001"]
chats.append(chat(*((role, c + role + c + c) for c in spaces for role in ("user", "assistant"))))
chats.append(chat(*((role, c + role + c) for c in stay for role in ("user", "assistant"))))
chats.append(chat(("user", "".join(spaces)), ("assistant", "".join(spaces) + "no" + "".join(spaces)), ("user", "\u00e9\u3000"), ("assistant", "\u3000\u6f22")))
with open(folder / "chats.jsonl", "w", encoding="utf-8") as out:
    for number, messages in enumerate(chats):
        print(json.dumps({"id": number, "messages": messages}, ensure_ascii=number % 2 == 0), file=out)
reader = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin_of_text|>")
with open(folder / "golden.jsonl", "w", encoding="utf-8") as out:
    for name, template in [("chatml", chatml), ("llama3", llama3)]:
        for messages in chats:
            made = reader.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True,
                                              return_assistant_tokens_mask=True)
            print(json.dumps({"template": name, "ids": made["input_ids"], "targets": made["assistant_masks"]}), file=out)
questions = [chat(("user", "What?")), chats[1] + chat(("user", " \nWhat is the   question?\n")), chat(("system", "🙂"), ("user", "\n\n"))]
with open(folder / "prompts.jsonl", "w", encoding="utf-8") as out:
    for name, template in [("chatml", chatml), ("llama3", llama3)]:
        for messages in questions:
            ids = reader.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True,
                                             add_generation_prompt=True)["input_ids"]
            print(json.dumps({"template": name, "messages": messages, "ids": ids}), file=out)

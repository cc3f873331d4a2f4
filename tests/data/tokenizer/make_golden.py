#!/usr/bin/env python3
"""Token ids of text.txt by the package `tokenizers` (0.23.3), with which tokenizer_test.cpp compares.

Usage: make_golden.py [GPT2], where GPT2 is a folder with encoder.json and vocab.bpe. Prints for each pattern, with a
tokenizer of 450 tokens that the package trains on the text, how many ids the text has and a hash of them; then for
GPT-2's tables.
"""
import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

here = pathlib.Path(__file__).parent
rest = r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
patterns = {"gpt2": None, "llama3": contractions + rest % r"\p{N}{1,3}", "qwen2": contractions + rest % r"\p{N}"}


def tokenizer(model, pattern):
    out = Tokenizer(model)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    split = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    out.pre_tokenizer = pre_tokenizers.Sequence(split + [level])
    out.decoder = decoders.ByteLevel()
    return out


def show(name, out, text):
    ids = out.encode(text, add_special_tokens=False).ids
    value = 0
    for token in ids:
        value = (value * 1000003 + token + 1) % 2**64
    print(f"{name}: {len(ids)} ids, hash 0x{value:016x}")


text = (here / "text.txt").read_bytes().decode()
for name, pattern in patterns.items():
    made = tokenizer(models.BPE(), pattern)
    trainer = trainers.BpeTrainer(vocab_size=449, min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([text], trainer)
    show(name, made, text)
if len(sys.argv) > 1:
    tables = pathlib.Path(sys.argv[1])
    merges = [tuple(line.split()) for line in (tables / "vocab.bpe").read_text().split("\n")[1:] if line]
    vocabulary = json.loads((tables / "encoder.json").read_text())
    show("gpt2_tables", tokenizer(models.BPE(vocab=vocabulary, merges=merges), None), text)

#!/usr/bin/env python3
"""Token ids of text.txt by the package `tokenizers` (0.23.3), with which tokenizer_test.cpp compares.

Usage: make_golden.py [GPT2], where GPT2 is a folder with encoder.json and vocab.bpe. Prints for each pattern, with a
tokenizer of 450 tokens that the package trains on the text, how many ids the text has and a hash of them; then for
GPT-2's tables. decomposed.txt, which it also writes, is encoded with the normalizer NFC.
"""
import json
import pathlib
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

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
more = "\u212b \u2126m q\u0307\u0323 a\u0323\u0302 \u1112\u1161\u11ab\u1100\u1161 \u0958 \ufb2c \u0344 e\u0301\u0301 \u304b\u3099\u30cf\u309a\n"
(here / "decomposed.txt").write_bytes((unicodedata.normalize("NFD", text) + more * 3).encode())
for name, pattern in patterns.items():
    made = tokenizer(models.BPE(), pattern)
    trainer = trainers.BpeTrainer(vocab_size=449, min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([text], trainer)
    show(name, made, text)
    if name == "qwen2":  # what is not in normal form C: decomposed, singletons, marks in another order, Hangul's parts
        made.normalizer = normalizers.NFC()
        show("nfc", made, (here / "decomposed.txt").read_bytes().decode())
# Other splits and flags, on a text of many scripts (make_word_pieces.py).
other = (here / "word_pieces.txt").read_bytes().decode() + " 12345 a1b\u00bd22\u0663 x\u2460 <end> \n<|endoftext|>  y"
made = tokenizer(models.BPE(), None)
made.train_from_iterator([text], trainers.BpeTrainer(vocab_size=449, min_frequency=2, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
made.add_special_tokens([AddedToken("<|endoftext|>", lstrip=True, rstrip=True, special=True, normalized=False)])
level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
splits = {"digits": pre_tokenizers.Digits(individual_digits=True), "digit_runs": pre_tokenizers.Digits(),
          "punctuation": pre_tokenizers.Punctuation("isolated"), "punctuation_runs": pre_tokenizers.Punctuation("contiguous"),
          "string": pre_tokenizers.Split("e.", "isolated"), "strings": pre_tokenizers.Split(" ", "contiguous")}
for name, split in splits.items():
    made.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    show(name, made, other)
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
show("prefix_space", made, other)
if len(sys.argv) > 1:
    tables = pathlib.Path(sys.argv[1])
    merges = [tuple(line.split()) for line in (tables / "vocab.bpe").read_text().split("\n")[1:] if line]
    vocabulary = json.loads((tables / "encoder.json").read_text())
    show("gpt2_tables", tokenizer(models.BPE(vocab=vocabulary, merges=merges), None), text)

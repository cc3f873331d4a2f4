#!/usr/bin/env python3
"""Makes ties.model and ties.jsonl: a small unigram model, and texts of which most can be cut in several equally good ways.

    pip install sentencepiece==0.2.3
    tests/data/sentencepiece/make_ties.py

ties.jsonl: one object a line with the text and its ids, and a long text, a part that is repeated, with a hash of its ids. Which of the cuts is
found differs among versions of SentencePiece, and in long texts depends on where sums of scores begin anew.
"""
import io
import json
import pathlib
import random

import sentencepiece

HERE = pathlib.Path(__file__).parent
random.seed(2)


def words(letters, count, longest):
    return " ".join("".join(random.choice(letters) for _ in range(random.randrange(1, longest))) for _ in range(count))


out = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter([words("ab01é", 8, 9) for _ in range(500)]), model_writer=out, model_type="unigram", vocab_size=300,
    hard_vocab_limit=False, user_defined_symbols=["ab", "0110"], normalization_rule_name="identity", num_threads=1, minloglevel=2)
(HERE / "ties.model").write_bytes(out.getvalue())
model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
with (HERE / "ties.jsonl").open("w", encoding="utf-8") as lines:
    for number in range(200):
        text = words("ab01é", 6, 12) if number % 2 else words("bb000é漢", 4, 20)
        lines.write(json.dumps({"text": text, "ids": " ".join(map(str, model.encode(text)))}, ensure_ascii=False) + "\n")
    text, repeat, value = words("ab01é", 100, 20), 600, 0
    for token in model.encode(text * repeat):
        value = (value * 1000003 + token + 1) % 2**64
    lines.write(json.dumps({"text": text, "repeat": repeat, "hash": f"{value:016x}"}, ensure_ascii=False) + "\n")

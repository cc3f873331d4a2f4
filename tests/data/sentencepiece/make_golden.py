#!/usr/bin/env python3
"""Makes the SentencePiece models of this folder, and the ids and texts that the package sentencepiece gives for lines.

    pip install sentencepiece
    tests/data/sentencepiece/make_golden.py

unigram.model normalises a few characters, as T5's does all (whose table takes 240 kB); bpe.model has the 256 bytes and no normalisation, as Llama 2's.
golden.jsonl: one object a line with the text, and of each model the ids and what they decode to.
"""
import io
import json
import pathlib
import tempfile

import sentencepiece

HERE = pathlib.Path(__file__).parent
SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "for (int i = 0; i < n; ++i) sum += a[i] * b[i];",
    "Training runs on many ranks, and each rank has a part of the data.",
    "Das Modell lernt, was die Daten zeigen; die Größe zählt.",
    "Le modèle apprend à lire, à écrire et à compter.",
    "学习 模型 数据 训练 分布式",
    "نموذج اللغة يتعلم من البيانات",
] * 20
TEXTS = [
    "",
    " ",
    "The dog reads.",
    "  two  spaces   and more ",
    "for (int j = 0; j < 3; ++j) {\n  x[j] = 0;\n}\n",
    "tab\tand line\nend",
    "Größe, modèle, naïve ﬁne ①",
    "学习模型 and 数据",
    "emoji \U0001F600 and \U0001F469\u200D\U0001F4BB",
    "نموذج يتعلم",
    "<s> is text </s>",
    "unknown: \u2603 \u4E00 \u0416",
    "e\u0301 combining, \u00e9 composed",
    "user <sep> defined",
]


def train(name, **how):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=out, user_defined_symbols=["<sep>"], num_threads=1, minloglevel=2,
        **how)
    (HERE / f"{name}.model").write_bytes(out.getvalue())


with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
    rules.write("FB01\t66 69\n2460\t31\n65 301\tE9\n9\t20\nA\t20\n200D\t\n")
    rules.flush()
    train("unigram", model_type="unigram", vocab_size=160, normalization_rule_tsv=rules.name, hard_vocab_limit=False)
train("bpe", model_type="bpe", vocab_size=460, byte_fallback=True, normalization_rule_name="identity",
      remove_extra_whitespaces=False)
with (HERE / "golden.jsonl").open("w", encoding="utf-8") as out:
    for text in TEXTS:
        line = {"text": text}
        for name in ("unigram", "bpe"):
            model = sentencepiece.SentencePieceProcessor(model_file=str(HERE / f"{name}.model"))
            line[name] = " ".join(str(i) for i in model.encode(text))
            line[name + "_text"] = model.decode(model.encode(text))
        out.write(json.dumps(line) + "\n")

#!/usr/bin/env python3
"""A WordPiece tokenizer and token ids by the package `tokenizers` (0.23.3), with which word_pieces_test.cpp compares.

Writes word_pieces.txt, a text of many scripts, word_pieces.json, a tokenizer of 600 tokens that the package trains on
it, and prints for each form of BERT's normalizer how many ids the text has and a hash of them.
"""
import json
import pathlib
import random

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = pathlib.Path(__file__).parent
random.seed(1)
words = (here / "text.txt").read_bytes().decode().split()
marks = "\u0301\u0300\u0308\u0323\u0327\u0316\u0345\u20dd\u302e"
blocks = [(0, 0x20), (0x7F, 0x180), (0x370, 0x400), (0x590, 0x700), (0x900, 0x980), (0x1100, 0x1120), (0x1E00, 0x2000),
          (0x2000, 0x2070), (0x3000, 0x3100), (0x4E00, 0x4E40), (0xAC00, 0xAC40), (0xF900, 0xF920), (0xFFF0, 0x10000),
          (0x10400, 0x10430), (0x1F600, 0x1F640), (0x20000, 0x20010), (0x2B800, 0x2B930)]
# Where versions of Unicode differ: categories, lower case, decompositions and combining classes.
odd = [0x130, 0x1734, 0x1885, 0x166D, 0xA9BD, 0x111C9, 0x897, 0x8D4, 0x1ABF, 0x11938, 0x105C9, 0x1C89, 0xA7CB, 0xA7DC,
       0x10D50, 0x16EA0, 0x1E944, 0x1D165, 0x2E5D, 0x61D, 0x890, 0xE001]
parts = []
for i in range(900):
    word = "".join(c + (random.choice(marks) if random.random() < 0.1 else "") for c in random.choice(words))
    first, last = random.choice(blocks)
    parts.append(word)
    parts.append("".join(chr(random.randrange(first, last)) for _ in range(random.randint(0, 4))))
    parts.append(random.choice(["", " ", "\n", "\u3000", "\u00a0", "."]))
parts += [f"a{chr(c)}\u302eb {chr(c)}" for c in odd]
parts += ["x" * n + " " + "\u00e9" * n + " " for n in (99, 100, 101)]
parts += ["[CLS][MASK] [mask]\u0301[SEP]", "extra TOKEN", " \u0130STANBUL"]
text = "".join(parts)
(here / "word_pieces.txt").write_bytes(text.encode())

made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
made.normalizer = normalizers.BertNormalizer()
made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
made.decoder = decoders.WordPiece()
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
made.train_from_iterator([text], trainers.WordPieceTrainer(vocab_size=600, limit_alphabet=250, special_tokens=special,
                                                           show_progress=False))
made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
made.save(str(here / "word_pieces.json"), pretty=False)
for clean, ideographs, accents, lower in [(1, 1, None, 1), (1, 1, None, 0), (0, 0, False, 1), (0, 1, True, 0)]:
    made.normalizer = normalizers.BertNormalizer(bool(clean), bool(ideographs), accents, bool(lower))
    for text_too in (False, True):
        made.encode_special_tokens = text_too
        ids = made.encode(text, add_special_tokens=False).ids
        value = 0
        for token in ids:
            value = (value * 1000003 + token + 1) % 2**64
        print(f"{clean}{ideographs}{accents}{lower} special tokens {not text_too}: {len(ids)} ids, hash 0x{value:016x}")
made.normalizer = normalizers.BertNormalizer()
made.encode_special_tokens = False
made.add_tokens(["Extra Token"])
print(made.encode("an \u00c9xtra  token, extra TOKEN and eXtra tokEn", add_special_tokens=True).ids, made.get_vocab_size())
print(json.dumps(made.decode(made.encode("It's the first, isn't it ? No .").ids)))

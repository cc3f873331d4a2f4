"""Generation by transformers with its key/value cache, greedy, random weights: tokens a second, as one JSON line.

python torch_generate.py [--layers 12] [--width 768] [--heads 12] [--vocabulary 50257] [--batch 1] [--prompt 64] [--tokens 128] [--threads 2]
"""
import argparse
import json
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
for name, value in {"layers": 12, "width": 768, "heads": 12, "vocabulary": 50257, "batch": 1, "prompt": 64, "tokens": 128, "threads": 2, "rounds": 2}.items():
    parser.add_argument("--" + name, type=int, default=value)
a = parser.parse_args()
torch.set_num_threads(a.threads)
torch.manual_seed(1)
config = GPT2Config(vocab_size=a.vocabulary, n_positions=1024, n_embd=a.width, n_layer=a.layers, n_head=a.heads, bos_token_id=None, eos_token_id=None, pad_token_id=0)
model = GPT2LMHeadModel(config).eval()
prompt = torch.randint(1, a.vocabulary, (a.batch, a.prompt))
mask = torch.ones_like(prompt)
times = []
with torch.no_grad():
    model.generate(prompt, attention_mask=mask, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    for _ in range(a.rounds):
        begin = time.perf_counter()
        out = model.generate(prompt, attention_mask=mask, max_new_tokens=a.tokens, min_new_tokens=a.tokens, do_sample=False)
        times.append(time.perf_counter() - begin)
assert out.shape[1] == a.prompt + a.tokens
print(json.dumps({"tokens_per_s": a.batch * a.tokens / min(times), "s": min(times), "batch": a.batch}))

#!/usr/bin/env python3
"""Writes tests/parity/tasks: two folders of transformers with random weights, tasks of lm-evaluation-harness, and what the harness
measures of them with its defaults.

    python3 tests/parity/make_tasks.py

Needs numpy, safetensors and tokenizers. The numbers come from the definitions, in float64, and from no program that is tested: the models
by their equations (transformers' LlamaForCausalLM and Phi3ForCausalLM), the tokens by the package tokenizers, and what is asked of a model
as the harness's 0.4.13 has it (HFLM with one document a batch); the harness itself, with dtype=float64 and transformers 5.24, gives the same,
but for the document of white space alone, which it refuses without <s>. `llama` has a tokenizer that puts <s> in front of a text; that of `phi3`
does not, and its texts of more than 16 tokens have longrope's other frequencies.

expected.jsonl has a line for each document, with what `lockstep eval --task --to` writes of it: "model", "task", "document", and
"log_probabilities" or "generated". "special": false is the harness's add_bos_token=False.
"""
import json
import math
import pathlib

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parent / "tasks"
WIDTH, HIDDEN, LAYERS, HEADS, VOCABULARY, BEGIN, END = 16, 24, 2, 2, 260, 258, 259
SHARED = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
              num_key_value_heads=1, tie_word_embeddings=True, bos_token_id=BEGIN, eos_token_id=END, rms_norm_eps=1e-5, hidden_act="silu",
              pad_token_id=None)
CONFIGS = {
    "llama": dict(SHARED, architectures=["LlamaForCausalLM"], model_type="llama", max_position_embeddings=40, rope_theta=10000.0),
    "phi3": dict(SHARED, architectures=["Phi3ForCausalLM"], model_type="phi3", max_position_embeddings=48, original_max_position_embeddings=16,
                 sliding_window=None, rope_theta=100.0,
                 rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.3, 1.7], long_factor=[1.5, 3.0, 6.0, 9.0])),
}
NEW_TOKENS = 12
DOCUMENTS = {
    "choices": [dict(q=q, c=["cow.", "the dog", "a tree"], a=i % 3) for i, q in enumerate(
        ["the cat sees", "the dog ", "", " ", "<s>the cow", "the cat sees the dog and the cow sees", "x" * 60, "the theatre\n", "thethethe 123456"])],
    "words": [dict(q=q, a=a) for q, a in [("the cat", " sees the"), ("", "the dog"), ("a b c d e f g h", " the"), ("a b c d e f g hi", " the"),
                                          ("one two three four five", " six"), ("y" * 50, "the end"), ("\u00e9t\u00e9", " the")]],
    "whole": [dict(t=t) for t in ["the cat sees the dog.", "<s>the cat", "a" * 14, "a" * 15, "a" * 16, "a" * 17, "the quick brown fox jumps over it",
                                  "the cat sees the dog, the dog sees the cow, the cow sees the cat and a tree, the end.", "x"]],
    "said": [dict(q=q, a=a) for q, a in [("the cat", "x"), ("<s>the dog", "x"), ("a b c d e", "x"), ("the cat sees the dog", "x"),
                                         ("the cow sees a tree, the tree sees the cow and the end", "x")]],
}
TASKS = {
    "choices": "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: c\ndoc_to_target: a\nmetric_list: [{metric: acc}, {metric: acc_norm}]\n",
    "words": "output_type: loglikelihood\ndoc_to_text: q\ndoc_to_target: a\n",
    "whole": "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: t\n",
    "said": "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: a\ngeneration_kwargs: {until: [\"#\"], max_gen_toks: 12}\n"
            "metric_list: [{metric: exact_match}]\n",
}


def tokenizer(begins):
    """Of bytes, `th` and `the`."""
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))} | {"th": 256, "the": 257}
    special = [dict(id=i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i, t in ((258, "<s>"), (259, "</s>"))]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    around = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, text]
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    template = dict(type="TemplateProcessing", single=around, pair=around + [{"Sequence": {"id": "B", "type_id": 1}}],
                    special_tokens={"<s>": {"id": "<s>", "ids": [258], "tokens": ["<s>"]}})
    return dict(version="1.0", truncation=None, padding=None, added_tokens=special, normalizer=None, pre_tokenizer=byte_level,
                post_processor=dict(type="Sequence", processors=[byte_level, template]) if begins else byte_level, decoder=byte_level,
                model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                           byte_fallback=False, ignore_merges=False, vocab=vocabulary, merges=["t h", "th e"]))

def write_folder(name):
    folder = OUT / name
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(1)
    weights = {"model.embed_tokens.weight": rng.normal(0, 0.4, (VOCABULARY, WIDTH)), "model.norm.weight": np.ones(WIDTH)}
    made = tokenizer(begins=name == "llama")
    printed = {i for c, i in made["model"]["vocab"].items() if c.isascii() or c == "\u0120"}
    others = [i for i in range(VOCABULARY) if i not in printed]
    weights["model.embed_tokens.weight"][others] *= 0.05  # so that texts are continued with printed characters of ASCII
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{norm}.weight"] = np.ones(WIDTH)
        qkv, gate_up = rng.normal(0, 0.4, (2 * WIDTH, WIDTH)), rng.normal(0, 0.4, (2 * HIDDEN, WIDTH))
        if name == "phi3":
            weights |= {at + "self_attn.qkv_proj.weight": qkv, at + "mlp.gate_up_proj.weight": gate_up}
        else:
            weights |= {f"{at}self_attn.{n}_proj.weight": w for n, w in zip("qkv", np.split(qkv, [WIDTH, WIDTH + WIDTH // HEADS]))}
            weights |= {f"{at}mlp.{n}_proj.weight": w for n, w in zip(("gate", "up"), np.split(gate_up, 2))}
        weights |= {at + "self_attn.o_proj.weight": rng.normal(0, 0.4, (WIDTH, WIDTH)), at + "mlp.down_proj.weight": rng.normal(0, 0.4, (WIDTH, HIDDEN))}
    save_file({k: np.ascontiguousarray(w.astype(np.float16)) for k, w in weights.items()}, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]) + "\n")
    (folder / "tokenizer.json").write_text(json.dumps(made) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", eos_token="</s>")) + "\n")


class Model:
    def __init__(self, name):
        self.config = CONFIGS[name]
        self.weights = {k: w.astype(np.float64) for k, w in load_file(str(OUT / name / "model.safetensors")).items()}
        self.tokenizer = Tokenizer.from_file(str(OUT / name / "tokenizer.json"))
        self.context = self.config["max_position_embeddings"]

    def frequencies(self, time):
        """Of each pair of a head, and what cosines and sines are multiplied by."""
        head, config = WIDTH // HEADS, self.config
        plain = config["rope_theta"] ** (-np.arange(0, head, 2) / head)
        if config["model_type"] != "phi3":
            return plain, 1.0
        first = config["original_max_position_embeddings"]
        factors = config["rope_scaling"]["long_factor" if time > first else "short_factor"]
        return plain / np.array(factors), math.sqrt(1 + math.log(self.context / first) / math.log(first))

    def logits(self, ids):
        time, head = len(ids), WIDTH // HEADS
        frequencies, scale = self.frequencies(time)
        angles = np.concatenate([np.arange(time)[:, None] * frequencies[None]] * 2, 1)
        cos, sin = np.cos(angles) * scale, np.sin(angles) * scale

        def norm(x, weight):
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * weight

        def turned(x):
            return x * cos + np.concatenate([-x[..., head // 2:], x[..., :head // 2]], -1) * sin

        x = self.weights["model.embed_tokens.weight"][ids]
        for layer in range(LAYERS):
            def weight(part, at=f"model.layers.{layer}."):
                return self.weights[f"{at}{part}.weight"]
            joined = self.config["model_type"] == "phi3"
            qkv = weight("self_attn.qkv_proj") if joined else np.concatenate([weight(f"self_attn.{n}_proj") for n in "qkv"])
            gate_up = weight("mlp.gate_up_proj") if joined else np.concatenate([weight("mlp.gate_proj"), weight("mlp.up_proj")])
            y = norm(x, weight("input_layernorm")) @ qkv.T
            q = turned(y[:, :WIDTH].reshape(time, HEADS, head).transpose(1, 0, 2))
            k, v = turned(y[:, WIDTH:WIDTH + head][None]), y[:, WIDTH + head:][None]
            scores = q @ k.transpose(0, 2, 1) / math.sqrt(head) + np.triu(np.full((time, time), -np.inf), 1)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            x = x + (shares @ v).transpose(1, 0, 2).reshape(time, WIDTH) @ weight("self_attn.o_proj").T
            gate, up = np.split(norm(x, weight("post_attention_layernorm")) @ gate_up.T, 2, axis=1)
            x = x + (gate / (1 + np.exp(-gate)) * up) @ weight("mlp.down_proj").T
        return norm(x, self.weights["model.norm.weight"]) @ self.weights["model.embed_tokens.weight"].T

    def score(self, context, continuation):
        """The log-probability of the continuation's tokens; where there are too many, the first ones of the context go."""
        ids = (context + continuation)[-(self.context + 1):]
        logits = self.logits(ids[:-1])
        logits = logits - logits.max(-1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        n = len(continuation)
        return float(sum(logs[len(ids) - 1 - n + i, token] for i, token in enumerate(continuation)))


class Harness:
    def __init__(self, name, special):
        self.model, self.special = Model(name), special

    def encode(self, text):  # HFLM.tok_encode, tok_batch_encode
        special = self.special and not text.startswith("<s>")
        return self.model.tokenizer.encode(text, add_special_tokens=special).ids

    def pair(self, context, continuation):  # TemplateLM.loglikelihood, _encode_pair
        spaces = len(context) - len(context.rstrip())
        nothing = context == "" or (spaces == len(context) and not self.encode(""))  # of white space alone the harness asserts that it has tokens
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        if nothing:
            ids = self.model.tokenizer.encode(continuation, add_special_tokens=False).ids
            return ([BEGIN], ids) if ids[0] != BEGIN else (ids[:1], ids[1:])
        before = self.encode(context)
        return before, self.encode(context + continuation)[len(before):]

    def rolling(self, text):  # utils.get_rolling_token_windows
        ids, longest = self.encode(text), self.model.context
        done = min(longest, len(ids))
        total = self.model.score([BEGIN], ids[:done])
        while done < len(ids):
            n = min(len(ids) - done, longest)
            done += n
            total += self.model.score(ids[max(0, done - longest - 1):done - n], ids[done - n:done])
        return total

    def generated(self, text):
        ids, out = self.encode(text)[-(self.model.context - NEW_TOKENS):], []
        while len(out) < NEW_TOKENS and (not out or out[-1] != END):
            out.append(int(self.model.logits(ids + out)[-1].argmax()))
        return self.model.tokenizer.decode(out).split("#")[0]

    def answers(self):
        for task, documents in DOCUMENTS.items():
            for i, d in enumerate(documents):
                if task == "said":
                    found = dict(generated=self.generated(d["q"]))
                elif task == "whole":
                    found = dict(log_probabilities=[self.rolling(d["t"])])
                else:
                    continuations = [" " + c for c in d["c"]] if task == "choices" else [d["a"]]
                    found = dict(log_probabilities=[self.model.score(*self.pair(d["q"], c)) for c in continuations])
                yield dict(task=task, document=i, special=self.special, **found)


def main():
    OUT.mkdir(exist_ok=True)
    for task, text in TASKS.items():
        (OUT / f"{task}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in DOCUMENTS[task]))
        (OUT / f"{task}.yaml").write_text(f"task: {task}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {task}.jsonl}}}}\ntest_split: test\n{text}")
    with open(OUT / "expected.jsonl", "w") as out:
        for name in CONFIGS:
            write_folder(name)
            for special in [True, False] if name == "llama" else [True]:
                for line in Harness(name, special).answers():
                    out.write(json.dumps(dict(model=name, **line), separators=(",", ":")) + "\n")


main()

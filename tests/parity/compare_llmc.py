#!/usr/bin/env python3
"""Compares files of llm.c with the bytes that its layout asks for, computed by PyTorch from a folder of transformers.

    lockstep checkpoint convert FOLDER gpt2.bin --to llmc
    lockstep checkpoint convert FOLDER half.bin --to llmc-bf16
    compare_llmc.py FOLDER gpt2.bin half.bin
"""
import json
import sys

import torch
from safetensors.torch import load_file

KINDS = ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"]


def tensors(config, weights):
    def named(name):
        return weights.get("transformer." + name, weights.get(name)).float()

    embedding = named("wte.weight")
    yield torch.nn.functional.pad(embedding, (0, 0, 0, -len(embedding) % 128))
    yield named("wpe.weight")
    for kind in KINDS:
        for part in ["weight", "bias"]:
            for layer in range(config["n_layer"]):
                tensor = named(f"h.{layer}.{kind}.{part}")
                yield tensor.t().contiguous() if tensor.dim() == 2 else tensor
    yield named("ln_f.weight")
    yield named("ln_f.bias")


def file_of(config, weights, version, dtype):
    vocabulary = config["vocab_size"]
    header = torch.zeros(256, dtype=torch.int32)
    header[:8] = torch.tensor([20240326, version, config["n_positions"], vocabulary, config["n_layer"],
                               config["n_head"], config["n_embd"], vocabulary + -vocabulary % 128])
    out = header.numpy().tobytes()
    for tensor in tensors(config, weights):
        stored = tensor.to(dtype)
        out += (stored.view(torch.int16) if dtype == torch.bfloat16 else stored).numpy().tobytes()
    return out


folder, whole, half = sys.argv[1:]
with open(folder + "/config.json") as f:
    config = json.load(f)
weights = load_file(folder + "/model.safetensors")
equal = True
for path, version, dtype in [(whole, 3, torch.float32), (half, 5, torch.bfloat16)]:
    with open(path, "rb") as f:
        same = f.read() == file_of(config, weights, version, dtype)
    equal = equal and same
    print(f"{path}: {'equal' if same else 'differs'}")
sys.exit(0 if equal else 1)

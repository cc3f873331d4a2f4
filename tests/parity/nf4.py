#!/usr/bin/env python3
"""Compares weights kept in 4 and 8 bits (precision.frozen) with those of bitsandbytes.

    nf4.py LOCKSTEP [--ranks 2]

A random llama of transformers gets adapters that are not trained, beside weights in nf4 and in int8; the merged export holds
what the codes decode to, which is compared with what bitsandbytes makes of the same weights: nf4 with double quantisation, int8
by absmax / 127 of each row. A folder that bitsandbytes itself has written, in nf4 with and without double quantisation, must keep its
values to the bit. Needs torch, transformers, safetensors and bitsandbytes. Exit code 1 where more
than 1e-5 of the blocks differ in nf4, or a value of int8 by more than 1e-6 of it.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import bitsandbytes.functional
import safetensors.torch
import torch
import transformers


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")


def decoded(coding, weight):
    if coding == "int8":
        largest = weight.abs().amax(1, keepdim=True)
        # As one division: torch computes 127 / largest as 127 times the reciprocal.
        return torch.round(weight * torch.div(torch.tensor(127.0), largest)) * torch.div(largest, torch.tensor(127.0))
    functional = bitsandbytes.functional
    codes, state = functional.quantize_4bit(weight, quant_type="nf4", compress_statistics=False)
    # The scales in 8 bits, as bitsandbytes has them on GPUs and of types for which it has no code for CPUs: to the nearest value of
    # its map. Its code for CPUs looks them up in a coarse table, and takes a neighbour of the nearest one in 0.2% of the cases.
    scales, levels = state.absmax, functional.create_dynamic_map()
    mean = scales.double().mean().float()  # whose order of sums is its own; in fp32 a few scales of 100,000 have a neighbouring code
    groups = torch.nn.functional.pad(scales - mean, (0, -len(scales) % 256)).view(-1, 256)
    largest = groups.abs().amax(1, keepdim=True)
    nearest = ((groups * (1 / largest)).unsqueeze(-1) - levels).abs().argmin(-1)
    state.absmax = ((levels[nearest] * largest) + mean).flatten()[: len(scales)]
    return functional.dequantize_4bit(codes, state)


def merged(lockstep, work, folder, coding, name, ranks):
    """What a run beside this folder exports before its first step."""
    run(lockstep, "train", work / "tune.yaml", f"init.from={work / folder}", f"run.dir={work / name}", f"data.path={work / 'text.h5'}",
        "data.context=16", "batch.global=4", "batch.micro=2", "train.steps=0", f"precision.frozen={coding}", "--ranks", ranks,
        "sharding.level=parameters")
    run(lockstep, "checkpoint", "export", work / name, work / f"{name}-merged", "--to", "hf")
    return safetensors.torch.load_file(work / f"{name}-merged" / "model.safetensors")


def stored_values(tensors, name):
    """What the codes of bitsandbytes' own folder decode to, in fp32."""
    state = json.loads(bytes(tensors[f"{name}.quant_state.bitsandbytes__nf4"].tolist()))
    scales = tensors[f"{name}.absmax"]
    if "nested_offset" in state:
        groups = tensors[f"{name}.nested_absmax"].repeat_interleave(state["nested_blocksize"])[: len(scales)]
        scales = tensors[f"{name}.nested_quant_map"][scales.int()] * groups + torch.tensor(state["nested_offset"])
    codes, levels = tensors[name].flatten(), tensors[f"{name}.quant_map"]
    values = torch.stack([levels[(codes >> 4).int()], levels[(codes & 15).int()]], 1).flatten()
    return (values * scales.repeat_interleave(state["blocksize"])).view(state["shape"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    lockstep = pathlib.Path(args.lockstep).resolve()
    wrong = False
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        torch.manual_seed(1)
        config = transformers.LlamaConfig(vocab_size=256, hidden_size=320, intermediate_size=960, num_hidden_layers=3,
                                          num_attention_heads=5, num_key_value_heads=5, max_position_embeddings=32,
                                          initializer_range=0.05)
        transformers.LlamaForCausalLM(config).save_pretrained(work / "model")
        (work / "text.txt").write_text("some text of some words " * 200)
        run(lockstep, "data", "import", "text", work / "text.txt", work / "text.h5", "--level", "byte")
        for coding in ("nf4", "int8"):
            (work / "tune.yaml").write_text("lora: {rank: 2, targets: [all-linear]}\n")
            after = merged(lockstep, work, "model", coding, coding, args.ranks)
            before = safetensors.torch.load_file(work / "model" / "model.safetensors")
            blocks = different = 0
            worst = 0.0
            for name, weight in before.items():
                if "_proj" not in name:
                    assert torch.equal(weight, after[name]), name
                    continue
                wanted, found = decoded(coding, weight).flatten(), after[name].flatten()
                apart = (wanted - found).abs() > 1e-6 * wanted.abs()
                blocks += -(-len(wanted) // 64)
                different += torch.unique(apart.nonzero() // 64).numel()
                worst = max(worst, ((wanted - found).abs() / wanted.abs().clamp(min=1e-12)).max().item())
            print(f"{coding}: {different} of {blocks} blocks differ; the largest difference is {worst:.1e} of a value")
            wrong |= different > 1e-5 * blocks
        for double in (False, True):
            how = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double)
            folder = f"bnb-{double}"
            transformers.AutoModelForCausalLM.from_pretrained(work / "model", quantization_config=how,
                                                              device_map="cpu").save_pretrained(work / folder)
            there = safetensors.torch.load_file(work / folder / "model.safetensors")
            for coding in ("nf4", "stored"):
                after = merged(lockstep, work, folder, coding, f"{folder}-{coding}", args.ranks)
                different = sum((stored_values(there, name) != weight).sum().item() for name, weight in after.items() if "_proj" in name)
                print(f"a folder of bitsandbytes, double quantisation {double}, kept as {coding}: {different} values differ")
                wrong |= different > 0
    sys.exit(wrong)


if __name__ == "__main__":
    main()

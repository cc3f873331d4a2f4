#!/usr/bin/env python3
"""Writes LoRA adapters by Hugging Face's peft for the models that make_hf.py wrote, with what peft computes; and reads lockstep's.

Needs torch, transformers (5), peft and safetensors; the tests need none of them. Beside an adapter's own files each folder holds
expected.safetensors: "input" (tokens, or images [B, H, W, C], as fp32) and "logits", computed in fp32 with the adapter.

    python3 tests/parity/make_peft.py tests/parity/hf tests/parity/peft          the adapters that the repository keeps
    python3 tests/parity/make_peft.py tests/parity/hf --check LOCKSTEP DATA.h5   each through the program, and back into peft and
                                                                                 transformers; DATA.h5 is text of at most 29 tokens
"""
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

# name: class, model, options of the adapter
CAUSAL = "AutoModelForCausalLM"
CASES = {
    "gpt2": (CAUSAL, "gpt2", dict(r=2, lora_alpha=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)),
    "llama3": (CAUSAL, "llama3", dict(r=2, lora_alpha=3, target_modules="all-linear")),
    "qwen2": (CAUSAL, "qwen2", dict(r=3, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "v_proj"])),
    "qwen2_tied": (CAUSAL, "qwen2", dict(r=2, target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    "qwen3": (CAUSAL, "qwen3", dict(r=2, target_modules=r".*\.1\..*(q|up)_proj", modules_to_save=["lm_head"])),
    "bert": ("BertForMaskedLM", "bert", dict(r=2, lora_alpha=4, target_modules=["query", "key", "value"])),
    "bert_qv": ("BertForMaskedLM", "bert", dict(r=3, lora_alpha=4, target_modules=["query", "value", "attention.output.dense"])),
    "llama3_dora": (CAUSAL, "llama3", dict(r=2, lora_alpha=3, use_dora=True, target_modules=["q_proj", "down_proj"])),
    "qwen3_patterns": (CAUSAL, "qwen3", dict(r=2, lora_alpha=4, target_modules=["q_proj", "k_proj", "up_proj"], rank_pattern={"k_proj": 3},
                                       alpha_pattern={r"layers\.1\.mlp\.up_proj": 1, r".*[01].self_attn.k_proj": 6})),
    "llama3_embed_tokens": (CAUSAL, "llama3", dict(r=2, lora_alpha=4, target_modules=["embed_tokens", "o_proj", "lm_head"])),
    "neox_embedding": (CAUSAL, "neox", dict(r=2, lora_alpha=4, target_modules=["embed_in", "query_key_value", "embed_out"])),
    "vit": ("ViTForImageClassification", "vit", dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "o_proj", "fc1", "fc2"],
                                                     modules_to_save=["classifier"])),
}


def base_of(model_class, folder):
    return getattr(transformers, model_class).from_pretrained(folder, dtype=torch.float32).eval()


def logits_of(model, given):
    with torch.no_grad():
        model.eval()
        if given.dim() == 4:
            return model(pixel_values=given.permute(0, 3, 1, 2)).logits
        return model(input_ids=given.long()).logits


def make(model_class, base, options, out):
    torch.manual_seed(5)
    task = "CAUSAL_LM" if model_class == CAUSAL else None
    model = peft.get_peft_model(base_of(model_class, base), peft.LoraConfig(task_type=task, **options))
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "lora_B" in name or "modules_to_save" in name or "lora_embedding_A" in name:
                tensor.normal_(0, 0.1)
            elif "magnitude" in name:
                tensor.mul_(1 + 0.2 * torch.rand_like(tensor))
    given = torch.randn(2, 8, 8, 3) if base.name == "vit" else torch.randint(0, 29, (2, 16)).float()
    logits = logits_of(model, given)
    model.peft_config["default"].base_model_name_or_path = base.name
    model.save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    save_file({"input": given, "logits": logits.contiguous()}, out / "expected.safetensors")


def check(models, lockstep, data):
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for name, (model_class, base, options) in CASES.items():
            base, there = models / base, work / f"{name}.peft"
            make(model_class, base, options, there)
            text = f"path: {data}, context: 16" + (", mask: 0.15" if base.name == "bert" else "")
            if base.name == "vit":
                text = "name: synthetic_images, synthetic: {images: 40, height: 8, width: 8, channels: 3, classes: 5}"
            (work / "run.yaml").write_text(
                f"init: {{from: {base}, adapter: {there}}}\nrun: {{dir: {work / name}}}\ntrain: {{steps: 0}}\n"
                f"batch: {{global: 8, micro: 1}}\ndata: {{{text}}}\n")
            for words in (["train", work / "run.yaml"], ["checkpoint", "export", work / name, work / f"{name}.out", "--to", "peft"],
                          ["checkpoint", "export", work / name, work / f"{name}.hf", "--to", "hf"]):
                subprocess.run([lockstep, *map(str, words)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            expected = load_file(there / "expected.safetensors")
            tokens = expected["input"]
            given, back = (load_file(f / "adapter_model.safetensors") for f in (there, work / f"{name}.out"))
            given = {k: v for k, v in given.items() if ".base_layer." not in k}  # copies of the model's
            assert given.keys() == back.keys() and all(torch.equal(given[k].float(), back[k]) for k in given), name
            unadapted = logits_of(base_of(model_class, base), tokens)
            in_peft = logits_of(peft.PeftModel.from_pretrained(base_of(model_class, base), work / f"{name}.out"), tokens)
            merged = logits_of(base_of(model_class, work / f"{name}.hf"), tokens)
            distance = [(x - expected["logits"]).abs().max().item() for x in (unadapted, in_peft, merged)]
            print(f"{name:8} the adapter moves logits by {distance[0]:.2g}; in peft again {distance[1]:.1e}, merged {distance[2]:.1e}")
            assert distance[0] > 0.1 and distance[1] < 1e-4 and distance[2] < 1e-5, name


def main():
    models = pathlib.Path(sys.argv[1]).resolve()
    if sys.argv[2] == "--check":
        return check(models, sys.argv[3], pathlib.Path(sys.argv[4]).resolve())
    for name, (model_class, base, options) in CASES.items():
        make(model_class, models / base, options, pathlib.Path(sys.argv[2]) / name)


main()

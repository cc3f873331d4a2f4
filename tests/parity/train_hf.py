#!/usr/bin/env python3
"""Fine-tunes folders of transformers for some steps with lockstep and with transformers, and compares the losses.

    train_hf.py LOCKSTEP FOLDER... [--steps 5] [--ranks 2] [--adapter FOLDER]     the last: of peft, and the model's parameters stay

The samples are the same on both sides, in the same order: random tokens, one record each, or for bert windows of a text with
the same tokens hidden, or random images. Both train in fp32 by AdamW without dropout, from the folder's weights. Needs torch,
transformers, numpy and libxxhash, and with --adapter peft. Exit code 1 where a loss differs by more than 1e-5.
"""
import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

BATCH, LR, BETAS, EPS = 4, 1e-3, (0.9, 0.95), 1e-8


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")


def write_tokens(tokens, vocabulary, work, lockstep, *options):
    """As a file of llm.c, and imported."""
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, tokens.size
    (work / "tokens.bin").write_bytes(header.tobytes() + tokens.astype(np.uint16).tobytes())
    run(lockstep, "data", "import", "llmc", work / "tokens.bin", work / "data.h5", "--vocabulary-size", vocabulary, *options)


def text_data(config, count, work, lockstep):
    """Records as llm.c stores tokens: each begins with token 0, which stands nowhere else."""
    context = min(16, getattr(config, "n_positions", None) or config.max_position_embeddings)
    tokens = np.random.default_rng(1).integers(1, config.vocab_size, (count, context + 1))
    tokens[:, 0] = 0
    write_tokens(tokens, config.vocab_size, work, lockstep, "--document-token", 0)
    return torch.tensor(tokens), [f"data.context={context}", "data.packing=pad"]


def hash64(words, seed):
    """Of core/base/hash.h."""
    function = ctypes.CDLL("libxxhash.so.0").XXH3_64bits_withSeed
    function.restype, function.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)
    data = np.array(words, np.int64).tobytes()
    return function(data, len(data), seed)


def masked_data(config, count, work, lockstep):
    """Windows of a text in epoch 0, and which tokens are hidden as what: data/samples/text/token_dataset.cpp. The mask is the last token."""
    context, mask, seed, vocabulary = min(16, config.max_position_embeddings), 0.3, 1, config.vocab_size - 1
    tokens = np.random.default_rng(1).integers(0, vocabulary, (count + 1) * context)
    write_tokens(tokens, vocabulary, work, lockstep)
    origin = hash64([seed, 0], 0x6F726967696E) % context
    given = tokens[origin : origin + count * context].reshape(count, context).copy()
    labels = np.full_like(given, -100)
    for sample in range(count):
        for i in range(context):
            random = hash64([0, sample, i], seed ^ 0x6D61736B)
            if random >> 40 >= mask * (1 << 24):
                continue
            labels[sample, i] = given[sample, i]
            if random % 10 < 8:
                given[sample, i] = vocabulary
            elif random % 10 == 8:
                given[sample, i] = random // 10 % vocabulary
    return (torch.tensor(given), torch.tensor(labels)), [f"data.context={context}", f"data.mask={mask}", f"seed={seed}", "model.dropout=0"]


def image_data(config, count, work, lockstep):
    side = getattr(config, "image_size", 32)
    side = side if side < 224 else 32
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (count, side, side, config.num_channels), dtype=np.uint8)
    labels = np.arange(count) % config.num_labels
    np.save(work / "x.npy", images)
    np.save(work / "y.npy", labels)
    run(lockstep, "data", "import", "npy", work / "x.npy", work / "y.npy", work / "data.h5")
    pixels = images / 255.0
    pixels = (pixels - pixels.mean((0, 1, 2))) / pixels.std((0, 1, 2))
    return (torch.tensor(pixels.transpose(0, 3, 1, 2), dtype=torch.float32), torch.tensor(labels)), []


def their_losses(folder, config, data, steps, adapter=None):
    images, masked = config.model_type in ("vit", "resnet"), config.model_type in ("bert", "distilbert", "roberta")
    kind = (transformers.AutoModelForImageClassification if images else transformers.AutoModelForMaskedLM if masked
            else transformers.AutoModelForCausalLM)
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation=None if images else "eager")
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for name in ("attn_pdrop", "attention_dropout", "resid_pdrop", "embd_pdrop"):
        if hasattr(model.config, name):
            setattr(model.config, name, 0.0)
    if config.model_type == "roberta":  # whose token 1 learns nothing, while the random data has it
        model.roberta.embeddings.word_embeddings.padding_idx = None
    if adapter:
        import peft
        model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
        model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, betas=BETAS, eps=EPS, weight_decay=0)
    out = []
    for step in range(steps):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        if images:
            logits, labels = model(pixel_values=data[0][rows]).logits, data[1][rows]
        elif masked:
            tokens, places = data[0][rows], {}
            if config.model_type == "roberta":  # which takes one of the random tokens for padding
                places["position_ids"] = (torch.arange(tokens.shape[1]) + config.pad_token_id + 1).expand(tokens.shape)
            logits, labels = model(input_ids=tokens, **places).logits.flatten(0, 1), data[1][rows].flatten()
        else:
            logits, labels = model(input_ids=data[rows, :-1]).logits.flatten(0, 1), data[rows, 1:].flatten()
        loss = torch.nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def our_losses(folder, lockstep, work, steps, ranks, options):
    run_dir = work / "run"
    (work / "tune.yaml").write_text("batch: {}\n")
    run(lockstep, "train", work / "tune.yaml", f"init.from={folder}", f"run.dir={run_dir}", f"data.path={work / 'data.h5'}",
        f"batch.global={BATCH}", f"batch.micro={BATCH // ranks if not options else 1}", f"train.steps={steps}", "data.validation=0",
        "data.shuffle=false", "optim.name=adamw", f"optim.lr={LR}", f"optim.beta1={BETAS[0]}", f"optim.beta2={BETAS[1]}",
        f"optim.epsilon={EPS}", "optim.weight_decay=0", "optim.clip_norm=0", "schedule.name=constant", "schedule.warmup=0",
        "--ranks", ranks, *options)
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line][:steps]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--adapter")
    args = parser.parse_args()
    lockstep = pathlib.Path(args.lockstep).resolve()
    worst = 0.0
    for folder in args.folders:
        config = transformers.AutoConfig.from_pretrained(folder)
        with tempfile.TemporaryDirectory() as scratch:
            work = pathlib.Path(scratch)
            make = {"vit": image_data, "resnet": image_data, "bert": masked_data, "distilbert": masked_data, "roberta": masked_data}.get(config.model_type, text_data)
            data, options = make(config, args.steps * BATCH, work, lockstep)
            if args.adapter:
                options = [*options, f"init.adapter={pathlib.Path(args.adapter).resolve()}"]
            # Batch norm sees a micro-batch at a time: all of the batch, on one rank.
            ranks = 1 if config.model_type == "resnet" else args.ranks
            ours = our_losses(pathlib.Path(folder).resolve(), lockstep, work, args.steps, ranks, options)
            theirs = their_losses(folder, config, data, args.steps, args.adapter)
        difference = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
        worst = max(worst, difference)
        print(f"{config.model_type:8} losses {theirs[0]:.6f} to {theirs[-1]:.6f}, largest difference {difference:.1e}")
    sys.exit(0 if worst <= 1e-5 else 1)


main()

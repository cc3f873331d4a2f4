#!/usr/bin/env python3
"""Tunes a random model by preferences for some steps with lockstep and with TRL's losses, and compares losses and gradients.

    train_pairs.py LOCKSTEP [--steps 5] [--ranks 2]

The model is a small llama of transformers; the pairs are random texts of different lengths, some of several turns. For each of
dpo, ipo and orpo both train in fp32 by AdamW, and each step's loss and norm of the gradient are compared. TRL's ORPO takes the
mean of its first term over the tokens of a batch, lockstep over those of a pair, so it is given one pair at a time. Needs torch,
transformers, trl, datasets, h5py and numpy. Exit code 1 where a loss or a norm differs by more than 1e-5.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import h5py
import torch
import torch.nn.functional as F
import transformers
from trl import DPOTrainer
from trl.experimental.orpo import ORPOTrainer

BATCH, LR, BETAS, EPS, BETA = 4, 1e-3, (0.9, 0.95), 1e-8, 0.3


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def make_pairs(path, count):
    source = random.Random(1)
    text = lambda most: "".join(source.choice("abcdefgh ijkl") for _ in range(source.randrange(1, most)))
    with open(path, "w") as file:
        for _ in range(count):
            file.write(json.dumps({"question": text(12), "better": text(14), "worse": text(10)}) + "\n")


def records_of(path):
    """Of each pair: (ids, targets) of the chosen and of the rejected record."""
    with h5py.File(path) as file:
        ids, ends, targets = file["tokens"][:], file["record_ends"][:], file["targets"][:]
        size = int(file.attrs["vocabulary_size"])
    starts = [0, *ends[:-1]]
    records = [(torch.tensor(ids[a:b].astype("int64")), torch.tensor(targets[a:b].astype("int64"))) for a, b in zip(starts, ends)]
    return list(zip(records[0::2], records[1::2])), size


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def inputs_of(pairs):
    """As TRL's collator makes them: chosen records, then rejected ones."""
    rows = [p[0] for p in pairs] + [p[1] for p in pairs]
    mask = padded([torch.ones_like(ids) for ids, _ in rows])
    return padded([ids for ids, _ in rows]), mask, padded([targets for _, targets in rows])


def token_log_probs(model, ids, mask, targets):
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    logs = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])[..., 0]
    return logs * targets[:, 1:]


def dpo_loss(kind, model, reference, pairs):
    """DPOTrainer's own loss, with the outputs that its patched models give."""
    ids, mask, targets = inputs_of(pairs)
    wrap = lambda m: lambda **_: SimpleNamespace(log_probs=token_log_probs(m, ids, mask, targets), loss=None, entropy=None)
    model_in, reference_in = wrap(model), wrap(reference)
    with torch.no_grad():
        of_reference = token_log_probs(reference, ids, mask, targets).sum(1).chunk(2)
    stand = SimpleNamespace(
        model=model, accelerator=SimpleNamespace(device="cpu"), aux_loss_enabled=False, ld_alpha=None, precompute_ref_logps=True,
        f_divergence_type="reverse_kl", beta=BETA, loss_types=[kind], loss_weights=[1.0], use_weighting=False)
    inputs = {"input_ids": ids, "attention_mask": mask, "completion_mask": targets, "ref_chosen_logps": of_reference[0],
              "ref_rejected_logps": of_reference[1]}

    class Losses(Exception):
        """What the trainer takes the mean of; its metrics, which come behind that, need a whole trainer."""

    original = torch.Tensor.mean

    def mean(self, *dims, **named):
        if dims or named:
            return original(self, *dims, **named)
        raise Losses(self)

    torch.Tensor.mean = mean
    try:
        DPOTrainer._compute_loss(stand, lambda **_: SimpleNamespace(log_probs=token_log_probs(model, ids, mask, targets)), inputs, False)
    except Losses as losses:
        return original(losses.args[0])
    finally:
        torch.Tensor.mean = original
    sys.exit("TRL's DPOTrainer takes no mean of the losses any more")


def orpo_loss(model, pairs):
    total = 0
    for pair in pairs:
        ids, mask, targets = inputs_of([pair])
        logits = model(input_ids=ids, attention_mask=mask).logits
        labels = torch.where(targets == 1, ids, -100)
        labels[:, 0] = -100
        logs = ORPOTrainer.get_batch_logps(logits, labels, average_log_prob=True)
        length = len(pair[0][0])
        nll = F.cross_entropy(logits[0, : length - 1], ids[0, 1:length])
        stand = SimpleNamespace(beta=BETA, accelerator=SimpleNamespace(device="cpu"))
        total = total + nll - ORPOTrainer.odds_ratio_loss(stand, logs[:1], logs[1:])[0].mean()
    return total / len(pairs)


def theirs(kind, folder, pairs, steps):
    load = lambda: transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model, reference = load(), load()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=0)
    out = []
    for step in range(steps):
        some = pairs[step * BATCH : (step + 1) * BATCH]
        loss = orpo_loss(model, some) if kind == "orpo" else dpo_loss({"dpo": "sigmoid"}.get(kind, kind), model, reference, some)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))
        optimizer.step()
        out.append((loss.item(), norm.item()))
    return out


def ours(kind, folder, lockstep, data, work, steps, ranks):
    run_dir = work / kind
    config = work / f"{kind}.yaml"
    config.write_text("batch: {}\n")
    run(lockstep, "train", config, f"init.from={folder}", f"run.dir={run_dir}", f"data.path={data}", "data.context=32",
        "data.packing=pairs", f"task.name={kind}", f"task.beta={BETA}", f"batch.global={BATCH}", "batch.micro=2",
        f"train.steps={steps}", "data.validation=0", "data.shuffle=false", "optim.name=adamw", f"optim.lr={LR}",
        f"optim.beta1={BETAS[0]}", f"optim.beta2={BETAS[1]}", f"optim.epsilon={EPS}", "optim.weight_decay=0", "optim.clip_norm=0",
        "schedule.name=constant", "schedule.warmup=0", "--ranks", ranks)
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line][:steps]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    lockstep = pathlib.Path(args.lockstep).resolve()
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        make_pairs(work / "pairs.jsonl", args.steps * BATCH)
        run(lockstep, "data", "import", "json", work / "pairs.jsonl", work / "pairs.h5", "--prompt", "question", "--chosen", "better",
            "--rejected", "worse")
        pairs, vocabulary = records_of(work / "pairs.h5")
        torch.manual_seed(1)
        config = transformers.LlamaConfig(vocab_size=vocabulary, hidden_size=32, intermediate_size=56, num_hidden_layers=2,
                                          num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                                          initializer_range=0.2)
        transformers.LlamaForCausalLM(config).save_pretrained(work / "model")
        for kind in ("dpo", "ipo", "orpo"):
            a = theirs(kind, work / "model", pairs, args.steps)
            b = ours(kind, work / "model", lockstep, work / "pairs.h5", work, args.steps, args.ranks)
            assert len(a) == len(b) == args.steps
            loss = max(abs(x[0] - y[0]) / max(1, abs(x[0])) for x, y in zip(a, b))
            norm = max(abs(x[1] - y[1]) / x[1] for x, y in zip(a, b))
            worst = max(worst, loss, norm)
            print(f"{kind}: loss {a[0][0]:.6f} to {a[-1][0]:.6f}, differs by {loss:.1e}; norm of the gradient {a[0][1]:.4f} to "
                  f"{a[-1][1]:.4f}, by {norm:.1e}")
    sys.exit(worst > 1e-5)


if __name__ == "__main__":
    main()

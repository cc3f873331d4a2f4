#!/usr/bin/env python3
"""Evaluates a folder of transformers on tasks of lm-evaluation-harness with lockstep and with the harness, and compares the metrics.

    lm_eval.py LOCKSTEP MODEL_FOLDER TASK.yaml... [--batch 1]

Each task is a YAML file of the harness whose data are local files. Both sides run in the task file's folder, so that relative paths
in it mean the same. Lockstep is called as `LOCKSTEP eval MODEL_FOLDER --task TASK.yaml --json` and prints one JSON object per task:
{"task": NAME, "documents": N, "metrics": {"acc": 0.5, ...}}. Compared are the metrics that both have. Needs lm_eval (0.4.13), torch
and transformers. Exit code 1 where an accuracy differs by more than 1e-9 or a perplexity (or another metric of log-probabilities)
by more than 1e-5 of it, or where a task has no metric in common.
"""
import os
import sys

sys.path.pop(0)  # else this file would be imported as the package lm_eval
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("LMEVAL_LOG_LEVEL", "ERROR")

import argparse  # noqa: E402
import json  # noqa: E402
import pathlib  # noqa: E402
import subprocess  # noqa: E402

import lm_eval  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

COUNTED = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")  # means of 0 and 1


def their_metrics(model, task):
    """Name of the task, number of documents, and metrics; a filter other than the default one is a part of the name."""
    (name, found), = lm_eval.simple_evaluate(model=model, tasks=[str(task)], bootstrap_iters=0)["results"].items()
    metrics = {}
    for key, value in found.items():
        metric, comma, which = key.partition(",")
        if comma and not metric.endswith("_stderr"):
            metrics[metric if which == "none" else key] = float(value)
    return name, found["sample_len"], metrics


def our_metrics(lockstep, folder, task):
    command = [str(lockstep), "eval", str(folder), "--task", str(task), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=task.parent)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    found = json.loads(done.stdout)
    return found["task"], found["documents"], found["metrics"]


def differs(metric, ours, theirs):
    allowed = 1e-9 if metric.partition(",")[0] in COUNTED else 1e-5 * abs(theirs)
    return not abs(ours - theirs) <= allowed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("folder")
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--batch", type=int, default=1)
    args = parser.parse_args()
    lockstep, folder = pathlib.Path(args.lockstep).resolve(), pathlib.Path(args.folder).resolve()
    tasks = [pathlib.Path(task).resolve() for task in args.tasks]
    # Without its cache of logits, which takes wrong ones where a context and a continuation are split in two ways.
    model = HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=args.batch, logits_cache=False)
    failed = False
    for task in tasks:
        os.chdir(task.parent)
        name, documents, theirs = their_metrics(model, task)
        our_name, our_documents, ours = our_metrics(lockstep, folder, task)
        common = [metric for metric in theirs if metric in ours]
        wrong = [metric for metric in common if differs(metric, ours[metric], theirs[metric])]
        bad = bool(wrong) or not common or (name, documents) != (our_name, our_documents)
        failed = failed or bad
        print(f"{'DIFFERS' if bad else 'equal':8} {our_name} ({our_documents} of {documents} documents)",
              *(f"{metric} {ours[metric]!r}" + (f" instead of {theirs[metric]!r}" if metric in wrong else "") for metric in common), flush=True)
        missing = sorted(set(theirs) - set(ours))
        if missing:
            print(f"         not of lockstep: {', '.join(missing)}")
    sys.exit(1 if failed else 0)


main()

#!/usr/bin/env python3
"""Samples a second of PyTorch's DataLoader beside ours, in one alternating run, on data made here.

    torch_loader.py BUILD [--rounds 3] [--workers 0,1,2]

BUILD is a build folder with bin/lockstep and tests/loader_bench. Cases: JPEG and PNG files of 256 x 256, decoded by torchvision
(the same libraries) and resized to 224; windows of 256 tokens from a memory-mapped file; rows of a table of 32 features. The loader
has two threads; of PyTorch's numbers of workers the fastest counts. Needs torch, torchvision, numpy and Pillow.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2

torch.set_num_threads(1)  # in workers and beside them


class Images(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.files = sorted(str(p) for p in pathlib.Path(folder).rglob("*.*"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        image = torchvision.io.decode_image(self.files[i])
        image = v2.functional.resize(image, [224, 224], antialias=True)
        return image.to(torch.float32).div_(255).sub_(0.5).div_(0.25), i % 2


class Tokens(torch.utils.data.Dataset):
    def __init__(self, path, context):
        self.tokens, self.context = np.memmap(path, dtype=np.uint16, mode="r"), context

    def __len__(self):
        return (len(self.tokens) - 1) // self.context

    def __getitem__(self, i):
        window = torch.from_numpy(self.tokens[i * self.context:(i + 1) * self.context + 1].astype(np.int64))
        return window[:-1], window[1:]


class Rows(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def torch_speed(data, batch, workers):
    loader = torch.utils.data.DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers, drop_last=True,
                                         persistent_workers=workers > 0)
    batches = iter(loader)
    next(batches)
    start, samples = time.perf_counter(), 0
    while time.perf_counter() - start < 3:
        if next(batches, None) is None:
            batches = iter(loader)
            continue
        samples += batch
    return samples / (time.perf_counter() - start)


def our_speed(build, path, batch, extent):
    command = [f"{build}/tests/loader_bench", path, batch, 2, *([extent] if extent else [])]
    return float(subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout.split()[0])


def make_images(folder, ending, count):
    random = np.random.default_rng(1)
    for i in range(count):
        coarse = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)  # smooth, as photographs are
        path = folder / "ab"[i % 2] / f"{i}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(coarse).resize((256, 256), Image.BICUBIC).save(path, quality=90)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", default="0,1,2")
    options = parser.parse_args()
    workers = [int(w) for w in options.workers.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)

        def import_data(*words):
            subprocess.run([f"{options.build}/bin/lockstep", "data", "import", *map(str, words)], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        cases = []
        for ending in ("jpg", "png"):
            make_images(folder / ending, ending, 512)
            import_data("images", folder / ending, folder / f"{ending}.h5", "--keep-encoded")
            cases.append((ending, Images(folder / ending), 32, folder / f"{ending}.h5", "size=224"))
        tokens = np.random.default_rng(1).integers(0, 50257, 20_000_000).astype(np.uint16)
        tokens.tofile(folder / "tokens.bin")
        header = np.zeros(256, dtype=np.int32)
        header[:3] = 20240520, 1, len(tokens)
        with open(folder / "llmc.bin", "wb") as out:
            out.write(header.tobytes() + tokens.tobytes())
        import_data("llmc", folder / "llmc.bin", folder / "tokens.h5")
        cases.append(("tokens", Tokens(folder / "tokens.bin", 256), 32, folder / "tokens.h5", "context=256"))
        x = np.random.default_rng(2).standard_normal((200_000, 32), dtype=np.float32)
        y = np.arange(len(x)) % 10
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        import_data("npy", folder / "x.npy", folder / "y.npy", folder / "rows.h5")
        cases.append(("rows", Rows(x, y), 256, folder / "rows.h5", ""))
        print("case     ours samples/s   PyTorch samples/s (workers)   ratio by round")
        for name, data, batch, path, extent in cases:
            ours, theirs = [], []
            for _ in range(options.rounds):
                ours.append(our_speed(options.build, path, batch, extent))
                theirs.append(max((torch_speed(data, batch, w), w) for w in workers))
            ratios = " ".join(f"{a / b:.2f}" for a, (b, _) in zip(ours, theirs))
            best = statistics.median(b for b, _ in theirs)
            print(f"{name:8} {statistics.median(ours):14.0f}   {best:17.0f} ({theirs[0][1]})   {ratios}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

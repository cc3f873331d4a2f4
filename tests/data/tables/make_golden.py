#!/usr/bin/env python3
"""Writes table.csv and golden.txt: a table as users have them, and what pandas makes of it in fp64: each row's
features, as an import with --fill-missing has them, and its target, one row a line.
Needs pandas. Usage: make_golden.py"""
import pathlib

import numpy as np
import pandas as pd

here = pathlib.Path(__file__).parent
rng = np.random.default_rng(1)
rows = 60
time = 1_700_000_000_000 + 7 * np.arange(rows)  # milliseconds
table = pd.DataFrame({
    "time": time.astype(str),
    "nano": [f"{v:.3f}" for v in 1e9 + rng.normal(size=rows)],
    "size": [repr(float(v)) for v in rng.normal(3, 2, rows)],
    "colour": rng.choice(["red", "green", "blue"], rows),
    "until": (time[::-1] + rng.integers(0, 50, rows)).astype(str),
})
markers = ["", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "NULL", "null", "None", "?"]
for i, marker in enumerate(markers):
    table.loc[i * 4 + 1, ["time", "nano", "size", "colour"][i % 4]] = marker
table.to_csv(here / "table.csv", index=False)

read = pd.read_csv(here / "table.csv", na_values=["?"])
features = []
for name in ["time", "nano", "size", "colour"]:
    column = read[name]
    if name == "colour":
        texts = column.fillna("")
        features += [(texts == text).to_numpy(np.float64) for text in sorted(texts.unique())]
    else:
        column = column.astype(np.float64)
        features.append(((column - column.mean()) / column.std(ddof=0)).fillna(0).to_numpy())
until = read["until"].astype(np.float64)
features.append(((until - until.mean()) / until.std(ddof=0)).to_numpy())
with open(here / "golden.txt", "w", encoding="utf-8") as out:
    for row in zip(*features):
        print(*(f"{value:.17g}" for value in row), file=out)

#!/usr/bin/env python3
"""Writes what predict_test.sh compares with: tables as users have them, two networks that scikit-learn trained on the
first one, and what scikit-learn predicts for the second one, in fp64, with its own preprocessing (StandardScaler,
OneHotEncoder). The networks are stored in safetensors files with Lockstep's names.
Needs numpy, pandas, scikit-learn, safetensors. Usage: make_golden.py"""
import pathlib

import numpy as np
import pandas as pd
from safetensors.numpy import save_file
from sklearn.compose import ColumnTransformer
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import OneHotEncoder, StandardScaler

here = pathlib.Path(__file__).parent
rng = np.random.default_rng(1)


def table(rows, first):
    width, height = rng.normal(5, 2, rows), rng.normal(300, 10, rows)
    colour, year = rng.choice(["red", "green", "blue"], rows), rng.integers(1990, 2021, rows)
    kind = np.where(width + 3 * (colour == "red") > 6, "ash", np.where(height > 300, "beech", "oak"))
    price = 1000 + 20 * width - 3 * (height - 300) + 50 * (colour == "green") + rng.normal(size=rows)
    return pd.DataFrame({"id": [f"tree {first + i}, row {i + 1}" for i in range(rows)], "width": width.round(3),
                         "height": height.round(4), "colour": colour, "year": year, "kind": kind,
                         "price": price.round(2)})


known, new = table(300, 1), table(120, 301)
known.to_csv(here / "known.csv", index=False)
new.drop(columns=["kind", "price"]).to_csv(here / "new.csv", index=False)

features = ColumnTransformer([("width", StandardScaler(), ["width"]), ("height", StandardScaler(), ["height"]),
                              ("colour", OneHotEncoder(sparse_output=False), ["colour"]),
                              ("year", StandardScaler(), ["year"])])
x, x_new = features.fit_transform(known), features.transform(new)
scale = StandardScaler().fit(known[["price"]])
classes = MLPClassifier(hidden_layer_sizes=[8], alpha=1, max_iter=600, random_state=1).fit(x, known["kind"])
numbers = MLPRegressor(hidden_layer_sizes=[8], max_iter=600, random_state=1).fit(x, scale.transform(known[["price"]]).ravel())
for name, net in [("classes", classes), ("numbers", numbers)]:
    # What is compared is computed from the numbers of 32 bits that the file holds.
    net.coefs_ = [w.astype(np.float32).astype(float) for w in net.coefs_]
    net.intercepts_ = [b.astype(np.float32).astype(float) for b in net.intercepts_]
    save_file({key: np.ascontiguousarray(value, dtype=np.float32) for key, value in {
        "layers.0.weight": net.coefs_[0].T, "layers.0.bias": net.intercepts_[0],
        "head.weight": net.coefs_[1].T, "head.bias": net.intercepts_[1]}.items()}, here / f"{name}.safetensors")
pd.DataFrame(classes.predict_proba(x_new), columns=classes.classes_).to_csv(here / "classes.csv", index=False)
price = scale.inverse_transform(numbers.predict(x_new)[:, None]).ravel()
pd.DataFrame({"price": price}).to_csv(here / "numbers.csv", index=False)

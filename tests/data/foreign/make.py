#!/usr/bin/env python3
"""Makes foreign.h5, an HDF5 file as h5py writes it, which tests/data/foreign_test.cpp reads in place."""
import os

import h5py
import numpy as np

i = np.arange(40 * 5 * 4, dtype=np.int64)
images = (i * 7 % 256).astype(np.uint8).reshape(40, 5, 4)
colours = (i[:240] * 11 % 256).astype(np.uint8).reshape(40, 2, 1, 3)
features = (i[:120] * 0.1 - 3).reshape(40, 3)
labels = np.arange(40) % 4

with h5py.File(os.path.join(os.path.dirname(os.path.abspath(__file__)), "foreign.h5"), "w") as f:
    f.create_dataset("images/packed", data=images, chunks=(7, 3, 4), compression="gzip", shuffle=True)
    f.create_dataset("images/colours", data=colours)  # contiguous
    f.create_dataset("features/double", data=features)
    f.create_dataset("features/single", data=features.astype(np.float32), chunks=(16, 2))
    f.create_dataset("features/half", data=features.astype(np.float16))
    f.create_dataset("labels", data=labels.astype(np.int64))
    f.create_dataset("small_labels", data=labels.astype(np.uint8), chunks=(9,), compression="gzip", fletcher32=True)
    f.create_dataset("negative", data=labels.astype(np.int32) - 1)

#!/usr/bin/env python3
"""Writes golden_masks.txt beside this script: masks, as Pillow reads them and resizes them by the nearest pixel.

A line is: file, height, width of the result, left, top, right, bottom of the part, bytes in hex. The files are those of
make_images.py. Needs pillow and numpy.
"""
import pathlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
lines = []
for name in ("palette.png", "grey.png"):
    image = Image.open(HERE / name)
    assert image.mode in ("P", "L"), image.mode
    H, W = image.height, image.width
    for box, size in (((0, 0, W, H), (H, W)), ((0, 0, W, H), (4, 5)), ((0, 0, W, H), (20, 30)), ((2, 1, 11, 8), (6, 9)),
                      ((3, 0, 8, 9), (9, 5)), ((0, 2, 13, 5), (12, 13)), ((1, 1, 12, 7), (5, 11))):
        part = np.asarray(image.resize(size[::-1], Image.NEAREST, box))
        lines.append(" ".join([name, *map(str, (*size, *box)), part.tobytes().hex()]))
(HERE / "golden_masks.txt").write_text("\n".join(lines) + "\n")

#!/usr/bin/env python3
"""Writes the small PNG and JPEG files beside this script, and golden.txt: what Pillow makes of them.

A line of golden.txt is: file, height, width, channels of the result, left, top, right, bottom of the part, bytes in hex.
The part is resized to height x width where its size is another. Needs pillow (13 or later: before, rows were always resampled first) and numpy.
"""
import pathlib

import numpy as np
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(1)
H, W = 9, 13
y, x = np.mgrid[0:H, 0:W]
ramp = np.stack([x * 19, y * 28, (x + y) * 11], 2) + rng.integers(0, 12, (H, W, 3))
rgb = Image.fromarray(ramp.clip(0, 255).astype(np.uint8))
grey = rgb.convert("L")


def save(name, image, **options):
    image.save(HERE / name, **options)


save("rgb.png", rgb)
save("grey.png", grey)
save("bits.png", grey.convert("1"))
save("palette.png", rgb.quantize(5))
alpha = rgb.copy()
alpha.putalpha(grey)
save("rgba.png", alpha)
save("grey16.png", Image.fromarray((np.asarray(grey).astype(np.uint16) << 8) + 77))
save("rgb.jpg", rgb, quality=80)
save("grey.jpg", grey, quality=80)
save("progressive.jpg", rgb, quality=70, progressive=True, subsampling=0)
exif = Image.Exif()
for orientation in range(2, 9):
    exif[0x0112] = orientation
    save(f"turned{orientation}.jpg", rgb, quality=60, exif=exif)

lines = []


def golden(name, image, box, size):
    height, width = size
    whole = np.asarray(image)
    part = image.resize((width, height), Image.BILINEAR, box) if box[2:] != (width, height) or box[:2] != (0, 0) else image
    values = np.asarray(part)
    channels = 1 if values.ndim == 2 else values.shape[2]
    lines.append(" ".join([name, *map(str, (height, width, channels, *box)), values.tobytes().hex()]))


for path in sorted(HERE.glob("*.png")) + sorted(HERE.glob("*.jpg")):
    image = Image.open(path)
    if image.mode.startswith("I"):  # 16 bits: the higher 8
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode == "1":
        image = image.convert("L")
    elif image.mode != "L":
        image = image.convert("RGB")
    image = ImageOps.exif_transpose(image) if path.name.startswith("turned") else image
    golden(path.name, image, (0, 0, image.width, image.height), (image.height, image.width))
for box, size in (((0, 0, W, H), (4, 5)), ((0, 0, W, H), (20, 30)), ((2, 1, 11, 8), (6, 9)), ((3, 0, 8, 9), (9, 5)),
                  ((0, 2, 13, 5), (12, 13)),
                  # The image loses more than twice as many rows as columns: columns first since Pillow 13; and as many.
                  ((0, 0, W, H), (4, 11)), ((0, 0, W, H), (5, 20)), ((0, 0, W, H), (6, 12)), ((2, 1, 11, 8), (3, 12)),
                  ((3, 2, 8, 7), (6, 15)), ((0, 0, W, H), (5, 11)), ((0, 0, W, H), (7, 12))):
    golden("rgb.png", rgb, box, size)
    golden("grey.png", grey, box, size)
(HERE / "golden.txt").write_text("\n".join(lines) + "\n")

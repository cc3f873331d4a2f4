#!/usr/bin/env python3
"""Writes golden.h5: what PyTorch computes for each operation, model, optimizer and schedule that golden_test.cpp compares with.

Needs torch, numpy and h5py; the test needs none of them. Inputs are fp32 numbers; PyTorch computes in fp64, so that the file holds
the true values, rounded once, and does not depend on its kernels.

    python3 tests/parity/make_golden.py tests/parity/golden.h5
"""
import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F

rng = np.random.default_rng(20)


def numbers(*shape, low=-1.0, high=1.0):
    return rng.uniform(low, high, shape).astype(np.float32)


def double(array):
    return torch.tensor(array, dtype=torch.float64, requires_grad=True)


def put(group, name, value):
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if value.dtype == np.float64:
        value = value.astype(np.float32)
    group.create_dataset(name, data=np.atleast_1d(value))


def op_case(file, name, function, *inputs):
    """inputs: fp32 arrays get gradients, int32 arrays do not. The gradient is that of sum(weight * result)."""
    group = file.create_group(f"ops/{name}")
    tensors = [double(a) if a.dtype == np.float32 else torch.tensor(a, dtype=torch.int64) for a in inputs]
    out = function(*tensors)
    weight = numbers(*out.shape, low=0.5, high=1.5)
    (out * torch.tensor(weight, dtype=torch.float64)).sum().backward()
    put(group, "out", out)
    put(group, "weight", weight)
    for i, (array, tensor) in enumerate(zip(inputs, tensors)):
        put(group, f"in{i}", array)
        if array.dtype == np.float32:
            put(group, f"grad{i}", tensor.grad)


def nchw(t):
    return t.permute(0, 3, 1, 2)


def nhwc(t):
    return t.permute(0, 2, 3, 1)


def conv(x, w, b=None, **options):  # images [B, H, W, C], weight [O, KH, KW, C]
    return nhwc(F.conv2d(nchw(x), nchw(w), b, **options))


def attention(qkv, heads):
    batch, time, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = (part.reshape(batch, time, heads, width // heads).transpose(1, 2) for part in qkv.split(width, dim=2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(batch, time, width)


def ops(file):
    op_case(file, "add", lambda a, b: a + b, numbers(3, 1, 5), numbers(4, 5))
    op_case(file, "sub", lambda a, b: a - b, numbers(3, 5), numbers(5))
    op_case(file, "mul", lambda a, b: a * b, numbers(2, 3, 5), numbers(3, 1))
    op_case(file, "div", lambda a, b: a / b, numbers(3, 5), numbers(3, 5, low=0.5, high=2))
    op_case(file, "affine", lambda x: -2.5 * x + 0.25, numbers(11))
    op_case(file, "exp", torch.exp, numbers(30, low=-10, high=10))
    op_case(file, "log", torch.log, numbers(30, low=0.01, high=30))
    op_case(file, "sqrt", torch.sqrt, numbers(30, low=0.01, high=30))
    op_case(file, "tanh", torch.tanh, numbers(40, low=-5, high=5))
    op_case(file, "relu", torch.relu, numbers(20))
    op_case(file, "gelu", lambda x: F.gelu(x, approximate="tanh"), numbers(60, low=-6, high=6))
    op_case(file, "permute", lambda x: x.permute(2, 0, 1).reshape(5, 6), numbers(2, 3, 5))
    op_case(file, "slice", lambda x: x[:, 1:4], numbers(3, 5))
    op_case(file, "expand", lambda x: x.expand(4, 3, 5), numbers(3, 1))
    op_case(file, "sum", lambda x: x.sum((0, 2)), numbers(3, 5, 4))
    op_case(file, "mean", lambda x: x.mean(1), numbers(3, 5, 4))
    op_case(file, "matmul", torch.matmul, numbers(2, 5, 17), numbers(17, 3))
    op_case(file, "matmul_batched", torch.matmul, numbers(2, 3, 5, 4), numbers(2, 3, 4, 6))
    op_case(file, "linear", F.linear, numbers(2, 3, 19), numbers(17, 19), numbers(17))
    op_case(file, "softmax", lambda x: x.softmax(-1), numbers(3, 37, low=-8, high=8))
    op_case(file, "cross_entropy", lambda x, t: F.cross_entropy(x, t, reduction="sum").reshape(1), numbers(5, 41, low=-8, high=8),
            np.array([3, 40, -100, 0, 7], dtype=np.int32))
    op_case(file, "layer_norm", lambda x, w, b: F.layer_norm(x, (19,), w, b), numbers(2, 3, 19), numbers(19), numbers(19))
    op_case(file, "embedding", lambda t, i: F.embedding(i, t), numbers(6, 5), np.array([[1, 5, 1], [0, 2, 1]], dtype=np.int32))
    op_case(file, "conv2d", conv, numbers(3, 6, 7, 2), numbers(4, 3, 3, 2), numbers(4))
    op_case(file, "conv2d_stride_padding", lambda x, w: conv(x, w, stride=2, padding=1), numbers(2, 7, 6, 3), numbers(5, 3, 2, 3))
    op_case(file, "max_pool2d", lambda x: nhwc(F.max_pool2d(nchw(x), 2, 2)), numbers(2, 5, 6, 3))
    op_case(file, "max_pool2d_overlapping", lambda x: nhwc(F.max_pool2d(nchw(x), 3, 1)), numbers(2, 5, 6, 2))
    op_case(file, "causal_attention", lambda x: attention(x, 2), numbers(2, 9, 24, low=-2, high=2))
    op_case(file, "causal_attention_tiles", lambda x: attention(x, 1), numbers(1, 70, 12, low=-2, high=2))


def model_case(file, name, shapes, forward, x, y, gradients=lambda name: True):
    """shapes: parameter name to shape, as lockstep names and lays them out. gradients: of which parameters they are kept."""
    group = file.create_group(f"models/{name}")
    values = {n: numbers(*s, low=-0.6, high=0.6) for n, s in shapes.items()}
    parameters = {n: double(v) for n, v in values.items()}
    logits = forward(parameters, double(x) if x.dtype == np.float32 else torch.tensor(x, dtype=torch.int64))
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), torch.tensor(y, dtype=torch.int64).reshape(-1), reduction="sum")
    loss.backward()
    put(group, "x", x)
    put(group, "y", y)
    put(group, "logits", logits)
    put(group, "loss", loss)
    for n in shapes:
        put(group, f"parameters/{n}", values[n])
        if gradients(n):
            put(group, f"gradients/{n}", parameters[n].grad)


def mlp(p, x):
    h = x.reshape(x.shape[0], -1)
    for i in range(2):
        h = torch.relu(F.linear(h, p[f"layers.{i}.weight"], p[f"layers.{i}.bias"]))
    return F.linear(h, p["head.weight"], p["head.bias"])


def convnet(p, x):
    h = x
    for i in (1, 2):
        h = torch.relu(conv(h, p[f"conv{i}.weight"], p[f"conv{i}.bias"]))
    h = nhwc(F.max_pool2d(nchw(h), 2, 2)).reshape(x.shape[0], -1)
    return F.linear(torch.relu(F.linear(h, p["fc1.weight"], p["fc1.bias"])), p["fc2.weight"], p["fc2.bias"])


def gpt(p, tokens, layers=2, heads=2):
    def norm(h, name):
        return F.layer_norm(h, (h.shape[-1],), p[f"{name}.weight"], p[f"{name}.bias"])

    def line(h, name):
        return F.linear(h, p[f"{name}.weight"], p[f"{name}.bias"])

    h = p["wte.weight"][tokens] + p["wpe.weight"][: tokens.shape[1]]
    for i in range(layers):
        b = f"blocks.{i}."
        h = h + line(attention(line(norm(h, b + "ln1"), b + "qkv"), heads), b + "proj")
        h = h + line(F.gelu(line(norm(h, b + "ln2"), b + "up"), approximate="tanh"), b + "down")
    return F.linear(norm(h, "ln"), p["wte.weight"])


def models(file):
    model_case(file, "mlp",
               {"layers.0.weight": (9, 6), "layers.0.bias": (9,), "layers.1.weight": (7, 9), "layers.1.bias": (7,),
                "head.weight": (4, 7), "head.bias": (4,)},
               mlp, numbers(5, 2, 3), np.array([0, 3, -100, 1, 2], dtype=np.int32))
    model_case(file, "convnet",
               {"conv1.weight": (4, 3, 3, 2), "conv1.bias": (4,), "conv2.weight": (5, 3, 3, 4), "conv2.bias": (5,),
                "fc1.weight": (10, 3 * 2 * 5), "fc1.bias": (10,), "fc2.weight": (3, 10), "fc2.bias": (3,)},
               convnet, numbers(4, 10, 9, 2), np.array([0, 2, 1, 1], dtype=np.int32))
    width, shapes = 12, {"wte.weight": (13, 12), "wpe.weight": (8, 12), "ln.weight": (12,), "ln.bias": (12,)}
    for i in range(2):
        for part, out, into in (("qkv", 3 * width, width), ("proj", width, width), ("up", 4 * width, width), ("down", width, 4 * width)):
            shapes[f"blocks.{i}.{part}.weight"], shapes[f"blocks.{i}.{part}.bias"] = (out, into), (out,)
        for part in ("ln1", "ln2"):
            shapes[f"blocks.{i}.{part}.weight"] = shapes[f"blocks.{i}.{part}.bias"] = (width,)
    y = rng.integers(0, 13, (3, 7)).astype(np.int32)
    y[1, 2:4] = -100
    model_case(file, "gpt", shapes, gpt, rng.integers(0, 13, (3, 7)).astype(np.int32), y)  # shorter than its context


def optimizer_case(file, name, make, steps=10, n=37):
    group = file.create_group(f"optimizers/{name}")
    start, gradients = numbers(n), numbers(steps, n, low=-2, high=2)
    parameter = double(start)
    optimizer = make([parameter])
    after = []
    for g in gradients:
        parameter.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
        after.append(parameter.detach().numpy().copy())
    put(group, "start", start)
    put(group, "gradients", gradients)
    put(group, "after", np.stack(after))


def optimizers(file):
    sgd, adamw = torch.optim.SGD, torch.optim.AdamW
    optimizer_case(file, "sgd", lambda p: sgd(p, lr=0.1))
    optimizer_case(file, "sgd_momentum", lambda p: sgd(p, lr=0.1, momentum=0.9))
    optimizer_case(file, "sgd_nesterov_decay", lambda p: sgd(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05))
    optimizer_case(file, "adamw", lambda p: adamw(p, lr=0.02, weight_decay=0))
    optimizer_case(file, "adamw_decay", lambda p: adamw(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1))


def schedules(file, lr=0.3, total=50, warmup=7):
    from torch.optim import lr_scheduler as s

    def rates(make):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
        warm = s.LinearLR(optimizer, start_factor=1 / warmup, end_factor=1, total_iters=warmup - 1)
        schedule = s.SequentialLR(optimizer, [warm, make(optimizer)], milestones=[warmup])
        out = []
        for _ in range(total):
            out.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return np.array(out, dtype=np.float64)

    group = file.create_group("schedules")
    for name, make in (("constant", lambda o: s.ConstantLR(o, factor=1)),
                       ("linear", lambda o: s.LinearLR(o, start_factor=1, end_factor=0.1, total_iters=total - warmup)),
                       ("cosine", lambda o: s.CosineAnnealingLR(o, T_max=total - warmup, eta_min=0.1 * lr)),
                       ("step", lambda o: s.StepLR(o, step_size=9, gamma=0.4))):
        group.create_dataset(name, data=rates(make))


DEPTHS = {18: ((2, 2, 2, 2), False), 50: ((3, 4, 6, 3), True)}


def resnet_plan(depth, width, channels, large):
    """Convolutions and norms by torchvision's names: (name, in, out, kernel, stride), and how they are joined."""
    blocks, bottleneck = DEPTHS[depth]
    convs, joined, at = [("conv1", channels, width, 7 if large else 3, 2 if large else 1)], [], width
    for stage, count in enumerate(blocks):
        w = width << stage
        out = 4 * w if bottleneck else w
        for i in range(count):
            name, stride = f"layer{stage + 1}.{i}", 2 if stage and not i else 1
            layers = [(at, w, 1, 1), (w, w, 3, stride), (w, out, 1, 1)] if bottleneck else [(at, w, 3, stride), (w, out, 3, 1)]
            convs += [(f"{name}.conv{k + 1}", *layer) for k, layer in enumerate(layers)]
            down = stride > 1 or at != out
            if down:
                convs.append((f"{name}.downsample.0", at, out, 1, stride))
            joined.append((name, len(layers), down))
            at = out
    return convs, joined, at


def norm_name(conv_name):
    return conv_name.replace("downsample.0", "downsample.1").replace("conv", "bn")


def resnet_case(file, name, depth, large, width, shape, classes=3):
    convs, joined, features = resnet_plan(depth, width, shape[-1], large)
    shapes, statistics = {"fc.weight": (classes, features), "fc.bias": (classes,)}, {}
    for conv_name, into, out, kernel, _ in convs:
        shapes[f"{conv_name}.weight"] = (out, kernel, kernel, into)
        shapes[f"{norm_name(conv_name)}.weight"] = shapes[f"{norm_name(conv_name)}.bias"] = (out,)
    stride = {c[0]: c[4] for c in convs}

    def forward(p, x):
        def conv_norm(h, conv_name):
            n = norm_name(conv_name)
            w = p[f"{conv_name}.weight"]
            mean, var = torch.zeros(w.shape[0], dtype=torch.float64), torch.ones(w.shape[0], dtype=torch.float64)
            h = nchw(conv(h, w, stride=stride[conv_name], padding=w.shape[1] // 2))
            h = F.batch_norm(h, mean, var, p[f"{n}.weight"], p[f"{n}.bias"], training=True)
            statistics[f"{n}.running_mean"], statistics[f"{n}.running_var"] = mean, var
            return nhwc(h)

        h = torch.relu(conv_norm(x, "conv1"))
        if large:
            h = nhwc(F.max_pool2d(nchw(h), 3, 2, 1))
        for block, layers, down in joined:
            y = h
            for k in range(layers):
                y = conv_norm(y, f"{block}.conv{k + 1}")
                if k + 1 < layers:
                    y = torch.relu(y)
            h = torch.relu(y + (conv_norm(h, f"{block}.downsample.0") if down else h))
        return F.linear(h.mean((1, 2)), p["fc.weight"], p["fc.bias"])

    model_case(file, name, shapes, forward, numbers(*shape), rng.integers(0, classes, shape[0]).astype(np.int32),
               lambda n: not n.startswith(("layer2", "layer3")))
    for n, value in statistics.items():
        if not n.startswith(("layer2", "layer3")):
            put(file[f"models/{name}"], f"buffers/{n}", value)


def conv_transpose(x, w, b=None, **options):  # weight [I, KH, KW, O]
    return nhwc(F.conv_transpose2d(nchw(x), nchw(w), b, **options))


def unet_case(file, levels=2, width=3, shape=(2, 8, 12, 2), classes=3):
    shapes, channels = {}, shape[-1]

    def block(name, into, out):
        for i, c in (("1", into), ("2", out)):
            shapes[f"{name}.conv{i}.weight"] = (out, 3, 3, c)
            shapes[f"{name}.bn{i}.weight"] = shapes[f"{name}.bn{i}.bias"] = (out,)

    for level in range(levels + 1):
        block(f"down{level}", channels, width << level)
        channels = width << level
    for level in reversed(range(levels)):
        shapes[f"up{level}.weight"], shapes[f"up{level}.bias"] = (channels, 2, 2, width << level), (width << level,)
        block(f"join{level}", 2 * width << level, width << level)
        channels = width << level
    shapes["head.weight"], shapes["head.bias"] = (classes, 1, 1, channels), (classes,)

    def forward(p, x):
        def block(h, name):
            for i in "12":
                h = conv(h, p[f"{name}.conv{i}.weight"], padding=1)
                h = torch.relu(nhwc(F.batch_norm(nchw(h), None, None, p[f"{name}.bn{i}.weight"], p[f"{name}.bn{i}.bias"], training=True)))
            return h

        kept, h = [], x
        for level in range(levels + 1):
            if level:
                h = nhwc(F.max_pool2d(nchw(h), 2))
            h = block(h, f"down{level}")
            kept.append(h)
        for level in reversed(range(levels)):
            h = conv_transpose(h, p[f"up{level}.weight"], p[f"up{level}.bias"], stride=2)
            h = block(torch.cat((kept[level], h), -1), f"join{level}")
        return conv(h, p["head.weight"], p["head.bias"])

    model_case(file, "unet", shapes, forward, numbers(*shape), rng.integers(0, classes, shape[:3]).astype(np.int32))


def gan_case(file, latent=5, width=2, image=(8, 12, 3), images=4):
    """Both networks: what the discriminator says of what the generator makes."""
    h, w, channels = image[0] // 4, image[1] // 4, image[2]
    d, g = "discriminator.", "generator."
    shapes = {d + "conv1.weight": (width, 4, 4, channels), d + "conv2.weight": (2 * width, 4, 4, width),
              d + "bn.weight": (2 * width,), d + "bn.bias": (2 * width,), d + "linear.weight": (2, 2 * width * h * w), d + "linear.bias": (2,),
              g + "linear.weight": (2 * width * h * w, latent), g + "linear.bias": (2 * width * h * w,),
              g + "bn1.weight": (2 * width,), g + "bn1.bias": (2 * width,), g + "bn2.weight": (width,), g + "bn2.bias": (width,),
              g + "up1.weight": (2 * width, 4, 4, width), g + "up1.bias": (width,),
              g + "up2.weight": (width, 4, 4, channels), g + "up2.bias": (channels,)}

    def forward(p, z):
        def norm(x, name):
            return nhwc(F.batch_norm(nchw(x), None, None, p[name + ".weight"], p[name + ".bias"], training=True))

        x = F.linear(z, p[g + "linear.weight"], p[g + "linear.bias"]).reshape(images, h, w, 2 * width)
        x = torch.relu(norm(x, g + "bn1"))
        x = torch.relu(norm(conv_transpose(x, p[g + "up1.weight"], p[g + "up1.bias"], stride=2, padding=1), g + "bn2"))
        x = torch.tanh(conv_transpose(x, p[g + "up2.weight"], p[g + "up2.bias"], stride=2, padding=1)) * 1.5 + 0.5  # from -1 to 2
        x = F.leaky_relu(conv(x, p[d + "conv1.weight"], stride=2, padding=1), 0.2)
        x = F.leaky_relu(norm(conv(x, p[d + "conv2.weight"], stride=2, padding=1), d + "bn"), 0.2)
        return F.linear(x.reshape(images, -1), p[d + "linear.weight"], p[d + "linear.bias"])

    model_case(file, "gan", shapes, forward, numbers(images, latent), rng.integers(0, 2, images).astype(np.int32))


def recurrent_op(cell, reverse):
    """The layer of torch.nn, given tensors in place of its parameters."""
    def run(x, *weights):
        if reverse:
            x = x.flip(1)
        zeros = torch.zeros(1, x.shape[0], weights[1].shape[1], dtype=torch.float64)
        kernel = torch.lstm if cell == "lstm" else torch.gru
        y = kernel(x, (zeros, zeros) if cell == "lstm" else zeros, weights, True, 1, 0.0, True, False, True)[0]
        return y.flip(1) if reverse else y
    return run


def recurrent_model(cell, layers=2):
    def forward(p, tokens):
        h = p["embedding.weight"][tokens]
        for i in range(layers):
            h = recurrent_op(cell, False)(h, *(p[f"layers.{i}.{n}"] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))
        return F.linear(h, p["head.weight"], p["head.bias"])
    return forward


def open_attention(q, k, v, lengths=None):  # [B, T, heads, D]; fewer heads of keys serve several of queries
    group = q.shape[2] // k.shape[2]
    q, k, v = (t.transpose(1, 2) for t in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)))
    mask = None if lengths is None else (torch.arange(k.shape[2]) < torch.tensor(lengths)[:, None])[:, None, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


def encoder_shapes(shapes, layers, width):
    for i in range(layers):
        b = f"blocks.{i}."
        for part, out, into in (("qkv", 3 * width, width), ("proj", width, width), ("up", 4 * width, width), ("down", width, 4 * width)):
            shapes[f"{b}{part}.weight"], shapes[f"{b}{part}.bias"] = (out, into), (out,)
        for part in ("ln1", "ln2"):
            shapes[f"{b}{part}.weight"] = shapes[f"{b}{part}.bias"] = (width,)


def encoder(p, h, layers, heads, pre_norm, eps):
    def norm(h, name):
        return F.layer_norm(h, (h.shape[-1],), p[f"{name}.weight"], p[f"{name}.bias"], eps)

    def line(h, name):
        return F.linear(h, p[f"{name}.weight"], p[f"{name}.bias"])

    def attend(h, b):
        qkv = line(h, b + "qkv")
        q, k, v = (t.reshape(*t.shape[:2], heads, -1) for t in qkv.split(qkv.shape[-1] // 3, -1))
        return line(open_attention(q, k, v).flatten(2), b + "proj")

    def feed(h, b):
        return line(F.gelu(line(h, b + "up"), approximate="tanh"), b + "down")

    for i in range(layers):
        b = f"blocks.{i}."
        if pre_norm:
            h = h + attend(norm(h, b + "ln1"), b)
            h = h + feed(norm(h, b + "ln2"), b)
        else:
            h = norm(h + attend(h, b), b + "ln1")
            h = norm(h + feed(h, b), b + "ln2")
    return h


def vit_case(file, width=8, patch=3, size=(6, 9, 2), classes=5):
    count = size[0] // patch * (size[1] // patch)
    shapes = {"class_token": (1, 1, width), "patches.weight": (width, patch, patch, size[2]), "patches.bias": (width,),
              "positions.weight": (count + 1, width), "ln.weight": (width,), "ln.bias": (width,),
              "head.weight": (classes, width), "head.bias": (classes,)}
    encoder_shapes(shapes, 2, width)

    def forward(p, x):
        h = conv(x, p["patches.weight"], p["patches.bias"], stride=patch).flatten(1, 2)
        h = torch.cat((p["class_token"].expand(x.shape[0], 1, width), h), 1) + p["positions.weight"]
        h = encoder(p, h, 2, 2, True, 1e-6)[:, 0]
        return F.linear(F.layer_norm(h, (width,), p["ln.weight"], p["ln.bias"], 1e-6), p["head.weight"], p["head.bias"])

    model_case(file, "vit", shapes, forward, numbers(3, *size), rng.integers(0, classes, 3).astype(np.int32))


def bert_case(file, width=8, vocabulary=11, context=9):
    shapes = {"head_bias": (vocabulary,), "tokens.weight": (vocabulary, width), "positions.weight": (context, width),
              "ln.weight": (width,), "ln.bias": (width,), "transform.dense.weight": (width, width), "transform.dense.bias": (width,),
              "transform.ln.weight": (width,), "transform.ln.bias": (width,)}
    encoder_shapes(shapes, 2, width)

    def forward(p, tokens):
        def norm(h, name):
            return F.layer_norm(h, (width,), p[f"{name}.weight"], p[f"{name}.bias"], 1e-12)

        h = norm(p["tokens.weight"][tokens] + p["positions.weight"][: tokens.shape[1]], "ln")
        h = encoder(p, h, 2, 2, False, 1e-12)
        h = F.linear(h, p["transform.dense.weight"], p["transform.dense.bias"])
        return F.linear(norm(F.gelu(h, approximate="tanh"), "transform.ln"), p["tokens.weight"], p["head_bias"])

    model_case(file, "bert", shapes, forward, rng.integers(0, vocabulary, (3, 7)).astype(np.int32),
               rng.integers(0, vocabulary, (3, 7)).astype(np.int32))


def more(file):
    """With numbers of its own, so that those above stay."""
    global rng
    rng = np.random.default_rng(21)
    op_case(file, "max_pool2d_padded", lambda x: nhwc(F.max_pool2d(nchw(x), 3, 2, 1)), numbers(2, 5, 6, 3))
    op_case(file, "batch_norm", lambda x, w, b: nhwc(F.batch_norm(nchw(x), None, None, w, b, training=True)),
            numbers(3, 4, 5, 7), numbers(7, low=0.5, high=2), numbers(7))
    op_case(file, "batch_norm_add_relu", lambda x, w, b, z: torch.relu(nhwc(F.batch_norm(nchw(x), None, None, w, b, training=True)) + z),
            numbers(3, 4, 5, 7), numbers(7, low=0.5, high=2), numbers(7), numbers(3, 4, 5, 7))
    for cell, gates in (("lstm", 4), ("gru", 3)):
        for reverse in (False, True):
            op_case(file, cell + ("_reverse" if reverse else ""), recurrent_op(cell, reverse), numbers(3, 7, 6),
                    numbers(gates * 5, 6), numbers(gates * 5, 5), numbers(gates * 5), numbers(gates * 5))
        shapes = {"embedding.weight": (11, 6), "head.weight": (11, 8), "head.bias": (11,)}
        for i, into in enumerate((6, 8)):
            shapes |= {f"layers.{i}.weight_ih": (8 * gates, into), f"layers.{i}.weight_hh": (8 * gates, 8),
                       f"layers.{i}.bias_ih": (8 * gates,), f"layers.{i}.bias_hh": (8 * gates,)}
        model_case(file, cell, shapes, recurrent_model(cell), rng.integers(0, 11, (3, 9)).astype(np.int32),
                   rng.integers(0, 11, (3, 9)).astype(np.int32))
    op_case(file, "concat", lambda a, b: torch.cat((a, b, a), 1), numbers(2, 3, 4), numbers(2, 1, 4))
    op_case(file, "conv_transpose2d", lambda x, w, b: conv_transpose(x, w, b, stride=2), numbers(2, 3, 4, 5), numbers(5, 2, 2, 3), numbers(3))
    op_case(file, "conv_transpose2d_padded", lambda x, w: conv_transpose(x, w, stride=2, padding=1), numbers(2, 3, 4, 3), numbers(3, 4, 4, 2))
    op_case(file, "attention", open_attention, numbers(2, 9, 4, 3), numbers(2, 9, 2, 3), numbers(2, 9, 2, 3))
    op_case(file, "attention_with_lengths", lambda q, k, v: open_attention(q, k, v, [7, 20]), numbers(2, 20, 2, 3), numbers(2, 20, 2, 3),
            numbers(2, 20, 2, 3))
    unet_case(file)
    vit_case(file)
    bert_case(file)
    resnet_case(file, "resnet18", 18, False, 2, (4, 12, 10, 3))
    resnet_case(file, "resnet50", 50, True, 1, (3, 37, 41, 2))
    gan_case(file)


def image_ops(file):
    """With numbers of its own."""
    global rng
    rng = np.random.default_rng(24)
    op_case(file, "conv2d_depthwise", lambda x, w: conv(x, w, padding=1, dilation=2, groups=3), numbers(1, 5, 4, 3), numbers(3, 2, 2, 1))
    op_case(file, "avg_pool2d_of_pixels_alone", lambda x: nhwc(F.avg_pool2d(nchw(x), 3, 2, 1, count_include_pad=False)), numbers(1, 5, 6, 1))
    op_case(file, "adaptive_avg_pool2d", lambda x: nhwc(F.adaptive_avg_pool2d(nchw(x), (3, 5))), numbers(1, 5, 7, 1))
    op_case(file, "upsample2d_bilinear", lambda x: nhwc(F.interpolate(nchw(x), (7, 3), mode="bilinear")), numbers(1, 3, 4, 1))
    op_case(file, "group_norm", lambda x, w, b: nhwc(F.group_norm(nchw(x), 2, w, b)), numbers(2, 2, 3, 4), numbers(4, low=0.5, high=2), numbers(4))
    documents = torch.tensor([0, 0, 1, 1, 1, 3, 3, 0, 3])
    seen = (documents[:, None] == documents) & torch.ones(9, 9, dtype=torch.bool).tril()
    op_case(file, "attention_causal_documents",
            lambda *t: F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in t), attn_mask=seen).transpose(1, 2),
            numbers(1, 9, 1, 2), numbers(1, 9, 1, 2), numbers(1, 9, 1, 2))


def frequencies(dim, theta=10000.0, scaling=None):
    """As transformers computes them; scaling: ("linear", factor) or ("llama3", factor, low, high, context)."""
    f = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if scaling and scaling[0] == "linear":
        return f / scaling[1]
    if scaling:
        _, factor, low, high, context = scaling
        wavelength = 2 * torch.pi / f
        smooth = (context / wavelength - low) / (high - low)
        between = (1 - smooth) * f / factor + smooth * f
        f = torch.where(wavelength > context / low, f / factor, torch.where(wavelength < context / high, f, between))
    return f


def rotary(x, f):  # x [B, T, heads, D]
    angle = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), f)
    cos, sin = (torch.cat((t, t), -1)[:, None, :] for t in (angle.cos(), angle.sin()))
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def grouped_attention(q, k, v, window=0):  # [B, T, heads, D]
    time, group = q.shape[1], q.shape[2] // k.shape[2]
    k, v = (t.repeat_interleave(group, dim=2) for t in (k, v))
    row, column = torch.arange(time)[:, None], torch.arange(time)[None, :]
    seen = (column <= row) & (column > row - (window or time))
    y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), attn_mask=seen)
    return y.transpose(1, 2)


def rms_norm(x, w, eps=1e-5):
    return F.rms_norm(x, (x.shape[-1],), w, eps)


def llama_ops(file):
    """With numbers of its own, and so the models below."""
    global rng
    rng = np.random.default_rng(22)
    op_case(file, "rms_norm", rms_norm, numbers(2, 3, 19), numbers(19))
    op_case(file, "silu_mul", lambda a, b: F.silu(a) * b, numbers(60, low=-6, high=6), numbers(60))
    op_case(file, "rotary", lambda x: rotary(x, frequencies(8)), numbers(2, 40, 2, 8))
    op_case(file, "attention_grouped", grouped_attention, *(numbers(1, 70, h, 6, low=-2, high=2) for h in (4, 2, 2)))
    op_case(file, "attention_window", lambda q, k, v: grouped_attention(q, k, v, 9),
            *(numbers(1, 100, h, 6, low=-2, high=2) for h in (2, 1, 1)))


def llama(p, tokens, heads, kv_heads, f, layers=2, window=0):
    def line(h, name):
        return F.linear(h, p[f"{name}.weight"], p.get(f"{name}.bias"))

    def norm(h, name):
        return rms_norm(h, p[f"{name}.weight"]) if f"{name}.weight" in p else h

    h = p["wte.weight"][tokens]
    for i in range(layers):
        b, a = f"blocks.{i}.", f"blocks.{i}.attention."
        x = norm(h, a + "norm")
        q, k, v = (line(x, a + n).unflatten(-1, (count, -1)) for n, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        q, k = rotary(norm(q, a + "q_norm"), f), rotary(norm(k, a + "k_norm"), f)
        h = h + line(grouped_attention(q, k, v, window).flatten(2), a + "proj")
        x = norm(h, b + "norm")
        h = h + line(F.silu(line(x, b + "gate")) * line(x, b + "up"), b + "down")
    return F.linear(norm(h, "norm"), p["head.weight"] if "head.weight" in p else p["wte.weight"])


def llama_shapes(width, heads, kv_heads, head, hidden, tied, qkv_bias, qk_norm, layers=2, vocabulary=13):
    shapes = {"wte.weight": (vocabulary, width), "norm.weight": (width,)}
    for i in range(layers):
        b, a = f"blocks.{i}.", f"blocks.{i}.attention."
        for name in (a + "norm", b + "norm"):
            shapes[name + ".weight"] = (width,)
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            shapes[f"{a}{name}.weight"] = (count * head, width)
            if qkv_bias:
                shapes[f"{a}{name}.bias"] = (count * head,)
        if qk_norm:
            shapes[a + "q_norm.weight"] = shapes[a + "k_norm.weight"] = (head,)
        shapes[a + "proj.weight"] = (width, heads * head)
        shapes[b + "gate.weight"] = shapes[b + "up.weight"] = (hidden, width)
        shapes[b + "down.weight"] = (width, hidden)
    if not tied:
        shapes["head.weight"] = (vocabulary, width)
    return shapes


def selections(file):
    """And losses; with numbers of their own. Several functions share a case: each dataset costs 300 bytes besides its values."""
    global rng
    rng = np.random.default_rng(23)
    index = np.array([[4, 0, 0, 3, 0, 1], [1, 1, 2, 4, 4, 4]], dtype=np.int32)
    target, answers = np.array([3, -100, 0, 6], dtype=np.int32), np.array([0, 1, 1, 0, 0, 1, 0, 1], dtype=np.int32)
    op_case(file, "functions", lambda x: torch.stack([
        torch.sigmoid(x), F.softplus(x), F.logsigmoid(x), F.gelu(x), F.leaky_relu(x, 0.2), x.abs(), x ** 3, x.abs() ** -1.7,
        x.clamp(-2.5, 1.5)]), numbers(16, low=-9, high=9))
    op_case(file, "selections", lambda x, y, i: torch.cat([part.flatten() for part in (
        torch.maximum(x, y), torch.minimum(x, y[0]), torch.where(x > 0, x, y), x.amax(0), y.amin((0, 1)), x.topk(3).values,
        F.pad(y.cumsum(-1), (1, 0, 0, 2), value=0.5), x.gather(-1, i), x.scatter_add(-1, i, y.repeat(1, 2)[:, :6]),
        y.log_softmax(-1))]), numbers(2, 5, low=-2, high=2), numbers(2, 5, low=-2, high=2), index)

    def focal(x, t, gamma=1.5):
        p = x.softmax(-1)[t >= 0].gather(-1, t[t >= 0, None])
        return ((1 - p) ** gamma * -p.log()).sum()

    op_case(file, "classification", lambda x, t: torch.stack((
        F.cross_entropy(x, t, reduction="sum", label_smoothing=0.1), focal(x, t))), numbers(4, 7, low=-8, high=8), target)

    def binary_focal(x, t, alpha=0.25, gamma=2):  # as torchvision.ops.sigmoid_focal_loss, for targets of 0 and 1
        p = torch.sigmoid(torch.where(t > 0.5, x, -x))
        return (torch.where(t > 0.5, alpha, 1 - alpha) * (1 - p) ** gamma * -p.log()).sum()

    def dice(p, t):
        return (1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).sum()

    op_case(file, "losses", lambda x, t, answers: torch.stack((
        F.mse_loss(x, t, reduction="sum"), F.huber_loss(x, t, reduction="sum", delta=0.75),
        F.binary_cross_entropy_with_logits(x, t, reduction="sum"), F.kl_div(F.logsigmoid(x), t, reduction="sum"),
        binary_focal(x, answers), dice(x.sigmoid().reshape(2, 4), t.reshape(2, 4)))),
        numbers(8, low=-4, high=4), numbers(8, low=0.01), answers)


def llamas(file):
    def tokens():
        return rng.integers(0, 13, (3, 9)).astype(np.int32)

    y = tokens()
    y[1, 2:4] = -100
    model_case(file, "llama", llama_shapes(12, 2, 1, 6, 32, False, False, False, layers=1),
               lambda p, x: llama(p, x, 2, 1, frequencies(6, 10000.0, ("linear", 4.0)), layers=1), tokens(), y)
    model_case(file, "llama_of_relatives", llama_shapes(12, 4, 2, 4, 20, True, True, True),
               lambda p, x: llama(p, x, 4, 2, frequencies(4, 500.0, ("llama3", 8.0, 1.0, 4.0, 32)), window=4), tokens(), y)


with h5py.File(sys.argv[1], "w", libver=("v108", "v110")) as golden:
    golden.attrs["torch"] = str(torch.__version__)
    ops(golden)
    models(golden)
    optimizers(golden)
    schedules(golden)
    more(golden)
    llama_ops(golden)
    llamas(golden)
    selections(golden)
    image_ops(golden)

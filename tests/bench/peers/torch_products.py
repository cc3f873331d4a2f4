"""Peer: matrix products alone, on one thread: for each shape and form a line "NAME,GF/s" under kernel_bench's name for it.
Forms: 0 is Y = X W^T, 1 is dX = dY W, 2 is dW = dY^T X (in bf16 with an fp32 result, where PyTorch can)."""
import sys, time
import torch

torch.set_num_threads(1)
SHAPES = [(768, 384, 128), (768, 512, 128), (2048, 1536, 384), (256, 3072, 768), (256, 768, 3072), (256, 50304, 768)]

for name, dtype in (("Gemm", torch.float32), ("GemmBf16", torch.bfloat16)):
    for m, n, k in SHAPES:
        for form in range(3):
            a = torch.randn(k, m, dtype=dtype).t() if form == 2 else torch.randn(m, k, dtype=dtype)
            b = torch.randn(n, k, dtype=dtype).t() if form == 0 else torch.randn(k, n, dtype=dtype)
            c = torch.empty(m, n, dtype=dtype)
            torch.mm(a, b, out=c)
            count, begun = 0, time.perf_counter()
            while time.perf_counter() - begun < 0.5:
                torch.mm(a, b, out=c)
                count += 1
            rate = 2e-9 * m * n * k * count / (time.perf_counter() - begun)
            print(f"{name}/{m}/{n}/{k}/{form}/1,{rate:.2f}", flush=True)

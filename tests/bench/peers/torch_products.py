"""Peer: matrix products alone, on THREADS threads: for each shape and form a line "NAME,GF/s" under kernel_bench's name for it.
python torch_products.py [THREADS]. Forms: 0 is Y = X W^T, 1 is dX = dY W, 2 is dW = dY^T X, 3 is dW += dY^T X; all of one type."""
import sys, time
import torch

THREADS = int(sys.argv[1]) if len(sys.argv) > 1 else 1
torch.set_num_threads(THREADS)
# Of char, baby, llama (gate and up, down), bert, 124m and its head.
SHAPES = [(768, 384, 128), (768, 512, 128), (2048, 1536, 384), (2048, 1152, 384), (2048, 1024, 384), (2048, 384, 1024),
          (2048, 768, 256), (256, 3072, 768), (256, 768, 3072), (256, 50304, 768)]

for name, dtype in (("Gemm", torch.float32), ("GemmBf16", torch.bfloat16)):
    for m, n, k in SHAPES:
        for form in range(4):
            a = torch.randn(k, m, dtype=dtype).t() if form >= 2 else torch.randn(m, k, dtype=dtype)
            b = torch.randn(n, k, dtype=dtype).t() if form == 0 else torch.randn(k, n, dtype=dtype)
            c = torch.zeros(m, n, dtype=dtype)
            product = (lambda: c.addmm_(a, b)) if form == 3 else (lambda: torch.mm(a, b, out=c))
            product()
            count, begun = 0, time.perf_counter()
            while time.perf_counter() - begun < 0.5:
                product()
                count += 1
            rate = 2e-9 * m * n * k * count / (time.perf_counter() - begun)
            print(f"{name}/{m}/{n}/{k}/{form}/{THREADS},{rate:.2f}", flush=True)

"""What PyTorch gets out of a GPU at most: 8192^3 products of random bf16 matrices, copies of 4 GiB within its memory; one JSON line."""
import argparse, json, time
import torch

p = argparse.ArgumentParser()
p.add_argument("--device", default="cuda"); p.add_argument("--extent", type=int, default=8192); p.add_argument("--mib", type=int, default=4096)
a = p.parse_args()
cuda = a.device.startswith("cuda")
sync = torch.cuda.synchronize if cuda else lambda: None

def seconds(go, count):
    best = 1e30
    for i in range(6):  # the first one warms up
        sync(); begin = time.perf_counter()
        for _ in range(count): go()
        sync(); s = (time.perf_counter() - begin) / count
        if i: best = min(best, s)
    return best

x, y = (torch.randn(a.extent, a.extent, device=a.device).bfloat16() for _ in range(2))
z = torch.empty_like(x)
gemm = seconds(lambda: torch.mm(x, y, out=z), 10 if cuda else 1)
del x, y, z
u = torch.zeros(a.mib << 20, dtype=torch.uint8, device=a.device)
v = torch.zeros_like(u)
copy = seconds(lambda: v.copy_(u), 10 if cuda else 1)
print(json.dumps(dict(peer="torch " + torch.__version__, device=torch.cuda.get_device_name() if cuda else "cpu",
      cuda=torch.version.cuda, gemm_tflops=round(2 * a.extent ** 3 / gemm / 1e12, 3), copy_gbps=round(2 * (a.mib << 20) / copy / 1e9, 1))))

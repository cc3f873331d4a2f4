"""Peer: a training step of one of the other models in PyTorch on the CPU (eager, or DDP over gloo), one JSON line out.
python torch_models.py --model resnet18|resnet50|lstm|llama|bert|unet [--channels-last] [--dtype bf16|bf16-parameters] [--threads N]
torchrun --nproc-per-node 2 torch_models.py --model llama --parallel ddp
Shapes as in tests/bench/MODEL.yaml, the same layers as ours; the batch is shared among the ranks. --products: also products_ms.
"""
import argparse, json, math, os, resource, statistics, time
T0 = time.time()
import torch, torch.nn as nn, torch.nn.functional as F
from torch_products_share import products_ms

class Bottleneck(nn.Module):
    def __init__(self, into, width, out, stride, wide):
        super().__init__()
        plan = [(into, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)] if wide else [(into, out, 3, stride), (out, out, 3, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in plan)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in plan)
        self.short = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if stride > 1 or into != out else nn.Identity()
    def forward(self, x):
        h = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            h = norm(conv(h))
            if i + 1 < len(self.convs): h = F.relu(h, inplace=True)
        return F.relu(h + self.short(x), inplace=True)

def resnet(blocks, wide, large, classes=10):
    stem = [nn.Conv2d(3, 64, 7 if large else 3, 2 if large else 1, 3 if large else 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(True)]
    if large: stem.append(nn.MaxPool2d(3, 2, 1))
    into = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        out = 4 * width if wide else width
        for i in range(count):
            stem.append(Bottleneck(into, width, out, 2 if stage and not i else 1, wide))
            into = out
    return nn.Sequential(*stem, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, classes))

class Lstm(nn.Module):
    def __init__(self, width, layers, vocabulary):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(vocabulary, width), nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)
    def forward(self, x): return self.head(self.lstm(self.embedding(x))[0])

class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
    def forward(self, x): return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)

class LlamaBlock(nn.Module):
    def __init__(self, c, heads, hidden):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = RmsNorm(c), RmsNorm(c)
        self.q, self.k, self.v, self.o = (nn.Linear(c, c, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(c, hidden, bias=False), nn.Linear(c, hidden, bias=False), nn.Linear(hidden, c, bias=False)
    def forward(self, x, cos, sin):
        b, t, c = x.shape
        n = self.n1(x)
        q, k, v = (f(n).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        def turn(z):
            a, d = z.chunk(2, -1)
            return z * cos + torch.cat((-d, a), -1) * sin
        y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        n = self.n2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))

class Llama(nn.Module):
    def __init__(self, layers, heads, c, hidden, context, vocabulary):
        super().__init__()
        self.wte, self.norm, self.head = nn.Embedding(vocabulary, c), RmsNorm(c), nn.Linear(c, vocabulary, bias=False)
        self.blocks = nn.ModuleList(LlamaBlock(c, heads, hidden) for _ in range(layers))
        d = c // heads
        f = torch.outer(torch.arange(context).float(), 1 / 10000 ** (torch.arange(0, d, 2) / d))
        f = torch.cat((f, f), -1)
        self.register_buffer("cos", f.cos()), self.register_buffer("sin", f.sin())
    def forward(self, x):
        h = self.wte(x)
        for b in self.blocks: h = b(h, self.cos.to(h.dtype), self.sin.to(h.dtype))
        return self.head(self.norm(h))

class Bert(nn.Module):
    def __init__(self, layers, heads, c, context, vocabulary):
        super().__init__()
        self.wte, self.wpe, self.n = nn.Embedding(vocabulary, c), nn.Embedding(context, c), nn.LayerNorm(c)
        self.qkv, self.proj = (nn.ModuleList(nn.Linear(c, o) for _ in range(layers)) for o in (3 * c, c))
        self.up = nn.ModuleList(nn.Linear(c, 4 * c) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * c, c) for _ in range(layers))
        self.n1, self.n2 = (nn.ModuleList(nn.LayerNorm(c) for _ in range(layers)) for _ in range(2))
        self.transform, self.nt, self.bias, self.heads = nn.Linear(c, c), nn.LayerNorm(c), nn.Parameter(torch.zeros(vocabulary)), heads
    def forward(self, x):
        h = self.n(self.wte(x) + self.wpe.weight)
        b, t, c = h.shape
        for i in range(len(self.qkv)):
            q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv[i](h).split(c, 2))
            y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
            h = self.n1[i](h + self.proj[i](y))
            h = self.n2[i](h + self.down[i](F.gelu(self.up[i](h), approximate="tanh")))
        return F.linear(self.nt(F.gelu(self.transform(h), approximate="tanh")), self.wte.weight) + self.bias

class Unet(nn.Module):
    def __init__(self, levels, width, channels, classes):
        super().__init__()
        def block(i, o):
            return nn.Sequential(*(m for a in (i, o) for m in (nn.Conv2d(a, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))))
        widths = [width << l for l in range(levels + 1)]
        self.down = nn.ModuleList(block(i, o) for i, o in zip([channels] + widths, widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * o, o, 2, 2) for o in reversed(widths[:-1]))
        self.join = nn.ModuleList(block(2 * o, o) for o in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)
    def forward(self, x):
        kept = []
        for i, b in enumerate(self.down):
            x = b(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join): x = join(torch.cat((kept.pop(), up(x)), 1))
        return self.head(x)

def images(batch, side, channels, pixels):
    return lambda: (torch.randn(batch, channels, side, side), torch.randint(0, 2 if pixels else 10, (batch, side, side) if pixels else (batch,)))
def tokens(batch, context, vocabulary, hidden=False):
    def draw():
        x, y = torch.randint(0, vocabulary, (2, batch, context))
        if hidden: y[torch.rand(y.shape) >= 0.15] = -100
        return x, y
    return draw

CASES = {  # model, a batch of one rank, of all
    "resnet18": (lambda: resnet((2, 2, 2, 2), False, False), lambda b: images(b, 32, 3, False), 32),
    "resnet50": (lambda: resnet((3, 4, 6, 3), True, True), lambda b: images(b, 64, 3, False), 8),
    "lstm": (lambda: Lstm(256, 2, 65), lambda b: tokens(b, 64, 65), 32),
    "llama": (lambda: Llama(6, 6, 384, 1024, 256, 65), lambda b: tokens(b, 256, 65), 8),
    "bert": (lambda: Bert(4, 4, 256, 128, 65), lambda b: tokens(b, 128, 65, True), 16),
    "unet": (lambda: Unet(3, 32, 1, 2), lambda b: images(b, 64, 1, True), 8),
}

p = argparse.ArgumentParser()
p.add_argument("--model", required=True, choices=CASES); p.add_argument("--parallel", default="none")
p.add_argument("--steps", type=int, default=10); p.add_argument("--warmup", type=int, default=3); p.add_argument("--threads", type=int, default=0)
p.add_argument("--dtype", default="fp32"); p.add_argument("--channels-last", action="store_true"); p.add_argument("--compile", action="store_true")
p.add_argument("--products", action="store_true")
a = p.parse_args()
if a.threads: torch.set_num_threads(a.threads)
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    import torch.distributed as dist
    dist.init_process_group("gloo")
torch.manual_seed(1)
make, batches, batch = CASES[a.model]
layout = torch.channels_last if a.channels_last else torch.contiguous_format
raw = make().to(memory_format=layout)
low = a.dtype == "bf16-parameters"
if low: raw.to(torch.bfloat16)
model = nn.parallel.DistributedDataParallel(raw) if a.parallel == "ddp" else raw
if a.compile: model = torch.compile(model)
opt = torch.optim.AdamW(raw.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
draw = batches(batch // world)
def step(i):
    x, y = draw()
    if x.is_floating_point(): x = x.to(torch.bfloat16 if low else torch.float32, memory_format=layout)
    with torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bf16"):
        out = model(x)
    if x.is_floating_point() and y.dim() == 3: out = out.permute(0, 2, 3, 1)
    loss = F.cross_entropy(out.reshape(-1, out.shape[-1]).float(), y.reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
    opt.step(); opt.zero_grad(set_to_none=True)
    return loss.item()
times, first = [], None
for i in range(a.warmup + a.steps):
    s = time.perf_counter()
    loss = step(i)
    if first is None: first = time.time() - T0
    if i >= a.warmup: times.append(time.perf_counter() - s)
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
products = products_ms(step) if a.products else None
if rank == 0:
    print(json.dumps(dict(peer="torch " + torch.__version__, model=a.model, dtype=a.dtype, compile=a.compile, cl=a.channels_last, parallel=a.parallel,
          batch=batch, world=world, threads=torch.get_num_threads(), ms=round(statistics.median(times) * 1e3, 2),
          min_ms=round(min(times) * 1e3, 2), first_step_s=round(first, 2), rss_mb=rss, products_ms=products, loss=round(loss, 4),
          params=sum(q.numel() for q in raw.parameters()))), flush=True)
if world > 1: dist.destroy_process_group()

"""For the peers: how much of a PyTorch step on the CPU is matrix products and convolutions."""
import torch

def products_ms(step, steps=3):
    """Runs step(i) so many times under PyTorch's profiler; milliseconds a step for which the calling thread was in products and convolutions
    (attention's own kernel is not counted). None where a recurrent layer is one kernel, whose products no event shows."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU]) as p:
        for i in range(steps): step(i)
    names = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
    events = p.key_averages()
    if any("mkldnn_rnn" in e.key for e in events): return None
    return round(sum(e.self_cpu_time_total for e in events if e.key in names or "conv" in e.key) / steps / 1e3, 2)

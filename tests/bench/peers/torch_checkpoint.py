"""Peer: saving GPT-2 124M with AdamW's state by torch.distributed.checkpoint, sharded by FSDP2; one JSON line out.
torchrun --nproc-per-node 2 torch_checkpoint.py [--rounds N]
"""
import argparse, json, os, shutil, statistics, sys, tempfile, time
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--dir", default="")
    a = p.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    sys.argv = sys.argv[:1]
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    source = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_gpt.py")).read().rsplit("main()", 1)[0]
    names = {}
    exec(compile(source, "torch_gpt.py", "exec"), names)
    model = names["GPT"](12, 12, 768, 64, 50304, True)
    for b in model.blocks: fully_shard(b)
    fully_shard(model)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    x = torch.randint(0, 50304, (1, 64))
    model(x, x).backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
    base = a.dir or (tempfile.mkdtemp() if rank == 0 else "")
    box = [base]
    dist.broadcast_object_list(box, 0)
    whole, stall, total = [], [], []
    for i in range(a.rounds):
        state = dict(zip(("model", "optim"), get_state_dict(model, opt)))
        dist.barrier()
        s = time.perf_counter()
        dcp.save(state, checkpoint_id=os.path.join(box[0], f"sync{i}"))
        whole.append(time.perf_counter() - s)
        dist.barrier()
        s = time.perf_counter()
        done = dcp.async_save(state, checkpoint_id=os.path.join(box[0], f"async{i}"))
        stall.append(time.perf_counter() - s)
        done.result()
        total.append(time.perf_counter() - s)
        dist.barrier()
    if rank == 0:
        print(json.dumps(dict(peer="torch " + torch.__version__, save_s=round(statistics.median(whole), 3),
              async_stall_ms=round(statistics.median(stall) * 1e3, 1), async_s=round(statistics.median(total), 3))), flush=True)
        shutil.rmtree(box[0], ignore_errors=True)
    dist.destroy_process_group()

main()

"""Peer: saving GPT-2 124M with AdamW's state by torch.distributed.checkpoint, sharded by FSDP2; one JSON line out.
torchrun --nproc-per-node 2 torch_checkpoint.py [--rounds N]
With --beside it saves while training goes on, by async_save with a DefaultStager, as its documentation says: the stage is waited for before
the optimizer's step, the upload before the next save. stall_ms: what the training loop waited; extra_ms: by how much longer all steps took
until the checkpoint was whole.
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
    p.add_argument("--beside", action="store_true")
    a = p.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    sys.argv = sys.argv[:1]
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    source = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_gpt.py")).read().rsplit("\nif hasattr(torch", 1)[0]
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
    if a.beside: return beside(a, dist, rank, model, opt, x)
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


def beside(a, dist, rank, model, opt, x):
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    box = [a.dir or (tempfile.mkdtemp() if rank == 0 else "")]
    dist.broadcast_object_list(box, 0)
    options = StagingOptions(use_pinned_memory=False, use_shared_memory=True, use_async_staging=True, use_non_blocking_copy=False)
    stager = DefaultStager(options)
    group = dist.new_group(backend="gloo")  # of its own: its collectives are another thread's
    def step(before_update=None):
        s = time.perf_counter()
        model(x, x).backward()
        waited = before_update() if before_update else 0
        opt.step()
        opt.zero_grad(set_to_none=True)
        dist.barrier()
        return time.perf_counter() - s, waited
    for _ in range(2): step()
    usual = statistics.median(step()[0] for _ in range(6))
    stalls, extras, totals = [], [], []
    for i in range(a.rounds):
        s = time.perf_counter()
        state = dict(zip(("model", "optim"), get_state_dict(model, opt)))
        response = dcp.async_save(state, checkpoint_id=os.path.join(box[0], f"beside{i}"), async_stager=stager, process_group=group)
        stall = time.perf_counter() - s
        def staged():
            t = time.perf_counter()
            response.staging_completion.result()
            return time.perf_counter() - t
        steps, first = 0, True
        while True:
            _, waited = step(staged if first else None)
            if first: stall += waited
            first = False
            steps += 1
            done = torch.tensor([1.0 if response.upload_completion.done() else 0.0])
            dist.all_reduce(done, dist.ReduceOp.MIN)
            if done.item() == 1: break
        total = time.perf_counter() - s
        stalls.append(stall), extras.append(total - steps * usual), totals.append(total)
        for _ in range(2): step()
    if rank == 0:
        ms = lambda t: round(statistics.median(t) * 1e3, 1)
        print(json.dumps(dict(peer="torch " + torch.__version__, step_ms=round(usual * 1e3, 1), stall_ms=ms(stalls), extra_ms=ms(extras),
              save_s=round(statistics.median(totals), 3))), flush=True)
        shutil.rmtree(box[0], ignore_errors=True)
    stager.close()
    dist.destroy_process_group()

main()

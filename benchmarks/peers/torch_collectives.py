"""The collectives of PyTorch with Gloo, timed as `athanor bench collectives` times its own; prints one JSON object per
line. Needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

    torch_collectives.py SECONDS ROUNDS OP,OP,… BYTES,BYTES,…
"""

import json
import sys
import time

import torch
import torch.distributed as dist


def slowest(seconds: float) -> float:
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value.item()


def action(op: str, count: int, rank: int, world: int):
    """(what is timed, messages in it), or None if this PyTorch lacks it."""
    x = torch.ones(count)
    if op == "all_reduce":
        return lambda: dist.all_reduce(x), 1
    if op == "broadcast":
        return lambda: dist.broadcast(x, 0), 1
    if op == "all_gather":
        outputs = [torch.empty(count) for _ in range(world)]
        return lambda: dist.all_gather(outputs, x), 1
    if op == "barrier":
        return dist.barrier, 1
    if op == "send_recv":
        def there_and_back():
            if rank == 0:
                dist.send(x, 1)
                dist.recv(x, 1)
            elif rank == 1:
                dist.recv(x, 0)
                dist.send(x, 0)
        return there_and_back, 2
    if op == "reduce_scatter":
        parts = list(torch.ones(max(1, count // world) * world).chunk(world))
        output = torch.empty_like(parts[0])

        def scatter():
            dist.reduce_scatter(output, parts)
        try:
            scatter()
        except (RuntimeError, ValueError):
            return None
        return scatter, 1
    return None


def main():
    seconds, rounds = float(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for op in sys.argv[3].split(","):
        for size in map(int, sys.argv[4].split(",")):
            found = action(op, size // 4, rank, world)
            if found is None:
                continue
            run, messages = found
            begin = time.perf_counter()
            for _ in range(3):
                run()
            once = slowest((time.perf_counter() - begin) / 3)
            calls = min(max(int(seconds / once), 1), 20000)
            means = []
            for _ in range(rounds):
                dist.barrier()
                begin = time.perf_counter()
                for _ in range(calls):
                    run()
                means.append(slowest((time.perf_counter() - begin) / calls / messages))
            single = []
            dist.barrier()
            for _ in range(max(calls, 10)):
                begin = time.perf_counter()
                run()
                single.append((time.perf_counter() - begin) / messages)
            if rank == 0:
                print(json.dumps({"op": op, "bytes": size, "seconds": sorted(means)[len(means) // 2],
                                  "p50": sorted(single)[len(single) // 2]}), flush=True)
    dist.destroy_process_group()


main()

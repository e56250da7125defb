"""PyTorch's side of benchmarks/ddp_mnist.py: one rank of DistributedDataParallel (gloo) on its MNIST example.

    RANK=… WORLD_SIZE=… MASTER_ADDR=… MASTER_PORT=… python torch_ddp.py BATCH [SETTING ...]
    python torch_ddp.py --sgd                        the kinds of SGD that this PyTorch has, in JSON

SETTINGs: channels_last (model and input), static_graph, gradient_as_bucket_view, bucket_cap_mb=N, foreach, fused.
"""

import inspect
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = self.dropout2(F.relu(self.fc1(torch.flatten(self.dropout1(x), 1))))
        return F.log_softmax(self.fc2(x), dim=1)


def kinds_of_sgd() -> list:
    """Of foreach and fused, those that work on this PyTorch's CPU."""
    found = []
    for kind in ("foreach", "fused"):
        if kind not in inspect.signature(torch.optim.SGD.__init__).parameters:
            continue
        try:
            parameter = torch.ones(2, requires_grad=True)
            optimizer = torch.optim.SGD([parameter], 0.1, momentum=0.5, **{kind: True})
            parameter.sum().backward()
            optimizer.step()
        except (RuntimeError, ValueError):
            continue
        found.append(kind)
    return found


def main() -> None:
    if sys.argv[1] == "--sgd":
        print(json.dumps(kinds_of_sgd()))
        return
    batch, settings = int(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    options, sgd, layout = {}, {}, torch.contiguous_format
    for setting in settings:
        name, _, value = setting.partition("=")
        if name == "channels_last":
            layout = torch.channels_last
        elif name in ("foreach", "fused"):
            sgd[name] = True
        else:
            options[name] = int(value) if value else True
    net = nn.parallel.DistributedDataParallel(ConvNet().to(memory_format=layout), **options)
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.5, **sgd)
    x = torch.randn(batch, 1, 28, 28).to(memory_format=layout)
    t = torch.randint(0, 10, (batch,))

    def step():
        optimizer.zero_grad()
        F.nll_loss(net(x), t).backward()
        optimizer.step()

    for _ in range(10):
        step()
    seconds = []
    for _ in range(9):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(10):
            step()
        dist.barrier()
        seconds.append((time.perf_counter() - begin) / 10)
    median = sorted(seconds)[len(seconds) // 2]
    if dist.get_rank() == 0:
        print(json.dumps({"ranks": dist.get_world_size(), "step_ms": median * 1e3,
                          "images_per_s": dist.get_world_size() * batch / median}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Training in Python beside PyTorch: calls, steps of the MNIST net, DataLoader, optimizers.

    benchmarks/python_training.py [--rounds 5] [--filter loader]

Both sides run the same code in processes of their own and take turns; a ratio is of the medians of their rounds, above 1
where this library is faster. PyTorch is that of the first interpreter in ATHANOR_PEER_PYTHON (colon-separated; otherwise
python3) that has it. In the MNIST row PyTorch's side does with an example what torchvision does: a PIL image of the bytes,
an array of it, a tensor, normalized. PyTorch's process keeps its memory (glibc's thresholds raised), and its steps are the
better of both memory layouts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from peer_pythons import pythons_with

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, "..", "build")
MNIST_EXAMPLES = 6000


class Examples:
    """A dataset in Python: a row of floats and a class."""

    def __init__(self, torch, shape: tuple, n: int) -> None:
        self.values = torch.rand(n, *shape)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: int):
        return self.values[i], i % 10


class TorchMnist:
    """An example as torchvision makes it."""

    def __init__(self, torch) -> None:
        self.torch = torch
        self.data = torch.randint(0, 256, (MNIST_EXAMPLES, 28, 28), dtype=torch.uint8)
        self.mean, self.std = torch.tensor([0.1307]).view(-1, 1, 1), torch.tensor([0.3081]).view(-1, 1, 1)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int):
        import numpy
        from PIL import Image

        image = Image.fromarray(self.data[i].numpy())
        tensor = self.torch.from_numpy(numpy.array(image, numpy.uint8, copy=True)).view(1, 28, 28)
        tensor = tensor.contiguous().to(self.torch.float32).div(255)
        return tensor.clone().sub_(self.mean).div_(self.std), i % 10


def our_mnist(torch):
    import struct

    from athanor.vision import datasets, transforms

    folder = tempfile.TemporaryDirectory()
    n = MNIST_EXAMPLES
    with open(os.path.join(folder.name, "train-images-idx3-ubyte"), "wb") as file:
        file.write(struct.pack(">IIII", 2051, n, 28, 28) + os.urandom(n * 784))
    with open(os.path.join(folder.name, "train-labels-idx1-ubyte"), "wb") as file:
        file.write(struct.pack(">II", 2049, n) + bytes(i % 10 for i in range(n)))
    steps = [transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]
    return datasets.MNIST(folder.name, transform=transforms.Compose(steps))


def epoch(torch, dataset, **options):
    """A function that goes through the dataset once and tells the examples per second, workers' start included."""

    def run() -> float:
        loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True, **options)
        begin = time.perf_counter()
        count = sum(len(batch[1]) for batch in loader)
        return count / (time.perf_counter() - begin)

    return run


def steady(torch, dataset, **options):
    """The same for the second half of an epoch, when workers have long started."""

    def run() -> float:
        loader = torch.utils.data.DataLoader(dataset, batch_size=64, **options)
        half, count, begin = len(loader) // 2, 0, 0.0
        for i, batch in enumerate(loader):
            if i == half:
                begin = time.perf_counter()
            elif i > half:
                count += len(batch[1])
        return count / (time.perf_counter() - begin)

    return run


def steps(torch, name: str, count: int, size: int, **options):
    """Steps per second of an optimizer over `count` parameters of `size` elements."""
    params = [torch.randn(size).requires_grad_() for _ in range(count)]
    for p in params:
        p.grad = torch.randn(size)
    optimizer = getattr(torch.optim, name)(params, lr=1e-3, **options)

    def run() -> float:
        n = max(1, 2_000_000 // (count * size))
        optimizer.step()
        begin = time.perf_counter()
        for _ in range(n):
            optimizer.step()
        return n / (time.perf_counter() - begin)

    return run


def calls(torch, requires_grad: bool):
    """Additions of 64 elements per second."""
    a, b = torch.ones(64, requires_grad=requires_grad), torch.ones(64)

    def run() -> float:
        n = 50000
        begin = time.perf_counter()
        for _ in range(n):
            a + b
        return n / (time.perf_counter() - begin)

    return run


def mnist_steps(torch, threads: int, ours: bool):
    """Images per second in training steps of the MNIST net, batch 64."""
    nn, functional = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
            self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
            self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

        def forward(self, x):
            x = functional.relu(self.conv2(functional.relu(self.conv1(x))))
            x = self.dropout1(functional.max_pool2d(x, 2))
            x = self.dropout2(functional.relu(self.fc1(torch.flatten(x, 1))))
            return functional.log_softmax(self.fc2(x), dim=1)

    images, labels = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))

    def speed(layout) -> float:
        torch.set_num_threads(threads)
        net = Net() if layout is None else Net().to(memory_format=layout)
        x = images if layout is None else images.to(memory_format=layout)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(14):
            if step == 2:
                begin = time.perf_counter()
            optimizer.zero_grad()
            functional.nll_loss(net(x), labels).backward()
            optimizer.step()
        seconds = time.perf_counter() - begin
        torch.set_num_threads(1)
        return 12 * 64 / seconds

    return lambda: max(speed(layout) for layout in ([None] if ours else [None, torch.channels_last]))


def rows(torch, ours: bool) -> dict:
    small, large = ((1, 28, 28), 12000), ((3, 224, 224), 400)
    fused = {} if ours else {"fused": True}
    return {
        "call/add 64": lambda: calls(torch, False),
        "call/add 64, with gradient": lambda: calls(torch, True),
        "mnist/conv b64, 1 thread": lambda: mnist_steps(torch, 1, ours),
        "mnist/conv b64, 2 threads": lambda: mnist_steps(torch, 2, ours),
        "loader/python, 2 workers": lambda: steady(torch, Examples(torch, *small), num_workers=2),
        "loader/python, 2 workers, with their start": lambda: epoch(torch, Examples(torch, *small), num_workers=2),
        "loader/python, 2 workers, large": lambda: steady(torch, Examples(torch, *large), num_workers=2),
        "loader/python, no workers": lambda: epoch(torch, Examples(torch, *small)),
        "loader/tensors": lambda: epoch(torch, tensors(torch)),
        "loader/mnist, 2 workers": lambda: steady(torch, our_mnist(torch) if ours else TorchMnist(torch), num_workers=2),
        "optimizer/sgd, 160 x 4096": lambda: steps(torch, "SGD", 160, 4096, momentum=0.9),
        "optimizer/adam, 160 x 4096": lambda: steps(torch, "Adam", 160, 4096),
        "optimizer/adam, 160 x 4096, PyTorch's fused": lambda: steps(torch, "Adam", 160, 4096, **fused),
        "optimizer/adam, 10 x 100": lambda: steps(torch, "Adam", 10, 100),
    }


def tensors(torch):
    return torch.utils.data.TensorDataset(torch.rand(12000, 1, 28, 28), torch.randint(0, 10, (12000,)))


def side(module: str) -> None:
    """Answers each row's name on standard input with a figure."""
    if module == "athanor":
        sys.path.insert(0, os.path.join(BUILD, "python"))
    torch = importlib.import_module(module)
    torch.set_num_threads(1)
    importlib.import_module(module + ".utils.data")
    importlib.import_module(module + ".optim")
    importlib.import_module(module + ".nn")
    known, made = rows(torch, module == "athanor"), {}
    for line in sys.stdin:
        name = line.rstrip("\n")
        made = {name: made.get(name) or known[name]()}
        print(json.dumps(made[name]()), flush=True)


def start(python: str, module: str) -> subprocess.Popen:
    environment = dict(os.environ)
    if module == "torch":
        environment.update(MALLOC_MMAP_THRESHOLD_=str(2**30), MALLOC_TRIM_THRESHOLD_=str(2**33))
    return subprocess.Popen([python, os.path.abspath(__file__), "--side", module], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if module == "torch" else None, text=True,
                            env=environment)


def ask(process: subprocess.Popen, name: str) -> float:
    print(name, file=process.stdin, flush=True)
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"{process.args[-1]}: the process ended in row '{name}'")
    return json.loads(answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--filter", default="")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        side(args.side)
        return
    own = os.path.join(BUILD, "python-env", "bin", "python")
    processes = {"athanor": start(own if os.path.exists(own) else sys.executable, "athanor")}
    for python in list(pythons_with("torch", "python3").values())[:1]:
        processes["torch"] = start(python, "torch")
    print(f"{'row':46} {'athanor /s':>12} {'torch /s':>12} {'ratio':>7}")
    for name in rows(None, True):
        if args.filter not in name:
            continue
        figures = {module: [] for module in processes}
        for _ in range(args.rounds):
            for module, process in processes.items():
                figures[module].append(ask(process, name))
        medians = {module: statistics.median(values) for module, values in figures.items()}
        theirs = medians.get("torch")
        print(f"{name:46} {medians['athanor']:12.0f} " + (f"{theirs:12.0f} {medians['athanor'] / theirs:7.2f}" if theirs else ""),
              flush=True)
    for process in processes.values():
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()

"""PyTorch's side of the comparison, driven by benchmarks/run.py; works with PyTorch 1.13 and newer.

    python torch_peer.py THREADS

Row names are the same on every side. What follows '@' is another way to get the same result; a side's best counts.
Throughput rows ("B") count each operand read once and each result written once; "new" rows allocate their result.
"""

import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_models import add_model_rows  # noqa: E402
from torch_protocol import Program  # noqa: E402

SIZES = {"1e6": 10**6, "1e8": 10**8}
WIDTH = 1024  # last dimension of the matrices made of SIZES elements

# Convolutions of ResNet-50 at 224 x 224: input channels, input size, output channels, kernel, stride.
RESNET50_CONVS = [
    (3, 224, 64, 7, 2),
    (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1),
    (256, 56, 128, 1, 1), (128, 56, 128, 3, 2), (128, 28, 512, 1, 1), (256, 56, 512, 1, 2),
    (512, 28, 128, 1, 1), (128, 28, 128, 3, 1), (512, 28, 256, 1, 1), (256, 28, 256, 3, 2),
    (256, 14, 1024, 1, 1), (512, 28, 1024, 1, 2), (1024, 14, 256, 1, 1), (256, 14, 256, 3, 1),
    (1024, 14, 512, 1, 1), (512, 14, 512, 3, 2), (512, 7, 2048, 1, 1), (1024, 14, 2048, 1, 2),
    (2048, 7, 512, 1, 1), (512, 7, 512, 3, 1),
]
RESNET_BATCH = 8


def without_grad(body):
    def run():
        with torch.no_grad():
            body()

    return run


def add_pointwise_rows(program: Program, size: str, n: int) -> None:
    rows = n // WIDTH

    def add(name, streams, make):
        """make(x, y, z, out) returns the body."""
        program.add(f"{name}/{size}", "B", 4.0 * n * streams,
                    lambda: without_grad(make(torch.randn(n), torch.randn(n), torch.randn(n), torch.empty(n).zero_())))

    add("copy.out", 2, lambda x, y, z, o: lambda: o.copy_(x))
    add("clone.new", 2, lambda x, y, z, o: lambda: x.clone())
    add("add.out", 3, lambda x, y, z, o: lambda: torch.add(x, y, out=o))
    add("add.new", 3, lambda x, y, z, o: lambda: x + y)
    add("muladd.new", 4, lambda x, y, z, o: lambda: x * y + z)
    add("addcmul.out", 4, lambda x, y, z, o: lambda: torch.addcmul(z, x, y, out=o))
    add("relu.new", 2, lambda x, y, z, o: lambda: torch.relu(x))
    add("exp.out", 2, lambda x, y, z, o: lambda: torch.exp(x, out=o))
    add("exp.new", 2, lambda x, y, z, o: lambda: torch.exp(x))
    add("tanh.out", 2, lambda x, y, z, o: lambda: torch.tanh(x, out=o))
    add("tanh.new", 2, lambda x, y, z, o: lambda: torch.tanh(x))
    add("sigmoid.new", 2, lambda x, y, z, o: lambda: torch.sigmoid(x))
    add("gelu.new", 2, lambda x, y, z, o: lambda: F.gelu(x))
    add("cat.new", 2, lambda x, y, z, o: lambda: torch.cat([x[: n // 2], y[: n // 2]]))

    def add_matrix(name, streams, make):
        """make(m, row, column, out) returns the body; m is [rows, WIDTH]."""
        program.add(f"{name}/{size}", "B", 4.0 * n * streams, lambda: without_grad(
            make(torch.randn(rows, WIDTH), torch.randn(WIDTH), torch.randn(rows, 1), torch.zeros(rows, WIDTH))))

    add_matrix("broadcast_row.out", 2, lambda m, r, c, o: lambda: torch.add(m, r, out=o))
    add_matrix("broadcast_row.new", 2, lambda m, r, c, o: lambda: m + r)
    add_matrix("broadcast_column.out", 2, lambda m, r, c, o: lambda: torch.add(m, c, out=o))
    add_matrix("broadcast_column.new", 2, lambda m, r, c, o: lambda: m + c)


def add_reduction_rows(program: Program, size: str, n: int) -> None:
    rows = n // WIDTH

    def add(name, streams, make):
        program.add(f"{name}/{size}", "B", 4.0 * n * streams, lambda: without_grad(make(torch.randn(rows, WIDTH))))

    add("sum.all", 1, lambda m: lambda: m.sum())
    add("sum.last", 1, lambda m: lambda: m.sum(1))
    add("sum.first", 1, lambda m: lambda: m.sum(0))
    add("mean.last", 1, lambda m: lambda: m.mean(1))
    add("amax.all", 1, lambda m: lambda: m.max())
    add("max_index.last", 1, lambda m: lambda: m.max(1))
    add("argmax.last", 1, lambda m: lambda: m.argmax(1))
    add("softmax.last", 2, lambda m: lambda: F.softmax(m, 1))
    add("log_softmax.last", 2, lambda m: lambda: F.log_softmax(m, 1))

    def layer_norm(m):
        weight, bias = torch.ones(WIDTH), torch.zeros(WIDTH)
        return lambda: F.layer_norm(m, (WIDTH,), weight, bias)

    add("layer_norm.last", 2, layer_norm)


def add_movement_rows(program: Program, size: str, n: int) -> None:
    rows, side = n // WIDTH, int(n**0.5)

    def add(name, unit, items, make):
        program.add(f"{name}/{size}", unit, float(items), lambda: without_grad(make()))

    def transpose():
        square = torch.randn(side, side)
        return lambda: square.t().contiguous()

    def add_transposed():
        x, y = torch.randn(side, side), torch.randn(side, side)
        return lambda: x.t() + y

    def broadcast_narrow():
        m, column = torch.randn(n // 64, 64), torch.randn(n // 64, 1)
        return lambda: m + column

    def erfinv():
        x = torch.rand(n) * 1.9 - 0.95
        return lambda: torch.erfinv(x)

    def lgamma():
        x = torch.rand(n) * 10
        return lambda: torch.lgamma(x)

    def index_rows():
        m, index = torch.randn(rows, WIDTH), torch.randint(0, rows, (rows,))
        return lambda: m.index_select(0, index)

    def index_elements():
        x, index = torch.randn(n), torch.randint(0, n, (n,))
        return lambda: x.index_select(0, index)

    def gather():
        m, index = torch.randn(rows, WIDTH), torch.randint(0, WIDTH, (rows, WIDTH))
        return lambda: m.gather(1, index)

    def sort():
        x = torch.randn(n)
        return lambda: torch.sort(x)

    def fill(method):
        def make():
            out = torch.empty(n)
            return lambda: getattr(out, method)()

        return make

    add("transpose.new", "B", 8 * side * side, transpose)
    add("add_transposed.new", "B", 12 * side * side, add_transposed)
    add("broadcast_narrow.new", "B", 8 * (n // 64 * 64), broadcast_narrow)
    add("erfinv.new", "B", 8 * n, erfinv)
    add("lgamma.new", "B", 8 * n, lgamma)
    add("index_rows.new", "B", 8 * rows * WIDTH, index_rows)
    add("index_elements.new", "B", 16 * n, index_elements)
    add("gather.new", "B", 16 * rows * WIDTH, gather)
    add("sort", "element", n, sort)

    def order(op, matrix=False):
        def make():
            x = torch.randn(rows, WIDTH) if matrix else torch.randn(n)
            return lambda: op(x)

        return make

    def few_values():
        x = torch.randint(0, 1000, (n,))
        return lambda: torch.unique(x)

    def search():
        keys, x = torch.sort(torch.randn(100000))[0], torch.randn(n)
        return lambda: torch.searchsorted(keys, x)

    add("sort.last", "element", rows * WIDTH, order(lambda m: torch.sort(m, 1), True))
    add("cumsum", "element", n, order(lambda x: torch.cumsum(x, 0)))
    add("cumsum.last", "element", rows * WIDTH, order(lambda m: torch.cumsum(m, 1), True))
    add("topk", "element", n, order(lambda x: torch.topk(x, 100)))
    add("topk.last", "element", rows * WIDTH, order(lambda m: torch.topk(m, 5), True))
    add("median", "element", n, order(lambda x: torch.median(x)))
    add("median.last", "element", rows * WIDTH, order(lambda m: torch.median(m, 1), True))
    add("unique", "element", n, few_values)
    add("unique.float", "element", n, order(lambda x: torch.unique(x)))
    add("searchsorted", "element", n, search)
    add("randperm", "element", n, lambda: lambda: torch.randperm(n))
    add("uniform.fill", "element", n, fill("uniform_"))
    add("normal.fill", "element", n, fill("normal_"))


def add_gemm_rows(program: Program) -> None:
    types = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}
    for name, dtype in types.items():
        for n in (64, 128, 256, 512, 1024, 2048, 4096):
            if dtype == torch.float64 and n not in (256, 1024):
                continue

            def make(n=n, dtype=dtype):
                a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
                return without_grad(lambda: torch.mm(a, b))

            program.add(f"gemm.{name}/{n}", "FLOP", 2.0 * n**3, make)


def add_conv_rows(program: Program) -> None:
    shapes = [("mnist", 64, 1, 28, 32, 3, 1, 0), ("mnist", 64, 32, 26, 64, 3, 1, 0),
              ("mnist", 128, 1, 28, 10, 5, 1, 0), ("mnist", 128, 10, 12, 20, 5, 1, 0),
              ("small", 16, 3, 64, 64, 4, 2, 1),
              ("small", 8, 8, 28, 16, 3, 2, 1),
              ("small", 4, 32, 24, 64, 5, 1, 2)]
    shapes += [("resnet50", RESNET_BATCH, c, s, k, r, stride, r // 2) for c, s, k, r, stride in RESNET50_CONVS]
    for net, batch, c, size, k, r, stride, pad in shapes:
        out = (size + 2 * pad - r) // stride + 1
        flop = 2.0 * batch * k * c * r * r * out * out
        first = net == "resnet50" and c == 3 or c == 1  # a net's first layer has no gradient for its input
        name = f"{net}.b{batch}c{c}x{size}k{k}r{r}s{stride}"
        for suffix, layout in (("", torch.contiguous_format), ("@channels_last", torch.channels_last)):
            def tensors(batch=batch, c=c, size=size, k=k, r=r, layout=layout):
                return (torch.randn(batch, c, size, size).contiguous(memory_format=layout),
                        torch.randn(k, c, r, r).contiguous(memory_format=layout))

            def forward(tensors=tensors, stride=stride, pad=pad):
                x, w = tensors()
                return without_grad(lambda: F.conv2d(x, w, stride=stride, padding=pad))

            def backward(tensors=tensors, stride=stride, pad=pad, first=first, layout=layout):
                x, w = tensors()
                x.requires_grad_(not first)
                w.requires_grad_()
                y = F.conv2d(x, w, stride=stride, padding=pad)
                gradient = torch.randn(y.shape).contiguous(memory_format=layout)
                wanted = [w] if first else [x, w]
                return lambda: torch.autograd.grad(y, wanted, gradient, retain_graph=True)

            program.add(f"conv.forward/{name}{suffix}", "FLOP", flop, forward)
            program.add(f"conv.backward/{name}{suffix}", "FLOP", flop * (1 if first else 2), backward)


class ConvNorm:
    """Convolution and batch norm."""

    def __init__(self, channels, out, kernel, stride, layout):
        self.stride, self.pad = stride, kernel // 2
        self.w = (torch.randn(out, channels, kernel, kernel) * 0.05).contiguous(memory_format=layout)
        self.gamma, self.beta = torch.ones(out), torch.zeros(out)
        self.mean, self.var = torch.zeros(out), torch.ones(out)

    def forward(self, x, training):
        y = F.conv2d(x, self.w, None, self.stride, self.pad)
        return F.batch_norm(y, self.mean, self.var, self.gamma, self.beta, training, 0.1, 1e-5)


class ResidualBlock:
    """relu(x + f(x)) with f of two 3 x 3 layers, or of 1 x 1, 3 x 3, 1 x 1 with a quarter of the channels inside."""

    def __init__(self, bottleneck, channels, out, stride, layout):
        inner = out // 4 if bottleneck else out
        shapes = [(channels, inner, 1, 1)] if bottleneck else []
        shapes += [(inner if bottleneck else channels, inner, 3, stride), (inner, out, 1 if bottleneck else 3, 1)]
        self.layers = [ConvNorm(*s, layout) for s in shapes]
        self.shortcut = [ConvNorm(channels, out, 1, stride, layout)] if channels != out or stride != 1 else []

    def forward(self, x, training):
        y = x
        for layer in self.layers:
            y = layer.forward(y, training)
            if layer is not self.layers[-1]:
                y.relu_()
        return (y + (self.shortcut[0].forward(x, training) if self.shortcut else x)).relu_()


# Two blocks in a row: bottleneck or not, channels, size, channels of the result, stride of the first block.
RESIDUAL_STAGES = [
    (False, 64, 56, 64, 1), (False, 128, 28, 128, 1), (False, 256, 14, 256, 1), (False, 512, 7, 512, 1),
    (True, 256, 56, 256, 1), (True, 512, 28, 512, 1), (True, 512, 28, 1024, 2), (True, 1024, 14, 1024, 1),
    (True, 1024, 14, 2048, 2), (True, 2048, 7, 2048, 1),
]


def residual_body(stage, step, layout):
    bottleneck, channels, size, out, stride = stage
    blocks = [ResidualBlock(bottleneck, channels, out, stride, layout), ResidualBlock(bottleneck, out, out, 1, layout)]
    x = torch.randn(RESNET_BATCH, channels, size, size).contiguous(memory_format=layout)

    def forward(training):
        y = x
        for block in blocks:
            y = block.forward(y, training)
        return y

    if not step:
        return without_grad(lambda: forward(False))
    wanted = [x] + [t for b in blocks for layer in b.layers + b.shortcut for t in (layer.w, layer.gamma, layer.beta)]
    for tensor in wanted:
        tensor.requires_grad_()
    gradient = torch.randn(RESNET_BATCH, out, size // stride, size // stride).contiguous(memory_format=layout)
    return lambda: torch.autograd.grad(forward(True), wanted, gradient)


def residual_flop(stage) -> float:
    bottleneck, channels, size, out, stride = stage
    total = 0.0
    for block in (ResidualBlock(bottleneck, channels, out, stride, torch.contiguous_format),
                  ResidualBlock(bottleneck, out, out, 1, torch.contiguous_format)):
        for layer in block.layers:
            size //= layer.stride
            total += 2.0 * RESNET_BATCH * layer.w.numel() * size * size
        total += sum(2.0 * RESNET_BATCH * layer.w.numel() * size * size for layer in block.shortcut)
    return total


def add_resnet_rows(program: Program) -> None:
    for stage in RESIDUAL_STAGES:
        bottleneck, channels, size, out, stride = stage
        name = f"{'bottleneck' if bottleneck else 'basic'}.b{RESNET_BATCH}c{channels}x{size}k{out}s{stride}"
        flop = residual_flop(stage)
        for suffix, layout in (("", torch.contiguous_format), ("@channels_last", torch.channels_last)):
            for kind, step in (("forward", False), ("step", True)):
                program.add(f"resnet.{kind}/{name}{suffix}", "FLOP", flop * (3 if step else 1),
                            lambda stage=stage, step=step, layout=layout: residual_body(stage, step, layout))


class ConvNet(nn.Module):
    """Two convolutions of 3 x 3 and two linear layers: 1.2 million parameters."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = self.dropout1(x).flatten(1)
        return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), dim=1)


class TutorialNet(nn.Module):
    """Two convolutions of 5 x 5 with pooling and two linear layers: 22 thousand parameters."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.dropout = nn.Dropout2d()
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.dropout(self.conv2(x)), 2)).flatten(1)
        x = F.dropout(F.relu(self.fc1(x)), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return F.log_softmax(self.layers(x), dim=1)


def train_step(model, shape, layout=None):
    x, labels = torch.randn(shape), torch.randint(0, 10, (shape[0],))
    if layout is not None:
        model, x = model.to(memory_format=layout), x.to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)

    def step():
        optimizer.zero_grad()
        F.nll_loss(model(x), labels).backward()
        optimizer.step()

    return step


def add_optimizer_rows(program: Program) -> None:
    """The fused step and the foreach norm, PyTorch's fastest."""
    def parameters(count, size):
        params = [torch.randn(size).requires_grad_() for _ in range(count)]
        for p in params:
            p.grad = torch.randn(size) * 0.01
        return params

    def idle(make):
        def prepare():
            params = parameters(4, 25000)
            optimizer = make(params)
            optimizer.step()
            for p in params:
                p.grad.zero_()
            for _ in range(1000):
                optimizer.step()
            return optimizer.step

        return prepare

    for name, make in (("sgd", lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, foreach=True)),
                       ("adam", lambda p: torch.optim.Adam(p, lr=0.001, foreach=True)),
                       ("rmsprop", lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, foreach=True))):
        program.add(f"optim.{name}.idle/4x25000", "element", 1e5, idle(make))
    for count, size in ((1000, 256), (4, 4000000)):
        def step(count=count, size=size):
            optimizer = torch.optim.AdamW(parameters(count, size), lr=1e-6, fused=True)
            return optimizer.step

        def clip(count=count, size=size):
            params = parameters(count, size)
            return lambda: torch.nn.utils.clip_grad_norm_(params, 1e9, foreach=True)

        program.add(f"optim.adamw/{count}x{size}", "element", count * size, step)
        program.add(f"optim.clip_grad_norm/{count}x{size}", "element", count * size, clip)


def add_training_rows(program: Program) -> None:
    add_optimizer_rows(program)
    for batch in (32, 64, 128):
        for name, net in (("conv", ConvNet), ("tutorial", TutorialNet)):
            def make(net=net, batch=batch, layout=None):
                return train_step(net(), (batch, 1, 28, 28), layout)

            program.add(f"mnist.{name}/b{batch}", "image", batch, make)
            program.add(f"mnist.{name}/b{batch}@channels_last", "image", batch,
                        lambda make=make: make(layout=torch.channels_last))
    for batch in (1, 64):
        program.add(f"mlp.step/b{batch}", "sample", batch, lambda batch=batch: train_step(Mlp(), (batch, 784)))


def add_attention_rows(program: Program) -> None:
    if not hasattr(F, "scaled_dot_product_attention"):
        return
    for causal in (False, True):
        size = "/b4h8s1024d64" + ("causal" if causal else "")
        flop = 4.0 * 4 * 8 * 1024 * 1024 * 64 / (2 if causal else 1)

        def forward(causal=causal):
            q, k, v = (torch.randn(4, 8, 1024, 64) for _ in range(3))
            return without_grad(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))

        def step(causal=causal):
            q, k, v = (torch.randn(4, 8, 1024, 64, requires_grad=True) for _ in range(3))
            gradient = torch.randn(4, 8, 1024, 64)
            return lambda: torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=causal), (q, k, v),
                                               gradient)

        program.add("attention.forward" + size, "FLOP", flop, forward)
        program.add("attention.step" + size, "FLOP", 3.5 * flop, step)


def add_recurrent_rows(program: Program) -> None:
    def forward():
        net, x = nn.LSTM(256, 256, 2), torch.randn(64, 32, 256)
        return without_grad(lambda: net(x))

    def step():
        net, x = nn.LSTM(256, 256, 2), torch.randn(64, 32, 256)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

        def run():
            optimizer.zero_grad()
            net(x)[0].pow(2).mean().backward()
            optimizer.step()

        return run

    program.add("lstm.forward/l2h256s64b32", "step", 64 * 32, forward)
    program.add("lstm.step/l2h256s64b32", "step", 64 * 32, step)


class GptBlock(nn.Module):
    """A block of GPT-2: 4 heads of 64."""

    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(256), nn.LayerNorm(256)
        self.c_attn, self.c_proj = nn.Linear(256, 768), nn.Linear(256, 256)
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = (p.view(b, t, 4, 64).transpose(1, 2) for p in self.c_attn(self.ln_1(x)).chunk(3, -1))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
            y = (q @ k.transpose(-1, -2) / 8).masked_fill(hidden, float("-inf")).softmax(-1) @ v
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, e))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe, self.ln_f = nn.Embedding(65, 256), nn.Embedding(128, 256), nn.LayerNorm(256)
        self.blocks = nn.Sequential(*(GptBlock() for _ in range(4)))

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        return F.linear(self.ln_f(self.blocks(x)), self.wte.weight)


def add_gpt_rows(program: Program) -> None:
    def forward():
        net, x = Gpt(), torch.randint(0, 65, (8, 128))
        return without_grad(lambda: net(x))

    def step(lower):
        net, x, y = Gpt(), torch.randint(0, 65, (8, 128)), torch.randint(0, 65, (8, 128))
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4)

        def run():
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=lower):
                loss = F.cross_entropy(net(x).view(-1, 65), y.view(-1))
            loss.backward()
            optimizer.step()

        return run

    program.add("gpt.forward/l4e256s128b8", "token", 8 * 128, forward)
    program.add("gpt.step/l4e256s128b8", "token", 8 * 128, lambda: step(False))
    program.add("gpt.step.bf16/l4e256s128b8", "token", 8 * 128, lambda: step(True))


class DigitsDataset(Dataset):
    """MNIST's shape, bytes turned to normalised floats one sample at a time, as torchvision's transforms do."""

    def __init__(self):
        self.images = torch.randint(0, 256, (60000, 28, 28), dtype=torch.uint8)
        self.labels = torch.randint(0, 10, (60000,))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return (self.images[i].unsqueeze(0).float() / 255 - 0.1307) / 0.3081, int(self.labels[i])


def add_loader_rows(program: Program) -> None:
    def epoch(make_dataset, workers):
        def make():
            loader = DataLoader(make_dataset(), batch_size=64, shuffle=True, num_workers=workers,
                                persistent_workers=workers > 0)

            def body():
                for _ in loader:
                    pass

            return body

        return make

    for workers in (0, 1, 2):
        suffix = f"@workers{workers}"
        program.add("loader.memory/60000x784" + suffix, "sample", 60000, epoch(
            lambda: TensorDataset(torch.randn(60000, 784), torch.randint(0, 10, (60000,))), workers))
        program.add("loader.mnist/60000" + suffix, "sample", 60000, epoch(DigitsDataset, workers))


def main() -> None:
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    program = Program("torch", torch.__version__, torch.get_num_threads())
    for size, n in SIZES.items():
        add_pointwise_rows(program, size, n)
        add_reduction_rows(program, size, n)
        add_movement_rows(program, size, n)
    add_gemm_rows(program)
    add_conv_rows(program)
    add_resnet_rows(program)
    add_model_rows(program, without_grad)
    add_training_rows(program)
    add_attention_rows(program)
    add_recurrent_rows(program)
    add_gpt_rows(program)
    add_loader_rows(program)
    program.serve()


if __name__ == "__main__":
    main()

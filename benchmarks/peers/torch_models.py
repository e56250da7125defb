"""ResNets in PyTorch, for the rows of benchmarks/cpp_models.h."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """relu(way around + f(x)), f of two 3 x 3 layers or of 1 x 1, 3 x 3 and 1 x 1."""

    def __init__(self, channels, planes, stride, bottleneck):
        super().__init__()
        out = planes * 4 if bottleneck else planes
        shapes = [(channels, planes, 1, 1)] if bottleneck else []
        shapes += [(planes if bottleneck else channels, planes, 3, stride), (planes, out, 1 if bottleneck else 3, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in shapes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in shapes)
        self.around = None
        if stride != 1 or channels != out:
            self.around = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            y = norm(conv(y))
            if i + 1 < len(self.convs):
                y = F.relu_(y)
        return F.relu_(y.add_(x if self.around is None else self.around(x)))


def resnet(bottleneck, counts):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, (planes, count) in enumerate(zip((64, 128, 256, 512), counts)):
        for i in range(count):
            layers.append(Block(channels, planes, 2 if stage > 0 and i == 0 else 1, bottleneck))
            channels = planes * 4 if bottleneck else planes
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def add_model_rows(program, without_grad) -> None:
    fifty, eighteen = (True, (3, 4, 6, 3)), (False, (2, 2, 2, 2))

    def step(kind, batch, size, layout):
        net = resnet(*kind).to(memory_format=layout)
        x = torch.randn(batch, 3, size, size).contiguous(memory_format=layout)
        target = torch.randint(0, 1000, (batch,))
        optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)

        def run():
            optimizer.zero_grad()
            F.cross_entropy(net(x), target).backward()
            optimizer.step()

        return run

    def forward(batch, layout):
        net = resnet(*fifty).to(memory_format=layout).eval()
        x = torch.randn(batch, 3, 224, 224).contiguous(memory_format=layout)
        return without_grad(lambda: net(x))

    for suffix, layout in (("", torch.contiguous_format), ("@channels_last", torch.channels_last)):
        program.add("resnet50.step/b16s128" + suffix, "image", 16, lambda layout=layout: step(fifty, 16, 128, layout))
        program.add("resnet18.step/b32s32" + suffix, "image", 32, lambda layout=layout: step(eighteen, 32, 32, layout))
        for batch in (1, 16):
            program.add(f"resnet50.forward/b{batch}s224" + suffix, "image", batch,
                        lambda batch=batch, layout=layout: forward(batch, layout))

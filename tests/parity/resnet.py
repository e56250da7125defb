#!/usr/bin/env python3
"""ResNets of torchvision and of models::ResNet from the same weights: tests/parity/resnet.py build/bin/resnet_parity [NAME...]

A Python that has torch and torchvision (ATHANOR_PEER_PYTHON, else this one) writes each network's state_dict as
safetensors, and its logits for some photos; resnet_parity loads the file and compares. Skips where there is no
torchvision, or where the photos are missing.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

NAMES = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]


def peer():
    """The first Python that has torchvision, or None; and which were asked."""
    pythons = [p for p in os.environ.get("ATHANOR_PEER_PYTHON", "").split(":") if p] or [sys.executable]
    for python in pythons:
        try:
            if subprocess.run([python, "-c", "import torchvision.models"], capture_output=True).returncode == 0:
                return python, pythons
        except OSError:
            continue
    return None, pythons


def photos():
    """Those of $ATHANOR_DATA, or of the folder shared/data beside the checkout."""
    for folder in (os.environ.get("ATHANOR_DATA"), ROOT.parent / "shared" / "data"):
        found = sorted(p for p in pathlib.Path(folder or ".").glob("images/*") if p.suffix in (".png", ".jpg"))
        if folder and found:
            return [str(p) for p in found]
    return []


def write_safetensors(path, tensors):
    """The format needs no package: a header of names, dtypes, shapes and places, then the values."""
    header, place, names = {}, 0, {"torch.float32": "F32", "torch.int64": "I64"}
    for name, t in tensors.items():
        size = t.numel() * t.element_size()
        header[name] = {"dtype": names[str(t.dtype)], "shape": list(t.shape), "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            file.write(t.detach().contiguous().numpy().tobytes())


def read_input(path):
    import torch

    with open(path, "rb") as file:
        entry = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))["input"]
        return torch.frombuffer(bytearray(file.read()), dtype=torch.float32).reshape(entry["shape"])


def write_network(name, folder):
    """In the peer: statistics of the photos, and norms as in a trained network, whose blocks add little to what they get.
    Otherwise rounding would grow from block to block, on both sides alike."""
    import torch
    import torchvision

    torch.manual_seed(NAMES.index(name))
    x = read_input(os.path.join(folder, "input.safetensors"))
    net = getattr(torchvision.models, name)()
    last_of_block = {torchvision.models.resnet.BasicBlock: "bn2", torchvision.models.resnet.Bottleneck: "bn3"}
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, std=0.2)
    for module in net.modules():
        if type(module) in last_of_block:
            torch.nn.init.uniform_(getattr(module, last_of_block[type(module)]).weight, 0.1, 0.3)
    with torch.no_grad():
        net(x)
        logits = net.eval()(x)
    write_safetensors(os.path.join(folder, "weights.safetensors"), net.state_dict())
    write_safetensors(os.path.join(folder, "data.safetensors"), {"input": x, "logits": logits})


def main():
    if sys.argv[1] == "--write":
        return write_network(*sys.argv[2:])
    program = sys.argv[1]
    python, asked = peer()
    if python is None:
        print(f"SKIP: no torchvision in {':'.join(asked)}; set ATHANOR_PEER_PYTHON to a Python that has it")
        return 77
    if not os.path.exists(program):
        print(f"SKIP: {program} is not built; `make test` builds it where torch is found, ninja's target `parity` anywhere")
        return 77
    files = photos()
    if not files:
        print("SKIP: no photos; set ATHANOR_DATA to a folder that has some in images/")
        return 77
    result = 0
    with tempfile.TemporaryDirectory(prefix="athanor-resnet-") as folder:
        subprocess.run([program, "input", os.path.join(folder, "input.safetensors"), *files], check=True)
        for name in sys.argv[2:] or NAMES:
            subprocess.run([python, str(HERE), "--write", name, folder], check=True)
            result |= subprocess.run([program, name, *(os.path.join(folder, f + ".safetensors")
                                                       for f in ("weights", "data"))]).returncode
    return result


if __name__ == "__main__":
    sys.exit(main())

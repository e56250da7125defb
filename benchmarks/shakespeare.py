#!/usr/bin/env python3
"""Does a character model learn as well as in PyTorch? Trains build/bin/gpt and the same GPT-2 in PyTorch from the same
weights, on the same batches in the same order, and compares the validation losses.

    benchmarks/shakespeare.py --data FOLDER_OR_FILE                two minutes
    benchmarks/shakespeare.py --data FOLDER --steps 2000           longer
    benchmarks/shakespeare.py ... --python /path/to/python         the interpreter that has PyTorch

Without --python, the interpreters of ATHANOR_PEER_PYTHON (colon-separated), then this one. Exit status 0 when Athanor's
loss is at most 1 % above PyTorch's, 1 when it is not, 77 where something needed is missing.
"""

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time

from peer_pythons import named_pythons

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOLERANCE = 0.01
# Every figure of the training that both programs are told, and its default.
SETTINGS = {"layers": 4, "width": 256, "heads": 4, "context": 128, "batch_size": 8, "steps": 400, "warmup": 50,
            "eval_batches": 40, "eval_interval": 200, "threads": 2, "lr": 1e-3, "weight_decay": 0.1, "clip": 1.0}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a text file, or a folder with input.txt")
    for name, value in SETTINGS.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value, help=f"default {value}")
    parser.add_argument("--python", default="", help="an interpreter that has PyTorch")
    parser.add_argument("--gpt", default=os.path.join(ROOT, "build/bin/gpt"))
    parser.add_argument("--torch-from", default="", help=argparse.SUPPRESS)  # PyTorch's side: initial weights
    return parser.parse_args()


def read_text(data: str) -> bytes:
    with open(os.path.join(data, "input.txt") if os.path.isdir(data) else data, "rb") as file:
        return file.read()


# ---- PyTorch's side ----


def read_safetensors(path: str) -> dict:
    import torch
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        values = bytearray(file.read())
    out = {}
    for name, entry in header.items():
        if name != "__metadata__":
            assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}"
            begin, end = entry["data_offsets"]
            out[name] = torch.frombuffer(values[begin:end], dtype=torch.float32).reshape(entry["shape"]).clone()
    return out


def logits_of(p: dict, tokens, arguments):
    """GPT-2 on parameters with Hugging Face's names; no dropout."""
    import torch
    from torch.nn import functional as F
    batch, steps = tokens.shape
    width, heads = arguments.width, arguments.heads

    def norm(x, name):
        return F.layer_norm(x, (width,), p[name + ".weight"], p[name + ".bias"])

    def dense(x, name):
        return torch.addmm(p[name + ".bias"], x.reshape(batch * steps, -1), p[name + ".weight"]).view(batch, steps, -1)

    x = F.embedding(tokens, p["wte.weight"]) + p["wpe.weight"][:steps]
    for i in range(arguments.layers):
        h = f"h.{i}."
        q, k, v = (t.view(batch, steps, heads, width // heads).transpose(1, 2)
                   for t in dense(norm(x, h + "ln_1"), h + "attn.c_attn").chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + dense(y.transpose(1, 2).reshape(batch, steps, width), h + "attn.c_proj")
        y = F.gelu(dense(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
        x = x + dense(y, h + "mlp.c_proj")
    return F.linear(norm(x, "ln_f"), p["wte.weight"])


def train_torch(arguments) -> None:
    import torch
    from torch.nn import functional as F
    torch.set_num_threads(arguments.threads)
    text = read_text(arguments.data)
    number = {byte: i for i, byte in enumerate(sorted(set(text)))}
    tokens = torch.tensor([number[byte] for byte in text])
    cut = len(tokens) * 9 // 10
    parameters = {name: t.requires_grad_() for name, t in read_safetensors(arguments.torch_from).items()}
    every = list(parameters.values())
    optimizer = torch.optim.AdamW(
        [{"params": [t for t in every if t.dim() > 1], "weight_decay": arguments.weight_decay},
         {"params": [t for t in every if t.dim() <= 1], "weight_decay": 0.0}], lr=arguments.lr, betas=(0.9, 0.95))

    def loss_of(part, index):
        order = torch.arange(arguments.batch_size) + index * arguments.batch_size
        starts = order * arguments.context % (len(part) - arguments.context)
        places = starts.unsqueeze(1) + torch.arange(arguments.context)
        logits = logits_of(parameters, part[places], arguments)
        return F.cross_entropy(logits.flatten(0, 1), part[places + 1].flatten())

    for step in range(1, arguments.steps + 1):
        share = min(step / arguments.warmup, 1.0) if arguments.warmup else 1.0
        for group in optimizer.param_groups:
            group["lr"] = arguments.lr * share
        optimizer.zero_grad()
        loss_of(tokens[:cut], step - 1).backward()
        if arguments.clip > 0:
            torch.nn.utils.clip_grad_norm_(every, arguments.clip)
        optimizer.step()
        if step % arguments.eval_interval == 0 or step == arguments.steps:
            with torch.no_grad():
                loss = sum(loss_of(tokens[cut:], i).item() for i in range(arguments.eval_batches))
            print(f"Step {step}: validation loss {loss / arguments.eval_batches:.4f}", flush=True)


# ---- the comparison ----


def find_torch(named: str) -> str:
    """An interpreter whose PyTorch has scaled_dot_product_attention, or an empty string."""
    probe = "import torch; torch.nn.functional.scaled_dot_product_attention; torch.frombuffer"
    for python in [named] if named else named_pythons() + [sys.executable]:
        if subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0:
            return python
    return ""


def settings_of(arguments, **changes) -> list:
    values = {name: getattr(arguments, name) for name in SETTINGS} | changes
    return [word for name, value in values.items() for word in ("--" + name.replace("_", "-"), str(value))]


def losses_of(side: str, command: list) -> dict:
    """Runs a side; step -> validation loss."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{side} failed with status {done.returncode}: {done.stderr.strip()[-2000:]}")
    losses = {int(step): float(loss) for step, loss in re.findall(r"Step (\d+): validation loss (\S+)", done.stdout)}
    print(f"{side}: {time.perf_counter() - start:.0f} s", flush=True)
    return losses


def main() -> int:
    arguments = parse_arguments()
    if arguments.torch_from:
        train_torch(arguments)
        return 0
    python = find_torch(arguments.python)
    if not python or not os.path.exists(arguments.gpt):
        print("SKIP: " + ("no PyTorch 2 found; pass --python" if not python else f"{arguments.gpt} is not built"))
        return 77
    settings = settings_of(arguments)
    ours = [arguments.gpt, "--data", arguments.data, "--in-order", "--dropout", "0", "--no-progress"]
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "start.safetensors")
        # The same seed gives the same weights with and without training.
        subprocess.run(ours + settings_of(arguments, steps=0) + ["--save-model", weights], check=True,
                       capture_output=True)
        peer = losses_of("PyTorch", [python, os.path.abspath(__file__), "--data", arguments.data, "--torch-from",
                                     weights] + settings)
        own = losses_of("Athanor", ours + settings)
    for step in sorted(peer):
        print(f"step {step:6d}: Athanor {own[step]:.4f}, PyTorch {peer[step]:.4f}, {own[step] / peer[step] - 1:+.2%}")
    last = max(peer)
    good = own[last] <= peer[last] * (1 + TOLERANCE)
    print("as good" if good else f"WORSE by more than {TOLERANCE:.0%}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

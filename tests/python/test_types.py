"""The type stubs, read by a type checker."""
import ast
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import athanor as torch

try:
    import mypy  # noqa: F401
except ImportError:
    mypy = None

PROGRAM = """
import athanor as torch

x = torch.zeros(2, 3, dtype=torch.float32, requires_grad=True)
y: torch.Tensor = (x + 1).sum(0).relu()
z = torch.cat((x, x), dim=1).view(2, -1)
n: int = x.size(0)
values, indices = torch.sort(y)
x.backward(torch.ones(2, 3))
with torch.no_grad():
    x.add_(1)
"""
# As users write it who check strictly: names of the package's own, classes to derive from, typed decorators.
STRICT = """
from __future__ import annotations
from typing import Any
import athanor as torch
import athanor.distributed as dist
import athanor.nn.functional as F
from athanor import Tensor, nn, optim
from athanor.nn import Parameter
from athanor.utils.data import DataLoader, Dataset, TensorDataset, get_worker_info

class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.scale = Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return F.relu(y * self.scale)

class Pairs(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        worker = get_worker_info()
        if worker is not None:
            i += worker.id * worker.num_workers
        return torch.full((3,), float(i), dtype=torch.float64), i

@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader[Any], device: torch.device) -> int:
    return sum(int(model(x.to(device)).argmax(dim=1).eq(y).sum().item()) for x, y in loader)

@torch.no_grad
def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())

def made() -> list[Tensor]:
    values, indices = torch.sort(torch.zeros(size=(2, 3)), out=(torch.empty(0), torch.empty(0, dtype=torch.int64)))
    return [torch.zeros(2, 3), torch.ones((2, 3), dtype=torch.int32), values.permute(1, 0), values.permute(dims=(1, 0)), indices,
            values.repeat(2, 1), values.view(-1), values.reshape((3, 2)), torch.chain_matmul(values, values.t())]

def train() -> torch.Size:
    model = Net().to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    optimizer = optim.Adam([{"params": model.layer.parameters()}, {"params": [model.scale], "lr": 1e-3}], lr=1e-2)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1)
    for x, target in DataLoader(TensorDataset(torch.rand(4, 4), torch.zeros(4, 2)), batch_size=2):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    torch.save(model.state_dict(), "file")
    model.load_state_dict(torch.load("file"))
    print(count(model) + 1)
    return loss.shape
"""
WRONG = {"torch.relu(3)": "arg-type", "torch.zeros(2).no_such_method()": "attr-defined", "n: str = torch.ones(1).dim()": "assignment",
         "torch.nn.Linear('a', 2)": "arg-type", "torch.nosuch": "attr-defined", "torch.nn.NoSuch": "attr-defined",
         "n: int = torch.nn.Linear(1, 1)": "assignment", "torch.no_grad()(len)(3)": "arg-type"}


@unittest.skipIf(mypy is None, "mypy is not installed")
class RunByAChecker(unittest.TestCase):
    def check(self, *programs, strict=False):
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for i, text in enumerate(programs):
                files.append(pathlib.Path(folder) / f"program_{i}.py")
                files[-1].write_text(text if strict else "import athanor as torch\n" + text + "\n")
            package = pathlib.Path(os.environ["ATHANOR_BUILD"]) / "python"
            options = ["--strict"] if strict else []
            return subprocess.run([sys.executable, "-m", "mypy", *options, "--cache-dir", folder + "/cache", *map(str, files)],
                                  capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(package)}, timeout=250).stdout

    def test_right_programs_pass_and_wrong_ones_do_not(self):
        report = self.check(PROGRAM, *WRONG)
        # Old checkers, which Python 3.9 has to do with, complain about the package, too.
        lines = [line for line in report.splitlines() if "error:" in line and "program_" in line]
        for i, code in enumerate(WRONG.values(), 1):
            self.assertTrue(any(f"program_{i}.py" in line and f"[{code}]" in line for line in lines), report)
        self.assertEqual(len(lines), len(WRONG), report)

    def test_a_program_passes_strictly(self):
        report = self.check(STRICT, strict=True)
        self.assertEqual([line for line in report.splitlines() if "program_" in line], [], report[-3000:])
        self.assertRegex(report, r"(checked|in) 1 source file")


def stub_names(file, inside=None):
    """What a stub in the package declares, or a class in it."""
    body = ast.parse((pathlib.Path(os.environ["ATHANOR_BUILD"]) / "python" / "athanor" / file).read_text()).body
    if inside:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == inside).body
    names = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names.update(t.id for t in node.targets)
        elif isinstance(node, ast.ImportFrom):
            names.update(a.asname or a.name for a in node.names)
    return names


class Completeness(unittest.TestCase):
    def test_every_method_of_tensor_is_declared_and_no_other(self):
        declared = stub_names("_C.pyi", "Tensor")
        # Declared by object, or refused at run time: tensors have no elements to delete.
        known = set(dir(object)) | {"__del__", "__delitem__", "__dict__", "__module__"}
        self.assertEqual(set(dir(torch.Tensor)) - declared - known, set())
        self.assertEqual({n for n in declared if not hasattr(torch.Tensor, n)}, set())

    def test_every_name_of_the_package_is_declared(self):
        from athanor import _functions

        core, functions = stub_names("_C.pyi"), stub_names("_functions.pyi")
        self.assertEqual(set(_functions.__all__) - functions, set())
        written = ast.parse(pathlib.Path(torch.__file__).read_text())
        seen = set(functions)
        for node in ast.walk(written):
            if isinstance(node, ast.ImportFrom) and node.module == "_C":
                self.assertEqual({a.name for a in node.names} - core, set())
            if isinstance(node, (ast.ImportFrom, ast.Import)):
                seen.update(a.asname or a.name for a in node.names)
            elif isinstance(node, ast.Assign):
                seen.update(t.id for t in node.targets if isinstance(t, ast.Name))
        modules = {n for n in dir(torch) if isinstance(getattr(torch, n), types.ModuleType)}
        self.assertEqual({n for n in dir(torch) if not n.startswith("_")} - seen - modules, set())
        folder = pathlib.Path(torch.__file__).parent
        there = {p.stem for p in folder.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
        self.assertEqual({n for n in there if not n.startswith("_")} - seen, set())

    def test_names_that_are_written_out_for_type_checkers_are_all(self):
        from athanor.nn import functional, modules

        self.assertEqual({n for n in dir(modules) if n[:1].isupper()}, set(modules.__all__))
        made = {n for n in dir(functional) if not n.startswith("_") and callable(getattr(functional, n))}
        self.assertEqual(made, set(functional.__all__))


if __name__ == "__main__":
    unittest.main()

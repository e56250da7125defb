"""Calls of torch.autograd.functional that test_autograd_functional.py has both libraries carry out:
python functional_cases.py athanor|torch OUT."""

from __future__ import annotations

import pickle
import sys

# Functions of float64 tensors: the expression, the shapes of their inputs (a tuple of inputs if there are two), and
# the shapes of their outputs.
FUNCTIONS = {
    "one": ("lambda x: x ** 3 + x[0, 0]", [(2, 3)], [(2, 3)]),
    "vector": ("lambda x: (x.exp() * x[0]).sum(1)", [(3, 2)], [(3,)]),
    "matrix": ("lambda x, y: torch.tanh(x @ y)", [(2, 3), (3, 2)], [(2, 2)]),
    "several": ("lambda x, y: (x * y.sum(), (x * x).sum(), y.sin())", [(2,), (3,)], [(2,), (), (3,)]),
    "unused": ("lambda x, y: (x * x, y.exp())", [(2,), (3,)], [(2,), (3,)]),
    "constant": ("lambda x: x.detach() * 2", [(2,)], [(2,)]),
    "nothing": ("lambda x: x[:, :0] * 2", [(2, 3)], [(2, 0)]),
    "element": ("lambda x: x.sin()", [()], [()]),
    "relu": ("lambda x: torch.nn.functional.gelu(torch.relu(x)) - x", [(5,)], [(5,)]),
    "linear": ("lambda x, w, b: torch.nn.functional.linear(x, w, b)", [(2, 3), (4, 3), (4,)], [(2, 4)]),
    "captured": ("lambda x: x * KEPT", [(2, 3)], [(2, 3)]),
}
SCALARS = {
    "cubes": ("lambda x: (x ** 3).sum() * x[0, 0]", [(2, 2)]),
    "mixed": ("lambda x, y: ((x ** 2) * y.sum()).sum() + (y ** 4).prod()", [(2,), (3,)]),
    "apart": ("lambda x, y: (x ** 2).sum() + y.sum()", [(2,), (2, 2)]),
    "flat": ("lambda x: x.sum()", [(3,)]),
    "kept": ("lambda x: (x ** 2).sum().view(1, 1)", [(3,)]),
    "softmax": ("lambda x: torch.log_softmax(x, 1)[:, 1].exp().sum()", [(2, 4)]),
    "element": ("lambda x: x.exp() * x", [()]),
}
# What is refused, and how.
REFUSED = {
    "a list": "F.jacobian(lambda x: x, [torch.ones(2)])",
    "a number": "F.vjp(lambda x: x, (torch.ones(2), 3))",
    "a result that is no tensor": "F.vjp(lambda x: 3, torch.ones(2))",
    "no v": "F.vjp(lambda x: x * 2, torch.ones(2))",
    "no v for jvp": "F.jvp(lambda x: x * 2, torch.ones(2))",
    "v of another shape": "F.vjp(lambda x: x * 2, torch.ones(2), torch.ones(3))",
    "too many v": "F.jvp(lambda x: x * 2, torch.ones(2), (torch.ones(2), torch.ones(2)))",
    "too few v": "F.vhp(lambda x, y: (x * y).sum(), (torch.ones(2), torch.ones(2)), torch.ones(2))",
    "v that is no tensor": "F.hvp(lambda x: (x * x).sum(), torch.ones(2), [1.0, 2.0])",
    "a hessian of two": "F.hessian(lambda x: x * x, torch.ones(2))",
    "a hessian of a tuple": "F.hessian(lambda x: (x.sum(), x.sum()), torch.ones(2))",
    "a vhp of two": "F.vhp(lambda x: x * x, torch.ones(2), torch.ones(2))",
    "an hvp of a tuple": "F.hvp(lambda x: (x.sum(),), torch.ones(2), torch.ones(2))",
    "a strategy": "F.jacobian(lambda x: x, torch.ones(2), strategy='sideways')",
    "an outer strategy": "F.hessian(lambda x: x.sum(), torch.ones(2), outer_jacobian_strategy='sideways')",
    "strict, constant": "F.vjp(lambda x: x.detach(), torch.ones(2), torch.ones(2), strict=True)",
    "strict, jacobian of a constant": "F.jacobian(lambda x: x.detach(), torch.ones(2), strict=True)",
    "strict, unused": "F.vjp(lambda x, y: x * 2, (torch.ones(2), torch.ones(2)), torch.ones(2), strict=True)",
    "strict, unused in jvp": "F.jvp(lambda x, y: x * 2, (torch.ones(2),) * 2, (torch.ones(2),) * 2, strict=True)",
    "strict, jacobian of unused": "F.jacobian(lambda x, y: (x * 2, y * 2), (torch.ones(2), torch.ones(2)), strict=True)",
    "strict, linear, graph": "F.jacobian(lambda x: x * 2, torch.ones(2, requires_grad=True), strict=True, create_graph=True)",
    "strict, linear vjp, graph": "F.vjp(lambda x: x * 2, torch.ones(2), torch.ones(2), strict=True, create_graph=True)",
    "strict, hessian of linear": "F.hessian(lambda x: x.sum(), torch.ones(2), strict=True)",
    "strict, vhp of linear": "F.vhp(lambda x: x.sum(), torch.ones(2), torch.ones(2), strict=True)",
    "strict, hvp of linear": "F.hvp(lambda x: x.sum(), torch.ones(2), torch.ones(2), strict=True)",
    "strict, vhp of a square, graph": "F.vhp(lambda x: (x * x).sum(), torch.ones(2), torch.ones(2), True, True)",
    "integers": "F.jacobian(lambda x: x * 2, torch.ones(2, dtype=torch.int64))",
}


def numbers(shape: tuple, seed: int) -> list:
    """Values between -1 and 1 that both libraries get."""
    count, state, values = 1, 12345 + 7919 * seed, []
    for n in shape:
        count *= n
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2147483648
        values.append(state / 1073741824 - 1)
    return values


def plain(x):
    if isinstance(x, tuple):
        return tuple(plain(y) for y in x)
    return {"shape": tuple(x.shape), "dtype": str(x.dtype), "values": x.detach().reshape(-1).tolist(), "grad": x.requires_grad}


def leaves(x) -> list:
    return [t for y in x for t in leaves(y)] if isinstance(x, tuple) else [x]


def run(torch) -> dict:
    import importlib

    F = importlib.import_module(torch.__name__ + ".autograd.functional")  # noqa: N806
    results: dict = {"values": {}, "errors": {}}

    def tensors(shapes: list, first: int, requires_grad: bool = False):
        made = tuple(torch.tensor(numbers(s, first + i), dtype=torch.float64).reshape(s).requires_grad_(requires_grad)
                     for i, s in enumerate(shapes))
        return made if len(made) > 1 else made[0]

    def record(name: str, call, shapes: list) -> None:
        """What a call gives; and with a graph, what its sum's gradient is."""
        results["values"][name] = plain(call(tensors(shapes, 1), False))
        with torch.no_grad():
            results["values"][name + ", no_grad"] = plain(call(tensors(shapes, 1), False))
        inputs = tensors(shapes, 1, True)
        result = call(inputs, True)
        results["values"][name + ", graph"] = plain(result)
        total = sum((t * t).sum() for t in leaves(result) if t.requires_grad)
        if isinstance(total, torch.Tensor):
            total.backward()
            for i, t in enumerate(leaves(inputs)):
                if t.grad is not None:
                    results["values"][f"{name}, gradient {i}"] = plain(t.grad)

    scope = {"torch": torch, "KEPT": torch.tensor(numbers((2, 3), 1), dtype=torch.float64).reshape(2, 3), "F": F}
    for name, (text, shapes, outputs) in FUNCTIONS.items():
        f, v, w = eval(text, scope), tensors(outputs, 40), tensors(shapes, 60)
        record(f"vjp {name}", lambda x, graph: F.vjp(f, x, v, graph), shapes)
        record(f"jvp {name}", lambda x, graph: F.jvp(f, x, w, graph), shapes)
        if name != "nothing":  # PyTorch stacks no rows
            record(f"jacobian {name}", lambda x, graph: F.jacobian(f, x, graph), shapes)
            results["values"][f"jacobian {name}, vectorized"] = plain(F.jacobian(f, tensors(shapes, 1), vectorize=True))
    for name, (text, shapes) in SCALARS.items():
        f, w = eval(text, scope), tensors(shapes, 60)
        record(f"vhp {name}", lambda x, graph: F.vhp(f, x, w, graph), shapes)
        record(f"hvp {name}", lambda x, graph: F.hvp(f, x, w, graph), shapes)
        record(f"hessian {name}", lambda x, graph: F.hessian(f, x, graph), shapes)
        results["values"][f"hessian {name}, vectorized"] = plain(F.hessian(f, tensors(shapes, 1), vectorize=True))
        if len(shapes) == 1 and shapes[0] == ():
            results["values"][f"v left out {name}"] = plain((F.vhp(f, tensors(shapes, 1)), F.hvp(f, tensors(shapes, 1))))
    for name, text in REFUSED.items():
        try:
            eval(text, scope)
            results["errors"][name] = None
        except Exception as error:
            results["errors"][name] = (type(error).__name__, str(error))
    return results


if __name__ == "__main__":
    import importlib

    with open(sys.argv[2], "wb") as out:
        pickle.dump(run(importlib.import_module(sys.argv[1])), out)

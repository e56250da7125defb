"""Optimizers and schedules called in one way here and in PyTorch: optim_cases.py MODULE FILE pickles what MODULE gives."""

from __future__ import annotations

import importlib
import pickle
import random
import sys
import warnings

SHAPES = [(3, 4), (5,), (), (2, 3, 2)]

OPTIMIZERS = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("Adam", {"maximize": True, "betas": (0.8, 0.95)}),
    ("AdamW", {"weight_decay": 0.1, "amsgrad": True}),
    ("Adamax", {"weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adadelta", {"weight_decay": 0.1}),
    ("Adafactor", {"weight_decay": 0.1}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9, "weight_decay": 0.1}),
    ("Rprop", {}),
    ("ASGD", {"t0": 5, "weight_decay": 0.1}),
]


class Falling:
    """A schedule's function that is an object."""

    def __init__(self) -> None:
        self.base = 0.9

    def __call__(self, epoch: int) -> float:
        return self.base**epoch


SCHEDULES = {
    "step": lambda s, o: s.StepLR(o, 3, 0.5),
    "multi_step": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 9], 0.5),
    "constant": lambda s, o: s.ConstantLR(o, 0.5, 4),
    "linear": lambda s, o: s.LinearLR(o, 0.25, 0.9, 6),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "polynomial": lambda s, o: s.PolynomialLR(o, 7, 2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 5, 0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "restarts of one length": lambda s, o: s.CosineAnnealingWarmRestarts(o, 4),
    "lambda": lambda s, o: s.LambdaLR(o, [Falling(), lambda e: 1 / (e + 1)]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.95),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 3, 4),
    "cyclic, halved": lambda s, o: s.CyclicLR(o, [0.01, 0.02], 0.1, 3, mode="triangular2"),
    "cyclic, falling": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 3, mode="exp_range", gamma=0.9),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.3, total_steps=20),
    "one cycle, three phases": lambda s, o: s.OneCycleLR(
        o, [0.3, 0.4], epochs=4, steps_per_epoch=5, three_phase=True, anneal_strategy="linear"
    ),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.1, 2), s.ExponentialLR(o, 0.9), s.StepLR(o, 2)], [3, 8]
    ),
    "warm-up and cosine": lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 3), s.CosineAnnealingLR(o, 10)], [3]),
    "warm-up and restarts": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 3), s.CosineAnnealingWarmRestarts(o, 4)], [3]
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 2), s.ExponentialLR(o, 0.9)]),
}

PLATEAUS = [
    {},
    {"mode": "max", "threshold_mode": "abs"},
    {"patience": 1, "cooldown": 2, "min_lr": [0.01, 0.2]},
]
METRICS = [1, 0.9, 0.9, 0.9, 0.91, 0.9, 0.89, 1, 1, 1, 1, 1, 1, 1, 1, 1]


def numbers(rng: random.Random, shape: tuple):
    """Nested lists of this shape."""
    return rng.gauss(0, 1) if not shape else [numbers(rng, shape[1:]) for _ in range(shape[0])]


def trajectory(torch, name: str, options: dict, dtype: str) -> dict:
    """Where 25 steps lead: two groups, one parameter without a gradient now and then, one that is a permuted view."""
    rng = random.Random(0)
    params = [torch.tensor(numbers(rng, s), dtype=getattr(torch, dtype)) for s in SHAPES]
    params[3] = params[3].permute(2, 0, 1).contiguous().permute(1, 2, 0)
    for p in params:
        p.requires_grad_()
    groups = [{"params": params[:2]}, {"params": params[2:], "lr": 0.03}]
    optimizer = getattr(torch.optim, name)(groups, **options)
    path = []
    for i in range(25):
        optimizer.zero_grad()
        for k, p in enumerate(params):
            grad = numbers(rng, SHAPES[k])
            if not (k == 1 and i % 3 == 0):
                p.grad = torch.tensor(grad, dtype=getattr(torch, dtype))
        optimizer.step()
        path.append([p.detach().tolist() for p in params])
    state = {
        i: {k: v.tolist() if hasattr(v, "tolist") else v for k, v in values.items()}
        for i, values in optimizer.state_dict()["state"].items()
    }
    return {"path": path, "state": state, "groups": optimizer.state_dict()["param_groups"], "repr": repr(optimizer)}


def lbfgs(torch, options: dict) -> list:
    x = torch.tensor([-1.2, 1.0, 0.5], dtype=torch.float64).requires_grad_()
    y = torch.tensor([[0.3]], dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.LBFGS([x, y], max_iter=8, **options)

    def closure():
        optimizer.zero_grad()
        loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2 + (x[2] - y.sum()) ** 2 + y.sum() ** 4
        loss.backward()
        return loss

    path = []
    for _ in range(2):  # further on rounding decides
        loss = optimizer.step(closure).item()
        path.append([loss, x.tolist(), optimizer.state[x]["func_evals"], optimizer.state[x]["n_iter"]])
    return path


def two_groups(torch):
    params = [torch.zeros(2).requires_grad_() for _ in range(2)]
    return torch.optim.SGD([{"params": params[:1], "lr": 0.1}, {"params": params[1:], "lr": 0.5}], momentum=0.9)


def schedule(torch, make) -> dict:
    optimizer = two_groups(torch)
    scheduler = make(torch.optim.lr_scheduler, optimizer)
    path = [list(scheduler.get_last_lr())]
    for _ in range(18):
        optimizer.step()
        scheduler.step()
        momenta = [g["momentum"] for g in optimizer.param_groups]
        path.append([list(scheduler.get_last_lr()), momenta, [g["lr"] for g in optimizer.param_groups]])
    return {"path": path, "keys": sorted(scheduler.state_dict())}


def plateau(torch, options: dict) -> list:
    optimizer = two_groups(torch)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **{"patience": 2, **options})
    path = []
    for value in METRICS:
        scheduler.step(value)
        path.append([list(scheduler.get_last_lr()), scheduler.num_bad_epochs])
    return path


def failures(torch) -> dict:
    """The class of the error, and how its message begins."""
    leaf = torch.zeros(2).requires_grad_()
    optim, schedules = torch.optim, torch.optim.lr_scheduler
    calls = {
        "negative rate": lambda: optim.SGD([leaf], lr=-1),
        "no parameters": lambda: optim.Adam([]),
        "a tensor": lambda: optim.SGD(leaf),
        "no leaf": lambda: optim.SGD([leaf * 2]),
        "no tensor": lambda: optim.SGD([3]),
        "nesterov alone": lambda: optim.SGD([leaf], nesterov=True),
        "beta": lambda: optim.Adam([leaf], betas=(1.0, 0.9)),
        "eps": lambda: optim.AdamW([leaf], eps=-1.0),
        "etas": lambda: optim.Rprop([leaf], etas=(1.5, 0.5)),
        "rho": lambda: optim.Adadelta([leaf], rho=1.5),
        "two groups": lambda: optim.SGD([{"params": [leaf]}, {"params": [leaf]}]),
        "no dict": lambda: optim.SGD([leaf]).add_param_group([leaf]),
        "lbfgs groups": lambda: optim.LBFGS([{"params": [leaf]}, {"params": [torch.zeros(1).requires_grad_()]}]),
        "no optimizer": lambda: schedules.StepLR(3, 3),
        "to go on": lambda: schedules.StepLR(optim.SGD([leaf]), 3, last_epoch=3),
        "other groups": lambda: optim.SGD([leaf]).load_state_dict({"state": {}, "param_groups": []}),
        "factor": lambda: schedules.ReduceLROnPlateau(optim.SGD([leaf]), factor=1.0),
        "length": lambda: schedules.OneCycleLR(optim.SGD([leaf], momentum=0.9), 0.1),
        "T_0": lambda: schedules.CosineAnnealingWarmRestarts(optim.SGD([leaf]), 0),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = "none"
        except Exception as e:
            found[name] = (type(e).__name__, str(e).strip("'\"")[:30])
    return found


def run(torch) -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "optimizers": {
                f"{name} {options} {dtype}": trajectory(torch, name, options, dtype)
                for name, options in OPTIMIZERS
                for dtype in ("float64", "float32")
            },
            "lbfgs": {
                str(o): lbfgs(torch, o)
                for o in ({}, {"line_search_fn": "strong_wolfe"}, {"history_size": 3, "line_search_fn": "strong_wolfe"})
            },
            "schedules": {name: schedule(torch, make) for name, make in SCHEDULES.items()},
            "plateaus": {str(o): plateau(torch, o) for o in PLATEAUS},
            "failures": failures(torch),
        }


if __name__ == "__main__":
    with open(sys.argv[2], "wb") as f:
        pickle.dump(run(importlib.import_module(sys.argv[1])), f)

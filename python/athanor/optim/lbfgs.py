"""L-BFGS."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import athanor
from athanor import Tensor
from athanor.optim.optimizer import Optimizer, ParamsT

State = Dict[str, Any]


class _Point:
    """A place on the line of search: distance, loss, gradient there and its part along the line."""

    __slots__ = ("t", "loss", "gradient", "slope")

    def __init__(self, t: float, loss: float, gradient: Tensor, slope: float) -> None:
        self.t = t
        self.loss = loss
        self.gradient = gradient
        self.slope = slope


def _cubic_minimum(a: _Point, b: _Point, low: float, high: float) -> float:
    """Where the cubic through two points with their slopes has its minimum, kept within [low, high]."""
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    left, right = (a, b) if a.t <= b.t else (b, a)
    t = right.t - (right.t - left.t) * ((right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2))
    return min(max(t, low), high)


class _LineSearch:
    """Finds a step length that fulfils the strong Wolfe conditions."""

    def __init__(
        self, evaluate: Callable[[float], _Point], start: _Point, reach: float, tolerance: float, limit: int
    ) -> None:
        self.evaluate = evaluate
        self.start = start
        self.reach = reach
        self.tolerance = tolerance
        self.limit = limit
        self.evaluations = 0
        self.iterations = 0
        self.ends: List[_Point] = []
        self.low = 0

    def run(self, t: float) -> _Point:
        if not self._bracket(t):
            self._refine()
        return self.ends[self.low]

    def _at(self, t: float) -> _Point:
        self.evaluations += 1
        return self.evaluate(t)

    def _too_high(self, p: _Point) -> bool:
        return p.loss > self.start.loss + 1e-4 * p.t * self.start.slope

    def _flat_enough(self, p: _Point) -> bool:
        return abs(p.slope) <= -0.9 * self.start.slope

    def _set_ends(self, a: _Point, b: _Point) -> None:
        self.ends = [a, b]
        self.low = 0 if a.loss <= b.loss else 1

    def _bracket(self, t: float) -> bool:
        """Walks on until the ends enclose a good point; true if it met one."""
        previous, now = self.start, self._at(t)
        while self.iterations < self.limit:
            if self._too_high(now) or (self.iterations > 1 and now.loss >= previous.loss):
                self._set_ends(previous, now)
                return False
            if self._flat_enough(now):
                self._set_ends(now, now)
                return True
            if now.slope >= 0:
                self._set_ends(previous, now)
                return False
            t = _cubic_minimum(previous, now, now.t + 0.01 * (now.t - previous.t), now.t * 10)
            previous, now = now, self._at(t)
            self.iterations += 1
        self._set_ends(self.start, now)
        return False

    def _refine(self) -> None:
        """Shrinks the interval."""
        crept = False
        while self.iterations < self.limit:
            left, right = sorted((self.ends[0].t, self.ends[1].t))
            if (right - left) * self.reach < self.tolerance:
                return
            t = _cubic_minimum(self.ends[0], self.ends[1], left, right)
            # Twice in a row near an end, or beyond it, is no progress: go a tenth of the way inside.
            margin = 0.1 * (right - left)
            if min(right - t, t - left) < margin:
                if crept or t >= right or t <= left:
                    t = right - margin if abs(t - right) < abs(t - left) else left + margin
                    crept = False
                else:
                    crept = True
            else:
                crept = False
            now = self._at(t)
            self.iterations += 1
            high = 1 - self.low
            if self._too_high(now) or now.loss >= self.ends[self.low].loss:
                self.ends[high] = now
                self._set_ends(*self.ends)
                continue
            done = self._flat_enough(now)
            if not done and now.slope * (self.ends[high].t - self.ends[self.low].t) >= 0:
                self.ends[high] = self.ends[self.low]
            self.ends[self.low] = now
            if done:
                return


def _dot(a: Tensor, b: Tensor) -> float:
    return a.dot(b).item()


def _largest(v: Tensor) -> float:
    return v.abs().max().item() if v.numel() else 0.0


class LBFGS(Optimizer):
    """L-BFGS (Nocedal, 1980), with a line search after Nocedal & Wright, "Numerical optimization", algorithms 3.5 and 3.6.

    Args:
        params: parameters; one group only.
        lr: length of a step, the first one of the line search.
        max_iter: iterations in a step.
        max_eval: calls of the closure in a step; ``max_iter * 5 // 4`` unless given.
        tolerance_grad: largest gradient at which a step ends.
        tolerance_change: change of loss or parameters below which a step ends.
        history_size: differences of gradients that are remembered.
        line_search_fn: "strong_wolfe" or None.
        maximize: climb instead.

    Raises:
        ValueError: several groups, a negative rate.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Union[float, Tensor] = 1,
        max_iter: int = 20,
        max_eval: Optional[int] = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: Optional[str] = None,
        *,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(
            params,
            dict(
                lr=lr,
                max_iter=max_iter,
                max_eval=max_eval,
                tolerance_grad=tolerance_grad,
                tolerance_change=tolerance_change,
                history_size=history_size,
                line_search_fn=line_search_fn,
                maximize=maximize,
            ),
        )
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: List[Tensor] = self.param_groups[0]["params"]

    def __setstate__(self, state: State) -> None:
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    def _flat_gradient(self) -> Tensor:
        first = self._params[0]
        parts = []
        for p in self._params:
            grad = p.grad
            part = athanor.zeros_like(p) if grad is None else grad.detach()
            parts.append(part.reshape(-1).to(device=first.device, dtype=first.dtype))
        flat = athanor.cat(parts)
        return flat.neg() if self.param_groups[0]["maximize"] else flat

    def _move(self, length: float, direction: Tensor) -> None:
        start = 0
        for p in self._params:
            part = direction[start : start + p.numel()].view_as(p)
            p.add_(part.to(device=p.device, dtype=p.dtype), alpha=length)
            start += p.numel()

    def _evaluate(self, closure: Callable[[], Any]) -> Tuple[Any, float]:
        with athanor.enable_grad():
            loss = closure()
        return loss, -float(loss) if self.param_groups[0]["maximize"] else float(loss)

    def _search(self, closure: Callable, start: _Point, direction: Tensor, length: float, limit: int) -> Tuple[_Point, int]:
        here = [p.clone() for p in self._params]

        def evaluate(t: float) -> _Point:
            self._move(t, direction)
            loss = self._evaluate(closure)[1]
            gradient = self._flat_gradient()
            for p, old in zip(self._params, here):
                p.copy_(old)
            return _Point(t, loss, gradient, _dot(gradient, direction))

        tolerance = self.param_groups[0]["tolerance_change"]
        search = _LineSearch(evaluate, start, _largest(direction), tolerance, limit)
        return search.run(length), search.evaluations

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """One step of up to ``max_iter`` iterations. Returns the loss before it.

        Args:
            closure: clears the gradients, computes the loss, calls backward and returns the loss.
        """
        if closure is None:
            raise TypeError("LBFGS: step() needs a closure that computes the loss again")
        with athanor.no_grad():
            return self._step(closure)

    def _step(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        lr = float(group["lr"])
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss, loss = self._evaluate(closure)
        evaluations = 1
        state["func_evals"] += 1
        gradient = self._flat_gradient()
        if _largest(gradient) <= group["tolerance_grad"]:
            return first_loss
        direction, length = state.get("d"), state.get("t", 0.0)
        for i in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                direction = gradient.neg()
                state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
                length = lr / max(1.0, gradient.abs().sum().item())
            else:
                direction = _new_direction(state, gradient, direction.mul(length), group["history_size"])
                length = lr
            state["prev_flat_grad"] = gradient.clone()
            previous_loss = state["prev_loss"] = loss
            slope = _dot(gradient, direction)
            if slope > -group["tolerance_change"]:
                break
            used = 0
            optimal = False
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                start = _Point(0.0, loss, gradient, slope)
                found, used = self._search(closure, start, direction, length, group["max_eval"] - evaluations)
                loss, gradient, length = found.loss, found.gradient, found.t
                self._move(length, direction)
                optimal = _largest(gradient) <= group["tolerance_grad"]
            else:
                self._move(length, direction)
                if i != group["max_iter"]:  # after the last iteration nobody asks
                    loss = self._evaluate(closure)[1]
                    gradient = self._flat_gradient()
                    optimal = _largest(gradient) <= group["tolerance_grad"]
                    used = 1
            evaluations += used
            state["func_evals"] += used
            if i == group["max_iter"] or evaluations >= group["max_eval"] or optimal:
                break
            if _largest(direction) * abs(length) <= group["tolerance_change"]:
                break
            if abs(loss - previous_loss) < group["tolerance_change"]:
                break
        state["d"], state["t"] = direction, length
        return first_loss


def _new_direction(state: State, gradient: Tensor, s: Tensor, history_size: int) -> Tensor:
    """Minus the gradient times the approximate inverse of the Hessian, after taking in the last move ``s``."""
    y = gradient.sub(state["prev_flat_grad"])
    ys = _dot(y, s)
    dirs, moves, ro = state["old_dirs"], state["old_stps"], state["ro"]
    if ys > 1e-10:
        for values, value in ((dirs, y), (moves, s), (ro, 1.0 / ys)):
            if history_size > 0:
                values.append(value)
            del values[: max(len(values) - history_size, 0)]
        state["H_diag"] = ys / _dot(y, y)
    alphas = [0.0] * len(dirs)
    q = gradient.neg()
    for i in reversed(range(len(dirs))):
        alphas[i] = _dot(moves[i], q) * float(ro[i])
        q.add_(dirs[i], alpha=-alphas[i])
    q.mul_(float(state["H_diag"]))
    for i in range(len(dirs)):
        beta = _dot(dirs[i], q) * float(ro[i])
        q.add_(moves[i], alpha=alphas[i] - beta)
    return q

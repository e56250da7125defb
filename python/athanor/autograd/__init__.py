"""Automatic differentiation: backward, grad, user-defined functions, grad modes, checks."""
from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _C
from .._C import Tensor

from . import graph
from .function import Function  # noqa: F401
from .graph import GradientEdge
from .grad_mode import (  # noqa: F401
    detect_anomaly, enable_grad, inference_mode, no_grad, set_detect_anomaly, set_grad_enabled,
)

__all__ = ["Function", "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "gradcheck", "gradgradcheck",
           "graph", "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled"]


def _list(x) -> list:
    return [x] if isinstance(x, (Tensor, GradientEdge)) else list(x)


def _has_edge(*lists: list) -> bool:
    return any(isinstance(x, GradientEdge) for xs in lists for x in xs)


def _gradients(given, outputs: list) -> list:
    """One gradient (or None) per output."""
    if given is None:
        return []
    given = [given] if isinstance(given, Tensor) else list(given)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    return given


def backward(tensors, grad_tensors=None, retain_graph: bool | None = None, create_graph: bool = False,
             grad_variables=None, inputs=None) -> None:
    """Adds the gradients of tensors with respect to the leaves (or to `inputs` alone) to their `.grad`.

    tensors: one or several; grad_tensors: a gradient of the shape of each, which may be None for one element. Both tensors
    and inputs may be graph.GradientEdges. retain_graph (create_graph, unless given): another backward may follow.
    create_graph: the gradients have a history themselves. Raises RuntimeError for a tensor that does not require grad, a
    gradient of another shape, or a graph that was used up.
    """
    if grad_variables is not None:
        grad_tensors = grad_variables
    if inputs is not None:
        inputs = _list(inputs)
        if not inputs:
            raise RuntimeError("'inputs' argument to backward() cannot be empty.")
    outputs, inputs = _list(tensors), inputs or []
    gradients = _gradients(grad_tensors, outputs)
    if _has_edge(outputs, inputs):
        _C._run_to_edges(outputs, gradients, create_graph if retain_graph is None else retain_graph, create_graph, inputs, True,
                         True)
    else:
        _C._run_backward(outputs, gradients, retain_graph, create_graph, inputs)


def grad(outputs, inputs, grad_outputs=None, retain_graph: bool | None = None, create_graph: bool = False,
         only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> tuple:
    """The gradients of outputs with respect to inputs, one per input; `.grad` stays as it is. An input that was not used
    raises RuntimeError unless allow_unused, where its gradient is None, or zeros with materialize_grads. Both may be
    graph.GradientEdges; other arguments and errors are those of backward. Raises ValueError for materialize_grads with
    allow_unused=False, RuntimeError for it with an edge that was not used. is_grads_batched: grad_outputs have a first dim
    more, of several gradients; a backward is made for each, and results have that dim, too."""
    if allow_unused is False and materialize_grads:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
                         "allow_unused=False.")
    outputs, inputs = _list(outputs), _list(inputs)
    gradients = _gradients(grad_outputs, outputs)
    keep, unused = create_graph if retain_graph is None else retain_graph, bool(allow_unused) or materialize_grads
    if is_grads_batched:
        return _batched(outputs, inputs, gradients, keep, create_graph, allow_unused, materialize_grads)
    if _has_edge(outputs, inputs):
        if not inputs:
            raise RuntimeError("grad requires non-empty inputs.")
        result = _C._run_to_edges(outputs, gradients, keep, create_graph, inputs, False, unused)
    else:
        result = _C._run_grad(outputs, inputs, gradients, keep, create_graph, unused)
    if materialize_grads:
        if any(g is None and isinstance(i, GradientEdge) for g, i in zip(result, inputs)):
            raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
        result = tuple(_C.ops.zeros_like(i) if g is None else g for g, i in zip(result, inputs))
    return result


def _batched(outputs: list, inputs: list, gradients: list, keep: bool, create_graph: bool, allow_unused: bool | None,
             materialize_grads: bool) -> tuple:
    given = [g for g in gradients if g is not None]
    sizes = {g.shape[0] for g in given if g.dim()}
    if not given or len(sizes) != 1 or any(g.dim() == 0 for g in given):
        raise RuntimeError("grad: with is_grads_batched, every gradient should have the same number of gradients as its first "
                           f"dim, got shapes {[list(g.shape) for g in given]}")
    count = sizes.pop()
    rows = []
    for i in range(max(count, 1)):
        one = [None if g is None else g[i] if count else _C.ops.zeros(g.shape[1:], dtype=g.dtype, device=g.device)
               for g in gradients]
        rows.append(grad(outputs, inputs, one, keep or i + 1 < count, create_graph, allow_unused=allow_unused,
                         materialize_grads=materialize_grads))
    return tuple(None if column[0] is None else _C.ops.stack(column)[:count] for column in zip(*rows))


class _AnyTensor(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_AnyTensor):
    """Variable and Tensor are one: isinstance holds for every tensor, and Variable(data) is a tensor of the same memory outside
    the graph. volatile has had no effect since PyTorch 0.4, which a warning says."""

    def __new__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Tensor:  # type: ignore[misc]
        if volatile:
            import warnings

            warnings.warn("volatile was removed and now has no effect. Use `with torch.no_grad():` instead.", stacklevel=2)
        result = data.detach()
        return result.requires_grad_() if requires_grad else result


if TYPE_CHECKING:
    from . import functional as functional, profiler as profiler
    from .check import gradcheck as gradcheck, gradgradcheck as gradgradcheck
else:

    def __getattr__(name: str):
        if name in ("gradcheck", "gradgradcheck"):
            from . import check

            return getattr(check, name)
        if name in ("functional", "profiler"):
            import importlib

            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module 'athanor.autograd' has no attribute '{name}'")



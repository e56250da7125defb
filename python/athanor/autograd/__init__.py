"""Automatic differentiation: backward, grad, user-defined functions, grad modes, checks."""
from __future__ import annotations

from .. import _C
from .._C import Tensor

from .function import Function  # noqa: F401
from .grad_mode import (  # noqa: F401
    detect_anomaly, enable_grad, inference_mode, no_grad, set_detect_anomaly, set_grad_enabled,
)

__all__ = ["Function", "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "gradcheck", "gradgradcheck",
           "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled"]


def _list(x) -> list:
    return [x] if isinstance(x, Tensor) else list(x)


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
    """Adds the gradients of tensors with respect to the leaves (or to `inputs` alone) to their `.grad`."""
    if grad_variables is not None:
        grad_tensors = grad_variables
    if inputs is not None:
        inputs = _list(inputs)
        if not inputs:
            raise RuntimeError("'inputs' argument to backward() cannot be empty.")
    outputs = _list(tensors)
    _C._run_backward(outputs, _gradients(grad_tensors, outputs), retain_graph, create_graph, inputs or [])


def grad(outputs, inputs, grad_outputs=None, retain_graph: bool | None = None, create_graph: bool = False,
         only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> tuple:
    """The gradients of outputs with respect to inputs, one per input; `.grad` stays as it is. An input that was not used
    raises RuntimeError unless allow_unused, where its gradient is None, or zeros with materialize_grads."""
    if is_grads_batched:
        raise NotImplementedError("autograd.grad: is_grads_batched needs vmap, which is not here; call grad once per gradient")
    if allow_unused is False and materialize_grads:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
                         "allow_unused=False.")
    outputs, inputs = _list(outputs), _list(inputs)
    result = _C._run_grad(outputs, inputs, _gradients(grad_outputs, outputs), create_graph if retain_graph is None else retain_graph,
                          create_graph, bool(allow_unused) or materialize_grads)
    if materialize_grads:
        result = tuple(_C.ops.zeros_like(i) if g is None else g for g, i in zip(result, inputs))
    return result


def Variable(data: Tensor, requires_grad: bool = False) -> Tensor:  # noqa: N802
    """The tensor itself, outside the graph: Variable and Tensor are one."""
    result = data.detach()
    return result.requires_grad_() if requires_grad else result


def __getattr__(name: str):
    if name in ("gradcheck", "gradgradcheck"):
        from . import check

        return getattr(check, name)
    if name == "functional":
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'athanor.autograd' has no attribute '{name}'")



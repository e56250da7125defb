"""gradcheck and gradgradcheck: gradients against finite differences."""
from __future__ import annotations

from .. import _C
from .._C import Tensor


class GradcheckError(RuntimeError):
    """A gradient that differs from its finite differences."""


def _check(func, inputs, grad_outputs, second: bool, eps, atol, rtol, nondet_tol, raise_exception) -> bool:
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    places = [i for i, x in enumerate(inputs) if isinstance(x, Tensor)]
    if not any(inputs[i].requires_grad for i in places):
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of them have "
                         "requires_grad=True.")

    def function(*tensors):
        args = list(inputs)
        for i, t in zip(places, tensors):
            args[i] = t
        results = func(*args)
        results = [results] if isinstance(results, Tensor) else list(results)
        return [r for r in results if isinstance(r, Tensor)]

    try:
        return _C._gradcheck(function, [inputs[i] for i in places], eps, atol, rtol, nondet_tol, second, grad_outputs)
    except RuntimeError as error:
        if not raise_exception:
            return False
        raise GradcheckError(str(error)) from error


def gradcheck(func, inputs, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
              nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False, masked=None) -> bool:
    """Compares the gradients of func's floating results with central differences, element by element. Inputs that require
    grad are float64. Raises GradcheckError naming the place, or returns False."""
    return _check(func, inputs, [], False, eps, atol, rtol, nondet_tol, raise_exception)


def gradgradcheck(func, inputs, grad_outputs=None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  raise_exception: bool = True, nondet_tol: float = 0.0, gen_non_contig_grad_outputs: bool = False,
                  check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
                  check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True, fast_mode: bool = False,
                  masked: bool = False) -> bool:
    """The same for the gradients of the gradients; grad_outputs are drawn at random unless given."""
    grad_outputs = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs or [])
    return _check(func, inputs, grad_outputs, True, eps, atol, rtol, nondet_tol, raise_exception)

"""Derivatives of functions at a point: products of the Jacobian and the Hessian with vectors, and these matrices."""
from __future__ import annotations

from typing import Any, Callable, Optional, Tuple, Union

from .. import _C
from .._C import Tensor
from . import grad
from .grad_mode import enable_grad, set_grad_enabled

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_Tensors = Union[Tensor, Tuple[Tensor, ...]]
_OUTPUTS = "outputs of the user-provided function"


class _Call:
    """One call of a function of this module: its name for errors, and how its results are to be made."""

    def __init__(self, name: str, create_graph: bool, strict: bool) -> None:
        self.name, self.create_graph, self.strict = name, create_graph, strict

    def tuple_of(self, given: Any, what: str) -> Tuple[Tuple[Tensor, ...], bool]:
        """The tensors, and whether they came as a tuple. Raises TypeError for anything else."""
        several = isinstance(given, tuple)
        for i, x in enumerate(given if several else (given,)):
            if not isinstance(x, Tensor):
                which = f"value at index {i}" if several else f"given {what}"
                raise TypeError(f"The {what} given to {self.name} must be either a Tensor or a tuple of Tensors but the "
                                f"{which} has type {type(x)}.")
        return (given if several else (given,)), several

    def fresh(self, tensors: Tuple[Tensor, ...], requires_grad: bool) -> Tuple[Tensor, ...]:
        """Tensors of this call's own, so that the same ones, captured by the function, are constants."""
        return tuple(t.view_as(t) if self.create_graph and t.requires_grad else t.detach().requires_grad_(requires_grad)
                     for t in tensors)

    def vector(self, v: Any, like: Tuple[Tensor, ...], several: bool, whose: str) -> Optional[Tuple[Tensor, ...]]:
        """v as tensors with the shapes of `like`. None is for a single element."""
        if v is None:
            if len(like) != 1 or like[0].numel() != 1:
                raise RuntimeError(f"The vector v can only be None if {whose} a single Tensor with a single element.")
            return None
        v = self.fresh(self.tuple_of(v, "v")[0], False)
        if len(v) != len(like):
            raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(v)}." if several
                               else "The given v should contain a single Tensor.")
        for i, (have, want) in enumerate(zip(v, like)):
            if have.size() != want.size():
                raise RuntimeError(f"{f'Entry {i} in ' if several else ''}v has invalid size: should be {want.size()} but "
                                   f"got {have.size()}.")
        return v

    def check(self, tensors: tuple, message: str) -> None:
        """With strict, every tensor must be there and depend on the inputs; {i} in the message is which."""
        if self.strict:
            for i, t in enumerate(tensors):
                if t is None or not t.requires_grad:
                    raise RuntimeError(message.format(i=i) + " This is not allowed in strict mode.")

    def filled(self, grads: tuple, like: Tuple[Tensor, ...], first: str, second: str) -> Tuple[Tensor, ...]:
        """Zeros where nothing came, which strict refuses: `first` is what would not depend on the inputs then, `second` what
        does not if the result has no history."""
        for i, g in enumerate(grads):
            if self.strict and g is None:
                raise RuntimeError(f"The {first} {i}. This is not allowed in strict mode.")
            if self.strict and self.create_graph and not g.requires_grad:
                raise RuntimeError(f"The {second} of the user-provided function is independent of input {i}. This is not "
                                   "allowed in strict mode when create_graph=True.")
        return tuple(_C.ops.zeros_like(t) if g is None else g for g, t in zip(grads, like))

    def result(self, tensors: Tuple[Tensor, ...], several: bool) -> _Tensors:
        """What the caller gets: in the form of what it gave, without a history unless it wants one."""
        if not self.create_graph:
            tensors = tuple(t.detach() for t in tensors)
        return tensors if several else tensors[0]

    def recording(self) -> set_grad_enabled:
        return set_grad_enabled(self.create_graph or _C.is_grad_enabled())

    def outputs(self, func: Callable, inputs: Tuple[Tensor, ...]) -> Tuple[Tuple[Tensor, ...], bool]:
        outputs, several = self.tuple_of(func(*inputs), _OUTPUTS)
        self.check(outputs, "Output {i} of the user-provided function does not require gradients. The outputs must be computed "
                            "in a differentiable manner from the input.")
        return outputs, several

    def scalar(self, func: Callable, inputs: Tuple[Tensor, ...]) -> Tensor:
        outputs, several = self.outputs(func, inputs)
        if several:
            raise RuntimeError(f"The function given to {self.name} should return a single Tensor")
        if outputs[0].numel() != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {self.name} should contain a single element")
        return outputs[0]


def _gradients(outputs, inputs: tuple, v=None, create_graph: bool = False, keep: bool = False) -> tuple:
    """autograd.grad, where outputs may be missing or constant; None for inputs that were not used."""
    v = (None,) * len(outputs) if v is None else v
    used = [(out, g) for out, g in zip(outputs, v) if out is not None and out.requires_grad]
    if not used:
        return (None,) * len(inputs)
    return grad([out for out, _ in used], inputs, [g for _, g in used], retain_graph=keep or create_graph,
                create_graph=create_graph, allow_unused=True)


_UNUSED = "{} of the user-provided function is independent of input"
_UNUSED_V = "gradient with respect to the inputs is independent of the gradient of output"
_FIRST = "The output of the user-provided function is independent of input {i}."
_SECOND = ("The jacobian of the user-provided function with respect to input {i} is independent of the input: it has to be "
           "twice differentiable, and not linear.")
_THIRD = ("The hessian of the user-provided function with respect to input {i} is independent of the input: it has to be "
          "three times differentiable.")


def _first_gradients(call: _Call, func: Callable, inputs: Any, v: Any) -> tuple:
    """What a product with the Hessian begins with: inputs of its own and whether they came as a tuple, v, func's output there
    and its gradients, with a history."""
    tensors, several = call.tuple_of(inputs, "inputs")
    tensors = call.fresh(tensors, True)
    v = call.vector(v, tensors, several, "the input to the user-provided function is")
    output = call.scalar(func, tensors)
    gradients = _gradients((output,), tensors, None, True)
    call.check(gradients, _SECOND)
    return tensors, several, v, output, gradients


def vjp(func: Callable, inputs: _Tensors, v: Optional[_Tensors] = None, create_graph: bool = False,
        strict: bool = False) -> Tuple[_Tensors, _Tensors]:
    """The outputs of func(*inputs), and the product of v with its Jacobian there.

    inputs: a tensor or a tuple of them, as func takes. v: like the outputs; may be left out if these are one element.
    create_graph: the results can be differentiated again. strict: an input that the outputs do not depend on raises
    RuntimeError; else its product is zeros. The product has the shapes of the inputs. Raises TypeError for what is no
    tensor, RuntimeError if v does not fit.
    """
    call = _Call("vjp", create_graph, strict)
    with enable_grad():
        tensors, several = call.tuple_of(inputs, "inputs")
        tensors = call.fresh(tensors, True)
        outputs, several_out = call.outputs(func, tensors)
        v = call.vector(v, outputs, several_out, "the user-provided function returns")
    with call.recording():
        product = call.filled(_gradients(outputs, tensors, v, create_graph), tensors, _UNUSED.format("output"), "jacobian")
    return call.result(outputs, several_out), call.result(product, several)


def jvp(func: Callable, inputs: _Tensors, v: Optional[_Tensors] = None, create_graph: bool = False,
        strict: bool = False) -> Tuple[_Tensors, _Tensors]:
    """The outputs of func(*inputs), and the product of its Jacobian there with v.

    v: like the inputs; may be left out if these are one element. The product has the shapes of the outputs. It is the
    gradient of a gradient, so func has to be twice differentiable. Other arguments and errors are those of vjp.
    """
    call = _Call("jvp", create_graph, strict)
    with enable_grad():
        tensors, several = call.tuple_of(inputs, "inputs")
        tensors = call.fresh(tensors, True)
        v = call.vector(v, tensors, several, "the input to the user-provided function is")
        outputs, several_out = call.outputs(func, tensors)
        # A gradient is linear in what it starts from: its gradient with respect to that is the product, whatever that is.
        start = tuple(_C.ops.zeros_like(out).requires_grad_() for out in outputs)
        gradients = _gradients(outputs, tensors, start, True)
        call.check(gradients, _FIRST)
    with call.recording():
        product = call.filled(_gradients(gradients, start, v, create_graph), outputs, _UNUSED_V, "jacobian")
    return call.result(outputs, several_out), call.result(product, several_out)


def vhp(func: Callable, inputs: _Tensors, v: Optional[_Tensors] = None, create_graph: bool = False,
        strict: bool = False) -> Tuple[_Tensors, _Tensors]:
    """The output of func(*inputs), one element, and the product of v with its Hessian there.

    v: like the inputs; may be left out if these are one element. The product has the shapes of the inputs. Other
    arguments and errors are those of vjp; RuntimeError also for a func that returns more than one element.
    """
    call = _Call("vhp", create_graph, strict)
    with enable_grad():
        tensors, several, v, output, gradients = _first_gradients(call, func, inputs, v)
    with call.recording():
        product = call.filled(_gradients(gradients, tensors, v, create_graph), tensors, _UNUSED.format("jacobian"), "hessian")
    return call.result((output,), False), call.result(product, several)


def hvp(func: Callable, inputs: _Tensors, v: Optional[_Tensors] = None, create_graph: bool = False,
        strict: bool = False) -> Tuple[_Tensors, _Tensors]:
    """The same as vhp with the factors the other way round, which is the same for a Hessian that is symmetric: vhp is
    faster, since this goes through func's graph three times."""
    call = _Call("hvp", create_graph, strict)
    with enable_grad():
        tensors, several, v, output, gradients = _first_gradients(call, func, inputs, v)
        start = tuple(_C.ops.zeros_like(t).requires_grad_() for t in tensors)
        back = _gradients(gradients, tensors, start, True)
        call.check(back, _THIRD)
    with call.recording():
        product = call.filled(_gradients(back, start, v, create_graph), tensors, _UNUSED.format("hessian"), "hessian")
    return call.result((output,), False), call.result(product, several)


def _check_strategy(strategy: str) -> None:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(f'Expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}')


def jacobian(func: Callable, inputs: _Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """The Jacobian of func at the inputs: for one output and one input a tensor of the shape of the output followed by
    that of the input; a tuple of them over the inputs, if these are a tuple, within one over the outputs, if func returns
    a tuple.

    create_graph: the result can be differentiated again. strict: an output that does not depend on an input raises
    RuntimeError; else its part is zeros. vectorize and strategy ("reverse-mode", "forward-mode") are accepted, and the
    result is the same: one backward pass per element of the outputs. Raises TypeError for what is no tensor.
    """
    _check_strategy(strategy)
    call = _Call("jacobian", create_graph, strict)
    with enable_grad():
        tensors, several = call.tuple_of(inputs, "inputs")
        tensors = call.fresh(tensors, True)
        outputs, several_out = call.outputs(func, tensors)
        parts = tuple(call.result(_rows(call, i, out, tensors), several) for i, out in enumerate(outputs))
    return parts if several_out else parts[0]


def _rows(call: _Call, number: int, out: Tensor, inputs: Tuple[Tensor, ...]) -> Tuple[Tensor, ...]:
    """The Jacobian of one output with respect to each input."""
    rows: list = [[] for _ in inputs]
    for k in range(out.numel()):
        one = _C.ops.zeros_like(out, requires_grad=False, memory_format=_C.contiguous_format)
        one.view(-1)[k] = 1
        for i, g in enumerate(_gradients((out,), inputs, (one,), call.create_graph, True)):
            if call.strict and g is None:
                raise RuntimeError(f"Output {number} of the user-provided function is independent of input {i}. This is not "
                                   "allowed in strict mode.")
            if call.strict and call.create_graph and not g.requires_grad:
                raise RuntimeError(f"The jacobian of the user-provided function is independent of input {i}. This is not "
                                   "allowed in strict mode when create_graph=True.")
            rows[i].append(_C.ops.zeros_like(inputs[i]) if g is None else g)
    shapes = [tuple(out.shape) + tuple(x.shape) for x in inputs]
    return tuple(_C.ops.stack(r, 0).view(s) if r else x.new_zeros(s) for r, s, x in zip(rows, shapes, inputs))


def hessian(func: Callable, inputs: _Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The Hessian of func, which returns one element, at the inputs: for one input a tensor of its shape twice; for a
    tuple a tuple of tuples, whose [i][j] has the shape of input i followed by that of input j.

    Arguments and errors are those of jacobian; RuntimeError also for a func that returns more than one element, and with
    strict for one whose Jacobian does not depend on an input.
    """
    _check_strategy(outer_jacobian_strategy)
    call = _Call("hessian", True, strict)
    several = call.tuple_of(inputs, "inputs")[1]

    def first(*tensors):
        result = jacobian(lambda *x: call.scalar(func, x).squeeze(), tensors, create_graph=True)
        call.check(result, _SECOND)
        return result

    result = jacobian(first, inputs, create_graph, strict)
    return result if several else result[0]

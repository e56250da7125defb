"""Function: operations with a forward and a backward written in Python."""
from __future__ import annotations

from typing import Any

from .. import _C
from .._C import Tensor


class FunctionCtx:
    """What forward hands on to backward: saved tensors, and any attribute."""

    _core: Any
    needs_input_grad: tuple = ()

    def save_for_backward(self, *tensors) -> None:
        """Keeps inputs or results of forward. Called at most once. None stands for "nothing here"."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward can only save variables, but argument is of type {type(t).__name__}")
        self._core.save_for_backward(list(tensors))

    @property
    def saved_tensors(self) -> tuple:
        """What save_for_backward kept. Raises RuntimeError if one was changed in place, or the graph was freed."""
        return self._core.saved_tensors()

    saved_variables = saved_tensors

    def mark_dirty(self, *tensors) -> None:
        """Names inputs that forward changed in place and returns."""
        self._core.mark_dirty(list(tensors))

    def mark_non_differentiable(self, *tensors) -> None:
        """Names results that have no gradient."""
        self._core.mark_non_differentiable(list(tensors))

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (default) or None where no gradient flowed."""
        self._core.set_materialize_grads(value)


class Function:
    """Base of user-defined operations: static methods forward(ctx, *args) and backward(ctx, *grads), called by
    `apply`. With a static setup_context(ctx, inputs, output), forward gets the arguments only."""

    def __init__(self, *_, **__):
        raise RuntimeError(f"{type(self).__name__} should not be instantiated. Methods on autograd functions are all static, "
                           "so you should invoke them on the class itself: use .apply(...)")

    @staticmethod
    def forward(*args, **keywords):
        """The results from the arguments: forward(ctx, *args), or forward(*args) beside a setup_context. Runs
        unrecorded."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx, *grads):
        """One gradient per argument of forward, None for those without, from one per result."""
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function "
                                  "to use it with backward mode AD.")

    @classmethod
    def apply(cls, *args: Any, **keywords: Any) -> Any:
        """Runs forward unrecorded and gives its results their history."""
        if keywords:
            args = cls._in_order(args, keywords)
        return _C._apply_function(cls, *args)

    @classmethod
    def _in_order(cls, args: tuple, keywords: dict) -> tuple:
        """forward's positional arguments of a call with keywords, up to the last that was given."""
        import inspect

        contexts = () if getattr(cls, "setup_context", None) else (None,)
        bound = inspect.signature(cls.forward).bind(*contexts, *args, **keywords)
        named = [name for name in bound.arguments if bound.signature.parameters[name].kind in (
            inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)]
        if named:
            raise TypeError(f"{cls.__name__}.apply(): forward's argument {named[0]!r} should not be keyword-only: backward gives "
                            "a gradient for each position")
        last = [name for name in inspect.signature(cls.forward).parameters if name in bound.arguments][-1]
        bound.apply_defaults()
        ordered: list = []
        for name, value in bound.arguments.items():
            variable = bound.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            ordered += value if variable else [value]
            if name == last:
                break
        return tuple(ordered[len(contexts):])

    @classmethod
    def _make_context(cls) -> FunctionCtx:
        return FunctionCtx()

    @classmethod
    def _run_forward(cls, ctx, *args):
        setup = getattr(cls, "setup_context", None)
        if setup is None:
            return cls.forward(ctx, *args)
        output = cls.forward(*args)
        setup(ctx, args, output)
        return output


def once_differentiable(function):
    """For a backward that cannot itself be differentiated: whoever differentiates its results gets a RuntimeError."""
    import functools

    @functools.wraps(function)
    def wrapped(ctx, *grads):
        from .grad_mode import no_grad

        with no_grad():
            results = function(ctx, *grads)
        if not _C.is_grad_enabled() or not any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            return results
        single = not isinstance(results, (tuple, list))
        values = (results,) if single else tuple(results)
        places = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.is_floating_point()]
        wanted = _C.ops.zeros((0,)).requires_grad_()
        marked = _once().apply(wanted, *[values[i] for i in places])
        out = list(values)
        for i, v in zip(places, marked):
            out[i] = v
        return out[0] if single else tuple(out)

    return wrapped


def _once():
    """The Function whose results cannot be differentiated."""
    global _Once
    if _Once is None:

        class Once(Function):
            @staticmethod
            def forward(ctx, wanted, *values):
                return tuple(v.detach() for v in values)

            @staticmethod
            def backward(ctx, *grads):
                raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")

        _Once = Once
    return _Once


_Once = None

"""Less memory for more arithmetic: what is computed again in backward instead of being kept."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Optional

import athanor
from athanor import Tensor
from athanor.autograd import Function

__all__ = ["checkpoint", "checkpoint_sequential"]


class _Checkpoint(Function):
    @staticmethod
    def forward(ctx: Any, function: Callable, preserve_rng_state: bool, _: Tensor, *args: Any) -> Any:
        ctx.function = function
        ctx._core.has_inner_graph()
        ctx.rng_state = athanor.get_rng_state() if preserve_rng_state else None
        ctx.autocast = athanor.is_autocast_enabled("cpu"), athanor.get_autocast_dtype("cpu")
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.is_tensor = [isinstance(a, Tensor) for a in args]
        ctx.save_for_backward(*(a for a in args if isinstance(a, Tensor)))
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        create_graph = athanor.is_grad_enabled()
        tensors = iter(ctx.saved_tensors)
        args = []
        for is_tensor, other in zip(ctx.is_tensor, ctx.others):
            if not is_tensor:
                args.append(other)
                continue
            t = next(tensors)
            if create_graph and t.requires_grad:
                args.append(t.view_as(t))  # the gradient's own graph leads on to what t was made of
            else:
                args.append(t.detach().requires_grad_(t.requires_grad))
        now = athanor.get_rng_state()
        if ctx.rng_state is not None:
            athanor.set_rng_state(ctx.rng_state)
        try:
            enabled, dtype = ctx.autocast
            with athanor.enable_grad(), athanor.autocast("cpu", dtype=dtype, enabled=enabled):
                results = ctx.function(*args)
        finally:
            if ctx.rng_state is not None:
                athanor.set_rng_state(now)
        results = results if isinstance(results, (tuple, list)) else (results,)
        pairs = [
            (r, g) for r, g in zip(results, grads) if isinstance(r, Tensor) and r.requires_grad and g is not None
        ]
        own = [a for a in args if isinstance(a, Tensor) and a.requires_grad] if pairs else []
        got = iter(
            athanor._C._run_inner_backward([r for r, _ in pairs], [g for _, g in pairs], own, create_graph)
            if pairs
            else ()
        )
        wanted = (isinstance(a, Tensor) and a.requires_grad and bool(pairs) for a in args)
        return (None, None, None, *(next(got) if w else None for w in wanted))


def checkpoint(
    function: Callable,
    *args: Any,
    use_reentrant: Optional[bool] = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args)``, whose intermediate results are not kept but computed again in backward.

    What is random in it draws the same numbers again.

    Args:
        function: called twice; should give the same both times.
        args: tensors and anything else.
        use_reentrant: accepted; there is one way here.
        preserve_rng_state: False saves keeping the generator's state where nothing is random.
        kwargs: handed on.
    """
    for name in ("context_fn", "determinism_check", "debug", "early_stop"):
        kwargs.pop(name, None)
    if kwargs:
        function = functools.partial(function, **kwargs)
    if not athanor.is_grad_enabled():
        return function(*args)
    # Parameters inside want gradients even if no argument does.
    wanted = athanor.empty((0,), requires_grad=True)
    return _Checkpoint.apply(function, preserve_rng_state, wanted, *args)


def checkpoint_sequential(
    functions: Iterable[Callable], segments: int, input: Any, use_reentrant: Optional[bool] = None, **kwargs: Any
) -> Any:
    """The functions, or a Sequential's layers, one after the other, in ``segments`` pieces of which all but the last keep
    their inputs only."""
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    layers = list(functions.children() if hasattr(functions, "children") else functions)
    if not 0 < segments <= len(layers):
        raise ValueError(f"checkpoint_sequential: {segments} segments of {len(layers)} functions")

    def run(begin: int, end: int) -> Callable:
        def piece(x: Any) -> Any:
            for layer in layers[begin:end]:
                x = layer(x)
            return x

        return piece

    size = len(layers) // segments
    begin = 0
    for _ in range(segments - 1):
        input = checkpoint(run(begin, begin + size), input, preserve_rng_state=preserve)
        begin += size
    return run(begin, len(layers))(input)

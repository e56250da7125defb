"""Less memory for more arithmetic: what is computed again in backward instead of being kept."""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import athanor
from athanor import Tensor
from athanor.autograd import Function
from athanor.autograd.graph import saved_tensors_hooks

__all__ = ["CheckpointError", "check_backward_validity", "checkpoint", "checkpoint_sequential", "detach_variable", "noop_context_fn"]


class CheckpointError(RuntimeError):
    """The second call of a checkpointed function kept other tensors for backward than the first."""


def detach_variable(inputs: Tuple[Any, ...]) -> Tuple[Any, ...]:
    """The inputs with each tensor as a leaf of its own, which requires grad where it did."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t for t in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns if none of the tensors requires grad."""
    if not any(t.requires_grad for t in inputs if isinstance(t, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def noop_context_fn() -> Tuple[Any, Any]:
    """Nothing around either call."""
    return contextlib.nullcontext(), contextlib.nullcontext()


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
        if not any(isinstance(r, Tensor) and r.requires_grad for r in results):
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        own = [a for a in args if isinstance(a, Tensor) and a.requires_grad] if pairs else []
        got = iter(
            athanor._C._run_inner_backward([r for r, _ in pairs], [g for _, g in pairs], own, create_graph)
            if pairs
            else ()
        )
        wanted = (isinstance(a, Tensor) and a.requires_grad and bool(pairs) for a in args)
        return (None, None, None, *(next(got) if w else None for w in wanted))


class _Repeated:
    """A call that is repeated when backward asks for what it would have kept.

    What is kept of each tensor is its number. The first number that backward asks for makes all tensors anew; each is
    handed out once, so that nothing stays behind, and what a second backward asks for is made again.
    """

    def __init__(self, function: Callable, args: tuple, kwargs: Dict[str, Any], preserve_rng_state: bool, again: Any) -> None:
        self.function, self.args, self.kwargs, self.again = function, args, kwargs, again
        self.rng_state = athanor.get_rng_state() if preserve_rng_state else None
        self.autocast = athanor.is_autocast_enabled("cpu"), athanor.get_autocast_dtype("cpu")
        self.kinds: List[tuple] = []
        self.made: Dict[int, Tensor] = {}

    def pack(self, tensor: Tensor) -> int:
        self.kinds.append((tensor.shape, tensor.dtype, tensor.device))
        return len(self.kinds) - 1

    def unpack(self, number: int) -> Tensor:
        if number not in self.made:
            self._repeat()
        return self.made.pop(number)

    def _repeat(self) -> None:
        made: List[Tensor] = []

        def keep(tensor: Tensor) -> None:
            made.append(tensor.detach())

        def never(_: Any) -> Tensor:
            raise CheckpointError("checkpoint: the function goes backward through its own results; its second call cannot")

        now = athanor.get_rng_state()
        if self.rng_state is not None:
            athanor.set_rng_state(self.rng_state)
        enabled, dtype = self.autocast
        try:
            with athanor.enable_grad(), athanor.autocast("cpu", dtype=dtype, enabled=enabled), self.again:
                with saved_tensors_hooks(keep, never):
                    self.function(*self.args, **self.kwargs)
        finally:
            if self.rng_state is not None:
                athanor.set_rng_state(now)
        if len(made) != len(self.kinds):
            raise CheckpointError("torch.utils.checkpoint: A different number of tensors was saved during the original "
                                  "forward and recomputation.\nNumber of tensors saved during forward: "
                                  f"{len(self.kinds)}\nNumber of tensors saved during recomputation: {len(made)}.")
        for i, (tensor, kind) in enumerate(zip(made, self.kinds)):
            if (tensor.shape, tensor.dtype, tensor.device) != kind:
                raise CheckpointError("torch.utils.checkpoint: Recomputed values for the following tensors have different "
                                      f"metadata than during the forward pass.\ntensor at position {i}:\nsaved metadata: "
                                      f"{kind}\nrecomputed metadata: {(tensor.shape, tensor.dtype, tensor.device)}")
        self.made = dict(enumerate(made))


def checkpoint(
    function: Optional[Callable] = None,
    *args: Any,
    use_reentrant: Optional[bool] = None,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], Tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, whose intermediate results are not kept but computed again in backward.

    What is random in it draws the same numbers again. Without a function: a decorator.

    Args:
        function: called twice; should give the same both times.
        args: tensors and anything else.
        use_reentrant: False: arguments and results may be of any structure, and tensors that the function uses may be those
            of the world outside. True or None: one node of the graph for the call; only tensors that are arguments
            themselves, and parameters, get gradients, only results that are tensors have a history.
        preserve_rng_state: False saves keeping the generator's state where nothing is random.
        context_fn: gives two context managers, one for each call; with use_reentrant=False.
        determinism_check, debug, early_stop: accepted, without effect.
        kwargs: handed on.

    Raises:
        ValueError: context_fn without use_reentrant=False.
        CheckpointError: in backward; the second call kept other tensors than the first (use_reentrant=False).
        RuntimeError: in backward; no result requires a gradient (use_reentrant=True).
    """
    if function is None:
        def decorated(wrapped: Callable) -> Callable:
            @functools.wraps(wrapped)
            def call(*args: Any, **kwargs: Any) -> Any:
                return checkpoint(wrapped, *args, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state,
                                  context_fn=context_fn, **kwargs)

            return call

        return decorated
    if use_reentrant is not False and context_fn is not noop_context_fn:
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if use_reentrant is False:
        first, again = context_fn()
        if not athanor.is_grad_enabled():
            return function(*args, **kwargs)
        call = _Repeated(function, args, kwargs, preserve_rng_state, again)
        with first, saved_tensors_hooks(call.pack, call.unpack):
            return function(*args, **kwargs)
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
        input = checkpoint(run(begin, begin + size), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
        begin += size
    return run(begin, len(layers))(input)

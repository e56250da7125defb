"""The graph that backward walks: its nodes, hooks on several gradients at once, hooks on what is kept for backward."""
from __future__ import annotations

import contextlib
import functools
import weakref
from _thread import _local as local  # threading, which has it too, loads slowly
from typing import Any, Callable, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .. import _C
from .._C import Node, Tensor
from .._tensor import RemovableHandle

__all__ = ["GradientEdge", "Node", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
           "queue_callback", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks", "to_dot"]


def _register_hook(self: Node, fn: Callable) -> RemovableHandle:
    """Calls fn(grad_inputs, grad_outputs) after this node ran in a backward: the gradients of its inputs, one per entry of
    next_functions, and those of its outputs, as tuples with None for missing ones. What fn returns, if anything, replaces
    grad_inputs: RuntimeError if number, shape or dtype differ. The handle's remove() takes fn away."""
    return RemovableHandle(self._register_hook(fn).remove)


def _register_prehook(self: Node, fn: Callable) -> RemovableHandle:
    """Calls fn(grad_outputs) before this node runs in a backward; what it returns, if anything, replaces the gradients of
    the outputs. See register_hook."""
    return RemovableHandle(self._register_prehook(fn).remove)


def _of_context(self: Node, name: str) -> Any:
    """What the forward of a Function kept on its context, of which the node is the other side: y.grad_fn.saved_tensors."""
    context = None if name.startswith("__") else self._context()
    if context is None:
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
    return getattr(context, name)


Node.register_hook, Node.register_prehook = _register_hook, _register_prehook
Node.__getattr__ = _of_context  # type: ignore[method-assign]


class GradientEdge(NamedTuple):
    """Where a gradient arrives: output number output_nr of a node. backward and grad take it in the place of a tensor."""

    node: Node
    output_nr: int
    ownership_token: Optional[Node] = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the tensor's gradient arrives. It keeps the graph alive, not the tensor's values. Raises RuntimeError for a
    tensor that does not require grad."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*_C._edge_of(tensor))


def to_dot(tensors: Union[Tensor, Iterable[Tensor]], names: Optional[Mapping[str, Tensor]] = None) -> str:
    """The graph behind tensors as text for Graphviz: `dot -Tsvg graph.dot`. Arrows lead the way of gradients, leaves are boxes
    with their names from `names`, for example dict(net.named_parameters())."""
    return _C._to_dot([tensors] if isinstance(tensors, Tensor) else list(tensors), dict(names or {}))


def increment_version(tensor: Union[Tensor, Iterable[Tensor]]) -> None:
    """Says that the values of a tensor, or of several, were changed by something else than the library: a backward that
    needs the old ones raises RuntimeError. Tensors made in inference mode have no version."""
    for t in [tensor] if isinstance(tensor, Tensor) else tensor:
        _C._increment_version(t)


def queue_callback(callback: Callable[[], None]) -> None:
    """Calls callback() at the end of the outermost backward of this thread, if it succeeds. For hooks and backward
    functions: RuntimeError if no backward runs in this thread."""
    _C._queue_callback(callback)


class _State(local):
    """What a thread's backward has met so far of a multi-gradient hook; the backward owns it."""

    present: Any = None


class _Met:
    def __init__(self, count: int) -> None:
        self.grads: List[Optional[Tensor]] = [None] * count
        self.left, self.called = count, False


class _Handles(RemovableHandle):
    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)
        super().__init__(lambda: [h.remove() for h in self.handles])


def register_multi_grad_hook(tensors: Sequence[Union[Tensor, GradientEdge]], fn: Callable[[Any], None], *,
                             mode: str = "all") -> RemovableHandle:
    """Calls fn once per backward that reaches one of the tensors.

    mode "all": fn(grads), with a list of their gradients, as soon as the last is there; None stands for tensors that the
    backward did not reach, and then fn is called at its end. mode "any": fn(grad) with the first gradient. The handle's
    remove() takes the hook away. A backward within a backward belongs to the outer one. Raises ValueError for another
    mode, RuntimeError for a tensor that does not require grad.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    state, count = _State(), len(tensors)

    def finish(met: _Met) -> None:
        if not met.called:
            met.called = True
            fn(met.grads)

    def hook(i: int, grad: Tensor) -> None:
        met = state.present() if state.present is not None else None
        if met is None:
            met = _Met(count)
            # The queued call alone keeps it, so that it is gone when the backward is, however that ends.
            state.present = weakref.ref(met)
            queue_callback(functools.partial(finish, met) if mode == "all" else functools.partial(id, met))
        if met.called:
            return
        if mode == "any":
            met.called = True
            fn(grad)
            return
        met.left -= met.grads[i] is None
        met.grads[i] = grad
        if met.left == 0:
            finish(met)

    handles = []
    for i, t in enumerate(tensors):
        if isinstance(t, GradientEdge):
            handles.append(t.node.register_prehook(functools.partial(_from_outputs, functools.partial(hook, i), t.output_nr)))
        elif mode == "all" or t.requires_grad:
            handles.append(t.register_hook(functools.partial(hook, i)))
    return _Handles(handles)


def _from_outputs(hook: Callable[[Tensor], None], number: int, grads: Tuple[Optional[Tensor], ...]) -> None:
    if grads[number] is not None:
        hook(grads[number])


class _Disabled(local):
    message: Optional[str] = None
    entered: int = 0


_disabled = _Disabled()


class saved_tensors_hooks:  # noqa: N801
    """For a block: what calls of this thread keep for backward is pack_hook's result; unpack_hook(that) gives the tensor
    when backward needs it.

    pack_hook(tensor) gets what would be kept, an input of a call or a result, and returns anything; it runs without
    recording and must not change the tensor. What unpack_hook returns has the shape, dtype and device of the tensor, else
    backward raises RuntimeError, or TypeError if it is none. Of nested blocks the innermost counts. Changes in place of
    what was packed are not noticed.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if _disabled.message is not None:
            raise RuntimeError(_disabled.message)
        _C._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)
        _disabled.entered += 1

    def __exit__(self, *_: object) -> None:
        _C._pop_saved_tensors_hooks()
        _disabled.entered -= 1


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """For a block: what calls keep for backward lies in the host's memory until backward brings it back to its device.
    pin_memory and device_type are accepted and make no difference."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """For a block: saved_tensors_hooks raise RuntimeError with this message. So does this, within a block of theirs."""
    if _disabled.entered:
        raise RuntimeError(error_message)
    before, _disabled.message = _disabled.message, error_message
    try:
        yield
    finally:
        _disabled.message = before

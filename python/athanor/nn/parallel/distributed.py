"""Data parallelism over processes."""
from __future__ import annotations

import contextlib
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import athanor
from athanor._C import _distributed as _core
from athanor.distributed._groups import GroupMember
from athanor.distributed.algorithms.join import Join, Joinable, JoinHook

from ..modules.module import Module


def _to_device(obj: Any, device: Any) -> Any:
    if isinstance(obj, athanor.Tensor):
        return obj.to(device)
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return type(obj)(*(_to_device(o, device) for o in obj))
    if isinstance(obj, (list, tuple)):
        return type(obj)(_to_device(o, device) for o in obj)
    if isinstance(obj, dict):
        return type(obj)((k, _to_device(v, device)) for k, v in obj.items())
    return obj


_WAYS_OUT = {
    "delay_all_reduce_named_params": "leave it out: all gradients are reduced while backward goes on",
    "param_to_hook_all_reduce": "leave it out: all gradients are reduced while backward goes on",
    "mixed_precision": "run the forward in athanor.autocast, or compress gradients with register_comm_hook()",
    "device_mesh": "pass process_group, the group of the ranks to average over",
    "skip_all_reduce_unused_params": "leave it out, or freeze such parameters with requires_grad_(False)",
}


def _refuse_unsupported(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise NotImplementedError(f"DistributedDataParallel: {name} is not supported, expected None, got {value!r}; "
                                      f"{_WAYS_OUT[name]}")


class _DdpJoinHook(JoinHook):
    """Stands for the library's own answers to a step of DistributedDataParallel; Join hands over to them."""

    def __init__(self, core: Any, divide_by_initial_world_size: bool) -> None:
        self._ddp_core = core
        self.divide_by_initial_world_size = divide_by_initial_world_size


class DistributedDataParallel(Module, Joinable):
    """Trains a module on every rank with that rank's inputs; backward() averages the gradients over the ranks, so that
    the copies stay the same bit by bit. Making it is a collective act: parameters and buffers become rank 0's.

    device_ids, output_device: the one device that the module is on, if that is not the host; inputs are moved there.
    broadcast_buffers: buffers become rank 0's before a forward. process_group: the default one unless given.
    bucket_cap_mb: gradients are reduced in pieces of this size while backward goes on. static_graph: every step has the
    same graph; parameters may then get gradients several times in a backward. find_unused_parameters and
    gradient_as_bucket_view need not be set: unused parameters are always found, gradients always lie in the buckets.
    forward_sync_buffers: the newer name of broadcast_buffers, goes before it. bucket_cap_mb_list, batched_grad_copy,
    lazy_bucket_allocation and check_reduction are accepted, without effect. NotImplementedError for the others.

    All ranks make the same forwards and backwards, see join() for the exception. A tensor that was `.grad` is overwritten
    by a later backward. Raises RuntimeError if no parameter requires grad, ValueError if the ranks' modules differ or
    devices make no sense.
    """

    def __init__(
        self,
        module: Any,
        device_ids: Optional[Sequence[Any]] = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: Optional[bool] = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: Optional[float] = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Optional[List[int]] = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: Optional[bool] = None,
        lazy_bucket_allocation: bool = False,
    ) -> None:
        _refuse_unsupported(
            delay_all_reduce_named_params=delay_all_reduce_named_params,
            param_to_hook_all_reduce=param_to_hook_all_reduce,
            mixed_precision=mixed_precision,
            device_mesh=device_mesh,
            skip_all_reduce_unused_params=skip_all_reduce_unused_params or None,
        )
        if check_reduction:
            warnings.warn("DistributedDataParallel: check_reduction is deprecated and has no effect", FutureWarning,
                          stacklevel=2)
        if forward_sync_buffers is not None:
            broadcast_buffers = forward_sync_buffers
        super().__init__()
        Joinable.__init__(self)
        if process_group == GroupMember.NON_GROUP_MEMBER:
            raise ValueError("DistributedDataParallel: this process is no member of the process group")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        self.module = module
        ids = list(device_ids) if device_ids else []
        self.device = next((p.device for p in module.parameters()), athanor.device("cpu"))
        self._target = athanor.device(ids[0]) if ids else None
        self.device_ids = [d.index for d in [self._target]] if self._target is not None else None
        self.output_device = output_device if output_device is not None else (ids[0] if ids else None)
        self.dim = dim
        self.broadcast_buffers = True if broadcast_buffers is None else broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._ignored = ignored
        self._core = _core._make_ddp(
            [(n, p) for n, p in module.named_parameters() if n not in ignored],
            [(n, b) for n, b in module.named_buffers() if n not in ignored],
            process_group,
            self._target,
            self.broadcast_buffers,
            init_sync,
            float(25 if bucket_cap_mb is None else bucket_cap_mb),
            static_graph,
            None,
        )
        self.process_group = self._core.process_group

    def _buffers_now(self) -> List[Any]:
        return [b for n, b in self.module.named_buffers() if n not in self._ignored]

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        if self.require_backward_grad_sync:
            self._core.before_forward(self._buffers_now())
        else:
            block = _core._NoSync(self._core)
            block.enter()
            try:
                self._core.before_forward(self._buffers_now())
            finally:
                block.exit()
        if self._target is not None:
            inputs, kwargs = _to_device(inputs, self._target), _to_device(kwargs, self._target)
        out = self.module(*inputs, **kwargs)
        self._core.after_forward()
        return out

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward of forwards called in here adds up gradients on this rank only; the first backward after it averages
        the sums."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True,
             throw_on_early_termination: bool = False) -> Join:
        """`with ddp.join():` around a training loop that may have fewer steps than other ranks'; see Join."""
        return Join([self], enable, throw_on_early_termination,
                    divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """For Join; keyword divide_by_initial_world_size (True): gradients are divided by the number of all ranks, not of
        those that still have inputs."""
        return _DdpJoinHook(self._core, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        """Where the parameters are."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """The group that gradients are averaged over."""
        return self.process_group

    def register_comm_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """hook(state, bucket) -> Future of the bucket's new values replaces averaging; once. It runs in the thread of
        backward(), and makes the same calls on all ranks."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        self._core.register_comm_hook(lambda bucket: hook(state, bucket))

    def _set_static_graph(self) -> None:
        raise RuntimeError("_set_static_graph: pass static_graph=True to DistributedDataParallel")

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Any, names: Sequence[str]) -> None:
        """These parameters and buffers of `module` stay each rank's own."""
        module._ddp_params_and_buffers_to_ignore = list(names)

    def train(self, mode: bool = True) -> "DistributedDataParallel":
        """Switches the module between training and evaluation."""
        super().train(mode)
        return self

    def __getstate__(self) -> Dict:
        raise RuntimeError("DistributedDataParallel cannot be pickled or copied: it belongs to a process group; save "
                           "ddp.module, or its state_dict()")

"""Collectives and messages. `src`, `dst` and peers are the world's ranks, whatever the group."""
from __future__ import annotations

import warnings
from typing import Any, Callable, List, Optional, Sequence

from .._C import Tensor
from .._C import _distributed as _core
from .._C._distributed import ProcessGroup, ReduceOp, Work
from ._groups import GroupMember, is_outside, milliseconds


def _tensor(value: Any, name: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n             but "
                        f"got {type(value)} instead.")


def _tensors(values: Any, name: str) -> None:
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, Tensor) for v in values):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n             "
                        f"but got {type(values)} with elements of type {sorted({type(v).__name__ for v in values})}."
                        if isinstance(values, (list, tuple)) else
                        f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n             "
                        f"but got {type(values)} instead.")


def _peer(rank: Optional[int], group_rank: Optional[int], group: Any, name: str) -> int:
    """The world's rank of one that is given as such or as the group's."""
    if rank is not None and group_rank is not None:
        raise ValueError(f"Can't specify both group_{name} and {name}")
    if group_rank is not None:
        return _core.get_global_rank(group, group_rank)
    if rank is None:
        raise ValueError(f"Must specify {name} or group_{name}")
    return rank


class _OldReduceOp:
    """The name that ReduceOp had in PyTorch 0.4: reduce_op.SUM."""

    def __getattribute__(self, name: str):
        if name in ("SUM", "PRODUCT", "MIN", "MAX"):
            warnings.warn("torch.distributed.reduce_op is deprecated, please use torch.distributed.ReduceOp instead",
                          FutureWarning, stacklevel=2)
            return getattr(ReduceOp, name)
        return object.__getattribute__(self, name)


reduce_op = _OldReduceOp()


def broadcast(tensor: Tensor, src: Optional[int] = None, group: Optional[ProcessGroup] = None, async_op: bool = False,
              group_src: Optional[int] = None) -> Optional[Work]:
    """`tensor` becomes the source's, on every rank."""
    _tensor(tensor, "tensor")
    if is_outside(group, "broadcast"):
        return None
    return _core.broadcast(tensor, _peer(src, group_src, group, "src"), group, async_op)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Optional[ProcessGroup] = None,
               async_op: bool = False) -> Optional[Work]:
    """`tensor` becomes the combination of all ranks' tensors. With async_op returns a Work at once."""
    _tensor(tensor, "tensor")
    if is_outside(group, "all_reduce"):
        return None
    return _core.all_reduce(tensor, op, group, async_op)


def reduce(tensor: Tensor, dst: Optional[int] = None, op: ReduceOp = ReduceOp.SUM,
           group: Optional[ProcessGroup] = None, async_op: bool = False,
           group_dst: Optional[int] = None) -> Optional[Work]:
    """As all_reduce, but only at `dst`."""
    _tensor(tensor, "tensor")
    if is_outside(group, "reduce"):
        return None
    return _core.reduce(tensor, _peer(dst, group_dst, group, "dst"), op, group, async_op)


def all_gather(tensor_list: List[Tensor], tensor: Tensor, group: Optional[ProcessGroup] = None,
               async_op: bool = False) -> Optional[Work]:
    """`tensor_list[r]` becomes rank r's tensor; shapes may differ between ranks."""
    _tensors(tensor_list, "tensor_list")
    _tensor(tensor, "tensor")
    if is_outside(group, "all_gather"):
        return None
    return _core.all_gather(tensor_list, tensor, group, async_op)


def gather(tensor: Tensor, gather_list: Optional[List[Tensor]] = None, dst: Optional[int] = None,
           group: Optional[ProcessGroup] = None, async_op: bool = False,
           group_dst: Optional[int] = None) -> Optional[Work]:
    """At `dst` (0 unless given) `gather_list[r]` becomes rank r's tensor; elsewhere the list stays away. The old order
    gather(tensor, dst, gather_list) is understood."""
    if isinstance(gather_list, int):
        gather_list, dst = (dst if dst is not None else None), gather_list
    _tensor(tensor, "tensor")
    if gather_list:
        _tensors(gather_list, "gather_list")
    if is_outside(group, "gather"):
        return None
    root = 0 if dst is None and group_dst is None else _peer(dst, group_dst, group, "dst")
    return _core.gather(tensor, gather_list or [], root, group, async_op)


def scatter(tensor: Tensor, scatter_list: Optional[List[Tensor]] = None, src: Optional[int] = None,
            group: Optional[ProcessGroup] = None, async_op: bool = False,
            group_src: Optional[int] = None) -> Optional[Work]:
    """`tensor` becomes this rank's part of the list that `src` (0 unless given) has. The old order
    scatter(tensor, src, scatter_list) is understood."""
    if isinstance(scatter_list, int):
        scatter_list, src = (src if src is not None else None), scatter_list
    _tensor(tensor, "tensor")
    if scatter_list:
        _tensors(scatter_list, "scatter_list")
    if is_outside(group, "scatter"):
        return None
    root = 0 if src is None and group_src is None else _peer(src, group_src, group, "src")
    return _core.scatter(tensor, scatter_list or [], root, group, async_op)


def reduce_scatter(output: Tensor, input_list: List[Tensor], op: ReduceOp = ReduceOp.SUM,
                   group: Optional[ProcessGroup] = None, async_op: bool = False) -> Optional[Work]:
    """`output` becomes the combination of all ranks' `input_list[rank]`."""
    _tensor(output, "output")
    _tensors(input_list, "input_list")
    if is_outside(group, "reduce_scatter"):
        return None
    return _core.reduce_scatter(output, input_list, op, group, async_op)


def all_to_all(output_tensor_list: List[Tensor], input_tensor_list: List[Tensor],
               group: Optional[ProcessGroup] = None, async_op: bool = False) -> Optional[Work]:
    """`output_tensor_list[r]` becomes rank r's `input_tensor_list[rank]`."""
    _tensors(output_tensor_list, "output_tensor_list")
    _tensors(input_tensor_list, "input_tensor_list")
    if is_outside(group, "all_to_all"):
        return None
    return _core.all_to_all(output_tensor_list, input_tensor_list, group, async_op)


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Optional[Sequence[int]] = None,
                      input_split_sizes: Optional[Sequence[int]] = None, group: Optional[ProcessGroup] = None,
                      async_op: bool = False) -> Optional[Work]:
    """Parts of `input` along dim 0, evenly without sizes, go to the ranks; theirs fill `output`."""
    _tensor(output, "output")
    _tensor(input, "input")
    if is_outside(group, "all_to_all_single"):
        return None
    return _core.all_to_all_single(output, input, list(output_split_sizes or []), list(input_split_sizes or []), group,
                                   async_op)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Optional[ProcessGroup] = None,
                           async_op: bool = False) -> Optional[Work]:
    """`output_tensor` becomes all ranks' tensors, stacked or joined along dim 0."""
    _tensor(output_tensor, "output_tensor")
    _tensor(input_tensor, "input_tensor")
    if is_outside(group, "all_gather_into_tensor"):
        return None
    return _core.all_gather_into_tensor(output_tensor, input_tensor, group, async_op)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM,
                          group: Optional[ProcessGroup] = None, async_op: bool = False) -> Optional[Work]:
    """`output` becomes this rank's part of the combination of all ranks' `input`."""
    _tensor(output, "output")
    _tensor(input, "input")
    if is_outside(group, "reduce_scatter_tensor"):
        return None
    return _core.reduce_scatter_tensor(output, input, op, group, async_op)


def barrier(group: Optional[ProcessGroup] = None, async_op: bool = False, device_ids: Any = None,
            timeout: Any = None) -> Optional[Work]:
    """Waits until all ranks have come here. A timeout of its own makes it a monitored_barrier."""
    if is_outside(group, "barrier"):
        return None
    if timeout is not None and not async_op:
        _core.monitored_barrier(group, milliseconds(timeout), False)
        return None
    return _core.barrier(group, async_op)


def monitored_barrier(group: Optional[ProcessGroup] = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """A barrier whose DistError names the rank that did not come, or with wait_all_ranks all of them."""
    if not is_outside(group, "monitored_barrier"):
        _core.monitored_barrier(group, -1 if timeout is None else milliseconds(timeout), wait_all_ranks)


def send(tensor: Tensor, dst: Optional[int] = None, group: Optional[ProcessGroup] = None, tag: int = 0,
         group_dst: Optional[int] = None) -> None:
    """Sends `tensor` and returns when its memory may be used again. ValueError for this rank itself."""
    _tensor(tensor, "tensor")
    if not is_outside(group, "send"):
        _core.send(tensor, _peer(dst, group_dst, group, "dst"), group, tag)


def recv(tensor: Tensor, src: Optional[int] = None, group: Optional[ProcessGroup] = None, tag: int = 0,
         group_src: Optional[int] = None) -> int:
    """Fills `tensor` from `src`, or from any rank; the rank it came from."""
    _tensor(tensor, "tensor")
    if is_outside(group, "recv"):
        return -1
    source = -1 if src is None and group_src is None else _peer(src, group_src, group, "src")
    return _core.recv(tensor, source, group, tag)


def isend(tensor: Tensor, dst: Optional[int] = None, group: Optional[ProcessGroup] = None, tag: int = 0,
          group_dst: Optional[int] = None) -> Optional[Work]:
    """Starts to send; `tensor` must not be written before the Work's wait()."""
    _tensor(tensor, "tensor")
    if is_outside(group, "isend"):
        return None
    return _core.isend(tensor, _peer(dst, group_dst, group, "dst"), group, tag)


def irecv(tensor: Tensor, src: Optional[int] = None, group: Optional[ProcessGroup] = None, tag: int = 0,
          group_src: Optional[int] = None) -> Optional[Work]:
    """Starts to receive; `tensor` must not be read before the Work's wait()."""
    _tensor(tensor, "tensor")
    if is_outside(group, "irecv"):
        return None
    source = -1 if src is None and group_src is None else _peer(src, group_src, group, "src")
    return _core.irecv(tensor, source, group, tag)


class P2POp:
    """One message of batch_isend_irecv: P2POp(isend, t, 1) or P2POp(irecv, t, 0)."""

    def __init__(self, op: Callable, tensor: Tensor, peer: Optional[int] = None,
                 group: Optional[ProcessGroup] = None, tag: int = 0, group_peer: Optional[int] = None):
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                             "``torch.distributed.irecv``.")
        _tensor(tensor, "tensor")
        self.op, self.tensor, self.group, self.tag = op, tensor, group, tag
        self.peer = _peer(peer, group_peer, group, "peer")

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__}, {tuple(self.tensor.shape)}, peer={self.peer}, tag={self.tag})"


def batch_isend_irecv(p2p_op_list: List[P2POp]) -> List[Work]:
    """Starts all messages, in whatever order the ranks list theirs; a Work for each."""
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type "
                         "``torch.distributed.P2POp``.")
    if any(p.group == GroupMember.NON_GROUP_MEMBER for p in p2p_op_list):
        return []
    return _core.batch_isend_irecv([(p.op is isend, p.tensor, p.peer, p.group, p.tag) for p in p2p_op_list])


def all_reduce_coalesced(tensors: List[Tensor], op: ReduceOp = ReduceOp.SUM, group: Optional[ProcessGroup] = None,
                         async_op: bool = False) -> Optional[Work]:
    """all_reduce of several tensors of one dtype and device, at the price of one call."""
    _tensors(tensors, "tensors")
    if is_outside(group, "all_reduce_coalesced"):
        return None
    return _core.all_reduce_coalesced(tensors, op, group, async_op)


def all_gather_coalesced(output_tensor_lists: List[List[Tensor]], input_tensor_list: List[Tensor],
                         group: Optional[ProcessGroup] = None, async_op: bool = False) -> Optional[Work]:
    """`output_tensor_lists[r][i]` becomes rank r's `input_tensor_list[i]`."""
    for tensors in output_tensor_lists:
        _tensors(tensors, "output_tensor_lists")
    _tensors(input_tensor_list, "input_tensor_list")
    if is_outside(group, "all_gather_coalesced"):
        return None
    by_tensor = [list(of_ranks) for of_ranks in zip(*output_tensor_lists)]
    return _core.all_gather_coalesced(by_tensor, input_tensor_list, group, async_op)


def _broadcast_coalesced(tensors: List[Tensor], src: int = 0, group: Optional[ProcessGroup] = None) -> None:
    """broadcast of several tensors at the price of one call."""
    _core.broadcast_coalesced(tensors, src, group, False)

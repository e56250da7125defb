"""Collectives that gradients flow through: the loss is the sum of all ranks' losses, backward() runs on every rank and
gives each input the derivative of that sum. Results are new tensors; `src` and `dst` are the world's ranks."""
from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from ..._C import Tensor
from ..._C import _distributed as _core
from ..._C._distributed import ProcessGroup, ReduceOp

__all__ = ["broadcast", "gather", "scatter", "reduce", "reduce_scatter", "all_gather", "all_to_all",
           "all_to_all_single", "all_reduce"]


def broadcast(tensor: Tensor, src: int, group: Optional[ProcessGroup] = None) -> Tensor:
    """The source's tensor on every rank; the others' give shape and dtype, and get zeros as gradient."""
    return _core.nn.broadcast(tensor, src, group)


def gather(tensor: Tensor, dst: int = 0, group: Optional[ProcessGroup] = None) -> Tuple[Tensor, ...]:
    """At `dst` all ranks' tensors, elsewhere zeros."""
    return tuple(_core.nn.gather(tensor, dst, group))


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Optional[ProcessGroup] = None) -> Tensor:
    """This rank's part of the source's list; the others' lists give shape and dtype."""
    return _core.nn.scatter(list(tensors), src, group)


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Optional[ProcessGroup] = None) -> Tensor:
    """At `dst` the combination of all ranks' tensors."""
    return _core.nn.reduce(tensor, dst, op, group)


def reduce_scatter(output: Tensor, input_list: List[Tensor], op: ReduceOp = ReduceOp.SUM,
                   group: Optional[ProcessGroup] = None) -> Tensor:
    """The combination of all ranks' `input_list[rank]`; `output` gives the shape only."""
    return _core.nn.reduce_scatter(list(input_list), op, group)


def all_gather(tensor: Tensor, group: Optional[ProcessGroup] = None) -> Tuple[Tensor, ...]:
    """All ranks' tensors."""
    return tuple(_core.nn.all_gather(tensor, group))


def all_to_all(output_tensor_list: List[Tensor], input_tensor_list: List[Tensor],
               group: Optional[ProcessGroup] = None) -> Tuple[Tensor, ...]:
    """Result r is rank r's `input_tensor_list[rank]`; `output_tensor_list` gives the shapes."""
    return tuple(_core.nn.all_to_all(list(output_tensor_list), list(input_tensor_list), group))


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Optional[Sequence[int]] = None,
                      input_split_sizes: Optional[Sequence[int]] = None,
                      group: Optional[ProcessGroup] = None) -> Tensor:
    """Parts of `input` go to the ranks, theirs make the result; `output` gives the shape."""
    return _core.nn.all_to_all_single(output, input, list(output_split_sizes or []), list(input_split_sizes or []),
                                      group)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Optional[ProcessGroup] = None) -> Tensor:
    """The combination of all ranks' tensors."""
    return _core.nn.all_reduce(tensor, op, group)

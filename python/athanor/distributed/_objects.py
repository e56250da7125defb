"""Collectives of objects: anything that can be pickled. Unpickling runs code; the ranks must trust each other."""
from __future__ import annotations

import pickle
from typing import Any, List, Optional, Sequence

from .._C import _distributed as _core
from .._C._distributed import ProcessGroup
from ._collectives import _peer
from ._groups import is_outside


def _pack(obj: Any) -> bytes:
    return pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)


def all_gather_object(object_list: List[Any], obj: Any, group: Optional[ProcessGroup] = None,
                      weights_only: bool = False) -> None:
    """`object_list[r]`, of as many places as ranks, becomes rank r's object."""
    if is_outside(group, "all_gather_object"):
        return
    size = _core.get_world_size(group)
    if len(object_list) != size:
        raise ValueError(f"all_gather_object: the list should have a place for each of {size} ranks, got "
                         f"{len(object_list)}")
    object_list[:] = map(pickle.loads, _core.all_gather_bytes(_pack(obj), group))


def gather_object(obj: Any, object_gather_list: Optional[List[Any]] = None, dst: Optional[int] = None,
                  group: Optional[ProcessGroup] = None, group_dst: Optional[int] = None,
                  weights_only: bool = False) -> None:
    """At `dst` (0 unless given) the list, of as many places as ranks, receives all objects; elsewhere it is None."""
    if is_outside(group, "gather_object"):
        return
    root = 0 if dst is None and group_dst is None else _peer(dst, group_dst, group, "dst")
    here = _core.get_rank() == root
    if here != (object_gather_list is not None):
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank." if here else
                         "Argument ``object_gather_list`` must NOT be specified on non-destination ranks.")
    got = _core.gather_bytes(_pack(obj), root, group)
    if here:
        if len(object_gather_list) != len(got):
            raise ValueError(f"gather_object: the list should have {len(got)} places, got {len(object_gather_list)}")
        object_gather_list[:] = map(pickle.loads, got)


def broadcast_object_list(object_list: List[Any], src: Optional[int] = None, group: Optional[ProcessGroup] = None,
                          device: Any = None, group_src: Optional[int] = None, weights_only: bool = False) -> None:
    """The source's (rank 0's unless given) objects take the places of the others', whose lists have as many places."""
    if is_outside(group, "broadcast_object_list"):
        return
    root = 0 if src is None and group_src is None else _peer(src, group_src, group, "src")
    here = _core.get_rank() == root
    got = _core.broadcast_bytes(_pack(list(object_list)) if here else b"", root, group)
    if not here:
        objects = pickle.loads(got)
        if len(objects) != len(object_list):
            raise RuntimeError(f"broadcast_object_list: rank {root} sends {len(objects)} objects, the list here has "
                               f"{len(object_list)} places")
        object_list[:] = objects


def scatter_object_list(scatter_object_output_list: List[Any], scatter_object_input_list: Optional[Sequence] = None,
                        src: Optional[int] = None, group: Optional[ProcessGroup] = None,
                        group_src: Optional[int] = None, weights_only: bool = False) -> None:
    """The first place of the output list becomes this rank's part of the source's input list."""
    if is_outside(group, "scatter_object_list"):
        return
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = 0 if src is None and group_src is None else _peer(src, group_src, group, "src")
    parts = [_pack(o) for o in scatter_object_input_list or []] if _core.get_rank() == root else []
    scatter_object_output_list[0] = pickle.loads(_core.scatter_bytes(parts, root, group))


def send_object_list(object_list: Sequence[Any], dst: Optional[int] = None, group: Optional[ProcessGroup] = None,
                     device: Any = None, group_dst: Optional[int] = None, use_batch: bool = False,
                     weights_only: bool = False) -> None:
    """Sends the objects to `dst`, which calls recv_object_list."""
    if not is_outside(group, "send_object_list"):
        _core.send_bytes(_pack(list(object_list)), _peer(dst, group_dst, group, "dst"), group, 0)


def recv_object_list(object_list: List[Any], src: Optional[int] = None, group: Optional[ProcessGroup] = None,
                     device: Any = None, group_src: Optional[int] = None, use_batch: bool = False,
                     weights_only: bool = False) -> int:
    """Fills the list with the objects that `src`, or any rank, sends; the rank they came from."""
    if is_outside(group, "recv_object_list"):
        return -1
    source = -1 if src is None and group_src is None else _peer(src, group_src, group, "src")
    source, got = _core.recv_bytes(source, group, 0)
    objects = pickle.loads(got)
    if len(objects) != len(object_list):
        raise RuntimeError(f"recv_object_list: rank {source} sends {len(objects)} objects, the list here has "
                           f"{len(object_list)} places")
    object_list[:] = objects
    return source

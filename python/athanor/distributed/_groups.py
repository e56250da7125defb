"""The default process group, and those made of its ranks."""
from __future__ import annotations

import datetime
import os
import sys
import warnings
import weakref
from typing import Any, List, Optional, Sequence, Tuple, Union

from .._C import _distributed as _core
from .._C import device as _Device
from .._C._distributed import ProcessGroup, Work

default_pg_timeout = datetime.timedelta(minutes=30)
Timeout = Union[datetime.timedelta, float, int, None]


def milliseconds(timeout: Timeout) -> Optional[int]:
    """Of a timedelta or a number of seconds; None stays None. TypeError for anything else, ValueError if not positive."""
    if timeout is None:
        return None
    if isinstance(timeout, datetime.timedelta):
        seconds = timeout.total_seconds()
    elif isinstance(timeout, (int, float)):
        seconds = float(timeout)
    else:
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout!r}")
    if seconds <= 0:
        raise ValueError(f"the timeout should be positive, got {timeout!r}")
    return max(1, int(seconds * 1000))


class Backend(str):
    """The name of a backend in lower case: Backend("GLOO") == "gloo"."""

    UNDEFINED = "undefined"
    TCP = "tcp"
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    UCC = "ucc"
    XCCL = "xccl"
    backend_list = [UNDEFINED, TCP, GLOO, NCCL, MPI, UCC, XCCL]

    def __new__(cls, name: str):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name!r}")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name: str, func: Any, extended_api: bool = False, devices: Any = None) -> None:
        """Backends are written in C++ here. Raises NotImplementedError."""
        raise NotImplementedError(
            f"Backend.register_backend({name!r}): backends are shared objects libathanor_{name}.so, looked for in the "
            "folders of ATHANOR_PLUGIN_PATH; they cannot be written in Python"
        )


class _World(type):
    @property
    def WORLD(cls) -> Optional[ProcessGroup]:
        """The default group; None before init_process_group."""
        return _core.default_group() if _core.is_initialized() else None


class group(metaclass=_World):
    """`group.WORLD` is the default process group."""

    NON_GROUP_MEMBER = -100


class GroupMember(metaclass=_World):
    """`GroupMember.NON_GROUP_MEMBER` is what new_group returns to a process that is no member."""

    NON_GROUP_MEMBER = -100


def is_outside(group: Any, call: str) -> bool:
    """Whether `group` is one that this process is no member of; says so once per line, as PyTorch does."""
    if group is not GroupMember.NON_GROUP_MEMBER and group != GroupMember.NON_GROUP_MEMBER:
        return False
    rank = _core.get_rank() if _core.is_initialized() else -1
    warnings.warn(f"Running {call} on global rank {rank} which does not belong to the given group.", stacklevel=3)
    return True


def _as_member(made: ProcessGroup) -> Union[ProcessGroup, int]:
    if made.rank() < 0:
        return GroupMember.NON_GROUP_MEMBER
    _made.add(made)
    return made


_leaves_in: Optional[int] = None
_made: "weakref.WeakSet[ProcessGroup]" = weakref.WeakSet()
_gave_up = False  # a wait was ended by a signal: what it waited for may never come


def _leave() -> None:
    if _gave_up and _core.is_initialized():
        for member in [*_made, _core.default_group()]:
            member.abort("the program was interrupted by a signal")
    _core._leave_all_groups()


def _leave_at_exit() -> None:
    """Says good-bye at the end of the process, also of one that multiprocessing ends without Python's own end."""
    global _leaves_in
    if _leaves_in == os.getpid():
        return
    _leaves_in = os.getpid()
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, _leave, exitpriority=100)
        return
    import atexit

    atexit.register(_leave)


_told_of_gloo = False


def _served(backend: Optional[str], rank: int = -1) -> str:
    """The backend's name; tcp for gloo, which it stands in for where the plug-in is not, as in a wheel."""
    global _told_of_gloo
    name = str(backend).lower() if backend is not None else ""
    parts = [part.rpartition(":") for part in name.split(",")]
    problem = _core.backend_problem("gloo") if any(kind == "gloo" for _, _, kind in parts) else ""
    if not problem:
        return name
    if not _told_of_gloo and str(rank if rank >= 0 else os.environ.get("RANK", "0")) == "0":
        print(f"athanor: backend 'gloo' is served by tcp; the plug-in for gloo: {problem}", file=sys.stderr, flush=True)
    _told_of_gloo = True
    return ",".join(device + colon + ("tcp" if kind == "gloo" else kind) for device, colon, kind in parts)


def init_process_group(
    backend: Optional[str] = None,
    init_method: Optional[str] = None,
    timeout: Timeout = None,
    world_size: int = -1,
    rank: int = -1,
    store: Optional[_core.Store] = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
    secret: str = "",
) -> None:
    """Meets the other processes and makes the default group.

    backend: "tcp" (the library's own), "gloo", "mpi", "nccl", or one per device, "cpu:tcp,cuda:nccl" (the default).
        "gloo" is served by tcp, and says so, where the plug-in for Gloo was not built.
    init_method: "env://" (the default: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE), "tcp://host:port", a multicast
        address, "file:///path", "slurm://"; or a `store` that all processes share, with `rank` and `world_size`.
    timeout: of the meeting and of every call of the group, a timedelta; 30 minutes.
    secret: what all processes must know to be let in; ATHANOR_JOB_SECRET unless given.

    Raises ValueError for arguments that cannot work, RuntimeError if there is a default group, DistError if the
    processes did not meet in time, naming the missing ranks.
    """
    global _gave_up
    for value, name in ((world_size, "world_size"), (rank, "rank")):
        if not isinstance(value, int):
            raise TypeError(f"init_process_group: {name} should be an int, got {value!r}")
    _core.init_process_group(
        _served(backend, rank),
        init_method or "",
        world_size,
        rank,
        milliseconds(timeout if timeout is not None else default_pg_timeout),
        group_name,
        store,
        secret,
    )
    _gave_up = False
    _leave_at_exit()


def destroy_process_group(group: Optional[ProcessGroup] = None) -> None:
    """Ends a group, or the default one and all others. Calls under way end first."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    _core.destroy_process_group(group)


def is_available() -> bool:
    """Always true."""
    return True


def is_initialized() -> bool:
    """Whether there is a default group."""
    return _core.is_initialized()


def is_backend_available(backend: str) -> bool:
    """Whether a group could be made with this backend."""
    return _core.is_backend_available(backend.lower())


def is_tcp_available() -> bool:
    """Always true: this backend is part of the library."""
    return _core.is_backend_available("tcp")


def is_gloo_available() -> bool:
    """Whether the plug-in for Gloo was built."""
    return _core.is_backend_available("gloo")


def is_mpi_available() -> bool:
    """Whether the plug-in for MPI was built."""
    return _core.is_backend_available("mpi")


def is_nccl_available() -> bool:
    """True only with ATHANOR_CUDA_ON_CPU, which serves the name by the library's own backend."""
    return _core.is_backend_available("nccl")


def get_default_backend_for_device(device: Any) -> str:
    """The backend for tensors of this device if init_process_group is not told one: "tcp" or, of CUDA's, "nccl"."""
    kind = device.type if isinstance(device, _Device) else _Device(device).type
    return {"cpu": "tcp", "cuda": "nccl"}[kind]


def is_ucc_available() -> bool:
    """Always false."""
    return False


def is_xccl_available() -> bool:
    """Always false."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher with restarts (`athanor run`, torchrun) started this process."""
    return _core.is_torchelastic_launched()


def new_group(
    ranks: Optional[Sequence[int]] = None,
    timeout: Timeout = None,
    backend: Optional[str] = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: Optional[str] = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Union[ProcessGroup, int]:
    """A group of these ranks of the world, or of all. All processes call it in the same order, members or not (unless
    use_local_synchronization). GroupMember.NON_GROUP_MEMBER where this process is no member."""
    chosen = sorted(ranks) if ranks and sort_ranks else list(ranks or [])
    return _as_member(
        _core.new_group(None, chosen, milliseconds(timeout), _served(backend), group_desc or "",
                        use_local_synchronization)
    )


def split_group(
    parent_pg: Optional[ProcessGroup] = None,
    split_ranks: Optional[List[List[int]]] = None,
    timeout: Timeout = None,
    pg_options: Any = None,
    group_desc: Optional[str] = None,
    backend: Optional[str] = None,
) -> Union[ProcessGroup, int]:
    """Cuts a group into several, by its ranks; this process's one."""
    if not split_ranks:
        raise ValueError("split_group: split_ranks should name the ranks of each new group")
    mine: Union[ProcessGroup, int] = GroupMember.NON_GROUP_MEMBER
    for ranks in split_ranks:
        made = _as_member(
            _core.new_group(parent_pg, list(ranks), milliseconds(timeout), _served(backend), group_desc or "",
                            False)
        )
        if made != GroupMember.NON_GROUP_MEMBER:
            mine = made
    return mine


def new_subgroups(
    group_size: Optional[int] = None,
    group: Optional[ProcessGroup] = None,
    timeout: Timeout = None,
    backend: Optional[str] = None,
    pg_options: Any = None,
    group_desc: Optional[str] = None,
) -> Tuple[ProcessGroup, List[Union[ProcessGroup, int]]]:
    """Cuts the world into groups of `group_size` neighbours, by default those of one node; this process's and all of
    them. ValueError unless the world's size is a multiple."""
    size = group_size if group_size is not None else int(os.environ.get("LOCAL_WORLD_SIZE", "0"))
    world = get_world_size(group)
    if size <= 0 or size > world:
        raise ValueError(f"The arg 'group_size' ({size}) must not exceed the world size ({world}), and be positive")
    if world % size != 0:
        raise ValueError(f"The world size ({world}) must be divisible by 'group_size={size}'")
    lists = [list(range(first, first + size)) for first in range(0, world, size)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)  # type: ignore[return-value]


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: List[List[int]],
    timeout: Timeout = None,
    backend: Optional[str] = None,
    pg_options: Any = None,
    group_desc: Optional[str] = None,
) -> Tuple[Optional[ProcessGroup], List[Union[ProcessGroup, int]]]:
    """One group per list of ranks; this process's (None without) and all of them. ValueError for a rank in two."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    every = [r for ranks in ranks_per_subgroup_list for r in ranks]
    if len(set(every)) != len(every):
        raise ValueError(f"new_subgroups_by_enumeration: a rank stands in two groups: {ranks_per_subgroup_list}")
    mine, groups = None, []
    for ranks in ranks_per_subgroup_list:
        made = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        groups.append(made)
        if made != GroupMember.NON_GROUP_MEMBER:
            mine = made
    return mine, groups


def get_rank(group: Optional[ProcessGroup] = None) -> int:
    """This process's rank in the group; -1 if it is no member."""
    return -1 if group == GroupMember.NON_GROUP_MEMBER else _core.get_rank(group)


def get_world_size(group: Optional[ProcessGroup] = None) -> int:
    """The number of the group's ranks; -1 if this process is no member."""
    return -1 if group == GroupMember.NON_GROUP_MEMBER else _core.get_world_size(group)


def get_backend(group: Optional[ProcessGroup] = None) -> str:
    """The name of the group's backend."""
    if group == GroupMember.NON_GROUP_MEMBER:
        raise ValueError("Invalid process group specified")
    return Backend(_core.get_backend(group))


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """What the world's rank is called in the group. ValueError if it is no member."""
    return _core.get_group_rank(group, global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """What the group's rank is called in the world. ValueError if there is none."""
    return _core.get_global_rank(group, group_rank)


def get_process_group_ranks(group: Optional[ProcessGroup] = None) -> List[int]:
    """The world's ranks of the members."""
    return _core.get_process_group_ranks(group)


def get_pg_count() -> int:
    """1 if there is a default group, else 0."""
    return int(_core.is_initialized())


def get_node_local_rank(fallback_rank: Optional[int] = None) -> int:
    """LOCAL_RANK, as a launcher sets it, or what MPI launchers and Slurm's steps have in its place; else fallback_rank.
    RuntimeError without either."""
    local_rank = _core.get_node_local_rank()
    if local_rank >= 0:
        return local_rank
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
                       "`get_node_local_rank` to work, assuming you are not running in a multi-device context")


def _wait(self: Work, timeout: Timeout = None) -> bool:
    """Waits for the end; raises what the call failed with, and DistError when the timeout passes first, after which
    the call goes on."""
    if isinstance(timeout, datetime.timedelta) and not timeout:
        timeout = None
    global _gave_up
    try:
        return self._wait(-1 if timeout is None else milliseconds(timeout))
    except RuntimeError:
        raise
    except BaseException:
        _gave_up = True
        raise


def _get_future(self: Work):
    """A Future of the list of tensors that the call fills."""
    from ..futures import Future

    return Future._of(self.result, self.is_completed)


Work.wait = _wait  # type: ignore[method-assign]
Work.get_future = _get_future

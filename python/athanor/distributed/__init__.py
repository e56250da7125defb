"""Communication between processes, with torch.distributed's names.

Processes meet by init_process_group and then call the same collectives in the same order. Every wait lets other Python
threads run, ends at its group's timeout with DistError, and can be ended by Ctrl-C.
"""
from __future__ import annotations

from .._C import _distributed as _core
from .._C._distributed import (  # noqa: F401
    DistBackendError, DistError, DistNetworkError, DistStoreError, GradBucket, ProcessGroup, ReduceOp, Store, Work,
)
from ._collectives import (  # noqa: F401
    P2POp, all_gather, all_gather_coalesced, all_gather_into_tensor, all_reduce, all_reduce_coalesced, all_to_all,
    all_to_all_single, barrier, batch_isend_irecv, broadcast, gather, irecv, isend, monitored_barrier, recv, reduce,
    reduce_op, reduce_scatter, reduce_scatter_tensor, scatter, send,
)
from ._groups import (  # noqa: F401
    Backend, GroupMember, default_pg_timeout, destroy_process_group, get_backend, get_global_rank, get_group_rank,
    get_node_local_rank, get_pg_count, get_process_group_ranks, get_rank, get_world_size, group, init_process_group,
    is_available, is_backend_available, is_gloo_available, is_initialized, is_mpi_available, is_nccl_available,
    is_tcp_available, is_torchelastic_launched, is_ucc_available, is_xccl_available, new_group, new_subgroups,
    new_subgroups_by_enumeration, split_group,
)
from ._objects import (  # noqa: F401
    all_gather_object, broadcast_object_list, gather_object, recv_object_list, scatter_object_list, send_object_list,
)
from ._stores import FileStore, HashStore, PrefixStore, TCPStore  # noqa: F401

# Names that these had, or have beside the others.
DistributedRequest = Work
all_gather_single = all_gather_into_tensor
reduce_scatter_single = reduce_scatter_tensor
_all_gather_base = all_gather_into_tensor
_reduce_scatter_base = reduce_scatter_tensor


def flight_records() -> str:
    """The last calls of every group of this process, one a line: what SIGUSR1 prints."""
    return _core.flight_records()


def __getattr__(name: str):
    if name in ("algorithms", "nn", "elastic", "distributed_c10d"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

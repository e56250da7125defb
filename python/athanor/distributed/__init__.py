"""Communication between processes, with torch.distributed's names.

Processes meet by init_process_group and then call the same collectives in the same order. Every wait lets other Python
threads run, ends at its group's timeout with DistError, and can be ended by Ctrl-C.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from .._C import _distributed as _core
from .._C._distributed import (  # noqa: F401
    DistBackendError as DistBackendError, DistError as DistError, DistNetworkError as DistNetworkError,
    DistStoreError as DistStoreError, GradBucket as GradBucket, ProcessGroup as ProcessGroup, ReduceOp as ReduceOp,
    Store as Store, Work as Work,
)
from ._collectives import (  # noqa: F401
    P2POp as P2POp, all_gather as all_gather, all_gather_coalesced as all_gather_coalesced,
    all_gather_into_tensor as all_gather_into_tensor, all_reduce as all_reduce,
    all_reduce_coalesced as all_reduce_coalesced, all_to_all as all_to_all, all_to_all_single as all_to_all_single,
    barrier as barrier, batch_isend_irecv as batch_isend_irecv, broadcast as broadcast, gather as gather,
    irecv as irecv, isend as isend, monitored_barrier as monitored_barrier, recv as recv, reduce as reduce,
    reduce_op as reduce_op, reduce_scatter as reduce_scatter, reduce_scatter_tensor as reduce_scatter_tensor,
    scatter as scatter, send as send,
)
from ._groups import (  # noqa: F401
    Backend as Backend, GroupMember as GroupMember, default_pg_timeout as default_pg_timeout,
    destroy_process_group as destroy_process_group, get_backend as get_backend, get_global_rank as get_global_rank,
    get_default_backend_for_device as get_default_backend_for_device,
    get_group_rank as get_group_rank, get_node_local_rank as get_node_local_rank, get_pg_count as get_pg_count,
    get_process_group_ranks as get_process_group_ranks, get_rank as get_rank, get_world_size as get_world_size,
    group as group, init_process_group as init_process_group, is_available as is_available,
    is_backend_available as is_backend_available, is_gloo_available as is_gloo_available,
    is_initialized as is_initialized, is_mpi_available as is_mpi_available, is_nccl_available as is_nccl_available,
    is_tcp_available as is_tcp_available, is_torchelastic_launched as is_torchelastic_launched,
    is_ucc_available as is_ucc_available, is_xccl_available as is_xccl_available, new_group as new_group,
    new_subgroups as new_subgroups, new_subgroups_by_enumeration as new_subgroups_by_enumeration,
    split_group as split_group,
)
from ._objects import (  # noqa: F401
    all_gather_object as all_gather_object, broadcast_object_list as broadcast_object_list,
    gather_object as gather_object, recv_object_list as recv_object_list,
    scatter_object_list as scatter_object_list, send_object_list as send_object_list,
)
from ._stores import (  # noqa: F401
    FileStore as FileStore, HashStore as HashStore, PrefixStore as PrefixStore, TCPStore as TCPStore,
)

# Names that these had, or have beside the others.
DistributedRequest = Work
all_gather_single = all_gather_into_tensor
reduce_scatter_single = reduce_scatter_tensor
_all_gather_base = all_gather_into_tensor
_reduce_scatter_base = reduce_scatter_tensor


def flight_records() -> str:
    """The last calls of every group of this process, one a line: what SIGUSR1 prints."""
    return _core.flight_records()


if TYPE_CHECKING:
    from . import algorithms as algorithms, distributed_c10d as distributed_c10d, elastic as elastic, nn as nn
else:

    def __getattr__(name: str):
        if name in ("algorithms", "nn", "elastic", "distributed_c10d"):
            import importlib

            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

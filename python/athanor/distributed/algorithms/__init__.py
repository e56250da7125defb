"""Join, and communication hooks for DistributedDataParallel."""
from . import ddp_comm_hooks  # noqa: F401
from .join import Join, Joinable, JoinHook  # noqa: F401

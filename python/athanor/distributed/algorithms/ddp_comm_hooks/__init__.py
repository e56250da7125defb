"""Communication hooks for DistributedDataParallel.register_comm_hook(state, hook)."""
from . import default_hooks, powerSGD_hook  # noqa: F401

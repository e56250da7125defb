"""The module that PyTorch keeps these functions in."""
from __future__ import annotations

from . import *  # noqa: F401,F403
from . import _core, default_pg_timeout  # noqa: F401
from ._groups import GroupMember, group  # noqa: F401


def _get_default_group():
    """The default group. RuntimeError before init_process_group."""
    return _core.default_group()

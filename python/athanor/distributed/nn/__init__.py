"""Collectives that gradients flow through."""
from . import functional  # noqa: F401
from .functional import *  # noqa: F401,F403

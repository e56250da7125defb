"""PyTorch's torch.serialization: save and load, and which classes load accepts."""

from __future__ import annotations

from athanor._serialization import add_safe_globals as add_safe_globals
from athanor._serialization import clear_safe_globals as clear_safe_globals
from athanor._serialization import get_safe_globals as get_safe_globals
from athanor._serialization import load as load
from athanor._serialization import safe_globals as safe_globals
from athanor._serialization import save as save

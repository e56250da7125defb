"""What registering a hook gives."""
from __future__ import annotations

from ..nn.modules._hooks import RemovableHandle as RemovableHandle

__all__ = ["RemovableHandle"]

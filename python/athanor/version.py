"""What this build is: torch.version."""
from __future__ import annotations

from typing import Optional

from ._version import __version__

cuda: Optional[str] = None
hip: Optional[str] = None
xpu: Optional[str] = None
debug = False
git_version = "unknown"

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "xpu"]

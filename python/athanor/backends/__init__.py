"""What programs ask or set about the libraries behind. Settings are kept and change nothing."""
from __future__ import annotations

from . import cuda, cudnn, mkl, mkldnn, mps, openmp  # noqa: F401

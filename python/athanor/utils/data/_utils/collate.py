"""Lists of examples to batches: athanor.utils.data.collate by PyTorch's name."""

from __future__ import annotations

from ..collate import default_collate as default_collate, default_convert as default_convert

"""Where programs look for torch.utils.data._utils.collate."""

from . import collate as collate

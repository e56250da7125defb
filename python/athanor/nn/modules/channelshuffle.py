"""ChannelShuffle."""

from __future__ import annotations

from athanor._C import Tensor
from athanor.nn import functional as F

from .module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Takes the channels of `groups` groups in turns.

    (N, C, *) → (N, C, *). Raises RuntimeError unless groups divides C.
    """

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"

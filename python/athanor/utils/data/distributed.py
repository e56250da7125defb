"""One rank's share of a dataset."""

from __future__ import annotations

import math
from typing import Any, Iterator, List, Optional

import athanor
from athanor.utils.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Every ``num_replicas``-th index from ``rank`` on, of one order that is the same on all ranks.

    All shares have one length: the first indices come twice to fill up, or with ``drop_last`` the last are left out.
    Call ``set_epoch`` before each epoch, else every epoch has the first one's order.

    Args:
        dataset: what is shared out.
        num_replicas, rank: number of ranks, and this one; those of the default process group unless given.
        shuffle: order drawn from ``seed + epoch``.
        drop_last: make the shares even by leaving out.

    Raises:
        ValueError: ``rank`` is not below ``num_replicas``.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: Optional[int] = None,
        rank: Optional[int] = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            import athanor.distributed as dist

            if not dist.is_available():
                raise RuntimeError("Requires distributed package to be available")
            num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
            rank = dist.get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        n = len(dataset)
        # Leaving out what does not divide evenly, or filling it up.
        self.num_samples = n // num_replicas if drop_last else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def _order(self) -> List[int]:
        n = len(self.dataset)
        if not self.shuffle:
            return list(range(n))
        generator = athanor.Generator()
        generator.manual_seed(self.seed + self.epoch)
        return athanor.randperm(n, generator=generator).tolist()

    def __iter__(self) -> Iterator[int]:
        order = self._order()
        if self.drop_last:
            order = order[: self.total_size]
        elif order:
            order = (order * math.ceil(self.total_size / len(order)))[: self.total_size]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration draw the order of this epoch."""
        self.epoch = epoch

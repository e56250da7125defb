"""One rank's share of a dataset."""

from __future__ import annotations

import math
import warnings
from typing import Any, Dict, Iterator, List, Optional

import athanor
from athanor.utils.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Every ``num_replicas``-th index from ``rank`` on, of one order that is the same on all ranks.

    All shares have one length: the first indices come twice to fill up, or with ``drop_last`` the last are left out.
    Call ``set_epoch`` before each epoch, else every epoch has the first one's order, which is warned of once.
    ``state_dict`` and ``load_state_dict`` go on inside an epoch.

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
        # Indices of the present pass that were handed out; whether the next pass starts there.
        self._position = 0
        self._resumed = False
        self._last_epoch: Optional[int] = None
        self._told = False

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
        share = order[self.rank : self.total_size : self.num_replicas]
        if not self._resumed:
            self._warn_of_same_epoch()
            self._position = 0
        self._resumed = False
        self._last_epoch = self.epoch
        return self._hand_out(share, self._position)

    def _warn_of_same_epoch(self) -> None:
        if not self.shuffle or self._told or self._last_epoch != self.epoch:
            return
        self._told = True
        warnings.warn(
            f"DistributedSampler: a second epoch begins without set_epoch(); it has the order of the last, that of epoch "
            f"{self.epoch}. Call set_epoch(epoch) before each epoch",
            stacklevel=3,
        )

    def _hand_out(self, share: List[int], start: int) -> Iterator[int]:
        for place in range(start, len(share)):
            self._position = place + 1
            yield share[place]

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration draw the order of this epoch; after ``load_state_dict``, another than the loaded one
        starts at its beginning."""
        if epoch != self.epoch:
            self._resumed = False
            self._position = 0
        self.epoch = epoch

    def state_dict(self) -> Dict[str, int]:
        """Where the sampler stands: ``seed`` and ``epoch``, from which the order is drawn, and ``position``, the number
        of this rank's indices that were handed out. Worker processes of a DataLoader are given indices ahead of the
        batches that it returns: with them, set ``position`` to the examples received."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self._position}

    def load_state_dict(self, state_dict: Dict[str, int]) -> None:
        """Has the next iteration go on where another sampler of the same dataset and number of replicas stood, with
        exactly the indices that it had left; the one after that is a whole epoch again.

        Raises:
            KeyError: an entry of ``state_dict()`` is missing.
            ValueError: ``position`` is beyond this rank's share; the sampler stays as it was.
        """
        seed, epoch, position = (int(state_dict[name]) for name in ("seed", "epoch", "position"))
        if not 0 <= position <= self.num_samples:
            raise ValueError(
                f"DistributedSampler.load_state_dict: position should be in [0, {self.num_samples}], the length of a "
                f"share, got {position}; make the sampler with the dataset, num_replicas and drop_last of the saved one"
            )
        self.seed, self.epoch, self._position = seed, epoch, position
        self._resumed = True

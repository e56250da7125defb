"""Training loops of unequal length."""
from __future__ import annotations

import abc
from typing import Any, List, NamedTuple, Optional

from ..._C import _distributed as _core
from .._groups import group


class JoinHook:
    """What a rank that has left its loop does in place of its own steps."""

    def main_hook(self) -> None:
        """Answers the collectives of one step of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when all ranks have left their loops; is_last_joiner: no rank made more steps than this one."""


class _JoinConfig(NamedTuple):
    """What a joinable knows of the Join that it is in."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        """That of a joinable outside of any Join."""
        return _JoinConfig(False, False, False)


class Joinable(abc.ABC):
    """Something with collectives in each step, which begins with Join.notify_join_context(self). A subclass calls this
    constructor."""

    def __init__(self) -> None:
        self._join_config = _JoinConfig.construct_disabled_join_config()
        self._join_notifier: Any = None

    @abc.abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What answers the others' steps; kwargs are Join's."""

    @property
    @abc.abstractmethod
    def join_device(self) -> Any:
        """The device of the tensors in its collectives."""

    @property
    @abc.abstractmethod
    def join_process_group(self) -> Any:
        """The group of its collectives; the same for all joinables of a Join."""


class Join:
    """`with Join([ddp, ...]):` around a training loop: a rank that leaves it early answers the others' collectives until
    all have ended. Parameters and buffers of DistributedDataParallel are then those of the rank that trained longest.

    joinables take part in every step of the loop, the first of them first. enable: off where inputs are known to be even.
    throw_on_early_termination: all ranks raise RuntimeError as soon as one has run out of inputs. Further keyword
    arguments go to the joinables' join_hook; see DistributedDataParallel.join_hook. Raises ValueError for none, or for
    joinables of different groups.
    """

    def __init__(self, joinables: List[Joinable], enable: bool = True, throw_on_early_termination: bool = False,
                 **kwargs: Any) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        for j in joinables:
            if not isinstance(j, Joinable):
                raise TypeError(f"Join: expected Joinables, as DistributedDataParallel is one, got {type(j).__name__}")
        self._joinables = list(joinables)
        self._enable = enable
        self._early = throw_on_early_termination
        self._hooks = [j.join_hook(**kwargs) for j in self._joinables]
        self._parts = [self._part(j, hook) for j, hook in zip(self._joinables, self._hooks)]
        divide = kwargs.get("divide_by_initial_world_size", True)
        self._block = _core._Join(self._parts, divide, enable, throw_on_early_termination)

    @staticmethod
    def _part(joinable: Joinable, hook: JoinHook) -> Any:
        """What the library answers with: a DistributedDataParallel's core, or a shell around a hook in Python."""
        core = getattr(hook, "_ddp_core", None)
        if core is not None:
            return core
        of = joinable.join_process_group
        return _core._Joinable(hook, group.WORLD if of is None else of)

    def __enter__(self) -> Join:
        self._block.enter()
        for i, (joinable, part) in enumerate(zip(self._joinables, self._parts)):
            joinable._join_config = _JoinConfig(self._enable, self._early, i == 0)
            joinable._join_notifier = part
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self._block.exit(kind is None)
        finally:
            for joinable in self._joinables:
                joinable._join_config = _JoinConfig.construct_disabled_join_config()
                joinable._join_notifier = None

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Optional[Any]:
        """Called by a joinable at the start of a step, before its collectives: tells the other ranks that this one goes
        on. Counts for the first joinable of a Join, and not outside of one. Returns when all ranks were heard, so that
        there is nothing to wait for: None."""
        if not hasattr(joinable, "_join_config"):
            raise AssertionError(f"Check that the {type(joinable).__name__} constructor calls the Joinable constructor")
        config = joinable._join_config
        if config.enable and config.is_first_joinable:
            notify = getattr(joinable._join_notifier, "notify", None)
            if notify is not None:
                notify()
        return None

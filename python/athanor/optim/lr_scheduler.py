"""Learning-rate schedules with PyTorch's names, formulas and defaults. Call ``step()`` after the optimizer's."""

from __future__ import annotations

from athanor.optim._schedule import LRScheduler as LRScheduler
from athanor.optim._schedule_compose import ChainedScheduler as ChainedScheduler
from athanor.optim._schedule_compose import ReduceLROnPlateau as ReduceLROnPlateau
from athanor.optim._schedule_compose import SequentialLR as SequentialLR
from athanor.optim._schedule_cycles import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from athanor.optim._schedule_cycles import CyclicLR as CyclicLR
from athanor.optim._schedule_cycles import OneCycleLR as OneCycleLR
from athanor.optim._schedules import ConstantLR as ConstantLR
from athanor.optim._schedules import CosineAnnealingLR as CosineAnnealingLR
from athanor.optim._schedules import ExponentialLR as ExponentialLR
from athanor.optim._schedules import LambdaLR as LambdaLR
from athanor.optim._schedules import LinearLR as LinearLR
from athanor.optim._schedules import MultiplicativeLR as MultiplicativeLR
from athanor.optim._schedules import MultiStepLR as MultiStepLR
from athanor.optim._schedules import PolynomialLR as PolynomialLR
from athanor.optim._schedules import StepLR as StepLR

_LRScheduler = LRScheduler

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

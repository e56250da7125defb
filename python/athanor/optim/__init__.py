"""Optimizers and learning-rate schedules, under PyTorch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from athanor.optim import lr_scheduler as lr_scheduler
from athanor.optim.adafactor import Adafactor as Adafactor
from athanor.optim.adadelta import Adadelta as Adadelta
from athanor.optim.adagrad import Adagrad as Adagrad
from athanor.optim.adam import Adam as Adam
from athanor.optim.adamax import Adamax as Adamax
from athanor.optim.adamw import AdamW as AdamW
from athanor.optim.asgd import ASGD as ASGD
from athanor.optim.lbfgs import LBFGS as LBFGS
from athanor.optim.nadam import NAdam as NAdam
from athanor.optim.optimizer import Optimizer as Optimizer
from athanor.optim.radam import RAdam as RAdam
from athanor.optim.rmsprop import RMSprop as RMSprop
from athanor.optim.rprop import Rprop as Rprop
from athanor.optim.sgd import SGD as SGD

__all__ = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "lr_scheduler",
    "swa_utils",
]


if TYPE_CHECKING:
    from . import swa_utils as swa_utils
else:

    def __getattr__(name: str) -> Any:
        if name == "swa_utils":  # needs athanor.nn, which optimizers do not
            import importlib

            return importlib.import_module("athanor.optim.swa_utils")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Transforms of images: tensors (..., height, width), and PIL's images and NumPy's arrays where they are installed."""

from __future__ import annotations

from athanor.vision.transforms import functional as functional
from athanor.vision.transforms.functional import InterpolationMode as InterpolationMode
from athanor.vision.transforms.random_transforms import *  # noqa: F401,F403
from athanor.vision.transforms.transforms import *  # noqa: F401,F403

"""Parametrizations that are often wanted: weight_norm, spectral_norm, orthogonal."""

from __future__ import annotations

from typing import Any, Optional

import athanor
from athanor import _C
from athanor._C import Tensor
from athanor.nn import functional as F
from athanor.nn import init
from athanor.nn.modules.module import Module
from athanor.nn.utils import parametrize
from athanor.nn.utils.weight_norm import norm_except_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim: Optional[int] = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: Optional[int] = 0) -> Module:
    """A weight as its norm, original0, per slice of `dim` (of the whole for None), times its direction, original1
    (Salimans and Kingma, 2016). States of nn.utils.weight_norm (name_g, name_v) can be loaded."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def read_old_names(state_dict: dict, prefix: str, *_: Any) -> None:
        for old, new in (("_g", "original0"), ("_v", "original1")):
            key = f"{prefix}{name}{old}"
            if key in state_dict:
                state_dict[f"{prefix}parametrizations.{name}.{new}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(read_old_names)
    return module


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if not -weight.dim() <= dim < weight.dim():
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.dim()}, {weight.dim() - 1}] but got "
                f"{dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % weight.dim()
        self.eps = eps
        if weight.dim() > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight)
            rows, cols = matrix.shape
            u, v = matrix.new_empty(rows).normal_(0, 1), matrix.new_empty(cols).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            # Near the singular vectors from the beginning.
            self._step(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        if self.dim != 0:
            weight = weight.movedim(self.dim, 0)
        return weight.reshape(weight.size(0), -1)

    def _step(self, matrix: Tensor, count: int) -> None:
        with athanor.no_grad():
            for _ in range(count):
                self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._step(matrix, self.n_power_iterations)
        # The graph of this forward must survive the changes of the next.
        u, v = self._u.clone(), self._v.clone()
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: Optional[int] = None
) -> Module:
    """A weight divided by its greatest singular value, found by power iteration (Miyato et al., 2018). dim: the one of
    the outputs; 0, for transposed convolutions 1."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        from athanor.nn.modules.conv import _ConvTransposeNd

        dim = 1 if isinstance(module, _ConvTransposeNd) else 0
    parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module


class _Orthogonal(Module):
    """The Cayley map of a skew-symmetric matrix, times a fixed orthogonal one: orthogonal whatever the original is."""

    def __init__(self, weight: Tensor, use_trivialization: bool) -> None:
        super().__init__()
        self.tall = weight.size(-2) >= weight.size(-1)
        base = weight.detach() if self.tall else weight.detach().transpose(-2, -1)
        n, k = base.shape[-2:]
        frame = base.new_empty((*base.shape[:-2], n, n)).flatten(0, -3) if base.dim() > 2 else base.new_empty((1, n, n))
        for i, part in enumerate(base.reshape(-1, n, k)):
            frame[i] = _completed(part)
        self.register_buffer("base", frame.reshape(*base.shape[:-2], n, n))
        self.use_trivialization = use_trivialization

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.tall else x.transpose(-2, -1)
        n, k = x.shape[-2:]
        lower = x.tril(-1)
        if k < n:
            lower = athanor.cat([lower, lower.new_zeros((*lower.shape[:-1], n - k))], -1)
        skew = lower - lower.transpose(-2, -1)
        eye = athanor.eye(n, dtype=x.dtype, device=x.device)
        q = _C.ops.linalg_solve(eye + skew * 0.5, eye - skew * 0.5)
        q = self.base.matmul(q)[..., :k]
        return q if self.tall else q.transpose(-2, -1)


def _completed(part: Tensor) -> Tensor:
    """An orthogonal (n, n) matrix that begins with what is orthogonal of the columns of (n, k)."""
    n, k = part.shape
    square = athanor.empty(n, n, dtype=athanor.float64).normal_(0, 1)
    square[:, :k] = part.double()
    return init._orthonormal_columns(square).to(part.dtype)


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: Optional[str] = None, *, use_trivialization: bool = True
) -> Module:
    """A matrix (*, m, n) with orthonormal columns (rows, if there are fewer), by the Cayley map around its present
    value's orthogonal part. orthogonal_map: "cayley" or None; "matrix_exp" and "householder" do not exist here.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.dim() < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions.")
    if orthogonal_map not in (None, "cayley"):
        raise ValueError(f'orthogonal: orthogonal_map is {orthogonal_map!r}, expected "cayley" or None')
    if not use_trivialization:
        raise ValueError("orthogonal: only use_trivialization=True exists here")
    made = _Orthogonal(weight, use_trivialization)
    with athanor.no_grad():
        weight.zero_()
    parametrize.register_parametrization(module, name, made, unsafe=True)
    return module

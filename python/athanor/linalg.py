"""Linear algebra, as far as the library has it."""
from __future__ import annotations

from . import _C
from ._C import LinAlgError, Tensor
from ._functions import _written

_ops = _C.ops
cross, multi_dot, matrix_power = _ops.linalg_cross, _ops.linalg_multi_dot, _ops.linalg_matrix_power
solve, inv, slogdet, det, cholesky = (_ops.linalg_solve, _ops.linalg_inv, _ops.linalg_slogdet, _ops.linalg_det,
                                      _ops.linalg_cholesky)
vector_norm, matrix_norm, norm = _ops.linalg_vector_norm, _ops.linalg_matrix_norm, _ops.linalg_norm
matmul = _ops.matmul


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, as a view; of the last two dims, unless dim1 and dim2 say otherwise."""
    return A.diagonal(offset, dim1, dim2)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out=None) -> Tensor:
    """The inner products of the vectors along dim."""
    return _written((x * y).sum(dim), out)

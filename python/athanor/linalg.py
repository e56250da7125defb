"""Linear algebra, as far as the library has it."""
from __future__ import annotations

import math
from typing import Optional, Tuple

from . import _C
from ._C import LinAlgError, Tensor
from ._functions import _written

_ops = _C.ops
cross, multi_dot, matrix_power = _ops.linalg_cross, _ops.linalg_multi_dot, _ops.linalg_matrix_power
solve, inv, slogdet, det, cholesky = (_ops.linalg_solve, _ops.linalg_inv, _ops.linalg_slogdet, _ops.linalg_det,
                                      _ops.linalg_cholesky)
qr, svd, svdvals, eigh, eigvalsh = (_ops.linalg_qr, _ops.linalg_svd, _ops.linalg_svdvals, _ops.linalg_eigh,
                                    _ops.linalg_eigvalsh)
solve_triangular, lstsq, pinv, matrix_rank, cond = (_ops.linalg_solve_triangular, _ops.linalg_lstsq, _ops.linalg_pinv,
                                                    _ops.linalg_matrix_rank, _ops.linalg_cond)
vector_norm, matrix_norm, norm = _ops.linalg_vector_norm, _ops.linalg_matrix_norm, _ops.linalg_norm
matmul = _ops.matmul


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, as a view; of the last two dims, unless dim1 and dim2 say otherwise."""
    return A.diagonal(offset, dim1, dim2)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out=None) -> Tensor:
    """The inner products of the vectors along dim."""
    return _written((x * y).sum(dim), out)


def vander(x: Tensor, N: Optional[int] = None) -> Tensor:
    """Rows of the powers 0 to N - 1 of each element of x; N is by default the length of its last dim."""
    x = x.unsqueeze(-1) if x.dim() == 0 else x
    n = x.size(-1) if N is None else N
    if N is not None and N <= 1:
        raise RuntimeError(f"linalg.vander: N should be above 1, got {N}")
    first = _ops.ones_like(x.to(_C.int64) if x.dtype == _C.bool else x).unsqueeze(-1)
    return _ops.cat([first, x.unsqueeze(-1).expand(*x.shape, max(n - 1, 0)).cumprod(-1)], -1)[..., :n]


def tensorinv(A: Tensor, ind: int = 2, *, out=None) -> Tensor:
    """The tensor X for which tensordot(X, tensordot(A, B, B.dim()), ind) is B: the inverse of A as a matrix whose rows are
    its first ind dims together."""
    if ind <= 0:
        raise RuntimeError(f"linalg.tensorinv: ind should be positive, got {ind}")
    rows, columns = math.prod(A.shape[:ind]), math.prod(A.shape[ind:])
    if rows != columns:
        raise RuntimeError(f"linalg.tensorinv: A of shape {list(A.shape)} is {rows} by {columns} with ind {ind}, not square")
    return _written(inv(A.reshape(rows, columns)).reshape(*A.shape[ind:], *A.shape[:ind]), out)


def tensorsolve(A: Tensor, B: Tensor, dims: Optional[Tuple[int, ...]] = None, *, out=None) -> Tensor:
    """The tensor X for which tensordot(A, X, X.dim()) is B; dims of A that are named go behind the others first."""
    if dims is not None:
        behind = [d % A.dim() for d in dims]
        A = A.permute([d for d in range(A.dim()) if d not in behind] + behind)
    shape = A.shape[B.dim():]
    rows, columns = B.numel(), math.prod(shape)
    if A.numel() != rows * columns or rows != columns:
        raise RuntimeError(
            f"linalg.tensorsolve: A of shape {list(A.shape)} is no square matrix beside B of shape {list(B.shape)}"
        )
    return _written(solve(A.reshape(rows, columns), B.reshape(-1)).reshape(shape), out)

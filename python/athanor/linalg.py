"""Linear algebra, as far as the library has it."""
from __future__ import annotations

from . import _C
from ._C import LinAlgError, Tensor

_ops = _C.ops
cross, multi_dot, matrix_power = _ops.linalg_cross, _ops.linalg_multi_dot, _ops.linalg_matrix_power
solve, inv, slogdet, det, cholesky = (_ops.linalg_solve, _ops.linalg_inv, _ops.linalg_slogdet, _ops.linalg_det,
                                      _ops.linalg_cholesky)
vector_norm = _ops.linalg_vector_norm


def norm(A: Tensor, ord=None, dim=None, keepdim: bool = False, *, out=None, dtype=None) -> Tensor:  # noqa: N803
    """The norm of all elements or along dim; a vector norm. Matrix norms other than the Frobenius one are not here."""
    if isinstance(dim, int):
        dim = [dim]
    if ord is not None and (isinstance(ord, str) and ord != "fro" or dim is not None and len(dim) == 2
                            or dim is None and A.dim() == 2 and ord != "fro"):
        raise NotImplementedError(f"linalg.norm: matrix norm of order {ord!r}; the Frobenius norm and vector norms are here")
    order = 2 if ord in (None, "fro") else ord
    if out is None:
        return vector_norm(A, order, dim, keepdim, dtype=dtype)
    return vector_norm(A, order, dim, keepdim, dtype=dtype, out=out)


def matrix_norm(A: Tensor, ord="fro", dim=(-2, -1), keepdim: bool = False, *, dtype=None, out=None) -> Tensor:  # noqa: N803
    """The Frobenius norm of matrices. Raises NotImplementedError for other orders."""
    if ord != "fro":
        raise NotImplementedError(f"linalg.matrix_norm: order {ord!r}; only 'fro' is here")
    return norm(A, None, dim, keepdim, dtype=dtype, out=out)

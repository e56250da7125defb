"""Linear algebra, as far as the library has it."""
from __future__ import annotations

from . import _C
from ._C import LinAlgError, Tensor
from ._functions import _written

_ops = _C.ops
cross, multi_dot, matrix_power = _ops.linalg_cross, _ops.linalg_multi_dot, _ops.linalg_matrix_power
solve, inv, slogdet, det, cholesky = (_ops.linalg_solve, _ops.linalg_inv, _ops.linalg_slogdet, _ops.linalg_det,
                                      _ops.linalg_cholesky)
vector_norm = _ops.linalg_vector_norm
_INFINITY = float("inf")


def norm(input: Tensor, ord=None, dim=None, keepdim: bool = False, *, out=None, dtype=None) -> Tensor:
    """The norm of all elements or along dim: a vector norm, or for two dims (or a matrix and an ord) as matrix_norm. Raises
    RuntimeError for an ord of a tensor that is neither vector nor matrix, NotImplementedError as matrix_norm."""
    dims = [dim] if isinstance(dim, int) else dim
    if ord is not None and (len(dims) if dims is not None else input.dim()) == 2:
        return matrix_norm(input, ord, (-2, -1) if dims is None else dims, keepdim, dtype=dtype, out=out)
    if isinstance(ord, str):
        raise RuntimeError(f"linalg.norm: order {ord!r} is one of matrices; expected two dims, got dim={dim} of {input.dim()}")
    if dims is not None and len(dims) > 2:
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    if ord is not None and dims is None and input.dim() > 2:
        raise RuntimeError("linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                           f"{input.dim()}D.")
    order = 2 if ord is None else ord
    if out is None:
        return vector_norm(input, order, dims, keepdim, dtype=dtype)
    return vector_norm(input, order, dims, keepdim, dtype=dtype, out=out)


def matrix_norm(input: Tensor, ord="fro", dim=(-2, -1), keepdim: bool = False, *, dtype=None, out=None) -> Tensor:
    """The norm of matrices: "fro", the largest (1; -1: smallest) sum of absolute values of a column, or of a row (inf,
    -inf). Raises NotImplementedError for the orders that need singular values: 2, -2 and "nuc"."""
    if ord in (2, -2, "nuc"):
        raise NotImplementedError(f"linalg.matrix_norm: order {ord!r} needs singular values, which are not here; 'fro', 1, -1, "
                                  "inf and -inf are")
    if ord not in ("fro", 1, -1, _INFINITY, -_INFINITY):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord!r} not supported. Expected 'fro', 'nuc', 1, 2, inf or their "
                           "negatives")
    if input.dim() < 2:
        raise RuntimeError(f"linalg.matrix_norm: The input tensor A must have at least 2 dimensions, got {input.dim()}.")
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {tuple(dim)}")
    rows, columns = (d + input.dim() if d < 0 else d for d in dim)
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got {tuple(dim)}")
    if ord == "fro":
        result = vector_norm(input, 2, (rows, columns), keepdim, dtype=dtype)
    else:
        along, across = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = vector_norm(input, 1, along, True, dtype=dtype)
        if sums.shape[across] == 0 and ord > 0:
            result = sums.sum(across, keepdim=True)  # the largest of none is 0
        else:
            result = (sums.amax if ord > 0 else sums.amin)(across, keepdim=True)
        result = result if keepdim else result.squeeze((rows, columns))
    return _written(result, out)

"""Special functions, under the names of torch.special."""
from __future__ import annotations

from . import _C

_ops = _C.ops
digamma = psi = _ops.digamma
gammaln, polygamma = _ops.lgamma, _ops.polygamma
erf, erfc, erfinv = _ops.erf, _ops.erfc, _ops.erfinv
exp2, expm1, log1p, sinc = _ops.exp2, _ops.expm1, _ops.log1p, _ops.sinc
expit, logit, logsumexp, round = _ops.sigmoid, _ops.logit, _ops.logsumexp, _ops.round
softmax, log_softmax, xlogy = _ops.softmax, _ops.log_softmax, _ops.xlogy

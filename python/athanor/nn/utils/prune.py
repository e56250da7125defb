"""Pruning: parameters with some of their elements held at zero by a mask.

A pruned parameter `name` lives on as the parameter `name_orig`; the buffer `name_mask` says by ones and zeros what is
kept, and `name` is their product, made anew before every forward. Pruning again prunes among what is kept.
"""

from __future__ import annotations

import abc
import numbers
from typing import Any, Iterable, Iterator, Optional, Tuple

import athanor
from athanor._C import Tensor

from .convert_parameters import parameters_to_vector


def _check_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if float(amount) < 0 or (not isinstance(amount, numbers.Integral) and float(amount) > 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _count(amount: Any, size: int) -> int:
    """How many of `size` elements are to go: the amount itself, or the nearest to that fraction."""
    if not isinstance(amount, numbers.Integral):
        return round(amount * size)
    if int(amount) > size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
    return int(amount)


def _check_slices(t: Tensor, dim: int) -> None:
    if t.dim() <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
            f"{tuple(t.shape)} with {t.dim()} dims"
        )
    if not -t.dim() <= dim < t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {tuple(t.shape)}")


def _check_scores(scores: Tensor, t: Tensor, what: str) -> None:
    if scores.shape != t.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {what}, got {tuple(scores.shape)} for {tuple(t.shape)}"
        )


class BasePruningMethod(abc.ABC):
    """A way to choose what is pruned; registered as the hook that makes the pruned tensor before every forward.

    A subclass has PRUNING_TYPE and compute_mask. "unstructured" methods see, when a tensor is pruned again, a vector of
    the elements that are kept; "structured" ones, which have an attribute `dim`, the slices along it that are kept in
    part; "global" ones everything.
    """

    PRUNING_TYPE: str
    _tensor_name: str

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abc.abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The new mask, of t's shape: default_mask with more zeros. t are the parameter's values, or their importance."""

    def apply_mask(self, module: Any) -> Tensor:
        """The pruned tensor: the module's original parameter times its mask."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        orig = getattr(module, name + "_orig")
        return getattr(module, name + "_mask").to(dtype=orig.dtype) * orig

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Optional[Tensor] = None,
              **kwargs: Any) -> BasePruningMethod:
        """Prunes the parameter `name` of the module by a method made of the remaining arguments, and returns the hook.
        importance_scores, of the parameter's shape, take the place of its values where the method ranks them. If the
        method refuses, the module is as before.
        """
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        key, before = _hook_of(module, name)
        current = getattr(module, name)
        if importance_scores is None:
            importance_scores = current
        else:
            _check_scores(importance_scores, current, f"parameter {name} of {module}")
        mask = getattr(module, name + "_mask").detach().clone() if before is not None else athanor.ones_like(current)
        with athanor.no_grad():
            if before is None:
                mask = method.compute_mask(importance_scores, mask)
            else:
                mask = _among_kept(method, importance_scores, mask)
        hook = method
        if before is not None:
            hook = before if isinstance(before, PruningContainer) else PruningContainer(before)
            hook.add_pruning_method(method)
            del module._forward_pre_hooks[key]
        else:
            del module._parameters[name]
            module.register_parameter(name + "_orig", current)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, hook.apply_mask(module))
        module.register_forward_pre_hook(hook)
        return hook

    def prune(self, t: Tensor, default_mask: Optional[Tensor] = None,
              importance_scores: Optional[Tensor] = None) -> Tensor:
        """A tensor pruned without a module around it."""
        if importance_scores is None:
            importance_scores = t
        else:
            _check_scores(importance_scores, t, "tensor t")
        if default_mask is None:
            default_mask = athanor.ones_like(t)
        return t * self.compute_mask(importance_scores, default_mask)

    def remove(self, module: Any) -> None:
        """Makes the parameter a plain one again, which keeps its zeros; the hook itself is for the caller to take away."""
        with athanor.no_grad():
            pruned = self.apply_mask(module)
        name = self._tensor_name
        if hasattr(module, name):
            delattr(module, name)
        parameter = module._parameters.pop(name + "_orig")
        parameter.data = pruned.data
        del module._buffers[name + "_mask"]
        setattr(module, name, parameter)


def _hook_of(module: Any, name: str) -> Tuple[Any, Optional[BasePruningMethod]]:
    found = [(k, h) for k, h in module._forward_pre_hooks.items()
             if isinstance(h, BasePruningMethod) and h._tensor_name == name]
    if len(found) > 1:
        raise AssertionError(f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. "
                             "Use a PruningContainer.")
    return found[0] if found else (None, None)


def _among_kept(method: BasePruningMethod, t: Tensor, mask: Tensor) -> Tensor:
    """The mask with what the method prunes among what it keeps."""
    where: Any
    if method.PRUNING_TYPE == "unstructured":
        where = mask == 1
    elif method.PRUNING_TYPE == "structured":
        dim = getattr(method, "dim", None)
        if dim is None:
            raise AttributeError("Pruning methods of PRUNING_TYPE \"structured\" need to have the attribute `dim` defined.")
        if not -t.dim() <= dim < t.dim():
            raise IndexError(f"Index is out of bounds for tensor with dimensions {t.dim()}")
        dim %= t.dim()
        others = [d for d in range(t.dim()) if d != dim]
        kept = (mask.sum(dim=others) if others else mask) != 0
        where = (slice(None),) * dim + (kept,)
    elif method.PRUNING_TYPE == "global":
        where = (slice(None),) * t.dim()
    else:
        raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    result = mask.to(dtype=t.dtype, copy=True)
    result[where] = method.compute_mask(t[where], default_mask=mask[where]).to(dtype=result.dtype)
    return result


class PruningContainer(BasePruningMethod):
    """Several methods, applied to one parameter one after the other."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: Tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Optional[BasePruningMethod]) -> None:
        """Adds a method for the same parameter. TypeError for anything else, ValueError for another parameter's."""
        if method is None:
            return
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        mine = getattr(self, "_tensor_name", None)
        if mine != method._tensor_name:
            raise ValueError(f"Can only add pruning methods acting on the parameter named '{mine}' to PruningContainer "
                             f"{self}. Found '{method._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """What the last method adds to the mask; the others' parts are in it."""
        return _among_kept(self._pruning_methods[-1], t, default_mask)


class Identity(BasePruningMethod):
    """Prunes nothing: the parameter only takes the form of a pruned one."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> BasePruningMethod:  # type: ignore[override]
        """Gives the parameter a mask of ones."""
        return super().apply(module, name)


class _Elements(BasePruningMethod):
    """`amount` elements (an int), or that fraction of them (a float from 0 to 1)."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _check_amount(amount)
        self.amount = amount

    @abc.abstractmethod
    def rank(self, t: Tensor) -> Tensor:
        """The least of these numbers go first."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        mask = default_mask.clone(memory_format=athanor.contiguous_format)
        if count:
            least = athanor.topk(self.rank(t).reshape(-1), k=count, largest=False).indices
            mask.view(-1)[least] = 0
        return mask


class RandomUnstructured(_Elements):
    """Prunes elements at random."""

    def rank(self, t: Tensor) -> Tensor:
        return athanor.rand(t.shape, device=t.device)

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any) -> BasePruningMethod:  # type: ignore[override]
        """Prunes `amount` elements of the parameter, or that fraction of them."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Elements):
    """Prunes the elements of least absolute value."""

    def rank(self, t: Tensor) -> Tensor:
        return t.abs()

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any,  # type: ignore[override]
              importance_scores: Optional[Tensor] = None) -> BasePruningMethod:
        """Prunes `amount` elements of the parameter, or that fraction of them."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Slices(BasePruningMethod):
    """`amount` slices along `dim` (an int), or that fraction of them (a float from 0 to 1)."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount = amount
        self.dim = dim

    @abc.abstractmethod
    def rank(self, t: Tensor) -> Tensor:
        """A number per slice; those with the least go first."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _check_slices(t, self.dim)
        size = t.size(self.dim)
        count = _count(self.amount, size)
        if count == 0:
            return default_mask
        kept = athanor.topk(self.rank(t), k=size - count, largest=True).indices
        mask = athanor.zeros_like(default_mask)
        mask.index_fill_(self.dim, kept, 1)
        return mask * default_mask


class RandomStructured(_Slices):
    """Prunes whole slices at random."""

    def rank(self, t: Tensor) -> Tensor:
        return athanor.rand(t.size(self.dim), device=t.device)

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, dim: int = -1) -> BasePruningMethod:  # type: ignore[override]
        """Prunes `amount` slices along `dim` of the parameter, or that fraction of them."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Slices):
    """Prunes the slices of least n-norm (n as norm()'s p)."""

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def rank(self, t: Tensor) -> Tensor:
        others = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        return athanor.norm(t, p=self.n, dim=others)

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, n: Any, dim: int,  # type: ignore[override]
              importance_scores: Optional[Tensor] = None) -> BasePruningMethod:
        """Prunes `amount` slices along `dim` of the parameter, or that fraction of them."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes where a given mask is zero."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"a mask of shape {tuple(self.mask.shape)} for a tensor of shape "
                                 f"{tuple(default_mask.shape)}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Tensor) -> BasePruningMethod:  # type: ignore[override]
        """Prunes the parameter where the mask is zero."""
        return super().apply(module, name, mask=mask)


def identity(module: Any, name: str) -> Any:
    """Gives the parameter a mask of ones. Returns the module, as all functions here do."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prunes `amount` elements (an int), or that fraction of those kept (a float from 0 to 1), at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Optional[Tensor] = None) -> Any:
    """Prunes `amount` elements, or that fraction of those kept: the least by absolute value, or by the scores'."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prunes `amount` slices along dim, or that fraction of those kept, at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Any, name: str, amount: Any, n: Any, dim: int,
                  importance_scores: Optional[Tensor] = None) -> Any:
    """Prunes `amount` slices along dim, or that fraction of those kept: the least by n-norm of values or scores."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(parameters: Iterable[Tuple[Any, str]], pruning_method: Any,
                        importance_scores: Optional[dict] = None, **kwargs: Any) -> None:
    """Prunes several parameters, (module, name) each, as if they were one vector: the least of all go, wherever they are.
    importance_scores: {(module, name): tensor}; the remaining arguments are those of the method, an unstructured one.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    parameters = list(parameters)
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError('Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
                        f"{pruning_method} of type {method.PRUNING_TYPE}")
    tensors = [getattr(module, name) for module, name in parameters]
    with athanor.no_grad():
        values = parameters_to_vector([scores.get(pair, t) for pair, t in zip(parameters, tensors)])
        masks = [getattr(module, name + "_mask", None) for module, name in parameters]
        kept = parameters_to_vector([athanor.ones_like(t) if m is None else m for m, t in zip(masks, tensors)])
        kept = _among_kept(method, values, kept)
    begin = 0
    for (module, name), t in zip(parameters, tensors):
        custom_from_mask(module, name, kept[begin:begin + t.numel()].view(t.shape))
        begin += t.numel()


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prunes where the mask, of the parameter's shape, is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Any, name: str) -> Any:
    """Makes the parameter `name` a plain one again; it keeps its zeros. ValueError if it is not pruned."""
    key, hook = _hook_of(module, name)
    if hook is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    hook.remove(module)
    del module._forward_pre_hooks[key]
    return module


def is_pruned(module: Any) -> bool:
    """Whether the module, or one in it, has a pruned parameter."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())

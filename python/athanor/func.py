"""Modules as functions of their parameters, and derivatives of functions as functions, which nest. vmap is not here."""
from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple, Union

from . import _C
from ._C import Tensor, is_grad_enabled as _is_grad_enabled
from .autograd import functional as _functional, grad as _grad
from .autograd.grad_mode import enable_grad as _enable_grad
from .nn.utils import stateless as _stateless

_Places = Union[int, Tuple[int, ...]]


def functional_call(module, parameter_and_buffer_dicts, args: Any = None, kwargs: Optional[dict] = None, *,
                    tie_weights: bool = True, strict: bool = False):
    """Calls the module with parameters and buffers of a dict in the place of its own: one dict, or several without a name in
    common. args: one argument or a tuple. Raises ValueError for a name in two of the dicts."""
    given = parameter_and_buffer_dicts
    if not isinstance(given, dict):
        given = {}
        for part in parameter_and_buffer_dicts:
            twice = sorted(given.keys() & part.keys())
            if twice:
                raise ValueError(f"{twice[0]} appears in multiple dictionaries; behavior of functional call is ambiguous")
            given.update(part)
    return _stateless.functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def _leaves(tree: Any, found: list) -> list:
    """All tensors of nested lists, tuples and dicts."""
    if isinstance(tree, Tensor):
        found.append(tree)
    elif isinstance(tree, dict):
        for value in tree.values():
            _leaves(value, found)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            _leaves(value, found)
    return found


def _rebuilt(tree: Any, leaves: Any) -> Any:
    """The structure of tree with other tensors."""
    if isinstance(tree, Tensor):
        return next(leaves)
    if isinstance(tree, dict):
        return type(tree)((k, _rebuilt(v, leaves)) for k, v in tree.items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_rebuilt(v, leaves) for v in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(_rebuilt(v, leaves) for v in tree)
    return tree


def _fresh(tree: Any) -> Any:
    """The structure with a tensor of its own for each, which takes a gradient and passes it on."""
    return _rebuilt(tree, iter([t.view_as(t) if t.requires_grad and _is_grad_enabled() else t.detach().requires_grad_()
                                for t in _leaves(tree, [])]))


def _chosen(args: Sequence[Any], argnums: _Places, name: str) -> Tuple[int, ...]:
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not places:
        raise RuntimeError(f"{name}: expected at least one argument in argnums")
    for p in places:
        if not -len(args) <= p < len(args):
            raise RuntimeError(f"{name}: got argnums={argnums}, but only {len(args)} positional inputs")
    return tuple(p % len(args) for p in places)


def grad_and_value(func: Callable, argnums: _Places = 0, has_aux: bool = False) -> Callable:
    """A function that gives the gradient of func, whose result has one element, for the arguments at argnums (tensors, or nested
    lists, tuples and dicts of them), and that result. has_aux: func gives a pair, the second of which is handed on."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        places = _chosen(args, argnums, "grad")
        # Derivatives of this call's result are wanted where an argument leads somewhere, as in a grad around this one.
        outer = _is_grad_enabled() and any(t.requires_grad for t in _leaves([args, kwargs], []))
        with _enable_grad():
            given = list(args)
            for p in places:
                given[p] = _fresh(args[p])
            result = func(*given, **kwargs)
            value, aux = result if has_aux else (result, None)
            if not isinstance(value, Tensor) or value.numel() != 1 or value.dim() != 0:
                got = f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise RuntimeError(f"grad: expected a function of which the result is a tensor of no dims, got {got}")
            inputs = _leaves([given[p] for p in places], [])
            found = _grad(value, inputs, create_graph=True, allow_unused=True) if value.requires_grad else [None] * len(inputs)
        found = [_C.ops.zeros_like(t) if g is None else g for g, t in zip(found, inputs)]
        if not outer:
            found, value = [g.detach() for g in found], value.detach()
            aux = _rebuilt(aux, iter([t.detach() for t in _leaves(aux, [])]))
        gradients = _rebuilt([args[p] for p in places], iter(found))
        gradient = gradients[0] if isinstance(argnums, int) else tuple(gradients)
        return (gradient, (value, aux)) if has_aux else (gradient, value)

    return wrapped


def grad(func: Callable, argnums: _Places = 0, has_aux: bool = False) -> Callable:
    """A function that gives the gradient alone; see grad_and_value. Nests: grad(grad(f)) is the second derivative."""
    both = grad_and_value(func, argnums, has_aux)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> Any:
    """(func's result, a function of vectors like it that gives their product with the Jacobian, one per primal; and what func
    gave second if has_aux)."""
    outer = _is_grad_enabled() and any(t.requires_grad for t in _leaves(list(primals), []))
    with _enable_grad():
        given = [_fresh(p) for p in primals]
        result = func(*given)
        outputs, aux = result if has_aux else (result, None)
    inputs = _leaves(given, [])
    shown = outputs if outer else _rebuilt(outputs, iter([t.detach() for t in _leaves(outputs, [])]))

    def product(*vectors: Any) -> Any:
        v = _leaves(vectors[0] if len(vectors) == 1 else vectors, [])
        outs = _leaves(outputs, [])
        if len(v) != len(outs):
            raise RuntimeError(f"vjp: expected {len(outs)} vectors, one for each result, got {len(v)}")
        pairs = [(o, w) for o, w in zip(outs, v) if o.requires_grad]
        found: Any = [None] * len(inputs)
        if pairs:
            found = _grad([o for o, _ in pairs], inputs, [w for _, w in pairs], retain_graph=True, create_graph=outer,
                          allow_unused=True)
        gradients = _rebuilt(list(primals), iter([_C.ops.zeros_like(t) if g is None else g for g, t in zip(found, inputs)]))
        return tuple(gradients)

    return (shown, product, aux) if has_aux else (shown, product)


def jvp(func: Callable, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """(func's result, the Jacobian's product with the tangents; and what func gave second if has_aux)."""
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp: expected primals and tangents to be tuples")
    aux: list = []

    def alone(*args: Any) -> Any:
        result = func(*args)
        if not has_aux:
            return result
        aux[:] = [result[1]]
        return result[0]

    value, product = _functional.jvp(alone, primals, tangents, create_graph=_is_grad_enabled() and any(
        t.requires_grad for t in _leaves(primals, [])), strict=strict)
    return (value, product, aux[0]) if has_aux else (value, product)


def jacrev(func: Callable, argnums: _Places = 0, *, has_aux: bool = False, chunk_size: Optional[int] = None) -> Callable:
    """A function that gives func's Jacobian for the arguments (tensors) at argnums: shape of the result, then of the argument."""

    def wrapped(*args: Any) -> Any:
        places = _chosen(args, argnums, "jacrev")
        aux: list = []
        several: list = []

        def of_chosen(*chosen: Any) -> Any:
            given = list(args)
            for p, c in zip(places, chosen):
                given[p] = c
            result = func(*given)
            if has_aux:
                result, more = result
                aux[:] = [more]
            several[:] = [isinstance(result, tuple)]
            return result

        inputs = tuple(args[p] for p in places)
        outer = _is_grad_enabled() and any(t.requires_grad for t in _leaves(list(args), []))
        rows = _functional.jacobian(of_chosen, inputs, create_graph=outer)
        if isinstance(argnums, int):
            rows = tuple(r[0] for r in rows) if several[0] else rows[0]
        return (rows, aux[0]) if has_aux else rows

    return wrapped


def jacfwd(func: Callable, argnums: _Places = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable:
    """What jacrev gives: there is no forward mode here."""
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Callable, argnums: _Places = 0) -> Callable:
    """A function that gives func's second derivatives for the arguments at argnums."""
    return jacrev(jacrev(func, argnums), argnums)


def stack_module_state(models: Sequence[Any]) -> Tuple[dict, dict]:
    """(parameters, buffers) of modules of one kind, each stacked under its name. Raises RuntimeError for none, and for modules
    of different classes or modes."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(type(m) is not type(models[0]) or m.training != models[0].training for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of one class and in one of the modes train and eval.")
    parts: list = []
    for named in ("named_parameters", "named_buffers"):
        columns = [dict(getattr(m, named)()) for m in models]
        parts.append({name: _C.ops.stack([c[name].detach() for c in columns]) for name in columns[0]})
    for name, p in models[0].named_parameters():
        parts[0][name].requires_grad_(p.requires_grad)
    return parts[0], parts[1]

#!/usr/bin/env python3
"""Repeats the calls that parity_dump wrote with torch and compares: tests/parity/compare.py FOLDER [--op REGEX]

A call becomes torch.ops.aten.<op>.<overload> with the arguments of the same names, or what COUNTERPARTS says. Every op
of the library must be compared at least once or stand in WITHOUT_COUNTERPART with its reason. What this torch itself
refuses (half precision on old versions, say) is counted, not compared.
"""
import argparse
import collections
import json
import mmap
import os
import pathlib
import re
import struct
import sys
import warnings

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import generate_ops  # noqa: E402

F = torch.nn.functional
aten = torch.ops.aten
VERSION = tuple(int(p) for p in re.match(r"(\d+)\.(\d+)", torch.__version__).groups())

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
FORMATS = [torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d]

# Relative and absolute tolerance; gradients get ten times as much.
TOLERANCES = {torch.float64: (1e-10, 1e-10), torch.float32: (2e-5, 2e-5), torch.float16: (4e-3, 4e-3),
              torch.bfloat16: (3e-2, 3e-2)}

RANDOM = "its values are random; its row checks range, moments and seed"
UNINITIALIZED = "its values are not defined"
OWN = "a part of other ops, compared through them: "
WITHOUT_COUNTERPART = {
    **{name: RANDOM for name in (
        "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "normal",
        "multinomial", "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")},
    **{name: UNINITIALIZED for name in (
        "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")},
    "batch_norm_relu": "relu(batch_norm(...)) in one pass; compared by its row alone",
    "batch_norm_add_relu": "relu(batch_norm(...) + x) in one pass; compared by its row alone",
}

AT_EDGES = ("gradients at NaN, infinities and bounds, where torch's versions and its own scalar and vector code disagree, "
            "or give NaN where a limit exists")


class Difference:
    """What is known of a call that differs: `gradient`, `dtype` of what differs, `finite` inputs, the `call` itself."""

    def __init__(self, call, gradient, dtype, finite):
        self.call, self.gradient, self.dtype, self.finite = call, gradient, dtype, finite


# Differences that are meant or torch's own: ops, when, why.
KNOWN = [
    ("clamp|clamp_min|clamp_max|clip", lambda d: d.gradient and (not d.finite or d.dtype in (torch.float16, torch.bfloat16)),
     "the gradient at a bound, which inputs rounded to half types meet: 0 or half here and in newer versions, 1 in older ones"),
    ("amax|amin|aminmax|copysign|fmax|fmin|nextafter|logsumexp|logcumsumexp|nanmean|logit|rrelu|mish|"
     "celu|elu|selu|hardshrink|hardswish|hardtanh|relu6|softshrink", lambda d: d.gradient and not d.finite, AT_EDGES),
    ("mode", lambda d: not d.finite, "torch sorts by a comparison that NaN confuses, and misses equals beside it"),
    ("as_strided_scatter", lambda d: d.gradient,
     "torch's gradient of self has what was overwritten and lacks the rest: its own gradcheck refuses it"),
    ("mse_loss|huber_loss|smooth_l1_loss", lambda d: d.gradient and d.call["args"]["reduction"] == 1,
     "the mean's gradient for a target that broadcasts: torch divides by the target's number of elements, not the loss's"),
    ("binary_cross_entropy", lambda d: d.gradient and d.dtype == torch.float64,
     "probabilities of 0 and 1: torch's bound of 1e-12 is a float32"),
    ("binary_cross_entropy", lambda d: d.gradient and d.dtype == torch.float16,
     "probabilities of 0 and 1: torch's bound of 1e-12 is 0 in float16, and its gradient NaN"),
    ("smooth_l1_loss", lambda d: d.gradient and d.call["args"]["beta"] == 0,
     "the gradient of |d| at 0 is 0, as l1_loss has it; torch gives -1 for beta 0"),
    ("softshrink", lambda d: VERSION < (2, 0) and not d.finite, "torch 1 shrinks NaN to 0"),
    ("trigamma", lambda d: d.dtype in (None, torch.float64),
     "torch's has nine digits"),
    ("polygamma(_order)?", lambda d: d.call["args"].get("n") == 1 and d.dtype in (None, torch.float64),
     "trigamma again"),
    ("hardsigmoid", lambda d: d.gradient and d.dtype == torch.float64, "torch's sixth is a float32"),
    ("native_layer_norm", lambda d: d.dtype in (torch.float32, torch.float16, torch.bfloat16),
     "statistics of half types are float32 here, so that no precision is lost between forward and backward"),
    ("grid_sampler", lambda d: d.dtype in (torch.float16, torch.bfloat16),
     "halves find their places in float32 here, in torch in their own dtype"),
    ("topk|kthvalue|median|nanmedian|mode|sort|argsort|msort", lambda d: d.dtype == torch.int64,
     "which of equal elements is named: here the first (mode: the last), in torch any; the rows check it"),
    ("topk", lambda d: not d.call["args"]["sorted"], "without sorted, results are in the order of their indices here"),
    ("(linalg_)?slogdet|logdet", lambda d: d.dtype is None or d.gradient and d.call["op"] == "logdet",
     "a singular matrix has no gradient here, which is an error; the gradient of a logarithm of a negative is not that of NaN"),
    ("(linalg_)?det", lambda d: d.gradient, "of a singular matrix torch gives zeros unless the gradient is to be differentiated"),
    ("cholesky_solve", lambda d: d.gradient, "torch's gradient of the factor has the triangle, too, that is not read"),
    ("linalg_qr", lambda d: d.dtype is None, "what has no gradient refuses it, there as here"),
    ("linalg_eigh|linalg_svd|svd", lambda d: d.dtype is not None,
     "the signs of vectors, and gradients by them; the rows compare what does not depend on them"),
    ("ctc_loss", lambda d: d.gradient,
     "the gradient is that of free variables; torch adds exp(log_probs), which log_softmax's backward takes out again"),
    ("addbmm|addmm|baddbmm|mm|bmm|dot|vdot|mv|addmv|matmul|linear|einsum|upsample_.*|conv.*",
     lambda d: VERSION < (2, 0) and d.dtype == torch.bfloat16,
     "bfloat16 in torch 1: sums are bfloat16, and transposed convolutions have wrong shapes"),
    ("baddbmm", lambda d: VERSION < (2, 0) and not d.gradient and d.call["args"]["beta"] == 0,
     "torch 1 multiplies memory that nobody wrote by a beta of 0, which gives NaN now and then"),
]


def known(difference):
    for ops, when, why in KNOWN:
        if re.fullmatch(ops, difference.call["op"]) and when(difference):
            return why
    return ""


REDUCTIONS = ("none", "mean", "sum")


def bags(a):
    """embedding_bag's results as they are here: torch leaves some out where its own backward does not need them."""
    ends = a["offsets"].tolist()
    if not a["include_last_offset"]:
        ends.append(len(a["indices"]))
    owner = torch.tensor([b for b in range(len(ends) - 1) for _ in range(ends[b], ends[b + 1])], dtype=torch.int64)
    counted = torch.ones_like(owner) if a["padding_idx"] is None else (a["indices"] != a["padding_idx"]).to(torch.int64)
    sizes = torch.zeros(len(ends) - 1, dtype=torch.int64).index_add(0, owner, counted)
    out = F.embedding_bag(a["indices"].to(torch.int64), a["weight"], a["offsets"].to(torch.int64),
                          scale_grad_by_freq=a["scale_grad_by_freq"], mode=("sum", "mean", "max")[a["mode"]],
                          per_sample_weights=a["per_sample_weights"], include_last_offset=a["include_last_offset"],
                          padding_idx=a["padding_idx"])
    places = torch.empty(0, dtype=torch.int64)
    if a["mode"] == 2:
        with torch.no_grad():
            places = aten.embedding_bag.padding_idx(
                a["weight"], a["indices"].to(torch.int64), a["offsets"].to(torch.int64), False, 2, False, None,
                a["include_last_offset"], a["padding_idx"])[3]
            places = torch.where(sizes[:, None] > 0, places[:len(sizes)], -1)
    return out, owner, sizes, places


def window(name, *numbers):
    return lambda a: getattr(torch, name)(a["window_length"], a["periodic"], *(a[n] for n in numbers),
                                          dtype=a["options"].dtype)


def random_only(message):
    raise LookupError(message)


def nll(a):
    return F.nll_loss(a["self"], a["target"], a["weight"], ignore_index=a["ignore_index"],
                      reduction=("none", "mean", "sum")[a["reduction"]])


def nll_forward(a):
    counted = a["target"] != a["ignore_index"]
    weight = torch.ones(a["self"].shape[1], dtype=a["self"].dtype) if a["weight"] is None else a["weight"]
    statistics = torch.float64 if weight.dtype == torch.float64 else torch.float32
    return nll(a), weight.to(statistics)[a["target"][counted]].sum()


def convolution_backward(a, mask):
    grad = a["grad_output"]
    transposed = a["transposed"]
    like = torch.empty(a["input_size"] if mask[0] else a["weight_size"], dtype=grad.dtype)
    x, w = (like, a["weight"]) if mask[0] else (a["input"], like)
    results = aten.convolution_backward(grad, x, w, [grad.shape[1]], a["stride"], a["padding"], a["dilation"], transposed,
                                        a["output_padding"], a["groups"], mask)
    return [r for r, wanted in zip(results, mask) if wanted]


# What is called otherwise there. Each takes the arguments by name.
COUNTERPARTS = {
    "to_dtype": lambda a: a["self"].to(a["dtype"], copy=True),
    "to_device": lambda a: a["self"].clone(),
    "to": lambda a: a["self"].to(a["options"].dtype or a["self"].dtype),
    "to.dtype": lambda a: a["self"].to(a["dtype"]),
    "to.device": lambda a: a["self"].to(a["dtype"]),
    "to.other": lambda a: a["self"].to(a["other"]),
    "trigamma": lambda a: torch.polygamma(1, a["self"]),
    "polygamma_order": lambda a: torch.polygamma(a["n"], a["self"]),
    "rdiv": lambda a: a["other"] / a["self"],
    "index_with": lambda a: aten.index.Tensor(a["self"], a["indices"]),
    "index_put_with": lambda a: aten.index_put(a["self"], a["indices"], a["values"], a["accumulate"]),
    "cat_same_dtype": lambda a: torch.cat(a["tensors"], a["dim"]),
    "roll_dims": lambda a: torch.roll(a["self"], a["shifts"], a["dims"]),
    "repeat_interleave_dim": lambda a: torch.repeat_interleave(a["self"], a["repeats"], a["dim"]),
    "repeat_interleave": lambda a: torch.repeat_interleave(a["self"], a["repeats"], a["dim"]),
    "repeat_interleave.Tensor": lambda a: torch.repeat_interleave(a["repeats"]),
    "tensor_split.indices": lambda a: torch.tensor_split(a["self"], a["indices"], a["dim"]),
    "tensor_split.tensor_indices_or_sections": lambda a: torch.tensor_split(
        a["self"], a["tensor_indices_or_sections"], a["dim"]),
    "tensor_split": lambda a: torch.tensor_split(a["self"], a["sections"], a["dim"]),
    "split": lambda a: torch.split(a["self"], a["split_size"], a["dim"]),
    "nll_loss": nll,
    "nll_loss2d": nll,
    "nll_loss_forward": nll_forward,
    "softmin": lambda a: F.softmin(a["self"], a["dim"], dtype=a["dtype"]),
    "poisson_nll_loss": lambda a: F.poisson_nll_loss(
        a["input"], a["target"], a["log_input"], a["full"], eps=a["eps"],
        reduction=("none", "mean", "sum")[a["reduction"]]),
    "multilabel_soft_margin_loss": lambda a: F.multilabel_soft_margin_loss(
        a["self"], a["target"], a["weight"], reduction=REDUCTIONS[a["reduction"]]),
    "gaussian_nll_loss": lambda a: F.gaussian_nll_loss(
        a["input"], a["target"], a["var"], full=a["full"], eps=a["eps"], reduction=REDUCTIONS[a["reduction"]]),
    "cholesky": lambda a: torch.linalg.cholesky(a["self"], upper=a["upper"]),
    # The gradient of no pairs at all crashes there.
    "pdist": lambda a: torch.pdist(a["self"], a["p"]) if len(a["self"]) > 1 else random_only("no pairs"),
    "embedding_bag": bags,
    "hann_window": window("hann_window"),
    "hamming_window": window("hamming_window", "alpha", "beta"),
    "blackman_window": window("blackman_window"),
    "bartlett_window": window("bartlett_window"),
    "kaiser_window": window("kaiser_window", "beta"),
    "max_pool_gather": lambda a: a["self"].flatten(2).gather(2, a["indices"].flatten(2)).view_as(a["indices"]),
    "convolution_backward_input": lambda a: convolution_backward(a, [True, False, False]),
    "convolution_backward_weight": lambda a: convolution_backward(a, [False, True, True]),
    "rrelu": lambda a: random_only("slopes are random") if a["training"] else F.rrelu(a["self"], a["lower"], a["upper"]),
}


def counterpart(call, args):
    """What torch gives for the call: a tensor, a list or tuple of them, or a number."""
    special = COUNTERPARTS.get(call["op"] + ("." + call["overload"] if call["overload"] else ""),
                               COUNTERPARTS.get(call["op"]))
    if special:
        return special(dict(args))
    packet = getattr(aten, call["op"], None)
    if packet is None:
        for module in (torch, F):
            if hasattr(module, call["op"]):
                return getattr(module, call["op"])(*args.values())
        raise LookupError(f"torch has no {call['op']}")
    wanted = call["overload"] or "default"
    overloads = sorted(packet.overloads(), key=lambda name: (name != wanted, name))
    for overload in overloads:
        if overload != "out" and not overload.endswith("_out"):
            function = getattr(packet, overload)
            given = assigned(function._schema.arguments, args)
            if given:
                return function(*given[0], **given[1])
    raise LookupError(f"no overload of torch's {call['op']} takes {', '.join(args)}")


KINDS = {"Tensor": torch.Tensor, "Scalar": (bool, int, float), "number": (bool, int, float), "int": int, "float": (int, float),
         "bool": bool, "str": str, "ScalarType": torch.dtype, "MemoryFormat": torch.memory_format}


def fits(value, kind):
    """Whether a value may be given where a schema says `kind`."""
    kind = kind.replace("SymInt", "int")
    if kind.startswith("Optional["):
        return value is None or fits(value, kind[9:-1])
    if kind.startswith("List["):
        return isinstance(value, list) and all(fits(v, kind[5:-1]) for v in value)
    if kind == "int" and isinstance(value, (torch.dtype, torch.memory_format, torch.device, torch.layout)):
        return True  # old versions show these as integers
    if kind == "int" and isinstance(value, bool):
        return False
    return isinstance(value, KINDS.get(kind, object))


def assigned(parameters, args):
    """(positional, named) arguments of a schema, or None if it does not take ours. Names may differ where the place is
    the same; what is missing has its default."""
    positional, named = [], {}
    rest = dict(args)
    places = list(args)
    options = [n for n, v in args.items() if isinstance(v, Options)]
    for n in options:
        dtype = rest.pop(n).dtype
        if dtype is not None:
            named["dtype"] = dtype
    taken = {p.name for p in parameters}
    for i, parameter in enumerate(parameters):
        name = parameter.name if parameter.name in rest else None
        if name is None and i < len(places) and places[i] in rest and places[i] not in taken:
            name = places[i]
        if name is None:
            if parameter.name in named or parameter.kwarg_only and parameter.has_default_value():
                continue
            if not parameter.has_default_value():
                return None
            positional.append(parameter.default_value)
            continue
        value = rest.pop(name)
        if not fits(value, str(parameter.type)):
            return None
        if parameter.kwarg_only:
            named[parameter.name] = value
        else:
            positional.append(value)
    # An argument that the schema lacks must say nothing.
    if any(v not in (None, False, 1) for v in rest.values()):
        return None
    return positional, named


class Options:
    def __init__(self, dtype):
        self.dtype = dtype


class Tensors:
    """The tensors of a safetensors file by name."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        size, = struct.unpack("<Q", self.content[:8])
        self.header = json.loads(self.content[8:8 + size])
        self.begin = 8 + size

    def __getitem__(self, name):
        entry = self.header[str(name)]
        first, last = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        if first == last:
            return torch.empty(entry["shape"], dtype=dtype)
        data = bytearray(self.content[self.begin + first:self.begin + last])
        return torch.frombuffer(data, dtype=dtype).reshape(entry["shape"])


def decode(value, tensors):
    if isinstance(value, dict):
        if "t" in value:
            return tensors[value["t"]]
        if "list" in value:
            return [decode(v, tensors) for v in value["list"]]
        if "dtype" in value:
            return getattr(torch, value["dtype"])
        if "options" in value:
            return Options(getattr(torch, value["options"]) if value["options"] else None)
        if "device" in value:
            return torch.device("cpu")
        if "format" in value:
            return FORMATS[value["format"]]
    return value


def leaves_of(call, args):
    """The tensors among the arguments that gradients were noted for, in order (Call::differentiable in recorder.cpp)."""
    class_loss = call["op"].startswith("nll_loss") or call["op"] == "cross_entropy_loss"
    out = []
    for name, value in args.items():
        if name.startswith("running_") or class_loss and name == "weight":
            continue
        for t in value if isinstance(value, list) else [value]:
            if isinstance(t, torch.Tensor) and t.is_floating_point():
                out.append(t)
    return out


def difference(ours, theirs, scale=1):
    """Empty, or how two tensors differ."""
    if tuple(ours.shape) != tuple(theirs.shape):
        return f"shape {tuple(ours.shape)}, torch has {tuple(theirs.shape)}"
    if ours.dtype != theirs.dtype:
        return f"dtype {ours.dtype}, torch has {theirs.dtype}"
    if ours.numel() == 0:
        return ""
    a, b = ours.detach().double(), theirs.detach().double()
    relative, absolute = TOLERANCES.get(ours.dtype, (0, 0))
    # What overflowed in a half type may be finite, if just so, in the other.
    close = torch.isclose(a, b, rtol=relative * scale, atol=absolute * scale, equal_nan=True)
    if ours.dtype in (torch.int64,):
        close = ours == theirs
    if bool(close.all()):
        return ""
    where = int((~close).reshape(-1).nonzero()[0])
    return (f"element {where} is {ours.reshape(-1)[where].item()!r}, torch has {theirs.reshape(-1)[where].item()!r} "
            f"({int((~close).sum())} of {ours.numel()} differ)")


def as_list(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return list(result)


def all_finite(call, args):
    return all(bool(t.isfinite().all()) for t in leaves_of(call, args))


class Comparison:
    def __init__(self, spoiled=None):
        self.spoiled = spoiled
        self.compared = collections.Counter()
        self.gradients = collections.Counter()
        self.refused = collections.defaultdict(collections.Counter)
        self.known = collections.defaultdict(collections.Counter)
        self.faults = collections.defaultdict(list)

    def fault(self, call, text, gradient=False, dtype=None, finite=True):
        if why := known(Difference(call, gradient, dtype, finite)):
            self.known[why][full_name(call)] += 1
            return
        self.faults[full_name(call)].append(f"{call['row']}: {text}; arguments {describe(call)}")

    def results(self, call, tensors):
        args = {k: decode(v, tensors) for k, v in call["args"].items() if k}
        try:
            theirs = counterpart(call, args)
        except LookupError as error:
            self.refused[full_name(call)][f"no counterpart: {error}"] += 1
            return
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
            self.refused[full_name(call)][str(error).split("\n")[0][:160]] += 1
            return
        self.compared[full_name(call)] += 1
        if "result" in call["args"]:
            if call["args"]["result"] != theirs:
                self.fault(call, f"gave {call['args']['result']}, torch gives {theirs}")
            return
        ours = call["results"]["all"]
        theirs = as_list(theirs)
        if len(theirs) < len(ours):
            self.fault(call, f"{len(ours)} results, torch has {len(theirs)}")
        for i, (a, b) in enumerate(zip(ours, theirs)):
            if a is None:
                continue
            a = decode(a, tensors)
            if call["op"] == self.spoiled:
                a = a + 1
            if text := difference(a, b):
                self.fault(call, f"result {i}: {text}", dtype=a.dtype, finite=all_finite(call, args))
                return
        if "gradient_error" in call["results"]:
            self.fault(call, f"gradient threw: {call['results']['gradient_error']}")
        if "gradients" in call["results"]:
            self.check_gradients(call, tensors)

    def check_gradients(self, call, tensors):
        noted = call["results"]
        args = {k: decode(v, tensors) for k, v in call["args"].items() if k}
        args = {k: v.clone() if k.startswith("running_") and v is not None else v for k, v in args.items()}
        leaves = leaves_of(call, args)
        seeds = [decode(s, tensors) for s in noted["seeds"]]
        wanted = list(range(len(leaves)))

        def run(which):
            for i, leaf in enumerate(leaves):
                leaf.requires_grad_(i in which)
            outputs = as_list(counterpart(call, args))
            outputs = [(outputs[i], s) for i, s in zip(noted["differentiated"], seeds)]
            outputs = [(o, s) for o, s in outputs if o.requires_grad]
            if not outputs:
                return [None] * len(which)
            return torch.autograd.grad([o for o, _ in outputs], [leaves[i] for i in which], [s for _, s in outputs],
                                       allow_unused=True)

        theirs = {}
        try:
            theirs = dict(zip(wanted, run(wanted)))
        except (RuntimeError, NotImplementedError, LookupError) as error:
            # Some inputs have no derivative there: one by one.
            for i in wanted:
                try:
                    theirs[i] = run([i])[0]
                except (RuntimeError, NotImplementedError):
                    self.refused[full_name(call)]["gradient: " + str(error).split("\n")[0][:140]] += 1
        for i, b in theirs.items():
            a = noted["gradients"][i]
            if a is None and b is None:
                continue
            ours = torch.zeros_like(leaves[i]) if a is None else decode(a, tensors)
            b = torch.zeros_like(leaves[i]) if b is None else b
            self.gradients[full_name(call)] += 1
            if text := difference(ours, b.to_dense() if b.is_sparse else b, 10):
                self.fault(call, f"gradient of input {i}: {text}", True, ours.dtype, all_finite(call, args))
                return


def full_name(call):
    return call["op"] + ("." + call["overload"] if call["overload"] else "")


def describe(call):
    return {k: v for k, v in call["args"].items() if k and not (isinstance(v, dict) and ("t" in v or "list" in v))}


def library_ops():
    folder = pathlib.Path(__file__).resolve().parents[2] / "athanor" / "ops"
    for path in sorted(folder.glob("*.cpp")):
        for op in generate_ops.read_ops(path):
            if not op.mutates and not op.name.startswith("_") and not op.name.endswith("_backward"):
                yield op.name + ("." + op.overload if op.overload else "")


def without_row():
    """Ops that the op table excuses."""
    text = (pathlib.Path(__file__).resolve().parents[1] / "op_table" / "exemptions.cpp").read_text()
    return set(re.findall(r'\{"([\w.]+)",', text))


def report(comparison, only):
    c = comparison
    exempt = without_row()
    print(f"torch {torch.__version__}: {sum(c.compared.values())} calls of {len(c.compared)} ops compared, "
          f"{sum(c.gradients.values())} gradients of {len(c.gradients)} ops")
    excused = []
    missing = []
    for name in library_ops():
        if only and not re.search(only, name) or name in c.compared:
            continue
        reason = WITHOUT_COUNTERPART.get(name) or WITHOUT_COUNTERPART.get(name.split(".")[0])
        refusals = c.refused.get(name)
        if reason:
            excused.append(f"{name}: {reason}")
        elif refusals and VERSION < (2, 0):
            excused.append(f"{name}: this torch refuses: {next(iter(refusals))}")
        elif name in exempt:
            excused.append(f"{name}: it has no row in the op table")
        else:
            missing.append(f"{name}: " + (f"torch refuses: {next(iter(refusals))}" if refusals else "no call was noted"))
    print(f"not compared ({len(excused)}):", *excused, sep="\n  ")
    partly = {n: r for n, r in c.refused.items() if n in c.compared}
    print(f"refused by torch for some arguments: {sum(sum(r.values()) for r in partly.values())} calls of {len(partly)} ops")
    if os.environ.get("PARITY_VERBOSE"):
        for name, reasons in sorted(partly.items()):
            for reason, count in reasons.items():
                print(f"  {name}: {count} × {reason}")
    print("known differences:")
    for why, ops in c.known.items():
        print(f"  {why}: " + ", ".join(f"{name} ({count})" for name, count in sorted(ops.items())))
    for text in missing:
        print("NOT COMPARED", text)
    for name, faults in sorted(c.faults.items()):
        print(f"DIFFERS {name}: {len(faults)} calls")
        for text in faults[:4]:
            print("   ", text)
    return 1 if c.faults or missing else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--op", metavar="REGEX", help="only these")
    parser.add_argument("--spoil", metavar="OP", help="add 1 to this op's results, to see that it is noticed")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tensors = Tensors(os.path.join(args.folder, "tensors.safetensors"))
    comparison = Comparison(args.spoil)
    with open(os.path.join(args.folder, "calls.jsonl"), encoding="utf-8") as lines:
        for line in lines:
            call = json.loads(line)
            if args.op and not re.search(args.op, full_name(call)):
                continue
            if full_name(call) in WITHOUT_COUNTERPART or call["op"] in WITHOUT_COUNTERPART:
                continue
            comparison.results(call, tensors)
    return report(comparison, args.op)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Generates the Python bindings of the ops from the schemas in athanor/ops/*.cpp (see tools/generate_ops.py).

Written: ops_0.cpp … with a signature table and a call per overload, ops.inc with the list of all ops. Calls go through
the public functions and methods of class Tensor. With --stubs: _C.pyi and _functions.pyi, for type checkers, from the
same tables and from the Python sources beside them.
"""
import argparse
import keyword
import pathlib
import re
import sys

import generate_ops

# schema type without "?": Kind, conversion of one value, C++ type where a default needs it.
KINDS = {
    "Tensor": ("Tensor", "to_tensor", None),
    "Tensor[]": ("TensorList", "to_tensor_list", "std::vector<Tensor>"),
    "int": ("Int", "to_int", "std::int64_t"),
    "int[]": ("IntList", "to_int_list", "DimVector"),
    "float": ("Float", "to_float", "double"),
    "float[]": ("FloatList", "to_float_list", "std::vector<double>"),
    "bool": ("Bool", "to_bool", "bool"),
    "Scalar": ("Scalar", "to_scalar", "Scalar"),
    "ScalarType": ("Dtype", "to_dtype", "DType"),
    "str": ("Str", "to_str", "std::string_view"),
    "Generator": ("Generator", "to_generator", "Generator"),
    "Device": ("Device", "to_device", "Device"),
    "MemoryFormat": ("MemoryFormat", "to_memory_format", "MemoryFormat"),
}
OPTIONS = (("dtype", "Dtype"), ("layout", "Layout"), ("device", "Device"), ("pin_memory", "Bool"),
           ("requires_grad", "Bool"))
# Names of several results, as torch.return_types has them.
VALUES = "values indices"
RESULT_NAMES = {
    **{name: VALUES for name in ("max", "min", "sort", "topk", "kthvalue", "median", "nanmedian", "mode", "cummax",
                                 "cummin")},
    "slogdet": "sign logabsdet", "linalg_slogdet": "sign logabsdet", "aminmax": "min max",
    "linalg_qr": "Q R", "linalg_svd": "U S Vh", "svd": "U S V", "linalg_eigh": "eigenvalues eigenvectors",
    "linalg_lstsq": "solution residuals rank singular_values",
}
# Python's spelling of an argument where it differs from the schema's.
ARGUMENT_NAMES = {
    ("split", "split_size"): "split_size_or_sections",
    ("copy_", "src"): "other", ("swapaxes", "dim0"): "axis0", ("swapaxes", "dim1"): "axis1",
}
# torch has out= for these, which C++ has not, or only without the options that torch takes beside it.
MADE_FOR_OUT = {
    "arange", "empty", "eye", "full", "linspace", "logspace", "normal", "ones", "rand", "randint", "randn", "randperm", "zeros",
    "argsort", "bernoulli", "slice_scatter",
}
# What these do is the product of what their first two tensors hold, whether or not those have one shape.
MULTIPLIES = {"matmul", "mm", "bmm", "mv", "linear", "bilinear", "outer", "ger", "addr", "kron", "cdist", "tensordot", "inner",
              "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
# What these give may be far larger than what they are given.
EXPANDS = {"addr", "bincount", "block_diag", "cartesian_prod", "combinations", "constant_pad_nd", "diag", "diag_embed", "diagflat",
           "einsum", "eye", "meshgrid", "one_hot", "pad", "reflection_pad", "replication_pad", "tril_indices", "triu_indices", "vander",
           "upsample", "interpolate"}
# Functions that take a number for the first tensor, too.
NUMBER_FIRST = {"add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide", "remainder",
                "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "float_power"}
# For these a tensor without dims is not the number in it: it counts more in promotion, and takes gradients.
DEPENDS_ON_TENSOR = {"clamp", "lerp"}
# Optional in Python although the C++ signature, which cannot have it otherwise, asks for it.
NOT_REQUIRED = {("clamp", "min")}


class Parameter:
    def __init__(self, name, op, argument, index, keyword_only):
        self.argument, self.index, self.keyword_only = argument, index, keyword_only
        self.optional = argument.type.endswith("?")
        self.base = argument.type.rstrip("?")
        self.none_is_default = argument.type == "int[]" and argument.default == "[]"  # in PyTorch too
        self.name = ARGUMENT_NAMES.get((name, argument.name), argument.name)
        self.required = argument.default is None and (op.name, argument.name) not in NOT_REQUIRED

    def rows(self):
        if self.base == "TensorOptions":
            return [f'{{"{name}", Kind::{kind}, true, false, true}}' for name, kind in OPTIONS]
        kind = KINDS[self.base][0]
        return [f'{{"{self.name}", Kind::{kind}, {str(self.optional or self.none_is_default).lower()}, '
                f'{str(self.required).lower()}, '
                f'{str(self.keyword_only).lower()}}}']

    def text(self):
        if self.base == "TensorOptions":
            return "dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False"
        name = "input" if self.index == 0 and self.name == "self" else self.name
        types = {"Tensor[]": "tuple of Tensors", "int[]": "tuple of ints", "float[]": "tuple of floats",
                 "Scalar": "Number", "ScalarType": "torch.dtype", "Generator": "torch.Generator",
                 "Device": "torch.device", "MemoryFormat": "torch.memory_format"}
        default = "" if self.required else "=" + {"{}": "None", "[]": "None"}.get(self.argument.default or "None",
                                                                                  self.argument.default or "None")
        default = default.replace("MemoryFormat::Contiguous", "contiguous_format").replace("{0, 1}", "(0, 1)")
        default = default.replace("{-2, -1}", "(-2, -1)")
        return f"{types.get(self.base, self.base)} {name}{default}"

    def convert(self, at, makes_anew=False):
        """The C++ expression that makes the argument from values[at]. An op that takes no tensor makes its result on the
        default device."""
        value = f"v[{at}]"
        if self.base == "TensorOptions":
            return f"{'to_factory_options' if makes_anew else 'to_options'}(v + {at})"
        kind, function, cpp = KINDS[self.base]
        if self.base == "Tensor":
            return f"to_optional_tensor({value})" if self.optional or not self.required else f"to_tensor({value})"
        if self.optional:
            return f"to_optional<{cpp}>({value}, {function})"
        if self.required:
            return f"{function}({value})"
        default = self.argument.default_text().removeprefix(" = ")
        if self.base == "int[]":
            default = "DimVector()" if default == "IntArrayRef{}" else f"int_list({default})"
        elif cpp in ("Scalar", "DimVector", "std::string_view", "double", "std::int64_t"):
            default = f"{cpp}({default})"
        there = f"given({value})" if self.none_is_default else value
        return f"{there} ? {function}({value}) : {default}"


def parameters_of(op, name):
    text = op.schema[op.schema.index("(") + 1:]
    # Where the lone "*" stands: what follows is keyword-only.
    star, depth, count = None, 0, 0
    for part in split_arguments(text):
        if part.strip() == "*":
            star = count
        else:
            count += 1
    return [Parameter(name, op, a, i, star is not None and i >= star) for i, a in enumerate(op.args)]


def split_arguments(text):
    depth, current = 0, ""
    for c in text:
        if c == ")" and depth == 0:
            break
        depth += c in "([{"
        depth -= c in ")]}"
        if c == "," and depth == 0:
            yield current
            current = ""
        else:
            current += c
    if current.strip():
        yield current


def has_out_form(op):
    """Whether the out= form of C++ is that of Python."""
    takes_options = any(a.type == "TensorOptions" for a in op.args)
    return "out" in op.flags and not takes_options and (op.results == 1 or op.name in RESULT_NAMES)


class Form:
    """One way to call an op: a row in a signature table and a C++ function. `number_first`: with a number for self."""

    def __init__(self, name, op, kind, base, number_first=False):
        self.name, self.op, self.kind = name, op, kind  # kind: plain, inplace, out
        self.parameters = parameters_of(op, base)
        self.number_first = number_first
        if number_first:
            self.parameters[0].base = "Scalar"
        # Made anew, then copied to out, if that is given.
        self.may_copy = kind == "plain" and name in MADE_FOR_OUT and op.returns == "Tensor" and not has_out_form(op)

    def place(self):
        """Where it stands among the forms of its name, of which the first that fits is called."""
        numbers = sum(p.base == "Scalar" for p in self.parameters)
        return self.number_first, numbers if self.op.name in DEPENDS_ON_TENSOR else 0

    def rows(self):
        rows = [row for p in self.parameters for row in p.rows()]
        if self.kind == "out" or self.may_copy:
            kind = "Tensor" if self.op.results == 1 else "TensorList"
            rows.append(f'{{"out", Kind::{kind}, {str(self.may_copy).lower()}, {str(not self.may_copy).lower()}, true}}')
        return rows

    def text(self):
        parts, star = [], False
        for p in self.parameters:
            if (p.keyword_only or p.base == "TensorOptions") and not star:
                parts.append("*")
                star = True
            parts.append(p.text())
        if self.kind == "out" or self.may_copy:
            out = "Tensor out" if self.op.results == 1 else "tuple of Tensors out"
            parts += ([] if star else ["*"]) + [out + "=None" if self.may_copy else out]
        return "(" + ", ".join(parts) + ")"

    def body(self):
        lines, at, names = [], 0, []
        makes_anew = self.kind == "plain" and not any(p.base in ("Tensor", "Tensor[]") for p in self.parameters)
        for p in self.parameters:
            value = p.convert(at, makes_anew)
            lines.append(f"  const auto& a{p.index} = {f'wrapped_number({value})' if self.number_first and not at else value};")
            names.append(f"a{p.index}")
            at += len(p.rows())
        self_is_first = bool(self.op.args) and self.op.args[0].name == "self" and self.op.args[0].type == "Tensor"
        long = " || ".join(f"takes_long({n})" for n in names) or "false"
        tensors = [f"a{p.index}" for p in self.parameters if p.base == "Tensor"]
        if self.op.name in EXPANDS:
            long = "true"
        elif len(tensors) > 1:
            together = "take_long_together" if self.op.name in MULTIPLIES else "broadcast_to_much"
            long += "".join(f" || {together}({tensors[0]}, {other})" for other in tensors[1:3])
        mutates = self.op.mutates
        if self.may_copy:
            options = next((n for n, p in zip(names, self.parameters) if p.base == "TensorOptions"), None)
            like_out = f"    const TensorOptions like_out = options_for_out({options}, out);\n" if options else ""
            call = f"athanor::{self.op.name}({', '.join('like_out' if n == options else n for n in names)})"
            keeps_shape = ", true" if "any_shape" in self.op.flags else ""
            lines.append(f"  if (given(v[{at}])) {{\n    const Tensor& out = to_tensor(v[{at}]);\n{like_out}"
                         f"    run({long}, [&] {{ copy_to_out(\"{self.name}\", out, {call}{keeps_shape}); }});\n"
                         f"    return Py_NewRef(v[{at}]);\n  }}")
        if self.kind == "out" and self.op.results > 1:
            call = f"athanor::{self.op.name}_out({', '.join([f'out[{i}]' for i in range(self.op.results)] + names)})"
            lines.append(f"  std::vector<Tensor> out = to_outs(\"{self.name}\", v[{at}], {self.op.results});\n"
                         f"  run({long}, [&] {{ {call}; }});\n"
                         f"  return named_results(\"{self.op.name}\", \"{RESULT_NAMES[self.op.name]}\", "
                         f"PySequence_Tuple(v[{at}]));")
        elif self.kind == "out":
            lines.append(f"  Tensor out = to_tensor(v[{at}]);")
            call = f"athanor::{self.op.name}_out({', '.join(['out'] + names)})"
            lines.append(f"  run({long}, [&] {{ {call}; }});\n  return Py_NewRef(v[{at}]);")
        elif self.kind == "inplace" or mutates:
            target = self.op.name if mutates else self.op.name + "_"
            if self.op.has_method:
                call = f"const_cast<Tensor&>(a0).{target}({', '.join(names[1:])})"
            else:
                call = f"athanor::{target}(const_cast<Tensor&>(a0){''.join(', ' + n for n in names[1:])})"
            lines.append(f"  run({long}, [&] {{ {call}; }});\n  return Py_NewRef(v[0]);")
        else:
            if "method" in self.op.flags:
                call = f"a0.{self.op.name}({', '.join(names[1:])})"
            else:
                call = f"athanor::{self.op.name}({', '.join(names)})"
            result = f"run({long}, [&] {{ return {call}; }})"
            named = RESULT_NAMES.get(self.op.name) if self.op.results > 1 else None
            lines.append(f'  return named_results("{self.op.name}", "{named}", {result});' if named
                         else f"  return {result};")
        return "\n".join(lines)


def forms_of(op, alias=None):
    name = alias or op.name
    yield Form(name, op, "plain", name)
    if op.has_inplace_method and not op.mutates:
        if op.has_method or ("inplace" in op.flags and op.args[0].name == "self"):
            yield Form(name + "_", op, "inplace", name)
    if has_out_form(op):
        yield Form(name, op, "out", name)
    if name in NUMBER_FIRST and op.args[1].type == "Tensor":
        yield Form(name, op, "plain", name, number_first=True)
        if has_out_form(op):
            yield Form(name, op, "out", name, number_first=True)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def write_group(path, groups, first_number):
    out = ["// Generated from the schemas in athanor/ops.\n#include \"python/src/arguments.h\"\n"
           "#include \"python/src/methods.h\"\n#include \"python/src/op_tables.h\"\n#include \"python/src/types.h\"\n\n"
           "namespace athanor::python {\nnamespace {\n\n"
           "[[maybe_unused]] DimVector int_list(std::int64_t v) { return DimVector{v}; }\n"
           "[[maybe_unused]] DimVector int_list(std::initializer_list<std::int64_t> v) { return DimVector(v); }\n\n"]
    number = first_number
    entries = []
    for name, forms, doc in groups:
        rows = []
        for form in forms:
            parameters = form.rows()
            if parameters:
                out.append(f"constexpr Parameter p{number}[] = {{{', '.join(parameters)}}};\n")
            out.append(f"PyObject* f{number}([[maybe_unused]] PyObject* const* v) {{\n{form.body()}\n}}\n")
            rows.append(f"{{{quoted(form.text())}, {f'p{number}' if parameters else '{}'}, f{number}}}")
            number += 1
        out.append(f"constexpr Signature s_{name}[] = {{" + ",\n    ".join(rows) + "};\n\n")
        entries.append(f"const OpEntry op_{name} = {{\"{name}\", {quoted(doc)}, s_{name}}};\n")
    out += ["}  // namespace\n\n", *entries, "\n}  // namespace athanor::python\n"]
    generate_ops.write_if_changed(path, "".join(out))
    return number


STUB_TYPES = {"Tensor": "Tensor", "TensorList": "_Tensors", "Int": "int", "IntList": "_Sizes", "Float": "float",
              "FloatList": "_Floats", "Bool": "bool", "Scalar": "_Number", "Dtype": "_dtype", "Str": "str",
              "Generator": "Generator", "Device": "_Device", "MemoryFormat": "_memory_format", "Layout": "_layout"}
STUB_HEAD = """# Generated from the schemas in athanor/ops and the tables of python/src.
import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional, TypeVar, Union, overload

"""
STUB_ALIASES = """_Number = Union[builtins.int, builtins.float, builtins.bool, Tensor]
_Sizes = Union[builtins.int, Sequence[builtins.int], Size]
_Floats = Union[builtins.float, Sequence[builtins.float]]
_Tensors = Union[tuple[Tensor, ...], list[Tensor]]
_Device = Union[_device, builtins.str, builtins.int]

"""
BUILTIN = re.compile(r"\b(int|float|bool|str)\b")


def stub_parameter(row, first_name):
    name, kind, optional, required, keyword_only = re.match(
        r'\{"(\w+)", Kind::(\w+), (\w+), (\w+), (\w+)\}', row).groups()
    kind = BUILTIN.sub(r"builtins.\1", STUB_TYPES[kind])
    if optional == "true":
        kind = f"Optional[{kind}]"
    return first_name or name, kind, required == "true", keyword_only == "true"


def stub_result(form):
    if form.op.mutates or form.kind == "inplace" or form.kind == "out" and form.op.results == 1:
        return "Tensor"
    r = form.op.returns
    if form.op.results > 1:
        return f"tuple[{', '.join(['Tensor'] * form.op.results)}]" if form.op.name not in RESULT_NAMES else "_Named"
    return {"Tensor": "Tensor", "Tensor[]": "tuple[Tensor, ...]", "Scalar": "_Number", "bool": "builtins.bool",
            "int": "builtins.int", "float": "builtins.float", "()": "None"}[r]


def takes_sizes(form, method):
    """Whether sizes may be given one by one: the first parameter (of a method, after self) is a list of ints alone."""
    rows = [stub_parameter(row, "") for row in form.rows()][method:]
    return bool(rows) and rows[0][1] == "_Sizes" and all(keyword_only for *_, keyword_only in rows[1:])


def stub_function(name, form, method, one_by_one=True):
    """One def; names that Python reserves are given by position or through **keywords."""
    parts, star, defaults = [], False, False
    rows = form.rows()
    for i, row in enumerate(rows):
        parameter, kind, required, keyword_only = stub_parameter(row, "")
        if i == 0 and not method and parameter == "self":
            parameter = "input"
        if keyword.iskeyword(parameter):
            parameter += "_"
        if method and i == 0:
            parts.append("self")
            continue
        if one_by_one and i == method and takes_sizes(form, method):
            parts.append(f"*{parameter}: _Sizes")
            star = True
            continue
        if (keyword_only or (defaults and required)) and not star:
            parts.append("*")
            star = True
        defaults = defaults or not required
        parts.append(f"{parameter}: {kind}" + ("" if required else " = ..."))
    return f"def {name}({', '.join(parts)}) -> {stub_result(form)}: ..."


def stub_group(name, forms, method, indent):
    lines = [stub_function(name, form, method, one_by_one) for form in forms
             for one_by_one in ([False, True] if takes_sizes(form, method) else [True])]
    unique = list(dict.fromkeys(lines))
    if len(unique) == 1:
        return indent + unique[0] + "\n"
    return "".join(f"{indent}@overload\n{indent}{line}  # type: ignore\n" for line in unique)


def is_part(name, forms):
    """Whether it is one of the library's own parts of ops, which torch has not."""
    return name.startswith("_") or name.endswith("_backward") or all("internal" in f.op.flags for f in forms)


def is_method(name, forms):
    """Whether class Tensor has it: what takes a tensor as `self`."""
    first = forms[0].parameters[:1]
    return (bool(first) and first[0].base == "Tensor" and first[0].name == "self" and not is_part(name, forms)
            and name != "mT")


def is_function(name, forms):
    """Whether the package has it as a function."""
    return not is_part(name, forms) and not all("method" in f.op.flags for f in forms)


def write_stubs(folder, listed, sources):
    """_C.pyi with class Tensor and the ops, _functions.pyi with the functions of the package."""
    protocol = (sources / "tensor_stub.pyi").read_text()
    written = set(re.findall(r"def (\w+)\(", protocol))
    methods = "".join(stub_group(name, [f for f in forms if f.parameters and f.parameters[0].base == "Tensor"], True, "    ")
                      for name, forms, _ in listed if is_method(name, forms) and name not in written)
    named = "class _Named(tuple[Tensor, Tensor]):\n    values: Tensor\n    indices: Tensor\n    sign: Tensor\n    logabsdet: Tensor\n    min: Tensor\n    max: Tensor\n\n"
    generate_ops.write_if_changed(folder / "_C.pyi", STUB_HEAD + protocol.replace("    # ops\n", methods) + "\n" + STUB_ALIASES
                                  + named + "ops: Any\n")
    package = sources.parent / "athanor" / "_functions.py"
    text = package.read_text()
    own = re.findall(r"^@_public\ndef (\w+)\(((?:[^()]|\([^()]*\))*)\)(?: -> ([^:]+))?:", text, re.M)
    names = {name for name, _, _ in own}
    out = [STUB_HEAD, "from ._C import Generator, Size, Tensor\n"
           "from ._C import _Device, _Floats, _Named, _Number, _Sizes, _Tensors, _dtype, _layout, _memory_format\n\n"]
    for name, parameters, result in own:
        plain = re.sub(r"\s+", " ", parameters)
        plain = re.sub(r"(?<![\w.])(int|float|bool|str)(?![\w.])", r"builtins.\1", plain)
        out.append(f"def {name}({re.sub(r'= ?(?:[^,]+)', '= ...', plain)}) -> {result or 'Any'}: ...\n".replace("str | None", "Optional[builtins.str]").replace("builtins.Optional[builtins.str]", "Optional[builtins.str]"))
    out += [stub_group(name, forms, False, "") for name, forms, _ in listed
            if name not in names and is_function(name, forms)]
    generate_ops.write_if_changed(folder / "_functions.pyi", "".join(out))


def docstring(op):
    """The comment above the op's schema; what it throws by the names of Python's exceptions."""
    text = "\n".join(line.removeprefix("///").strip() for line in op.doc)
    return re.sub(r"\b([Tt])hrow(s?) (\w*Error)\b", lambda m: ("R" if m[1] == "T" else "r") + f"aise{m[2]} "
                  + ("RuntimeError" if m[3] == "Error" else m[3]), text)


def check_docs(listed):
    silent = [name for name, forms, doc in listed if not doc and not is_part(name, forms)]
    if silent:
        sys.exit(f"generate_python: say what {', '.join(silent)} does, by a comment above the schema")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--stubs", help="folder for _C.pyi and _functions.pyi")
    parser.add_argument("--files", type=int, default=6)
    parser.add_argument("sources", nargs="+")
    args = parser.parse_args()
    ops, aliases = [], []
    for source in sorted(args.sources):
        path = pathlib.Path(source)
        ops += generate_ops.read_ops(path)
        aliases += generate_ops.read_aliases(path)
    groups = {}
    for alias, op in [(None, op) for op in ops] + generate_ops.aliased(aliases, ops):
        for form in forms_of(op, alias):
            forms, doc = groups.setdefault(form.name, ([], []))
            forms.append(form)
            if not doc and op.doc:
                doc.append(docstring(op))
    # A tensor where a number would do too: the overload with the tensor comes first.
    listed = [(name, sorted(forms, key=Form.place), doc[0] if doc else "") for name, (forms, doc) in groups.items()]
    check_docs(listed)
    out = pathlib.Path(args.out)
    number, size = 0, -(-len(listed) // args.files)
    for i in range(args.files):
        number = write_group(out / f"ops_{i}.cpp", listed[i * size:(i + 1) * size], number)
    generate_ops.write_if_changed(out / "ops.inc", "".join(
        f"ATHANOR_PYTHON_OP({name}, {str(is_method(name, forms)).lower()}, {str(is_function(name, forms)).lower()})\n"
        for name, forms, _ in listed))
    if args.stubs:
        write_stubs(pathlib.Path(args.stubs), listed, pathlib.Path(__file__).resolve().parents[1] / "python" / "src")
    (out / "python_ops.stamp").touch()


if __name__ == "__main__":
    main()

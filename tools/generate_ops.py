#!/usr/bin/env python3
"""Generates declarations, methods and glue of the ops from the schemas in athanor/ops/*.cpp.

A schema is the argument of ATHANOR_OP, ATHANOR_VIEW (inside the op's struct) or ATHANOR_FUNCTION (above a function):

    name.overload(Type arg, Type arg=default, *, ...) -> Return | flag flag

Flags: inplace (adds name_), out (adds name_out, which takes a tensor for each result, and no options), function (no
method), method (no free function), inplace_view (of a view: adds the method name_, which turns self into the view),
internal (no function of the Python package: torch has no such name; `athanor._C.ops` has it). Of the out= form of an
ATHANOR_FUNCTION: own_dtype (out must have the result's dtype), any_dtype (it may have any), any_shape (out keeps its
shape if it has as many elements), unset (nothing is written), refuses_grad (inputs that require grad are refused though
the result has no gradient).
Other names of an op, PyTorch's synonyms, are one line anywhere in a source file: ATHANOR_ALIAS("absolute", "abs").
An alias forwards every overload and form (in-place, out) of its op; it exists on class Tensor and as a public function,
not inside the library.
Written per source file STEM.cpp: athanor/ops/STEM.h (declarations for library code, on TensorBase) and STEM.glue.inc
(definitions, included at the end of the .cpp). Written once: methods.inc and functions.inc (declarations of class
Tensor's methods and of the public functions), function_bodies.inc and out_bodies.inc (what they do, compiled once, in
functions.cpp and functions_out.cpp, and not in every program), op_list.inc (one ATHANOR_OP_ROW per schema, for tests
and documentation).
A file is only touched when its content changes, so a new op rebuilds only what includes its family.
"""
import argparse
import pathlib
import re
import sys

MACRO = re.compile(r'ATHANOR_(OP|VIEW|FUNCTION)\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)')
ALIAS = re.compile(r'ATHANOR_ALIAS\(\s*"(\w+)"\s*,\s*"(\w+)"\s*\)')
STRUCT = re.compile(r"^\s*struct\s+(\w+)", re.M)
SCHEMA = re.compile(r"^\s*([A-Za-z_]\w*)(?:\.(\w+))?\((.*)\)\s*->\s*([^|]+?)\s*(?:\|\s*(.*))?$", re.S)

# schema type: C++ parameter type. {T} is the tensor class: TensorBase inside the library, Tensor outside.
TYPES = {
    "Tensor": "const {T}&",
    "Tensor?": "const {T}&",
    "Tensor[]": "{L}",
    "int": "std::int64_t",
    "int?": "std::optional<std::int64_t>",
    "int[]": "IntArrayRef",
    "int[]?": "OptionalIntArrayRef",
    "float": "double",
    "float?": "std::optional<double>",
    "float[]": "ArrayRef<double>",
    "bool": "bool",
    "bool?": "std::optional<bool>",
    "Scalar": "const Scalar&",
    "Scalar?": "const std::optional<Scalar>&",
    "ScalarType": "DType",
    "ScalarType?": "std::optional<DType>",
    "str": "std::string_view",
    "str?": "std::optional<std::string_view>",
    "TensorOptions": "const TensorOptions&",
    "Generator?": "std::optional<Generator>",
    "Device": "Device",
    "MemoryFormat": "MemoryFormat",
    "MemoryFormat?": "std::optional<MemoryFormat>",
}
OUT_FLAGS = {"own_dtype", "any_dtype", "any_shape", "unset", "refuses_grad"}
DEFAULTS = {"None": "{}", "False": "false", "True": "true", "[]": "IntArrayRef{}", "inf": "INFINITY", "{}": "{}"}


class Argument:
    def __init__(self, text, where):
        m = re.match(r"^([A-Za-z]+(?:\[\])?\??)\s+(\w+)(?:=(.*))?$", text.strip(), re.S)
        if not m or m.group(1) not in TYPES:
            sys.exit(f"{where}: cannot read argument '{text}'; known types: {', '.join(TYPES)}")
        self.type, self.name, self.default = m.groups()

    @property
    def is_tensor(self):
        return self.type.startswith("Tensor") and self.type != "TensorOptions"

    def default_text(self):
        if self.default is None:
            return ""
        d = self.default.strip()
        if d in ("None", "[]", "{}") and self.type == "int[]":
            return " = IntArrayRef{}"
        if self.type == "str":
            return ' = "' + d.strip("'\"") + '"'
        return " = " + DEFAULTS.get(d, d)

    def declare(self, tensor, defaults):
        listing = "TensorList"
        text = TYPES[self.type].replace("{T}", tensor).replace("{L}", listing)
        return f"{text} {self.name}" + (self.default_text() if defaults else "")


class Op:
    def __init__(self, kind, schema, struct, doc, where):
        m = SCHEMA.match(schema)
        if not m:
            sys.exit(f"{where}: cannot read schema '{schema}'")
        self.kind, self.schema, self.struct, self.doc, self.where = kind, schema, struct, doc, where
        self.name, self.overload = m.group(1), m.group(2) or ""
        parts, depth, current = [], 0, ""
        for c in m.group(3):
            depth += c in "([{"
            depth -= c in ")]}"
            if c == "," and depth == 0:
                parts.append(current)
                current = ""
            else:
                current += c
        if current.strip():
            parts.append(current)
        self.args = [Argument(p, where) for p in parts if p.strip() != "*"]
        self.returns = m.group(4).strip()
        self.flags = set((m.group(5) or "").split())
        unknown = self.flags - {"inplace", "out", "function", "method", "inplace_view", "internal", *OUT_FLAGS}
        if unknown:
            sys.exit(f"{where}: unknown flags {unknown} in '{schema}'")
        if self.flags & OUT_FLAGS and (kind != "FUNCTION" or "out" not in self.flags or self.results > 1):
            sys.exit(f"{where}: {self.flags & OUT_FLAGS} is of the out= form of a function with one result, in '{schema}'")
        self.mutates = self.name.endswith("_") and not self.name.endswith("__")

    @property
    def has_method(self):
        return bool(self.args) and self.args[0].name == "self" and "function" not in self.flags

    @property
    def has_inplace_method(self):
        return bool(self.flags & {"inplace", "inplace_view"})

    @property
    def results(self):
        return len(self.returns.strip("()").split(",")) if self.returns.startswith("(") else 1

    @property
    def writes_out(self):
        """Whether the op itself has an out= form; that of the others, of the public functions alone, copies."""
        return "out" in self.flags and self.kind == "OP" and self.results == 1

    @property
    def outs(self):
        """Names of the tensors that the out= form writes."""
        return ["out"] if self.results == 1 else [f"out{i}" for i in range(self.results)]

    @property
    def out_args(self):
        """Of the out= form: where the tensor that is written says dtype and device, no options do."""
        return [a for a in self.args if a.type != "TensorOptions"]

    def out_params(self, tensor, defaults):
        """Of the out= form: `tensor` is "const Tensor" inside the library, "Tensor" outside."""
        rest = [a.declare("Tensor", defaults) for a in self.out_args]
        return ", ".join([f"{tensor}& {name}" for name in self.outs] + rest)

    def return_type(self, tensor):
        r = self.returns
        if self.mutates or r == "()":
            return "void"
        if r == "Tensor":
            return tensor
        if r == "Tensor[]":
            return f"std::vector<{tensor}>"
        if r.startswith("("):
            return "std::tuple<" + ", ".join([tensor] * self.results) + ">"
        return {"Scalar": "Scalar", "bool": "bool", "int": "std::int64_t", "float": "double"}[r]

    def params(self, tensor, defaults, skip_self=False):
        return ", ".join(a.declare(tensor, defaults) for a in self.args[1 if skip_self else 0:])


def without_comments(text):
    return re.sub(r"//[^\n]*", lambda m: " " * len(m.group(0)), text)


def read_aliases(path):
    """(alias, op, where) for each alias of a source file."""
    code = without_comments(path.read_text())
    return [(m.group(1), m.group(2), f"{path}:{code.count(chr(10), 0, m.start()) + 1}") for m in ALIAS.finditer(code)]


def read_ops(path):
    text = path.read_text()
    code = without_comments(text)  # schemas in comments do not count
    ops = []
    for m in MACRO.finditer(code):
        where = f"{path}:{text.count(chr(10), 0, m.start()) + 1}"
        schema = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', m.group(2)))
        struct, anchor = None, m.start()
        if m.group(1) != "FUNCTION":
            structs = [s for s in STRUCT.finditer(code, 0, m.start())]
            if not structs:
                sys.exit(f"{where}: ATHANOR_{m.group(1)} outside a struct")
            struct = structs[-1].group(1)
            anchor = text.index("struct", structs[-1].start())
        lines = text[:anchor].split("\n")[:-1]
        doc = []
        while lines and lines[-1].lstrip().startswith("///"):
            doc.insert(0, lines.pop().strip())
        ops.append(Op(m.group(1), schema, struct, doc, where))
    return ops


HEADER = "// Generated from athanor/ops/{stem}.cpp; edit the schemas there.\n"


def declarations(stem, ops):
    out = [HEADER.format(stem=stem), "#pragma once\n\n#include <cmath>\n#include <optional>\n#include <string_view>\n"
           "#include <tuple>\n#include <vector>\n\n#include \"athanor/tensor/generator.h\"\n"
           "#include \"athanor/tensor/tensor_base.h\"\n\nnamespace athanor::ops {\nusing Tensor = TensorBase;\n"
           "using TensorList = TensorBaseList;\n\n"]
    for op in ops:
        out += [d + "\n" for d in op.doc]
        out.append(f"{op.return_type('Tensor')} {op.name}({op.params('Tensor', True)});\n")
        if op.has_inplace_method:
            out.append(f"void {op.name}_({op.params('Tensor', True)});\n")
        if op.writes_out:
            out.append(f"void {op.name}_out({op.out_params('const Tensor', True)});\n")
    out.append("\n}  // namespace athanor::ops\n")
    return "".join(out)


def glue(stem, ops):
    out = [HEADER.format(stem=stem), "namespace athanor::ops {\n\n"]
    for op in ops:
        names = [a.name for a in op.args]
        tensors = [a.name for a in op.args if a.is_tensor]
        settings = "".join(f"  op.{a.name} = {a.name};\n" for a in op.args if not a.is_tensor)
        if op.kind == "OP":
            head = f"  {op.struct} op{{}};\n{settings}"
            if op.results == 1:
                body = f"{head}  return call(std::move(op), {', '.join(tensors)});\n"
            else:
                types = ", ".join(a_type(op, a) for a in op.args if a.is_tensor)
                pick = ", ".join(f"std::move(r[{i}])" for i in range(op.results))
                body = (f"{head}  auto r = call_n<{op.struct}, {op.results}{', ' + types if types else ''}>"
                        f"(std::move(op), {', '.join(tensors)});\n  return {{{pick}}};\n")
            out.append(f"{op.return_type('Tensor')} {op.name}({op.params('Tensor', False)}) {{\n{body}}}\n")
            if "inplace" in op.flags:
                out.append(f"void {op.name}_({op.params('Tensor', False)}) {{\n{head}"
                           f"  call_inplace(std::move(op), {', '.join(tensors)});\n}}\n")
            if op.writes_out:
                out.append(f"void {op.name}_out({op.out_params('const Tensor', False)}) {{\n{head}"
                           f"  call_out(std::move(op), out, {', '.join(tensors)});\n}}\n")
        elif op.kind == "VIEW":
            out.append(f"Tensor {op.name}({op.params('Tensor', False)}) {{\n  {op.struct} op{{}};\n{settings}"
                       f"  return call_view(std::move(op), {tensors[0]});\n}}\n")
            if "inplace_view" in op.flags:
                out.append(f"void {op.name}_({op.params('Tensor', False)}) {{\n  {op.struct} op{{}};\n{settings}"
                           f"  call_view_inplace(std::move(op), {tensors[0]});\n}}\n")
        else:
            if "inplace" in op.flags:
                out.append(f"void {op.name}_({op.params('Tensor', False)}) {{\n"
                           f"  composite_inplace(\"{op.name}\", self, [&](const Tensor& self) {{ return {op.name}({', '.join(names)}); }});\n}}\n")
        out.append("\n")
    out.append("}  // namespace athanor::ops\n")
    return "".join(out)


def a_type(_op, a):
    return "TensorList" if a.type == "Tensor[]" else "Tensor"


def forward(args):
    return ", ".join(("detail::base_list(%s)" if a.type == "Tensor[]" else "%s") % a.name for a in args)


class Function:
    """One public function or method of class Tensor, with its declaration and its body."""

    def __init__(self, returns, name, declared, defined, body, method=False, doc=()):
        self.returns, self.name, self.declared, self.defined = returns, name, declared, defined
        self.body, self.method, self.doc = body, method, doc

    def declaration(self):
        doc = "".join(line + "\n" for line in self.doc)
        return f"{doc}{self.returns} {self.name}({self.declared}){' const' if self.method else ''};\n"

    def definition(self):
        owner, suffix = ("Tensor::", " const") if self.method else ("", "")
        return f"{self.returns} {owner}{self.name}({self.defined}){suffix} {{ {self.body} }}\n"


def joined(*parts):
    return ", ".join(part for part in parts if part)


def methods_of(op):
    if not op.has_method:
        return
    params = [op.params("Tensor", defaults, skip_self=True) for defaults in (True, False)]
    given = re.sub(r"\bself\b", "*this", forward(op.args), count=1)
    in_place = "return const_cast<Tensor&>(*this);"
    if op.mutates:
        yield Function("Tensor&", op.name, *params, f"ops::{op.name}({given}); {in_place}", method=True)
        return
    call = f"ops::{op.name}({given})"
    yield Function(op.return_type("Tensor"), op.name, *params,
                   f"return detail::wrap({call});" if "Tensor" in op.returns else f"return {call};", method=True)
    if op.has_inplace_method:
        yield Function("Tensor&", f"{op.name}_", *params, f"ops::{op.name}_({given}); {in_place}", method=True)


def out_body(op):
    outs, name = ", ".join(op.outs), f'"{op.name}"'
    if op.writes_out:
        return f"ops::{op.name}_out({joined(outs, forward(op.out_args))}); return out;"
    given = forward(op.args)
    for a in op.args:
        if a.type == "TensorOptions":
            given = re.sub(rf"\b{a.name}\b", f"ops::options_of_out({name}, out)", given)
    if "unset" in op.flags:
        return f"ops::resize_out({name}, out, {op.args[0].name}); return out;"
    if op.results == 1:
        writer = "filling_out" if "any_shape" in op.flags else "composite_out"
        rule = ", ops::kOwnDtype" if "own_dtype" in op.flags else ", ops::kAnyDtype" if "any_dtype" in op.flags else ""
        # What is refused leaves the generator as it was.
        watched = [f"ops::wants_grad({a.name})" for a in op.args if a.is_tensor and "refuses_grad" in op.flags]
        check = joined(name, "out", " || ".join(watched))
        first = f"ops::check_out({check}); " if any(a.type == "Generator?" for a in op.args) else ""
        return f"{first}ops::{writer}({name}, out, ops::{op.name}({given}){rule}); return out;"
    made = ", ".join(f"std::get<{i}>(made)" for i in range(op.results))
    return (f"const auto made = ops::{op.name}({given}); ops::composite_outs({name}, {{{outs}}}, {{{made}}}); "
            f"return {{{outs}}};")


def functions_of(op):
    if "method" in op.flags:
        return
    first = op.args[0].name if op.args else ""
    rest = [joined(*(a.declare("Tensor", defaults) for a in op.args[1:])) for defaults in (True, False)]
    changing = [joined(f"Tensor& {first}", r) for r in rest]
    if op.mutates:
        if op.name != "detach_":
            yield Function("Tensor&", op.name, *changing, f"ops::{op.name}({forward(op.args)}); return {first};")
        return
    params = [op.params("Tensor", defaults) for defaults in (True, False)]
    call = f"ops::{op.name}({forward(op.args)})"
    yield Function(op.return_type("Tensor"), op.name, *params,
                   f"return detail::wrap({call});" if "Tensor" in op.returns else f"return {call};", doc=op.doc)
    if "inplace" in op.flags and first == "self":
        yield Function("Tensor&", f"{op.name}_", *changing, f"ops::{op.name}_({forward(op.args)}); return self;")
    if "out" in op.flags:
        yield Function("Tensor&" if op.results == 1 else f"std::tuple<{', '.join(['Tensor&'] * op.results)}>",
                       f"{op.name}_out", *(op.out_params("Tensor", defaults) for defaults in (True, False)), out_body(op))


def aliased(aliases, ops):
    """(alias, op) for every overload of every alias."""
    names = {op.name for op in ops}
    pairs = []
    for alias, target, where in aliases:
        if target not in names:
            sys.exit(f"{where}: there is no op '{target}' that '{alias}' could be another name of")
        if alias in names:
            sys.exit(f"{where}: '{alias}' is an op already")
        names.add(alias)
        pairs += [(alias, op) for op in ops if op.name == target]
    return pairs


def alias_methods_of(alias, op):
    given = ", ".join(a.name for a in op.args[1:])
    for f in methods_of(op):
        name = alias + f.name[len(op.name):]
        yield Function(f.returns, name, f.declared, f.defined, f"return {f.name}({given});", method=True)


def alias_functions_of(alias, op):
    for f in functions_of(op):
        name = alias + f.name[len(op.name):]
        given = [*op.outs, *(a.name for a in op.out_args)] if name.endswith("_out") else [a.name for a in op.args]
        body = f"return {f.name}({', '.join(given)});"
        yield Function(f.returns, name, f.declared, f.defined, body)


def write_if_changed(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("sources", nargs="+")
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    folder = out / "athanor" / "ops"
    everything, includes, aliases, seen = [], [], [], {}
    for source in sorted(args.sources):
        path = pathlib.Path(source)
        aliases += read_aliases(path)
        ops = read_ops(path)
        if not ops:
            continue
        for op in ops:
            key = (op.name, op.overload)
            if key in seen:
                sys.exit(f"{op.where}: {op.name}.{op.overload} is already declared at {seen[key]}")
            seen[key] = op.where
        everything += ops
        includes.append(f'#include "athanor/ops/{path.stem}.h"\n')
        write_if_changed(folder / f"{path.stem}.h", declarations(path.stem, ops))
        write_if_changed(folder / f"{path.stem}.glue.inc", glue(path.stem, ops))
    write_if_changed(folder / "all_ops.h", "#pragma once\n" + "".join(includes))
    pairs = aliased(aliases, everything)
    methods = [f for op in everything for f in methods_of(op)]
    methods += [f for alias, op in pairs for f in alias_methods_of(alias, op)]
    functions = [f for op in everything for f in functions_of(op)]
    functions += [f for alias, op in pairs for f in alias_functions_of(alias, op)]
    write_if_changed(folder / "methods.inc", "".join(f.declaration() for f in methods))
    write_if_changed(folder / "functions.inc", "".join(f.declaration() for f in functions))
    bodies = {is_out: "".join(f.definition() for f in methods + functions if f.name.endswith("_out") == is_out)
              for is_out in (False, True)}
    write_if_changed(folder / "function_bodies.inc", bodies[False])
    write_if_changed(folder / "out_bodies.inc", bodies[True])
    write_if_changed(folder / "op_list.inc", "".join(
        f'ATHANOR_OP_ROW("{op.name}", "{op.overload}", "{op.kind}", "{op.schema}")\n' for op in everything))
    (out / "ops.stamp").touch()


if __name__ == "__main__":
    main()

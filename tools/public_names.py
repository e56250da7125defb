"""What the public headers declare, by scope: namespaces and classes with the names in them, after the preprocessor."""

import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADERS = ("athanor/torch.h", "athanor/nn/nn.h", "athanor/optim/*.h", "athanor/parallel/*.h",
           "athanor/nn/averaged_model.h", "athanor/autograd/*.h", "athanor/distributed/distributed.h",
           "athanor/distributed/store/*_store.h", "athanor/distributed/backend.h", "athanor/io/summary_writer.h")

TOKEN = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|::|->|&&|[A-Za-z_]\w*|'
                   r"[0-9](?:[\w.']|(?<=[eEpP])[+-])*|\S")
# Words whose parentheses are no parameter list.
NOT_A_NAME = {"decltype", "noexcept", "alignas", "explicit", "requires", "__attribute__", "static_assert", "sizeof", "if"}
ACCESS = {"public", "protected", "private"}
CLOSES = {"(": ")", "{": "}", "[": "]", "<": ">"}


def preprocessed(text, includes, compiler=None):
    """`text` after the preprocessor: the parts that come from files of this library, or from `text` itself."""
    compiler = compiler or os.environ.get("CXX") or "c++"
    command = [*compiler.split(), "-std=c++20", "-E", "-x", "c++", *(f"-I{folder}" for folder in includes), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the headers do not pass the preprocessor of {compiler}:\n{done.stderr}")
    ours = tuple(map(str, includes))
    kept, keep = [], True
    for line in done.stdout.split("\n"):
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            keep = marker[1].startswith(ours) or marker[1] == "<stdin>"
        elif keep and not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept)


def closing(tokens, start):
    """Index of the bracket that closes the one at `start`; of angle brackets those of a type."""
    opener, closer, depth = tokens[start], CLOSES[tokens[start]], 0
    i = start
    while i < len(tokens):
        token = tokens[i]
        if token == opener:
            depth += 1
        elif token == closer:
            depth -= 1
            if not depth:
                return i
        elif token in CLOSES and token != "<":
            i = closing(tokens, i)
        i += 1
    return len(tokens) - 1


def is_word(token):
    return re.match(r"[A-Za-z_]\w*$", token) is not None


def bases_of(clause):
    """Names of the bases, without their namespaces and template arguments."""
    names, i = [], 0
    while i < len(clause):
        if clause[i] == "<":
            i = closing(clause, i)
        elif is_word(clause[i]) and clause[i] not in ACCESS | {"virtual"} and clause[i + 1:i + 2] != ["::"]:
            names.append(clause[i])
        i += 1
    return names


def without_template(tokens):
    while tokens and tokens[0] == "template":
        if len(tokens) < 2 or tokens[1] != "<":
            return []  # an instantiation
        tokens = tokens[closing(tokens, 1) + 1:]
    return tokens


def without_attributes(tokens):
    out, i = [], 0
    while i < len(tokens):
        if tokens[i] == "[" and tokens[i + 1:i + 2] == ["["]:
            i = closing(tokens, i)
        elif tokens[i] in NOT_A_NAME and tokens[i + 1:i + 2] == ["("]:
            i = closing(tokens, i + 1)
        else:
            out.append(tokens[i])
        i += 1
    return out


class Scope:
    def __init__(self):
        self.names, self.classes, self.functions, self.bases = set(), set(), set(), []


class PublicNames:
    """Scopes by full name ("athanor::nn"); a name of a scope is what a program may write after it and "::" or "."."""

    def __init__(self, text):
        self.scopes = {}
        self.tokens = [m[0] for m in TOKEN.finditer(text)]
        self._read(0, len(self.tokens), "", True)
        del self.tokens

    def scope(self, name):
        return self.scopes.setdefault(name, Scope())

    def names(self, scope):
        return self.scopes[scope].names if scope in self.scopes else set()

    def classes(self, scope):
        return self.scopes[scope].classes if scope in self.scopes else set()

    def functions(self, scope):
        return self.scopes[scope].functions if scope in self.scopes else set()

    def is_a(self, scope, name, bases):
        """Whether class `name` of `scope` has one of `bases`, directly or not (bases are looked up in `scope`)."""
        found = self.scopes.get(f"{scope}::{name}")
        return name in bases or bool(found) and any(self.is_a(scope, base, bases) for base in found.bases if base != name)

    def _read(self, i, end, scope, public):
        """Declarations of tokens [i, end) of `scope`."""
        start, tokens = i, self.tokens
        while i < end:
            token = tokens[i]
            if token == ";":
                if public:
                    self._declare(tokens[start:i], scope)
                start = i + 1
            elif token == ":" and i == start + 1 and tokens[start] in ACCESS:
                public = tokens[start] == "public"
                start = i + 1
            elif token in "([":
                i = closing(tokens, i)
            elif token == "{":
                close = closing(tokens, i)
                if public:
                    self._open(tokens[start:i], scope, i + 1, close)
                i = close
                start = i + 1
            i += 1

    def _open(self, head, scope, start, end):
        """A declaration whose head ends in braces around tokens [start, end)."""
        head = without_attributes(without_template(head))
        inner = [t for t in head if t not in ("inline", "export")]
        if not inner or inner[0] == ",":
            return
        if inner[0] == "extern":
            self._read(start, end, scope, True)
        elif inner[0] == "namespace":
            name = "".join(inner[1:])
            self._read(start, end, f"{scope}::{name}" if scope else name, bool(name))
        elif inner[0] in ("class", "struct", "union"):
            name = inner[1] if len(inner) > 1 else ""
            if not is_word(name) or "<" in inner[2:3]:
                return  # without a name, or a specialization
            self.scope(scope).names.add(name)
            self.scope(scope).classes.add(name)
            full = self.scope(f"{scope}::{name}")
            full.bases = bases_of(inner[inner.index(":") + 1:]) if ":" in inner else []
            self._read(start, end, f"{scope}::{name}", inner[0] != "class")
        elif inner[0] == "enum":
            self._declare([t for t in inner[1:] if t not in ("class", "struct")][:1], scope)
        else:
            self._declare(head, scope)

    def _declare(self, tokens, scope):
        tokens = without_attributes(without_template(tokens))
        if not tokens or tokens[0] in ("friend", "extern", ",", "class", "struct", "union", "enum", "static_assert"):
            return
        if tokens[0] == "using":
            if tokens[1:2] != ["namespace"]:
                name = tokens[1] if "=" in tokens[2:3] else tokens[-1]
                self.scope(scope).names.add(name)
                if "=" not in tokens and scope != "":
                    self._import("::".join("".join(tokens[1:]).removeprefix("::").split("::")[:-1]), name, scope)
            return
        if tokens[0] == "typedef":
            self.scope(scope).names.add(tokens[-1])
            return
        depth, name = 0, None
        for i, token in enumerate(tokens):
            if token == "<" and name != "operator":
                depth += 1
            elif token == ">" and depth:
                depth -= 1
            elif not depth and token in ("(", "=", "{", "["):
                if name is None or "operator" in tokens[:i] or tokens[i - 2:i - 1] == ["::"] or tokens[i - 1] != name:
                    return
                self.scope(scope).names.add(name)
                if token == "(":
                    self.scope(scope).functions.add(name)
                return
            if is_word(token):
                name = token
        if name and tokens[-1] == name and tokens[-2:-1] != ["::"]:
            self.scope(scope).names.add(name)

    def _import(self, source, name, scope):
        """using source::name: what name is there."""
        parts = scope.split("::")
        for outer in [scope] + ["::".join(parts[:n]) for n in range(len(parts) - 1, 0, -1)]:
            for full in (f"{outer}::{source}" if source else outer, source):
                found = self.scopes.get(full)
                if found and name in found.names and full != scope:
                    if name in found.classes:
                        self.scope(scope).classes.add(name)
                    if name in found.functions:
                        self.scope(scope).functions.add(name)
                    return


@functools.lru_cache(maxsize=None)
def read_library(compiler=None):
    """PublicNames of the library's headers, what the schemas generate included."""
    with tempfile.TemporaryDirectory() as folder:
        ops = sorted(map(str, (ROOT / "athanor" / "ops").glob("*.cpp")))
        subprocess.run([sys.executable, ROOT / "tools" / "generate_ops.py", "--out", folder, *ops], check=True)
        headers = [p.relative_to(ROOT) for pattern in HEADERS for p in sorted(ROOT.glob(pattern))]
        text = "".join(f"#include <{header}>\n" for header in headers)
        return PublicNames(preprocessed(text, [ROOT, pathlib.Path(folder)], compiler))

"""Reads a pickle without running anything that it asks for.

Python's own unpickler trusts what it reads: it calls what a file names, sets the state of any object and makes room for
memo slots by their number. This one knows plain values and containers, calls only a :class:`Callee`, and its memory is in
proportion to the bytes that it is given.
"""

from __future__ import annotations

import collections
import pickle
import struct
from typing import Any, Callable, Dict, List, Optional

_MARK = object()
# Tuples do not keep their hash: one that holds another twice, which holds another twice, and so on, takes for ever.
_MOST_IN_A_KEY = 1000
_MOST_DIGITS = 4300


def malformed(what: str) -> pickle.UnpicklingError:
    return pickle.UnpicklingError(f"malformed pickle: {what}")


class Callee:
    """What stands in a pickle for a function or class of ours. It has no state that a pickle could set.

    Args:
        name: for messages.
        call: what a call does.
        counts: whether ``call`` wants the machine first, to tell it what it copies.
    """

    __slots__ = ("name", "counts", "_call")
    name: str
    counts: bool
    _call: Callable

    def __init__(self, name: str, call: Callable, counts: bool = False) -> None:
        for attribute, value in (("name", name), ("counts", counts), ("_call", call)):
            object.__setattr__(self, attribute, value)

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError("a pickle tries to change a function of the program")

    def __setstate__(self, _: Any) -> None:
        raise pickle.UnpicklingError("a pickle tries to change a function of the program")


class Pending:
    """An object that has been called for and not been given its state. ``build`` makes the value of a state."""

    __slots__ = ("build", "value", "done")

    def __init__(self, build: Callable[[Any], Any]) -> None:
        self.build = build
        self.value: Any = None
        self.done = False


class Machine:
    """Args:
    content: the pickle.
    find_name: what a (module, name) stands for: a Callee, or a value that is never called. Raises for others.
    is_safe: whether the user has named this class or function as one that may be called and given a state.
    set_state: gives an object the state of a BUILD, if it is one that takes such.
    persistent_load: as in pickle.Unpickler.
    """

    def __init__(
        self,
        content: bytes,
        find_name: Callable[[str, str], Any],
        is_safe: Callable[[Any], bool],
        set_state: Callable[[Any, Any], None],
        persistent_load: Callable[[Any], Any],
        encoding: str = "utf-8",
        errors: str = "strict",
    ) -> None:
        self._content = content
        self._find_name = find_name
        self._is_safe = is_safe
        self._set_state = set_state
        self._persistent_load = persistent_load
        self._encoding = encoding
        self._errors = errors
        self._at = 0
        self._stack: List[Any] = []
        self._marks: List[int] = []
        self._memo: Dict[int, Any] = {}
        self._copied = 0
        self._waiting = 0

    def count_copied(self, size: int) -> None:
        """Counts copies of what the pickle holds once, so that they stay in proportion."""
        self._copied += size
        if self._copied > 3 * len(self._content) + 64:
            raise malformed("values used again and again")

    def load(self) -> Any:
        content, table = self._content, _OPCODES
        while self._at < len(content):
            code = content[self._at]
            self._at += 1
            if code == 0x2E:  # STOP
                return self._result()
            function = table[code]
            if function is None:
                raise malformed(f"operation {code:#04x} has no place in it")
            function(self)
        raise EOFError("the pickle ends early")

    def _result(self) -> Any:
        if len(self._stack) != 1 or self._marks:
            raise malformed("it ends with other than one value")
        if self._waiting:
            raise malformed("an array without its values")
        return self._pop()

    # Its bytes.

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._content):
            raise EOFError("the pickle ends early")
        taken = self._content[self._at : end]
        self._at = end
        return taken

    def _number(self, form: struct.Struct) -> Any:
        return form.unpack(self._take(form.size))[0]

    def _line(self) -> bytes:
        end = self._content.find(b"\n", self._at)
        if end < 0:
            raise EOFError("the pickle ends early")
        taken = self._content[self._at : end]
        self._at = end + 1
        return taken

    def _text_line(self) -> str:
        return self._line().decode("utf-8")

    # Its stack.

    def _floor(self) -> int:
        return self._marks[-1] if self._marks else 0

    def _top(self) -> Any:
        if len(self._stack) <= self._floor():
            raise malformed("a value is missing")
        return self._stack[-1]

    def _pop(self) -> Any:
        top = self._top()
        self._stack.pop()
        if isinstance(top, Pending):
            raise malformed("an array without its values")
        return top

    def _pop_mark(self) -> List[Any]:
        if not self._marks:
            raise malformed("a mark is missing")
        mark = self._marks.pop()
        items = self._stack[mark:]
        del self._stack[mark:]
        # A value without its state is told apart by its class, which no other value on the stack has.
        if self._waiting and any(isinstance(item, Pending) for item in items):
            raise malformed("an array without its values")
        return items

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    # Names and calls.

    def _global(self, module: Any, name: Any) -> Any:
        if not isinstance(module, str) or not isinstance(name, str):
            raise malformed("a name that is no text")
        return self._find_name(module, name)

    def _call(self, function: Any, args: Any) -> Any:
        if not isinstance(args, tuple):
            raise malformed("the arguments of a call are no tuple")
        if isinstance(function, Callee):
            result = function(self, *args) if function.counts else function(*args)
            if isinstance(result, Pending):
                self._waiting += 1
            return result
        if self._is_safe(function):
            return function(*args)
        raise malformed(f"a call of {_describe(function)}, which is no function that it may call")

    def _new(self, kind: Any, args: Any, keywords: Any) -> Any:
        if isinstance(kind, Callee) and not keywords:
            return self._call(kind, args)
        if isinstance(kind, type) and self._is_safe(kind) and isinstance(args, tuple) and isinstance(keywords, dict):
            return kind.__new__(kind, *args, **keywords)
        raise malformed(f"a new object of {_describe(kind)}, which is no class that it may make objects of")

    def _build(self) -> None:
        state = self._pop()
        target = self._top()
        if isinstance(target, Pending):
            target.value = target.build(state)
            target.done = True
            self._waiting -= 1
            self._stack[-1] = target.value
        elif self._is_safe(type(target)):
            _set_any_state(target, state)
        else:
            self._set_state(target, state)

    # The memo, by whatever numbers.

    def _put(self, index: int) -> None:
        if index < 0:
            raise malformed("a memo slot below zero")
        self._memo[index] = self._top()

    def _get(self, index: int) -> None:
        try:
            value = self._memo[index]
        except KeyError:
            raise malformed(f"memo slot {index} is empty") from None
        if isinstance(value, Pending):
            if not value.done:
                raise malformed("an array that holds itself")
            value = value.value
        self._push(value)

    # Containers.

    def _check_key(self, key: Any) -> Any:
        left = [_MOST_IN_A_KEY]
        self._check_part_of_key(key, left)
        return key

    def _check_part_of_key(self, key: Any, left: List[int]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise malformed(f"a key of more than {_MOST_IN_A_KEY} parts")
        kind = type(key)
        if kind is int:
            if key.bit_length() > 64:  # integers that are equal modulo 2**61 - 1 are one to a dict's hash
                raise malformed("a key of more than 64 bits")
        elif isinstance(key, (tuple, frozenset)):
            for part in key:
                self._check_part_of_key(part, left)
        elif isinstance(key, (Callee, Pending)):
            raise malformed("a key that is none")

    def _list(self) -> list:
        target = self._top()
        if type(target) is not list and not (isinstance(target, list) and self._is_safe(type(target))):
            raise malformed("something is appended to what is no list")
        return target

    def _set_items(self, target: Any, items: List[Any]) -> None:
        if not isinstance(target, dict):
            raise malformed("items are set of what is no dict")
        if len(items) % 2:
            raise malformed("a key without a value")
        for i in range(0, len(items), 2):
            target[self._check_key(items[i])] = items[i + 1]

    def checked_keys(self, keys: Any) -> Any:
        """The keys, after they have been counted and found fit for sets and dicts."""
        self.count_copied(len(keys))
        for key in keys:
            self._check_key(key)
        return keys

    def _decoded(self, raw: bytes) -> Any:
        return raw if self._encoding == "bytes" else raw.decode(self._encoding, self._errors)


def _describe(value: Any) -> str:
    if isinstance(value, Callee):
        return value.name
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _set_any_state(target: Any, state: Any) -> None:
    """As pickle does, for objects of classes that the user has let in."""
    setter = getattr(target, "__setstate__", None)
    if setter is not None:
        setter(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        target.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(target, name, value)


# Operations.

_U1, _U2, _U4, _U8 = (struct.Struct("<" + c) for c in "BHIQ")
_I4, _F8 = struct.Struct("<i"), struct.Struct(">d")
_OPCODES: List[Optional[Callable[[Machine], None]]] = [None] * 256


def _operation(code: bytes) -> Callable:
    def add(function: Callable[[Machine], None]) -> Callable[[Machine], None]:
        _OPCODES[code[0]] = function
        return function

    return add


def _pushes(code: bytes, value: Callable[[Machine], Any]) -> None:
    _OPCODES[code[0]] = lambda m: m._push(value(m))


def _whole_number(digits: bytes) -> int:
    if len(digits) > _MOST_DIGITS:
        raise malformed(f"a number of more than {_MOST_DIGITS} digits")
    return int(digits)


def _int_line(m: Machine) -> Any:
    digits = m._line()
    return {b"00": False, b"01": True}[digits] if digits in (b"00", b"01") else _whole_number(digits)


def _long_line(m: Machine) -> int:
    digits = m._line()
    return _whole_number(digits[:-1] if digits.endswith(b"L") else digits)


def _text_in_quotes(m: Machine) -> Any:
    line = m._line()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        raise malformed("a text without quotes")
    import codecs

    return m._decoded(codecs.escape_decode(line[1:-1])[0])


def _text(m: Machine, size: int) -> str:
    return m._take(size).decode("utf-8", "surrogatepass")


def _tuple_of(count: int) -> Callable[[Machine], tuple]:
    def make(m: Machine) -> tuple:
        items = [m._pop() for _ in range(count)]
        return tuple(reversed(items))

    return make


def _dict(m: Machine) -> dict:
    made: dict = {}
    m._set_items(made, m._pop_mark())
    return made


def _frozenset(m: Machine) -> frozenset:
    return frozenset(m.checked_keys(m._pop_mark()))


def _instance(m: Machine) -> Any:
    module, name = m._text_line(), m._text_line()
    return m._call(m._global(module, name), tuple(m._pop_mark()))


def _object(m: Machine) -> Any:
    items = m._pop_mark()
    if not items:
        raise malformed("an object without a class")
    return m._call(items[0], tuple(items[1:]))


def _stack_global(m: Machine) -> Any:
    name, module = m._pop(), m._pop()
    return m._global(module, name)


def _reduce(m: Machine) -> Any:
    args, function = m._pop(), m._pop()
    return m._call(function, args)


def _newobj(m: Machine) -> Any:
    args, kind = m._pop(), m._pop()
    return m._new(kind, args, {})


def _newobj_ex(m: Machine) -> Any:
    keywords, args, kind = m._pop(), m._pop(), m._pop()
    return m._new(kind, args, keywords)


for _code, _value in (
    (pickle.NONE, lambda m: None),
    (pickle.NEWTRUE, lambda m: True),
    (pickle.NEWFALSE, lambda m: False),
    (pickle.INT, _int_line),
    (pickle.LONG, _long_line),
    (pickle.BININT, lambda m: m._number(_I4)),
    (pickle.BININT1, lambda m: m._number(_U1)),
    (pickle.BININT2, lambda m: m._number(_U2)),
    (pickle.LONG1, lambda m: int.from_bytes(m._take(m._number(_U1)), "little", signed=True)),
    (pickle.LONG4, lambda m: int.from_bytes(m._take(m._number(_I4)), "little", signed=True)),
    (pickle.FLOAT, lambda m: float(m._line())),
    (pickle.BINFLOAT, lambda m: m._number(_F8)),
    (pickle.STRING, _text_in_quotes),
    (pickle.BINSTRING, lambda m: m._decoded(m._take(m._number(_I4)))),
    (pickle.SHORT_BINSTRING, lambda m: m._decoded(m._take(m._number(_U1)))),
    (pickle.UNICODE, lambda m: str(m._line(), "raw-unicode-escape")),
    (pickle.SHORT_BINUNICODE, lambda m: _text(m, m._number(_U1))),
    (pickle.BINUNICODE, lambda m: _text(m, m._number(_U4))),
    (pickle.BINUNICODE8, lambda m: _text(m, m._number(_U8))),
    (pickle.SHORT_BINBYTES, lambda m: m._take(m._number(_U1))),
    (pickle.BINBYTES, lambda m: m._take(m._number(_U4))),
    (pickle.BINBYTES8, lambda m: m._take(m._number(_U8))),
    (pickle.BYTEARRAY8, lambda m: bytearray(m._take(m._number(_U8)))),
    (pickle.EMPTY_TUPLE, lambda m: ()),
    (pickle.TUPLE1, _tuple_of(1)),
    (pickle.TUPLE2, _tuple_of(2)),
    (pickle.TUPLE3, _tuple_of(3)),
    (pickle.TUPLE, lambda m: tuple(m._pop_mark())),
    (pickle.EMPTY_LIST, lambda m: []),
    (pickle.LIST, lambda m: m._pop_mark()),
    (pickle.EMPTY_DICT, lambda m: {}),
    (pickle.DICT, _dict),
    (pickle.EMPTY_SET, lambda m: set()),
    (pickle.FROZENSET, _frozenset),
    (pickle.GLOBAL, lambda m: m._global(m._text_line(), m._text_line())),
    (pickle.STACK_GLOBAL, _stack_global),
    (pickle.REDUCE, _reduce),
    (pickle.INST, _instance),
    (pickle.OBJ, _object),
    (pickle.NEWOBJ, _newobj),
    (pickle.NEWOBJ_EX, _newobj_ex),
    (pickle.BINPERSID, lambda m: m._persistent_load(m._pop())),
):
    _pushes(_code, _value)


@_operation(pickle.PROTO)
def _proto(m: Machine) -> None:
    if m._number(_U1) > 5:
        raise malformed("a protocol above 5")


@_operation(pickle.FRAME)
def _frame(m: Machine) -> None:
    if m._number(_U8) > len(m._content) - m._at:
        raise EOFError("the pickle ends early")


@_operation(pickle.MARK)
def _mark(m: Machine) -> None:
    m._marks.append(len(m._stack))


@_operation(pickle.POP)
def _pop(m: Machine) -> None:
    if m._marks and m._marks[-1] == len(m._stack):
        m._marks.pop()
    else:
        m._pop()


@_operation(pickle.POP_MARK)
def _pop_mark(m: Machine) -> None:
    m._pop_mark()


@_operation(pickle.DUP)
def _dup(m: Machine) -> None:
    if isinstance(m._top(), Pending):
        raise malformed("an array without its values")
    m._push(m._top())


@_operation(pickle.APPEND)
def _append(m: Machine) -> None:
    value = m._pop()
    m._list().append(value)


@_operation(pickle.APPENDS)
def _appends(m: Machine) -> None:
    items = m._pop_mark()
    m._list().extend(items)


@_operation(pickle.SETITEM)
def _setitem(m: Machine) -> None:
    value, key = m._pop(), m._pop()
    m._set_items(m._top(), [key, value])


@_operation(pickle.SETITEMS)
def _setitems(m: Machine) -> None:
    items = m._pop_mark()
    m._set_items(m._top(), items)


@_operation(pickle.ADDITEMS)
def _additems(m: Machine) -> None:
    items = m._pop_mark()
    target = m._top()
    if type(target) is not set:
        raise malformed("something is added to what is no set")
    target.update(m.checked_keys(items))


@_operation(pickle.BUILD)
def _build(m: Machine) -> None:
    m._build()


for _code, _value in (
    (pickle.PUT, lambda m: _whole_number(m._line())),
    (pickle.BINPUT, lambda m: m._number(_U1)),
    (pickle.LONG_BINPUT, lambda m: m._number(_U4)),
    (pickle.MEMOIZE, lambda m: len(m._memo)),
):
    _OPCODES[_code[0]] = lambda m, index=_value: m._put(index(m))
for _code, _value in (
    (pickle.GET, lambda m: _whole_number(m._line())),
    (pickle.BINGET, lambda m: m._number(_U1)),
    (pickle.LONG_BINGET, lambda m: m._number(_U4)),
):
    _OPCODES[_code[0]] = lambda m, index=_value: m._get(index(m))


# Containers that a pickle makes by a call.


def ordered_dict(m: Machine, pairs: Any = ()) -> Any:
    made: Any = collections.OrderedDict()
    fill(m, made, pairs)
    return made


def fill(m: Machine, target: dict, given: Any) -> None:
    """Puts the pairs of a list, or of a dict, into a dict."""
    if not isinstance(given, (dict, list, tuple)):
        raise malformed("a dict of something that is no list of pairs")
    m.count_copied(len(given))
    for pair in given.items() if isinstance(given, dict) else given:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise malformed("a dict of something that is no list of pairs")
        m._set_items(target, list(pair))

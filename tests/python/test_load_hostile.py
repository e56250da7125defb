"""load of files that were made to do harm, or damaged: an error of the kind promised, in time and memory that fit the file."""

from __future__ import annotations

import collections
import ctypes
import io
import pickle
import random
import resource
import struct
import time
import unittest
import zipfile
from typing import Any, List

import athanor
import athanor.serialization

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

EXPECTED = (pickle.UnpicklingError, RuntimeError, ValueError, EOFError)


def archive(pickled: bytes, compression: int = zipfile.ZIP_STORED, storages: Any = ()) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as z:
        z.writestr("archive/data.pkl", pickled)
        for i, storage in enumerate(storages):
            z.writestr(f"archive/data/{i}", storage)
        z.writestr("archive/version", "3\n")
    file.seek(0)
    return file


def text(s: str) -> bytes:
    return b"\x8c" + bytes([len(s)]) + s.encode()


def tiny(n: int) -> bytes:
    return b"K" + bytes([n])


def dtype(name: str, fields: bytes = b"NNN", size: bytes = b"J\xff\xff\xff\xff") -> bytes:
    call = b"cnumpy\ndtype\n(" + text(name) + b"\x89\x88tR"
    return call + b"(" + tiny(3) + text("|") + fields + size + size + tiny(0) + b"tb"


def array(shape: bytes, of: bytes, raw: bytes) -> bytes:
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + tiny(0) + b"tC\x01btR"
    return made + b"(" + tiny(1) + shape + of + b"\x89B" + struct.pack("<I", len(raw)) + raw + b"tb"


def call(module: str, name: str, args: bytes) -> bytes:
    return f"c{module}\n{name}\n".encode() + b"(" + args + b"tR"


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class HostileFiles(unittest.TestCase):
    def refused(self, pickled: bytes, what: str) -> None:
        with self.assertRaisesRegex(pickle.UnpicklingError, what):
            athanor.load(archive(b"\x80\x04" + pickled + b"."))

    def in_bounds(self, pickled: bytes, most_bytes: int = 64 << 20) -> None:
        before, began = peak(), time.process_time()
        try:
            athanor.load(archive(b"\x80\x04" + pickled + b"."))
        except EXPECTED:
            pass
        self.assertLess(time.process_time() - began, 5)
        self.assertLess(peak() - before, most_bytes)

    @unittest.skipUnless(numpy, "NumPy is not there")
    def test_bytes_are_never_taken_for_objects(self) -> None:
        # An object that the test keeps, so that where the refusal fails nothing worse comes than its text.
        kept = "kept"
        pointer = struct.pack("<Q", id(kept))
        one = b"(" + tiny(1) + b"t"
        fields = b"N(" + text("a") + b"t}(" + text("a") + b"cnumpy\ndtype\n(" + text("O") + b"\x89\x88tR" + tiny(0) + b"\x86u"
        for of in (dtype("V8", fields, tiny(8)), dtype("O"), dtype("O8"), dtype("f8", fields, tiny(8)), dtype("V8")):
            self.refused(array(one, of, pointer), "NumPy|numpy.dtype")
            self.refused(call("builtins", "str", array(one, of, pointer)), "NumPy|numpy.dtype")
            self.refused(call("numpy.core.multiarray", "scalar", of + b"C\x08" + pointer), "NumPy|numpy.dtype")
        self.assertEqual(ctypes.cast(id(kept), ctypes.py_object).value, "kept")
        good = athanor.load(archive(b"\x80\x04" + array(one, dtype("f8"), struct.pack("<d", 2.5)) + b"."))
        self.assertEqual((good.dtype, good.tolist()), (numpy.dtype("float64"), [2.5]))

    @unittest.skipUnless(numpy, "NumPy is not there")
    def test_arrays_have_as_many_bytes_as_their_shape_says(self) -> None:
        for shape in (b"(" + tiny(2) + b"t", b"(" + tiny(1) + tiny(255) + b"t", b"(J\xff\xff\xff\x7fJ\xff\xff\xff\x7ft", b"(t("):
            self.refused(array(shape, dtype("f8"), bytes(8)), "malformed")
        self.refused(array(b"(" + tiny(8) + b"t", dtype("b1"), b"\2" * 8), "bools")
        self.refused(b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0tC\1btR", "without its values")

    @unittest.skipUnless(numpy, "NumPy is not there")
    def test_numpys_arrays_and_numbers_come_back(self) -> None:
        values = [numpy.arange(6, dtype=name).reshape(2, 3) for name in ("f2", "f4", "f8", "i1", "i8", "u2", "c16", ">i4")]
        values += [numpy.asfortranarray(values[0]), numpy.array([True, False]), numpy.zeros((0, 3)), numpy.array(2.0)]
        for protocol in range(6):
            numbers = [numpy.float32(1.5), numpy.int64(-3), numpy.dtype("float32"), numpy.bool_(True)]
            try:
                loaded = athanor.load(archive(pickle.dumps([values, values, numbers], protocol)))
            except pickle.UnpicklingError as e:  # protocols 0 and 1 make some of these by a function for any class
                self.assertIn("copyreg", str(e))
                continue
            self.assertEqual(loaded[2], numbers)
            self.assertIs(loaded[0][0], loaded[1][0])
            for got, given in zip(loaded[0], values):
                self.assertEqual((got.dtype, got.shape, got.tolist()), (given.dtype, given.shape, given.tolist()))
                self.assertEqual(got.flags.f_contiguous, given.flags.f_contiguous)
                got[...] = 0  # it can be written to

    def test_plain_functions_are_named_and_not_called(self) -> None:
        self.refused(call("builtins", "int", text("9" * 200)), "call of builtins.int")
        self.refused(call("builtins", "list", text("abc")), "call of builtins.list")
        self.refused(call("builtins", "getattr", text("abc") + text("upper")), "builtins.getattr")
        self.refused(call("builtins", "bytearray", b"J\0\0\0\x40"), "not made of bytes")
        self.refused(b"ccollections\nOrderedDict\n)\x81}" + text("items") + tiny(1) + b"sb", "hide OrderedDict.items")
        self.refused(b"ctorch\nfloat32\n}" + text("a") + tiny(1) + b"sb", "state for something")
        self.refused(b"]}" + text("a") + tiny(1) + b"sb", "state for something")

    def test_containers_of_every_protocol_come_back(self) -> None:
        counted: Any = collections.Counter("abca")
        grouped: Any = collections.defaultdict(list, {"a": [1]})
        ordered: Any = collections.OrderedDict(b=1, a=2)
        ordered.kept = {"": {"version": 2}}
        shared = [1, 2.5, -(2**70), True, None, "t\u00e9xt", b"\0bytes", (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]
        value = {"c": counted, "g": grouped, "o": ordered, "l": shared, "again": shared, "s": {1, 2}, "f": frozenset("ab"),
                 "t": int, "key": {(1, "a"): 2, 2.5: 3, frozenset((1,)): 4}, "z": 1 + 2j}
        for protocol in range(6):
            loaded = athanor.load(archive(pickle.dumps(value, protocol)))
            self.assertEqual(loaded, value)
            self.assertIs(loaded["l"], loaded["again"])
            self.assertEqual([type(v) for v in loaded.values()], [type(v) for v in value.values()])
            self.assertEqual((loaded["o"].kept, loaded["g"]["new"]), (ordered.kept, []))

    def test_memo_slots_take_memory_by_use_not_by_number(self) -> None:
        self.in_bounds(b"Nr" + struct.pack("<I", 2**32 - 1))
        self.in_bounds(b"N" + b"".join(b"r" + struct.pack("<I", 2**31 + i) for i in range(1000)))

    def test_values_used_again_and_again_are_refused(self) -> None:
        raw = b"B" + struct.pack("<I", 1 << 20) + bytes(1 << 20)
        again = b"0" + call("builtins", "bytearray", b"h\0")
        self.refused(raw + b"q\0" + b"(" + again[1:] * 1000 + b"l", "again and again")
        grown = b"K\1" + b"".join(b"q\0h\0\x86" for _ in range(60))
        self.refused(b"}" + grown + b"Ns", "a key of more than")
        self.in_bounds(b"}" + b"K\1" + b"\x85" * 100_000 + b"Ns")

    def test_sizes_beyond_the_pickle_are_refused(self) -> None:
        for code in (b"B", b"X", b"T", b"\x8b"):
            self.in_bounds(code + struct.pack("<I", 2**31 - 1) + b"short")
        for code in (b"\x8e", b"\x8d", b"\x96", b"\x95"):
            self.in_bounds(code + struct.pack("<Q", 2**40) + b"short")

    def test_inflated_pickles_are_bounded(self) -> None:
        before = peak()
        bomb = archive(b"\x80\x02" + b"N0" * (64 << 20) + b"N.", zipfile.ZIP_DEFLATED)
        grown = peak()
        with self.assertRaisesRegex(RuntimeError, "data.pkl claims 134217732 bytes, packed in"):
            athanor.load(bomb)
        self.assertLess(peak() - max(before, grown), 32 << 20)
        state = pickle.dumps({f"layer.{i}.weight": i for i in range(2000)}, 2)
        self.assertEqual(len(athanor.load(archive(state, zipfile.ZIP_DEFLATED))), 2000)

    def test_entries_that_share_bytes_are_refused(self) -> None:
        whole = archive(b"\x80\x02N.", storages=[bytes(100), bytes(100)]).getvalue()
        directory = whole.index(b"PK\1\2")
        second = whole.index(b"PK\1\2", whole.index(b"PK\1\2", directory + 1) + 1)
        first = whole.index(b"PK\1\2", directory + 1)
        changed = bytearray(whole)
        changed[second + 42 : second + 46] = changed[first + 42 : first + 46]
        with self.assertRaisesRegex(RuntimeError, "overlap"):
            athanor.load(io.BytesIO(bytes(changed)))

    def test_bools_of_other_bytes_are_refused(self) -> None:
        storage = b"(" + text("storage") + b"ctorch\nBoolStorage\n" + text("0") + text("cpu") + tiny(2) + b"tQ"
        pickled = call("torch._utils", "_rebuild_tensor_v2", storage + tiny(0) + b"K\2\x85K\1\x85\x89N")
        self.assertEqual(athanor.load(archive(b"\x80\x02" + pickled.replace(b"\x8c", b"U") + b".", storages=[b"\0\1"])).tolist(), [False, True])
        with self.assertRaisesRegex(RuntimeError, "bools"):
            athanor.load(archive(b"\x80\x02" + pickled.replace(b"\x8c", b"U") + b".", storages=[b"\0\2"]))


class MutatedFiles(unittest.TestCase):
    """Seeded: the same files every time."""

    def corpus(self) -> List[bytes]:
        base = athanor.arange(12, dtype=athanor.float32)
        state: Any = collections.OrderedDict(a=base[2:8].reshape(2, 3), b=base, c=athanor.tensor([True, False]))
        state._metadata = {"": {"version": 1}}
        values: List[Any] = [state, {"p": athanor.nn.Parameter(athanor.ones(2)), "d": athanor.float16, "s": athanor.Size([2])}]
        values.append([1, 2.5, None, "text", b"bytes", {1, 2}, frozenset((1,)), collections.defaultdict(list, {"a": [1]}), (1, 2)])
        values.append({"optimizer": {"state": {0: {"step": 1}}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]}})
        pickles = []
        for value in values:
            for protocol in (2, 4):
                file = io.BytesIO()
                athanor.save(value, file, pickle_protocol=protocol)
                with zipfile.ZipFile(file) as z:
                    pickles.append(z.read("archive/data.pkl"))
        if numpy:
            arrays = [numpy.arange(4), numpy.array([[True, False]]), numpy.float32(2.5), numpy.dtype("f4")]
            pickles += [pickle.dumps(arrays, protocol) for protocol in (2, 5)]
        pickles.append(pickle.dumps(values[2], 0))
        return pickles

    def mutate(self, rng: random.Random, corpus: List[bytes]) -> bytes:
        data = bytearray(rng.choice(corpus))
        for _ in range(rng.choice((1, 1, 2, 4, 8))):
            at = rng.randrange(len(data) + 1)
            kind = rng.randrange(6)
            if kind == 0 and at < len(data):
                data[at] = rng.randrange(256)
            elif kind == 1 and at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 2:
                data[at:at] = bytes([rng.choice(b"(.0129abcdeghijlopqrstuBCGIJKLMNPQRSTUVX])}\x80\x81\x85\x86\x87\x8a\x8c\x8f\x90\x91\x92\x93\x94")])
            elif kind == 3:
                del data[at : at + rng.randrange(1, 9)]
            elif kind == 4:
                other = rng.choice(corpus)
                begin = rng.randrange(len(other))
                data[at:at] = other[begin : begin + rng.randrange(1, 60)]
            else:
                data[at:at] = rng.choice((b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", bytes(4), b"\0\0\0\0\1\0\0\0"))
        return bytes(data)

    def test_they_are_read_or_refused_in_bounds(self) -> None:
        corpus, rng = self.corpus(), random.Random(20)
        storages = [bytes(48), b"\1\0", bytes(8)]
        for pickled in corpus:
            athanor.load(archive(pickled, storages=storages))
        before, refused, count = peak(), 0, 4000
        for i in range(count):
            pickled = self.mutate(rng, corpus)
            began = time.process_time()
            try:
                athanor.load(archive(pickled, storages=storages))
            except EXPECTED:
                refused += 1
            except BaseException as e:
                raise AssertionError(f"file {i} of {pickled!r}: {type(e).__name__}: {e}") from e
            self.assertLess(time.process_time() - began, 2, f"file {i} of {pickled!r}")
        self.assertLess(peak() - before, 256 << 20)
        self.assertGreater(refused, count // 4)
        self.assertLess(refused, count * 99 // 100)


if __name__ == "__main__":
    unittest.main()

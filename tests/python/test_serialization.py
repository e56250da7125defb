"""save and load: PyTorch's files, safetensors, pickles."""

from __future__ import annotations

import collections
import copy
import io
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile

import athanor
import athanor.safetensors
import athanor.serialization
import peer


def content(torch) -> dict:
    """Everything that state_dicts and their neighbours hold."""
    base = torch.arange(12, dtype=torch.float32)
    return collections.OrderedDict(
        part=base[2:8].reshape(2, 3),
        base=base,
        transposed=torch.arange(6, dtype=torch.float64).reshape(2, 3).t(),
        integers=torch.tensor([1, -2, 3]),
        brain=torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        half=torch.tensor([0.5], dtype=torch.float16),
        truth=torch.tensor([True, False]),
        small=torch.tensor([[1, 255]], dtype=torch.uint8),
        empty=torch.empty(0, 3),
        number=torch.tensor(3.0),
        wanted=torch.tensor([1.0, 2.0]).requires_grad_(),
        plain={
            "list": [1, 2.5, None, True, "text", (1, 2)],
            "dtype": torch.float16,
            "size": torch.Size([2, 3]),
            "device": torch.device("cpu"),
            5: b"bytes",
            "large": 2**80,
            "set": {1, 2},
        },
    )


def describe(value: object) -> object:
    """A structure without tensors that says everything about one with them."""
    if hasattr(value, "tolist"):
        layout = [list(value.shape), list(value.stride()), str(value.dtype), value.requires_grad]
        return ["tensor", value.tolist(), layout]
    if isinstance(value, dict):
        return [type(value).__name__, [[describe(k), describe(v)] for k, v in value.items()]]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [describe(v) for v in value]]
    return [type(value).__name__, repr(value)]


PEER_PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import types
sys.modules["athanor"] = types.ModuleType("athanor")
for name in ("athanor.safetensors", "athanor.serialization"):
    sys.modules[name] = types.ModuleType(name)
import test_serialization as t
import torch
torch.save(t.content(torch), sys.argv[2] + "/theirs.pt")
ours = torch.load(sys.argv[2] + "/ours.pt")
ours["base"][2] = 100.0
shared = ours["part"][0, 0].item() == 100.0
ours["base"][2] = 2.0
json.dump([t.describe(t.content(torch)), t.describe(ours), shared], open(sys.argv[2] + "/said.json", "w"))
"""


class Files(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "file.pt")

    def test_what_is_saved_is_loaded(self) -> None:
        value = content(athanor)
        for protocol in range(2, 6):
            for mmap in (False, True):
                athanor.save(value, self.path, pickle_protocol=protocol)
                self.assertEqual(describe(athanor.load(self.path, mmap=mmap)), describe(value))

    def test_tensors_that_share_memory_share_it_again(self) -> None:
        athanor.save(content(athanor), self.path)
        for mmap in (False, True):
            loaded = athanor.load(self.path, mmap=mmap)
            loaded["base"][2] = 100.0
            self.assertEqual(loaded["part"][0, 0].item(), 100.0)
        self.assertEqual(athanor.load(self.path)["base"][2].item(), 2.0)

    def test_pytorch_reads_and_writes_the_same_files(self) -> None:
        athanor.save(content(athanor), os.path.join(self.folder, "ours.pt"))
        peer.run("-c", PEER_PROGRAM, os.path.dirname(os.path.abspath(__file__)), self.folder)
        with open(os.path.join(self.folder, "said.json")) as file:
            content_there, ours_there, shared = json.load(file)
        self.assertEqual(ours_there, content_there)
        self.assertTrue(shared)
        theirs = athanor.load(os.path.join(self.folder, "theirs.pt"))
        self.assertEqual(json.loads(json.dumps(describe(theirs))), content_there)

    def test_files_in_memory_and_positions_in_files(self) -> None:
        file = io.BytesIO()
        athanor.save(athanor.ones(2), file)
        file.seek(0)
        self.assertEqual(athanor.load(file).tolist(), [1, 1])
        file = io.BytesIO(b"head")
        file.seek(4)
        athanor.save(athanor.ones(3), file)
        file.seek(4)
        self.assertEqual(athanor.load(file).tolist(), [1, 1, 1])
        with self.assertRaisesRegex(AttributeError, "write"):
            athanor.save(1, 3)

    def test_values_begin_at_multiples_of_64_bytes(self) -> None:
        athanor.save(content(athanor), self.path)
        with open(self.path, "rb") as file, zipfile.ZipFile(self.path) as archive:
            self.assertIsNone(archive.testzip())
            whole = file.read()
            for info in archive.infolist():
                begin = info.header_offset + 30 + int.from_bytes(whole[info.header_offset + 26 :][:2], "little")
                begin += int.from_bytes(whole[info.header_offset + 28 :][:2], "little")
                self.assertEqual(begin % 64, 0, info.filename)

    def test_a_failed_save_leaves_the_old_file(self) -> None:
        athanor.save(athanor.ones(2), self.path)
        with self.assertRaises(Exception):
            athanor.save({"a": threading.Lock()}, self.path)
        self.assertEqual(athanor.load(self.path).tolist(), [1, 1])
        self.assertEqual(os.listdir(self.folder), ["file.pt"])
        with self.assertRaisesRegex(RuntimeError, "Parent directory"):
            athanor.save(1, os.path.join(self.folder, "missing", "file.pt"))

    def test_a_killed_save_leaves_the_old_file_and_nothing_else(self) -> None:
        try:
            os.close(os.open(self.folder, os.O_TMPFILE | os.O_RDWR))
        except OSError as error:
            self.skipTest(f"no files without names in {self.folder}: {error}")
        athanor.save(athanor.ones(2), self.path)
        program = (
            "import sys; from athanor._atomic_file import atomic_file\n"
            "with atomic_file(sys.argv[1]) as file:\n"
            "    file.write(b'half'); file.flush(); print('written', flush=True); sys.stdin.read()\n"
        )
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with subprocess.Popen([sys.executable, "-c", program, self.path], **pipes) as writer:
            self.assertEqual(writer.stdout.readline(), b"written\n")
            writer.kill()
        self.assertEqual(athanor.load(self.path).tolist(), [1, 1])
        self.assertEqual(os.listdir(self.folder), ["file.pt"])

    def test_a_save_keeps_the_mode_and_follows_links(self) -> None:
        real, link = self.path, os.path.join(self.folder, "link.pt")
        athanor.save(athanor.ones(1), real)
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(os.stat(real).st_mode & 0o777, 0o666 & ~mask)
        os.chmod(real, 0o640)
        os.symlink("file.pt", link)
        athanor.save(athanor.ones(3), link)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(os.stat(real).st_mode & 0o777, 0o640)
        self.assertEqual(athanor.load(real).tolist(), [1, 1, 1])
        name = os.path.join(os.fsencode(self.folder), b"not \xff utf-8.pt")
        athanor.save(athanor.ones(2), name)
        with open(name, "rb") as file:
            self.assertEqual(athanor.load(file).tolist(), [1, 1])
        with self.assertRaisesRegex(OSError, "not a regular file"):
            athanor.save(1, os.devnull)

    def test_map_location_places_tensors_on_the_host(self) -> None:
        athanor.save(athanor.ones(2), self.path)
        functions = (lambda s, _: s, lambda s, _: s.cpu(), lambda s, _: None)
        for place in ("cpu", athanor.device("cpu"), {"cuda:0": "cpu"}, *functions):
            self.assertEqual(athanor.load(self.path, map_location=place).device.type, "cpu")


class Attacker:
    def __reduce__(self):
        return os.system, ("false",)


class SetsAttributes:
    """Tries to change a function that the reader calls."""

    def __init__(self, target: tuple) -> None:
        self.target = target

    def pickled(self) -> bytes:
        module, name = self.target
        return f"c{module}\n{name}\n(N}}S'_call'\nI1\nstb.".encode()


class Refusals(unittest.TestCase):
    def archive(self, pickled: bytes) -> io.BytesIO:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("archive/data.pkl", pickled)
            archive.writestr("archive/version", "3\n")
        file.seek(0)
        return file

    def test_code_is_refused_with_its_name_and_the_way_out(self) -> None:
        for pickled in (pickle.dumps(Attacker()), b"cbuiltins\neval\n(S'1'\ntR.", b"cathanor\nload\n."):
            with self.assertRaisesRegex(pickle.UnpicklingError, "Weights only load failed.*names .*weights_only=False"):
                athanor.load(self.archive(pickled))

    def test_a_pickle_cannot_change_what_it_names(self) -> None:
        for target in (
            ("torch._utils", "_rebuild_tensor_v2"),
            ("collections", "OrderedDict"),
            ("torch", "float32"),
            ("torch", "FloatStorage"),
            ("builtins", "int"),
        ):
            with self.assertRaises(pickle.UnpicklingError, msg=str(target)):
                athanor.load(self.archive(SetsAttributes(target).pickled()))

    def test_what_else_is_kept_of_a_tensor_counts_or_is_refused(self) -> None:
        from athanor._unpickling import LoadedStorage, _rebuild_tensor, _rebuild_tensor_v3

        storage = LoadedStorage(athanor.tensor([1.0, 2.0]), athanor.float32, None)
        self.assertEqual(_rebuild_tensor(storage, 0, (2,), (1,), False, {}, {"neg": True}).tolist(), [-1, -2])
        self.assertEqual(_rebuild_tensor(storage, 0, (2,), (1,), False, {}, {}).tolist(), [1, 2])
        v3 = _rebuild_tensor_v3(storage, 0, (2,), (1,), True, {}, athanor.float32, {"neg": True})
        self.assertEqual((v3.tolist(), v3.requires_grad), ([-1, -2], True))
        with self.assertRaisesRegex(pickle.UnpicklingError, "conj.*clone"):
            _rebuild_tensor(storage, 0, (2,), (1,), False, {}, {"conj": True})

    def test_types_are_let_in_by_name(self) -> None:
        file = io.BytesIO()
        athanor.save(Marked(3), file)
        with self.assertRaises(pickle.UnpicklingError):
            athanor.load(io.BytesIO(file.getvalue()))
        with athanor.serialization.safe_globals([Marked]):
            self.assertEqual(athanor.load(io.BytesIO(file.getvalue())).value, 3)
        self.assertEqual(athanor.serialization.get_safe_globals(), [])
        self.assertEqual(athanor.load(io.BytesIO(file.getvalue()), weights_only=False).value, 3)

    def test_other_files_are_told_apart(self) -> None:
        for head, kind, text in (
            (b"", EOFError, "empty"),
            (b"hello", pickle.UnpicklingError, "neither a ZIP archive"),
            (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", RuntimeError, "before 1.6"),
        ):
            with self.assertRaisesRegex(kind, text):
                athanor.load(io.BytesIO(head))
        with self.assertRaises(FileNotFoundError):
            athanor.load("/nowhere/file.pt")

    def test_damaged_files_are_errors_and_nothing_worse(self) -> None:
        file = io.BytesIO()
        athanor.save(content(athanor), file)
        whole = file.getvalue()
        rng = random.Random(0)
        refused = 0
        for i in range(300):
            damaged = bytearray(whole)
            for _ in range(3):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            if i % 3 == 0:
                del damaged[rng.randrange(1, len(damaged)) :]
            try:
                athanor.load(io.BytesIO(damaged))
            except (pickle.UnpicklingError, RuntimeError, OSError):
                refused += 1
        self.assertGreater(refused, 100)

    def test_storages_beyond_their_entry_are_refused(self) -> None:
        pickled = (
            b"ctorch._utils\n_rebuild_tensor_v2\n((S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI1000000000\ntQ"
            b"I0\n(I2\nt(I1\ntI00\nNtR."
        )
        file = self.archive(pickled)
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr("archive/data/0", b"\0" * 8)
        file.seek(0)
        with self.assertRaisesRegex(RuntimeError, "has 8 bytes, the pickle says 4000000000"):
            athanor.load(file)


class Marked:
    def __init__(self, value: int) -> None:
        self.value = value


class Pickles(unittest.TestCase):
    def test_tensors_are_pickled_with_layout_dtype_and_attributes(self) -> None:
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            for name, t in content(athanor).items():
                if isinstance(t, athanor.Tensor):
                    self.assertEqual(describe(pickle.loads(pickle.dumps(t, protocol))), describe(t), name)
        t = athanor.ones(2)
        t.tag = "mine"
        other = pickle.loads(pickle.dumps(t))
        self.assertEqual(other.tag, "mine")
        other[0] = 5
        self.assertEqual(t.tolist(), [1, 1])

    def test_a_part_of_a_large_tensor_is_small(self) -> None:
        self.assertLess(len(pickle.dumps(athanor.zeros(100_000)[:10])), 1000)

    def test_parameters_stay_parameters(self) -> None:
        from athanor import nn

        p = nn.Parameter(athanor.ones(2))
        for other in (pickle.loads(pickle.dumps(p)), copy.deepcopy(p)):
            self.assertIsInstance(other, nn.Parameter)
            self.assertTrue(other.requires_grad)
        file = io.BytesIO()
        athanor.save({"p": p}, file)
        file.seek(0)
        self.assertIsInstance(athanor.load(file)["p"], nn.Parameter)

    def test_modules_are_saved_whole_where_the_file_is_trusted(self) -> None:
        from athanor import nn

        model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        file = io.BytesIO()
        athanor.save(model, file)
        with self.assertRaises(pickle.UnpicklingError):
            athanor.load(io.BytesIO(file.getvalue()))
        other = athanor.load(io.BytesIO(file.getvalue()), weights_only=False)
        x = athanor.randn(4, 2)
        self.assertEqual(other(x).tolist(), model(x).tolist())


class Safetensors(unittest.TestCase):
    def test_files_hold_tensors_and_texts(self) -> None:
        tensors = {k: v for k, v in content(athanor).items() if isinstance(v, athanor.Tensor)}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.safetensors")
            athanor.safetensors.save_file(tensors, path, {"made by": "test"})
            loaded = athanor.safetensors.load_file(path)
            self.assertEqual(athanor.safetensors.load_metadata(path), {"made by": "test"})
        self.assertEqual(loaded.keys(), tensors.keys())
        for name, t in tensors.items():
            self.assertEqual(loaded[name].tolist(), t.tolist(), name)
            self.assertIs(loaded[name].dtype, t.dtype)
        again = athanor.safetensors.load(athanor.safetensors.save(tensors))
        self.assertEqual(again["part"].tolist(), tensors["part"].tolist())

    def test_names_that_are_no_utf8_are_errors_with_the_files_name(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad.safetensors")
            header = b'{"a\xff":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
            with open(path, "wb") as file:
                file.write(len(header).to_bytes(8, "little") + header + bytes(4))
            with self.assertRaisesRegex(OSError, r"bad.safetensors.*\\xff"):
                athanor.safetensors.load_file(path)
            for tensors, metadata in (({"a\ud800": athanor.ones(1)}, None), ({}, {"made by": "\ud800"})):
                with self.assertRaisesRegex(ValueError, "new.safetensors.*not valid UTF-8"):
                    athanor.safetensors.save_file(tensors, os.path.join(folder, "new.safetensors"), metadata)

    def test_values_that_are_no_tensors_are_named(self) -> None:
        with self.assertRaisesRegex(ValueError, "Key `x` is invalid"):
            athanor.safetensors.save({"x": 3})


if __name__ == "__main__":
    unittest.main()

"""Every source that opens files has its formats fuzzed (tests/fuzz, tests/python/test_load_hostile.py), or a reason why
there is nothing to fuzz. A new reader fails here until its row says which."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

OPENS = {".cpp": r"\b(ifstream|fopen|fscanf|read_file|read_text|MappedFile|mmap|dlopen|directory_iterator)\b|(?<![\w.])::open\(",
         ".py": r"(?<!def )(?<![\w.])open\(|\b(fdopen|mmap\.mmap|Image\.open|read_text|read_bytes)\("}

SYSTEM = "the kernel writes it, in a form of its own"
MEMORY = "memory, no file"
WRITES = "writes only"

# Source: tests of tests/fuzz by name ("Fuzz." left out), "hostile" for the Python reader's own, or why there are none.
READERS = {
    "athanor/base/cpus.cpp": SYSTEM,
    "athanor/data/cifar.cpp": ["CifarBinary", "CifarPickled"],
    "athanor/data/image_folder.cpp": ["PngDecoder", "JpegDecoder"],
    "athanor/data/text.cpp": ["TextCorpus", "TextLines"],
    "athanor/device/cpu/cpu_allocator.cpp": MEMORY,
    "athanor/device/cpu/page_heap.cpp": MEMORY,
    "athanor/distributed/net/forks.cpp": "/dev/null",
    "athanor/distributed/net/interfaces.cpp": SYSTEM,
    "athanor/distributed/plugin.cpp": "plug-ins are programs: the loader runs them, only a word is looked for before",
    "athanor/distributed/store/file_store.cpp": ["FileStore"],
    "athanor/distributed/transport/segment.cpp": "memory that ranks share, without a name",
    "athanor/io/download.cpp": "of any content, which its checksum must fit",
    "athanor/io/file.cpp": "bytes, whatever they mean",
    "athanor/io/file_lock.cpp": ["LockFile"],
    "athanor/io/idx.cpp": ["IdxReader"],
    "athanor/io/image.cpp": ["PngDecoder", "JpegDecoder"],
    "athanor/io/npy.cpp": ["NpyReader"],
    "athanor/io/pt.cpp": ["PtReader", "PickleReader", "OptimizerStateOfPt"],
    "athanor/io/safetensors.cpp": ["SafetensorsReader", "CheckpointLoader", "ArchiveOfTensors", "ArchiveOfSamplers"],
    "athanor/io/shared_library.cpp": "libraries of the system, which its loader reads",
    "athanor/io/summary_writer.cpp": ["MetricsInCsv", "MetricsInJson"],
    "athanor/launch/affinity.cpp": ["CpuLists"],
    "athanor/launch/file_timers.cpp": ["TimersOfWorkers"],
    "athanor/launch/local_rank_flag.cpp": ["ProgramsAndLogs"],
    "athanor/launch/options.cpp": ["Hostfile"],
    "athanor/launch/output.cpp": ["ProgramsAndLogs"],
    "athanor/launch/process.cpp": SYSTEM,
    "athanor/launch/report.cpp": ["WorkersErrorFile", "FailureOfAnotherNode"],
    "athanor/launch/workers.cpp": WRITES,
    "cli/bench.cpp": WRITES,
    "cli/env.cpp": SYSTEM,
    "python/src/io.cpp": MEMORY,
    "python/athanor/_atomic_file.py": WRITES,
    "python/athanor/_serialization.py": ["hostile"],
    "python/athanor/distributed/elastic/multiprocessing/errors/__init__.py": WRITES,
    "python/athanor/multiprocessing/reductions.py": MEMORY,
    "python/athanor/profiler.py": "packs what it wrote itself",
    "python/athanor/vision/datasets/folder.py": "pillow decodes it, if it is there",
}


def code_of(text, suffix):
    return re.sub(r"//.*" if suffix == ".cpp" else r"(?m)^\s*#.*", "", text)


def opens_files(text, suffix):
    return re.search(OPENS[suffix], code_of(text, suffix)) is not None


def sources():
    for folder in ("athanor", "cli", "python/src", "python/athanor"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in OPENS:
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"), path.suffix


class Readers(unittest.TestCase):
    def test_every_source_that_opens_files_has_a_row(self):
        found = {name for name, text, suffix in sources() if opens_files(text, suffix)}
        self.assertEqual(sorted(found - READERS.keys()), [], "add a fuzz target, and a row in READERS")
        self.assertEqual(sorted(READERS.keys() - found), [], "opens nothing: take its row away")

    def test_every_target_is_there(self):
        there = {"hostile"} if (ROOT / "tests/python/test_load_hostile.py").exists() else set()
        for path in (ROOT / "tests" / "fuzz").glob("*.cpp"):
            there |= set(re.findall(r"TEST\(Fuzz, (\w+)\)", path.read_text(encoding="utf-8")))
        named = {name for row in READERS.values() if isinstance(row, list) for name in row}
        self.assertEqual(named, there)

    def test_ways_to_open_a_file_are_seen(self):
        for text in ("std::ifstream in(path);", "x = io::read_text(path);", "fd(::open(p, O_RDONLY));", "MappedFile file(path);"):
            self.assertTrue(opens_files(text, ".cpp"), text)
        for text in ("with open(path) as f:", "x = pathlib.Path(p).read_text()", "mmap.mmap(fd, 0)"):
            self.assertTrue(opens_files(text, ".py"), text)
        for text in ("store.open();", "// an ifstream", "meeting::opened(x)", "Meeting::open()"):
            self.assertFalse(opens_files(text, ".cpp"), text)
        for text in ("def open(self):", "archive.open(name)", "# open(path)"):
            self.assertFalse(opens_files(text, ".py"), text)


if __name__ == "__main__":
    unittest.main()

"""The programs that benchmarks/run.py compares: finding peers, building them, talking to them."""

import glob
import hashlib
import json
import os
import re
import selectors
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

from peer_pythons import named_pythons

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.join(HERE, "peers")

# Settings under which an installed PyTorch is at its best on Linux: memory that is freed stays with the process
# instead of going back to the system after every step.
MALLOC_TUNING = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**33)}


class Side:
    """One running program that speaks the protocol of benchmarks/protocol.h."""

    def __init__(self, name: str, command: list, threads: int, environment: dict, is_peer: bool, timeout: float):
        self.name, self.is_peer, self.timeout = name, is_peer, timeout
        self.buffer = b""
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), **environment)
        env.pop("OMP_PROC_BIND", None)
        self.complaints = tempfile.TemporaryFile()  # a pipe nobody reads would fill up
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.complaints)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        try:
            hello = self.read()
            self.version, self.listed = hello.get("version", ""), hello.get("rows", [])
            self.rows = set(self.listed)
            if hello.get("threads") != threads:
                raise RuntimeError(f"{name} runs {hello.get('threads')} threads instead of {threads}")
        except Exception:
            self.close()
            raise

    def read(self) -> dict:
        while b"\n" not in self.buffer:
            if not self.selector.select(self.timeout):
                self.process.kill()
                raise RuntimeError(f"{self.name} gave no answer within {self.timeout:.0f} s")
            data = self.process.stdout.read()
            if not data:
                self.process.wait()
                self.complaints.seek(0)
                message = self.complaints.read().decode(errors="replace").strip()
                raise RuntimeError(f"{self.name} ended: {message.splitlines()[-1] if message else 'no message'}")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def send(self, line: str) -> None:
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def run(self, row: str, samples: int, min_seconds: float) -> dict:
        self.send(f"run {row} {samples} {min_seconds}")
        return self.read()

    def forget(self) -> None:
        self.send("forget")

    def is_awake(self) -> bool:
        """Whether one of its threads runs or wants to."""
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/stat"):
            try:
                with open(path, encoding="utf-8") as file:
                    if file.read().rpartition(")")[2].split()[0] == "R":
                        return True
            except OSError:
                pass  # the thread has ended meanwhile
        return False

    def close(self) -> None:
        if self.process.poll() is None:
            try:
                self.send("quit")
                self.process.wait(timeout=10)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        self.selector.close()
        for stream in (self.process.stdin, self.process.stdout, self.complaints):
            try:
                stream.close()
            except OSError:
                pass  # what was not written yet has no reader any more


def let_rest(sides: list, seconds: float = 1.0) -> bool:
    """Waits until no thread of these sides runs: a pool's threads go on looking for work when a row is done, and who
    runs beside them waits for a processor in every parallel loop. False if some did not come to rest."""
    end = time.monotonic() + seconds
    while any(side.is_awake() for side in sides):
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


class Torch:
    """An installed PyTorch: the interpreter that has it, and where its libraries and headers are."""

    def __init__(self, python: str):
        self.python = python
        probe = ("import json, os, torch; print(json.dumps([torch.__version__, os.path.dirname(torch.__file__),"
                 " torch.__config__.show(), bool(torch._C._GLIBCXX_USE_CXX11_ABI)]))")
        done = subprocess.run([python, "-c", probe], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
        self.version, self.folder, config, self.new_abi = json.loads(done.stdout.splitlines()[-1])
        self.short_version = re.match(r"[\d.]+", self.version)[0].rstrip(".")
        self.uses_openblas = "USE_MKL=ON" not in config

    def tunings(self, which: str) -> dict:
        """Name of a way to run it -> environment. OpenBLAS for OpenMP shares the pool of threads with the rest."""
        tuned = dict(MALLOC_TUNING)
        openblas = f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}/openblas-openmp"
        if self.uses_openblas and os.path.isdir(openblas):
            tuned["LD_LIBRARY_PATH"] = openblas
        plain = {"OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "")} if self.uses_openblas else {}
        plain = {k: v for k, v in plain.items() if v}
        return {"plain": {"plain": plain}, "tuned": {"tuned": tuned},
                "both": {"plain": plain, "tuned": tuned}}[which]

    def cpp_flags(self):
        """(include flags, link flags) for C++ programs, or None when the headers are not there."""
        bundled = os.path.join(self.folder, "include")
        library = os.path.join(self.folder, "lib")
        if os.path.exists(os.path.join(bundled, "torch/csrc/api/include/torch/torch.h")):
            include, link = [bundled, f"{bundled}/torch/csrc/api/include"], [f"-L{library}", f"-Wl,-rpath,{library}"]
        elif os.path.exists("/usr/include/torch/csrc/api/include/torch/torch.h"):
            include, link = ["/usr/include", "/usr/include/torch/csrc/api/include"], []
        else:
            return None
        return ([f"-I{path}" for path in include] + [f"-D_GLIBCXX_USE_CXX11_ABI={int(self.new_abi)}"],
                link + ["-ltorch", "-ltorch_cpu", "-lc10"])

    def build_cpp(self, source: str, folder: str):
        """Compiles peers/<source> against this libtorch unless that was done before; (program, command) or None."""
        flags = self.cpp_flags()
        compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
        if flags is None or compiler is None:
            return None
        path = os.path.join(PEERS, source)
        standard = "-std=c++20" if int(self.short_version.split(".")[0]) >= 2 else "-std=c++17"
        command = [compiler, "-O2", standard, f"-I{HERE}", *flags[0], path, *flags[1]]
        digest = hashlib.sha256(repr(command).encode())
        for name in [path] + sorted(glob.glob(os.path.join(HERE, "*.h"))):
            with open(name, "rb") as file:
                digest.update(file.read())
        program = os.path.join(folder, f"{source[:-4]}-{self.short_version}-{digest.hexdigest()[:12]}")
        if not os.path.exists(program):
            print(f"compiling {source} against libtorch {self.short_version} ...", flush=True)
            done = subprocess.run(command + ["-o", program + ".part"], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                print(f"skipped: {source} with libtorch {self.short_version} does not compile:\n{done.stderr[-2000:]}")
                return None
            os.rename(program + ".part", program)
        return program, command


def find_torches(named: list) -> list:
    """Every distinct PyTorch of the interpreters named, of ATHANOR_PEER_PYTHON (colon-separated) and of the system."""
    pythons = named + named_pythons() + [sys.executable, "/usr/bin/python3"]
    torches, seen, asked = [], set(), set()
    for python in pythons:
        if python in asked or not os.path.exists(python):
            if python not in asked:
                print(f"skipped: peer {python} does not exist")
            continue
        asked.add(python)
        try:
            torch = Torch(python)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"skipped: no PyTorch in {python} ({error})")
            continue
        if torch.folder not in seen:
            seen.add(torch.folder)
            torches.append(torch)
            print(f"peer: PyTorch {torch.version} of {python}")
    return torches


def start_sides(build: str, torches: list, threads: int, tunings: str, timeout: float, wanted: str) -> list:
    """Starts Athanor and every peer with this many threads; a side that cannot start is skipped by name."""
    sides = []

    def start(name, command, environment, is_peer):
        if is_peer and wanted and not re.search(wanted, name):
            return
        try:
            sides.append(Side(name, command, threads, environment, is_peer, timeout))
        except (OSError, RuntimeError, json.JSONDecodeError) as error:
            print(f"skipped: {name} at {threads} threads: {error}")

    programs = os.path.join(build, "bin")
    start("limits", [os.path.join(programs, "bench_limits")], {}, False)
    start("athanor", [os.path.join(programs, "athanor_bench"), str(threads)], {}, False)
    start("athanor otherwise", [os.path.join(programs, "athanor_bench"), str(threads), "otherwise"], {}, True)
    start("onednn", [os.path.join(programs, "onednn_peer")], {}, True)
    os.makedirs(os.path.join(build, "bench"), exist_ok=True)
    for torch in torches:
        cpp_wanted = any(re.search(wanted, f"libtorch {torch.short_version} {t}") for t in torch.tunings(tunings))
        cpp = torch.build_cpp("libtorch_peer.cpp", os.path.join(build, "bench")) if cpp_wanted else None
        if cpp is None and cpp_wanted:
            print(f"skipped: no C++ rows of libtorch {torch.short_version}")
        for tuning, environment in torch.tunings(tunings).items():
            start(f"torch {torch.short_version} {tuning}", [torch.python, os.path.join(PEERS, "torch_peer.py"),
                                                             str(threads)], environment, True)
            if cpp is not None:
                start(f"libtorch {torch.short_version} {tuning}", [cpp[0], str(threads)], environment, True)
    return sides


def clean_old_programs(folder: str) -> None:
    """Removes peers that an earlier version of their source left."""
    newest = {}
    for path in glob.glob(os.path.join(folder, "libtorch_*-*-*")):
        stem = path.rsplit("-", 1)[0]
        if stem in newest and os.path.getmtime(path) < os.path.getmtime(newest[stem]):
            path, newest[stem] = path, newest[stem]
            os.remove(path)
        elif stem in newest:
            os.remove(newest[stem])
            newest[stem] = path
        else:
            newest[stem] = path

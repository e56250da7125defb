"""What tests of programs share: small MNIST files, running with a deadline, skipping by name."""

import gzip
import importlib.util
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import time
import unittest

# Nothing here may take longer, even on a busy machine; the thread sanitizer is ten times as slow, and a build with any
# of them says what a test may take.
DEADLINE_S = 1200 if "TSAN_OPTIONS" in os.environ else int(os.environ.get("ATHANOR_TEST_TIMEOUT", "300")) - 20


def idx(path: str, values: bytes, *sizes: int) -> None:
    """An IDX file of bytes, packed if its name says so."""
    content = struct.pack(">BBBB", 0, 0, 8, len(sizes)) + struct.pack(f">{len(sizes)}I", *sizes) + values
    with (gzip.open if path.endswith(".gz") else open)(path, "wb") as file:
        file.write(content)


def write_digits(folder: str, train: int, test: int) -> None:
    """Images that can be learned: a bright column at the class's place, on noise."""
    draw = random.Random(5)
    for half, count in (("train", train), ("t10k", test)):
        labels = bytes(draw.randrange(10) for _ in range(count))
        images = bytearray(draw.randbytes(count * 784))
        for i in range(len(images)):
            images[i] >>= 3
        for i, label in enumerate(labels):
            for row in range(28):
                at = i * 784 + row * 28 + 2 * label + 3
                images[at:at + 3] = b"\xff\xff\xff"
        idx(f"{folder}/{half}-images-idx3-ubyte", bytes(images), count, 28, 28)
        idx(f"{folder}/{half}-labels-idx1-ubyte", labels, count)


def find_mnist():
    """The folder of the real files: $ATHANOR_DATA, else shared/data in a folder above, else None."""
    chosen = os.environ.get("ATHANOR_DATA")
    candidates = [os.path.join(chosen, "mnist"), chosen] if chosen else []
    at = os.path.dirname(os.path.abspath(__file__))
    while at != os.path.dirname(at):
        candidates.append(os.path.join(at, "shared", "data", "mnist"))
        at = os.path.dirname(at)
    for folder in candidates:
        if any(os.path.exists(os.path.join(folder, f"t10k-images-idx3-ubyte{end}")) for end in ("", ".gz")):
            return folder
    return None


def lines_until(end: float, stream):
    """The lines of a pipe until it is closed; raises TimeoutError at the time `end`, whoever still has its other end."""
    rest = b""
    while select.select([stream], [], [], max(0, end - time.monotonic()))[0]:
        chunk = os.read(stream.fileno(), 1 << 16)
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() + "\n" for line in whole)
        if not chunk:
            yield from filter(None, [rest.decode()])
            return
    raise TimeoutError


def interrupt(command: list, which: int, now, deadline_s: float = DEADLINE_S, **options):
    """Starts a program and sends it a signal when now(its lines so far) says so, once; gives back exit status and output.
    Who has not ended by the deadline is killed, which is an AssertionError."""
    end = time.monotonic() + deadline_s
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as process:
        lines, sent = [], False
        try:
            for line in lines_until(end, process.stdout):
                lines.append(line)
                if not sent and now(lines):
                    process.send_signal(which)
                    sent = True
            return process.wait(timeout=max(0, end - time.monotonic())), "".join(lines)
        except (TimeoutError, subprocess.TimeoutExpired):
            what = "after the signal" if sent else "and no signal was due"
            raise AssertionError(f"still runs after {deadline_s} s, {what}: {''.join(lines)}") from None
        finally:
            process.kill()


class ProgramTest(unittest.TestCase):
    """Has a folder of its own, and small digits in its folder `digits`."""

    program = ""
    digits = (256, 100)
    # What the Python that runs the class needs; another one is looked for if this one lacks some.
    MODULES = ()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.data = self.path("digits")
        os.mkdir(self.data)
        write_digits(self.data, *self.digits)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def environment(self) -> dict:
        """Nothing of this machine leaks in: no data folders, no downloads."""
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("ATHANOR_", "XDG_")) and k != "HOME"}
        return {**keep, "HOME": self.folder, "ATHANOR_OFFLINE": "1"}

    def run_program(self, *arguments: str, data: bool = True):
        threads = () if "--threads" in arguments else ("--threads", "1")
        command = [self.program, *threads, *(["--data", self.data] if data else []), *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=self.environment(),
                              timeout=DEADLINE_S, check=False)

    def run_well(self, *arguments: str, data: bool = True) -> str:
        done = self.run_program(*arguments, data=data)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def run_badly(self, *arguments: str, says=(), data: bool = True) -> str:
        """Exits by itself with a status other than 0 and a short message that contains all of `says`."""
        done = self.run_program(*arguments, data=data)
        output = done.stdout + done.stderr
        self.assertGreater(done.returncode, 0, f"{arguments}: {output}")
        self.assertLess(len(done.stderr), 4000, output)
        for part in says:
            self.assertIn(part, output, str(arguments))
        return output

    def read(self, name: str) -> bytes:
        with open(self.path(name), "rb") as file:
            return file.read()

    def write(self, name: str, content: bytes) -> str:
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)


def main(program_variable: str) -> None:
    """Runs the class named on the command line; exits with 77 and the reason if all of its tests skipped."""
    module = sys.modules["__main__"]
    modules = [name for test in sys.argv[1:] for name in getattr(module, test.split(".")[0]).MODULES]
    if not all(importlib.util.find_spec(name) for name in modules):
        for python in filter(None, os.environ.pop("ATHANOR_PEER_PYTHON", "").split(":")):
            if subprocess.run([python, "-c", "import " + ", ".join(modules)], capture_output=True, check=False).returncode == 0:
                os.execv(python, [python, *sys.argv])
        print(f"SKIP: {sys.executable} lacks one of {', '.join(modules)}; ATHANOR_PEER_PYTHON may name a Python that has them")
        sys.exit(77)
    ProgramTest.program = os.environ.get(program_variable, "")
    if not os.access(ProgramTest.program, os.X_OK):
        sys.exit(f"${program_variable} should name the program, got '{ProgramTest.program}'")
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:], module)
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    if result.wasSuccessful() and result.skipped and len(result.skipped) == result.testsRun:
        print("SKIP: " + "; ".join(sorted({reason for _, reason in result.skipped})))
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)

"""Functions run as the ranks of a group, in forked processes of this one. No port is fixed: ranks meet by a file."""
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from ports import free_port  # noqa: E402, F401

DEADLINE = 90.0


def _rank(fn, rank, size, args, meeting, out, setup):
    signal.alarm(int(DEADLINE))
    try:
        if setup:
            import athanor.distributed as dist

            dist.init_process_group("tcp", init_method=meeting, rank=rank, world_size=size)
        out.send((True, fn(rank, size, *args)))
    except BaseException:
        out.send((False, traceback.format_exc()))
        raise SystemExit(1)


def run(fn, size=2, args=(), setup=True, start_method="fork"):
    """fn(rank, size, *args) in `size` processes that have a default group; their results. AssertionError with the
    traceback of the first that failed."""
    context = multiprocessing.get_context(start_method)
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        processes, results = [], []
        for rank in range(size):
            reader, writer = context.Pipe(duplex=False)
            p = context.Process(target=_rank, args=(fn, rank, size, args, meeting, writer, setup))
            p.start()
            writer.close()
            processes.append((p, reader))
        end = time.monotonic() + DEADLINE
        try:
            for rank, (p, reader) in enumerate(processes):
                if not reader.poll(max(0.0, end - time.monotonic())):
                    raise AssertionError(f"rank {rank} did not end in time")
                try:
                    well, result = reader.recv()
                except EOFError:
                    p.join()
                    raise AssertionError(f"rank {rank} ended without a result, status {p.exitcode}") from None
                if not well:
                    raise AssertionError(f"rank {rank} failed:\n{result}")
                results.append(result)
            for p, _ in processes:
                p.join(max(0.0, end - time.monotonic()))
        finally:
            for p, _ in processes:
                if p.is_alive():
                    p.kill()
                    p.join()
    return results


def package_environment(**more):
    """The environment in which another Python finds the package."""
    import athanor

    environment = dict(os.environ, **more)
    root = os.path.dirname(os.path.dirname(os.path.abspath(athanor.__file__)))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    return environment


def run_program(text, *arguments, devices=0, prefix=(), timeout=120, **more):
    """What a program prints, run by a Python of its own in a folder of its own; with `devices` virtual CUDA devices.
    AssertionError with its stderr if it fails."""
    import subprocess

    if devices:
        more["ATHANOR_CUDA_ON_CPU"] = str(devices)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.py")
        with open(path, "w") as file:
            file.write(text)
        done = subprocess.run([sys.executable, *prefix, path, *arguments], capture_output=True, text=True,
                              timeout=timeout, env=package_environment(**more), cwd=folder)
    if done.returncode != 0:
        raise AssertionError(f"status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout

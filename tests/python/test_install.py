"""The installed package: the files that a wheel holds, in a folder of their own."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile


class Install(unittest.TestCase):
    def test_the_package_works_where_it_is_installed(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cmake", "--install", os.environ["ATHANOR_BUILD"], "--component", "python", "--prefix", folder, "--strip"],
                           check=True, capture_output=True, timeout=120)
            program = ("import athanor, athanor.nn as nn; assert athanor.__file__.startswith(%r); "
                       "print(nn.Linear(2, 1)(athanor.ones(3, 2)).sum().item() is not None)" % folder)
            environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
            run = subprocess.run([sys.executable, "-c", program], env={**environment, "PYTHONPATH": folder}, cwd=folder,
                                 capture_output=True, text=True, timeout=120)
            self.assertEqual((run.stdout.strip(), run.returncode), ("True", 0), run.stderr)
            launcher = pathlib.Path(folder) / "athanor" / "bin" / "athanor"
            helped = subprocess.run([launcher, "run", "--help"], env=environment, capture_output=True, text=True, timeout=60)
            self.assertEqual(helped.returncode, 0, helped.stderr)
            # A wheel has no plug-ins; programs that ask for gloo run all the same.
            program = pathlib.Path(folder) / "ranks.py"
            program.write_text("import athanor as torch, athanor.distributed as dist\n"
                               "dist.init_process_group('gloo')\n"
                               "x = torch.ones(1)\n"
                               "dist.all_reduce(x)\n"
                               "dist.all_reduce(x, group=dist.new_group([0, 1], backend='cpu:gloo'))\n"
                               "print(f'sum {int(x)} {dist.get_backend()}\\n', end='')\n")
            ranks = subprocess.run([sys.executable, "-m", "athanor.distributed.run", "--standalone", "--nproc-per-node=2", program],
                                   env={**environment, "PYTHONPATH": folder}, cwd=folder, capture_output=True, text=True, timeout=120)
            self.assertEqual((ranks.returncode, ranks.stdout.count("sum 4 tcp")), (0, 2), ranks.stderr)
            self.assertEqual(ranks.stderr.count("backend 'gloo' is served by tcp"), 1, ranks.stderr)
            program.unlink()
            files = [f for f in pathlib.Path(folder).rglob("*") if f.is_file()]
            size = sum(f.stat().st_size for f in files) / 1e6
            wheel = pathlib.Path(folder) / "wheel.zip"
            with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as z:
                for f in files:
                    z.write(f)
            print(f"installed package: {size:.1f} MB, {wheel.stat().st_size / 1e6:.1f} MB as a wheel")
            self.assertLess(size, 20)
            self.assertLess(wheel.stat().st_size / 1e6, 8)


if __name__ == "__main__":
    unittest.main()

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

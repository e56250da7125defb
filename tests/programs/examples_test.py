"""The smaller examples: regression, time_sequence, dcgan."""

import os
import re
import struct
import subprocess
import tempfile
import unittest
import zlib

BIN = os.environ["ATHANOR_BIN"]
DEADLINE_S = 200


def run(program: str, *flags: str, code: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run((os.path.join(BIN, program), *flags), capture_output=True, text=True, timeout=DEADLINE_S,
                          check=False)
    if done.returncode != code:
        raise AssertionError(f"{program} {flags}: exit status {done.returncode}: {done.stdout}{done.stderr}")
    return done


def png(content: bytes) -> tuple:
    """Width, height and bytes of a grey PNG whose lines are stored as they are (filter 0)."""
    chunks, at = {}, 8
    while at < len(content):
        length, kind = struct.unpack(">I4s", content[at:at + 8])
        chunks[kind] = chunks.get(kind, b"") + content[at + 8:at + 8 + length]
        at += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour) == (8, 0), (depth, colour)
    lines = zlib.decompress(chunks[b"IDAT"])
    assert len(lines) == height * (width + 1)
    return width, height, b"".join(lines[y * (width + 1) + 1:(y + 1) * (width + 1)] for y in range(height))


class Regression(unittest.TestCase):
    def test_finds_the_polynomial(self):
        output = run("regression").stdout
        learned, actual = ([float(x) for x in re.findall(r"([+-][0-9.]+)(?: x|$)", line, re.M)]
                           for line in output.splitlines()[1:])
        self.assertEqual(len(actual), 5)
        for a, b in zip(learned, actual):
            self.assertLess(abs(a - b), 0.5, output)

    def test_says_so_when_it_did_not(self):
        run("regression", "--limit", "1", code=1)


class TimeSequence(unittest.TestCase):
    def test_learns_and_continues_waves(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "waves.csv")
            output = run("time_sequence", "--steps", "4", "--series", "12", "--length", "100", "--future", "40",
                         "--hidden", "16", "--csv", path).stdout
            losses = [float(x) for x in re.findall(r"test loss ([0-9.]+)", output)]
            self.assertEqual(len(losses), 4)
            self.assertLess(losses[-1], 0.02, output)
            with open(path, encoding="utf-8") as file:
                rows = [[float(x) for x in line.split(",")] for line in file]
        self.assertEqual(len(rows), 140)
        self.assertTrue(all(len(row) == 4 and all(abs(x) < 2 for x in row[1:]) for row in rows))


class Dcgan(unittest.TestCase):
    SMALL = ("--synthetic", "--limit", "192", "--features", "8", "--noise", "16", "--batch-size", "32", "--samples",
             "10", "--lr", "1e-3")

    def test_draws_digits_and_saves_its_networks(self):
        with tempfile.TemporaryDirectory() as folder:
            output = run("dcgan", *self.SMALL, "--epochs", "3", "--out", os.path.join(folder, "new", "folder")).stdout
            losses = [tuple(map(float, m)) for m in re.findall(r"D loss ([0-9.]+)  G loss ([0-9.]+)", output)]
            self.assertEqual(len(losses), 3)
            self.assertLess(losses[-1][0], losses[0][0], "the discriminator learns")
            names = sorted(os.listdir(os.path.join(folder, "new", "folder")))
            self.assertEqual(names, ["discriminator.safetensors"] + [f"fake_samples_epoch_{i}.png" for i in (1, 2, 3)]
                             + ["generator.safetensors"])
            with open(os.path.join(folder, "new", "folder", "fake_samples_epoch_3.png"), "rb") as file:
                content = file.read()
        width, height, pixels = png(content)
        self.assertEqual((width, height), (240, 60))
        self.assertGreater(len(set(pixels)), 50, "shades, not one grey")

    def test_refuses_batches_larger_than_the_data(self):
        with tempfile.TemporaryDirectory() as folder:
            refused = run("dcgan", "--synthetic", "--limit", "100", "--batch-size", "500", "--out", folder, code=1)
        self.assertIn("--batch-size 500", refused.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""The container image's files, put together by the script that the Dockerfile calls, and run without an engine."""

import os
import re
import shutil
import stat
import sys

sys.dont_write_bytecode = True
from deploy_test import BUILD, DEPLOY, USER, DeployTest, main  # noqa: E402

# What the image may weigh, in MB; most of it is oneDNN.
LIMIT_MB, LIMIT_WITHOUT_DOWNLOAD_MB = 85, 65


def as_root_of(tree: str) -> list:
    """A command that runs the words behind it with `tree` as its root, as the image's user where that can be chosen."""
    if os.geteuid() == 0:
        return ["chroot", f"--userspec={USER}", tree]
    return ["unshare", "--user", "--map-root-user", "chroot", tree]


class Tree(DeployTest):
    def inside(self, *command: str, **variables: str):
        environment = {"PATH": os.environ["PATH"], "ATHANOR_OFFLINE": "1", **variables}
        # Found by its path: the caller's PATH means nothing there.
        return self.run_command(*as_root_of(self.tree), f"/usr/bin/{command[0]}", *command[1:], env=environment)

    def setUp(self):
        super().setUp()
        self.tree = self.path("tree")

    def need_chroot(self):
        done = self.inside("mnist", "--help")
        if done.returncode and ("Operation not permitted" in done.stderr or "unshare" in done.stderr):
            self.skipTest(f"no chroot without root or user namespaces: {done.stderr.strip()}")

    def test_a_tree_of_nothing_else_trains_as_a_user_without_rights(self):
        size = self.assemble(self.tree)
        print(f"\nimage: {size} MB")
        self.assertLess(size, LIMIT_MB)
        self.need_chroot()
        shutil.copytree(self.digits(256, 100), os.path.join(self.tree, "digits"))
        done = self.inside("mnist", "--data", "/digits", "--epochs", "1", "--log-interval", "2", "--save-model",
                           "/results/m.safetensors", "--log-path", "/katib/log")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("Train Epoch"), 2)
        for name in ("results/m.safetensors", "katib/log"):
            status = os.stat(os.path.join(self.tree, name))
            if os.geteuid() == 0:
                self.assertEqual(f"{status.st_uid}:{status.st_gid}", USER)
        # Without data and without a network: generated digits, and the program says so.
        done = self.inside("mnist", "--dry-run", "--limit", "64")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("generated digits", done.stderr)

    def test_without_downloads_it_is_smaller_and_runs_too(self):
        size = self.assemble(self.tree, "--no-download")
        print(f"\nimage without libcurl: {size} MB")
        self.assertLess(size, LIMIT_WITHOUT_DOWNLOAD_MB)
        self.need_chroot()
        done = self.inside("athanor", "run", "--standalone", "--nproc-per-node", "2", "/usr/bin/mnist", "--dry-run",
                           "--limit", "64")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("Test set:"), 1)

    def test_it_holds_two_programs_and_no_more(self):
        self.assemble(self.tree)
        programs, writable = [], []
        for folder, folders, files in os.walk(self.tree):
            for name in files + folders:
                path = os.path.join(folder, name)
                if os.path.islink(path):
                    self.assertFalse(os.path.isabs(os.readlink(path)), path)
                    continue
                mode, inner = os.stat(path).st_mode, os.path.relpath(path, self.tree)
                self.assertFalse(mode & (stat.S_ISUID | stat.S_ISGID), inner)
                if stat.S_ISREG(mode) and mode & 0o111 and ".so" not in name:
                    programs.append(inner)
                if mode & 0o022:
                    writable.append(inner)
        self.assertEqual(sorted(programs), ["usr/bin/athanor", "usr/bin/mnist"])
        self.assertEqual(sorted(writable), ["katib", "opt/athanor", "results", "tmp"])
        for program in programs:
            dynamic = self.run_command("readelf", "-d", os.path.join(self.tree, program)).stdout
            self.assertRegex(dynamic, r"(?:RUNPATH|RPATH).*\[\$ORIGIN/\.\./lib[^:]*\]")

    def test_mistakes_are_named(self):
        script = os.path.join(DEPLOY, "assemble.sh")
        os.mkdir(self.path("full"))
        os.mkdir(self.path("full/folder"))
        for words, says in (((), "usage"), ((BUILD,), "usage"), ((BUILD, self.path("full")), "is not empty"),
                            ((self.folder, self.tree), "bin/mnist is missing"), ((BUILD, self.tree, "--small"), "--small")):
            done = self.run_command(script, *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)
            self.assertFalse(os.path.exists(self.tree))


class Dockerfile(DeployTest):
    def setUp(self):
        super().setUp()
        with open(os.path.join(DEPLOY, "Dockerfile"), encoding="utf-8") as file:
            self.text = file.read()

    def test_its_last_stage_is_the_assembled_tree_and_nothing_else(self):
        last = re.split(r"(?m)^FROM ", self.text)[-1]
        self.assertTrue(last.startswith("scratch\n"))
        self.assertRegex(self.text, r"RUN deploy/assemble\.sh build (\S+) ")
        tree = re.search(r"RUN deploy/assemble\.sh build (\S+) ", self.text)[1]
        self.assertIn(f"COPY --from=assemble {tree} /\n", last)
        self.assertEqual(re.findall(r"(?m)^(RUN|ADD) ", last), [])
        self.assertIn(f"USER {USER}\n", last)

    def test_what_it_copies_and_calls_is_there(self):
        root = os.path.dirname(DEPLOY)
        for word in re.findall(r"(?m)^COPY (?!--from)(\S+) ", self.text) + re.findall(r"RUN (\w+/[\w.]+)", self.text):
            self.assertTrue(os.path.exists(os.path.join(root, word)), word)


if __name__ == "__main__":
    main()

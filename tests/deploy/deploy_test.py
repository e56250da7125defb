"""What tests of deploy/ share: the manifests, small digits, the assembled tree."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "programs"))
from program_test import write_digits  # noqa: E402

DEPLOY = os.path.join(ROOT, "deploy")
BUILD = os.environ.get("ATHANOR_BUILD", "")
# Nothing here may take longer, even on a busy machine.
DEADLINE_S = 120
# The user and group that the image runs as.
USER = "10001:0"


def shared_data(*names: str):
    """A file of $ATHANOR_DATA, or of the folder shared/data beside the checkout; or None."""
    for folder in (os.environ.get("ATHANOR_DATA"), os.path.join(os.path.dirname(ROOT), "shared", "data")):
        if folder and os.path.exists(os.path.join(folder, *names)):
            return os.path.join(folder, *names)
    return None


def load_yaml(path: str) -> list:
    """All documents of a file. A key that stands twice is an error here, as it is for kubectl."""
    try:
        import yaml
    except ImportError as error:
        raise unittest.SkipTest("this Python has no yaml") from error

    class Loader(yaml.SafeLoader):
        pass

    def mapping(loader, node, deep=False):
        keys = [loader.construct_object(key, deep=deep) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise ValueError(f"{path}: {twice} twice at line {node.start_mark.line + 1}")
        return yaml.SafeLoader.construct_mapping(loader, node, deep)

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    with open(path, encoding="utf-8") as file:
        return list(yaml.load_all(file, Loader))


def manifests() -> dict:
    """File name -> its documents by kind."""
    folder = os.path.join(DEPLOY, "kubernetes")
    found = {}
    for name in sorted(os.listdir(folder)):
        documents = load_yaml(os.path.join(folder, name))
        found[name] = {document["kind"]: document for document in documents}
        if len(found[name]) != len(documents):
            raise ValueError(f"{name}: two documents of one kind")
    return found


def templates(documents: dict) -> dict:
    """Replica type -> pod template."""
    if "Job" in documents:
        return {"Pod": documents["Job"]["spec"]["template"]}
    return {kind: replica["template"] for kind, replica in
            documents["PyTorchJob"]["spec"]["pytorchReplicaSpecs"].items()}


class DeployTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def digits(self, train: int, test: int) -> str:
        """A folder with small MNIST files."""
        folder = self.path(f"digits{train}")
        os.mkdir(folder)
        write_digits(folder, train, test)
        return folder

    def run_command(self, *command: str, **options):
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                              **options)

    def assemble(self, folder: str, *flags: str) -> float:
        """The image's tree in `folder`; its size in MB."""
        done = self.run_command(os.path.join(DEPLOY, "assemble.sh"), BUILD, folder, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return float(re.fullmatch(r".*: (\d+\.\d) MB\n", done.stdout)[1])


def main() -> None:
    """Runs the class named on the command line; exits with 77 and the reason if all of its tests skipped."""
    if not os.access(os.path.join(BUILD, "bin", "mnist"), os.X_OK):
        sys.exit(f"$ATHANOR_BUILD should name the build folder, got '{BUILD}'")
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:], sys.modules["__main__"])
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    if result.wasSuccessful() and result.skipped and len(result.skipped) == max(result.testsRun, 1):
        print("SKIP: " + "; ".join(sorted({reason for _, reason in result.skipped})))
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)

"""Runs one file of tests: run.py FILE. Lists skipped tests with their reasons; exit status 77 if all were skipped."""
import importlib.util
import pathlib
import sys
import unittest


def main() -> int:
    path = pathlib.Path(sys.argv[1])
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    result = unittest.TextTestRunner(verbosity=1).run(unittest.defaultTestLoader.loadTestsFromModule(module))
    for test, reason in result.skipped:
        print(f"SKIP: {test}: {reason}")
    if not result.wasSuccessful():
        return 1
    if result.testsRun == 0 and not result.skipped:
        print("no test ran", file=sys.stderr)
        return 1
    return 77 if len(result.skipped) >= max(result.testsRun, 1) else 0


if __name__ == "__main__":  # processes that a test spawns import this file
    sys.exit(main())

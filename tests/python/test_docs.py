"""help() has something to say of every public name."""
import importlib
import inspect
import types
import unittest

import athanor

MODULES = ("athanor", "athanor.nn", "athanor.nn.functional", "athanor.nn.init", "athanor.nn.utils", "athanor.nn.parallel",
           "athanor.optim", "athanor.optim.lr_scheduler", "athanor.optim.swa_utils", "athanor.utils.data",
           "athanor.utils.checkpoint", "athanor.distributed", "athanor.autograd", "athanor.autograd.functional",
           "athanor.autograd.graph", "athanor.amp", "athanor.cuda", "athanor.linalg", "athanor.multiprocessing",
           "athanor.storage", "athanor.testing", "athanor.func", "athanor.accelerator", "athanor.compiler", "athanor.xpu",
           "athanor.special", "athanor.vision", "athanor.vision.datasets", "athanor.vision.models",
           "athanor.vision.transforms")


def says_nothing(value: object) -> bool:
    """Whether there is no docstring, or one that is signatures alone: those of compiled functions begin with them."""
    lines = (inspect.getdoc(value) or "").strip().splitlines()
    if isinstance(value, (types.FunctionType, type)) or not callable(value):
        return not lines
    name = getattr(value, "__name__", "")
    return all(not line.strip() or line.startswith(name + "(") for line in lines)


def is_documentable(value: object) -> bool:
    return (callable(value) or isinstance(value, property) or inspect.isgetsetdescriptor(value)
            or inspect.ismemberdescriptor(value))


def silent_names() -> list:
    silent, seen = [], set()
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        if not (module.__doc__ or "").strip():
            silent.append(module_name)
        for name in getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]:
            value = getattr(module, name)
            home = getattr(value, "__module__", None) or "athanor"
            if isinstance(value, types.ModuleType) or id(value) in seen or not is_documentable(value):
                continue
            if not home.startswith(("athanor", "torch")):
                continue
            seen.add(id(value))
            if says_nothing(value):
                silent.append(f"{module_name}.{name}")
            if not isinstance(value, type):
                continue
            for member, inner in vars(value).items():
                # What a class inherits, its bases say; what it overrides, too.
                inner = getattr(value, member) if isinstance(inner, (staticmethod, classmethod)) else inner
                bases = [getattr(base, member) for base in value.__mro__[1:] if hasattr(base, member)]
                if (not member.startswith("_") and is_documentable(inner) and says_nothing(inner)
                        and all(says_nothing(base) for base in bases)):
                    silent.append(f"{module_name}.{name}.{member}")
    return silent


class Docs(unittest.TestCase):
    def test_every_public_name_has_a_docstring(self) -> None:
        self.assertEqual(silent_names(), [])

    def test_ops_say_what_they_do_and_not_only_how_they_are_called(self) -> None:
        self.assertIn("zeros(", athanor.zeros.__doc__)
        self.assertIn("A tensor of zeros.", athanor.zeros.__doc__)
        self.assertFalse(says_nothing(athanor.zeros))

    def test_a_name_without_would_be_found(self) -> None:
        def silent(x):
            return x

        self.assertTrue(says_nothing(silent))
        silent.__doc__ = "Its argument."
        self.assertFalse(says_nothing(silent))
        self.assertTrue(says_nothing(athanor._C.ops._softmax))


if __name__ == "__main__":
    unittest.main()

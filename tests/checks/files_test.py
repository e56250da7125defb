"""tools/check_files.py finds what it is meant to find."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import check_files  # noqa: E402


class Files(unittest.TestCase):
    def assert_finds(self, text: str, expected: str, path: str = "athanor/nn/a.cpp"):
        found = check_files.check_file(path, text)
        self.assertEqual(len(found), 1, found)
        self.assertIn(expected, found[0])

    def assert_clean(self, text: str, path: str = "athanor/nn/a.cpp"):
        self.assertEqual(check_files.check_file(path, text), [])

    def test_length_limit_is_exact(self):
        self.assert_clean("x\n" * check_files.MAX_LINES)
        self.assert_finds("x\n" * (check_files.MAX_LINES + 1), "601 lines")
        self.assert_clean("x\n" * 2000, "docs/page.md")

    def test_header_needs_pragma_once_as_first_code(self):
        self.assert_clean("#pragma once\nint x;\n", "athanor/nn/a.h")
        self.assert_clean("// a comment\n\n#pragma once\n", "athanor/nn/a.h")
        self.assert_finds("#include <x>\n#pragma once\n", "#pragma once", "athanor/nn/a.h")
        self.assert_clean("int twice;\n", "athanor/device/cpu/kernel-inl.h")
        self.assert_clean("#if defined(A_H_) == defined(HWY_TARGET_TOGGLE)\n#endif\n", "athanor/device/cpu/a.h")

    def test_paths_of_a_machine(self):
        for path in ("/home/ann/x", "/root/x", "/Users/ann/x", "/opt/x"):
            self.assert_finds(f'open("{path}");\n', "path of one machine")
        self.assert_finds("see\n/home/ann/notes\n", "docs/a.md:2:", "docs/a.md")
        self.assert_clean("double speed = a /home b; // ${HOME}/home/x, usr/home/y\n")

    def test_fixed_temporary_file(self):
        self.assert_finds('open("/tmp/x");\n', "below /tmp")
        self.assert_clean("run it in /tmp/x\n", "docs/a.md")

    def test_todo_needs_a_text(self):
        self.assert_finds("// TODO\n", "needs a text")
        self.assert_finds("// FIXME: later\n", "needs a text")
        self.assert_finds("// TODO(ann)\n", "needs a text")
        self.assert_clean("// TODO(cuda): use a pinned buffer once streams exist\n")

    def test_whitespace_and_markers(self):
        self.assert_finds("int x;", "no newline")
        self.assert_finds("int x;\r\n", "carriage returns")
        self.assert_finds("\tint x;\n", "tab")
        self.assert_clean("all:\n\techo\n", "Makefile")
        self.assert_finds("<<<<<<< HEAD\n", "merge marker")

    def test_other_licences(self):
        self.assert_finds("// Copyright (c) 2016 Somebody\n", "under the LICENSE")
        self.assert_finds("# SPDX-License-Identifier: MIT\n", "under the LICENSE")
        self.assert_clean("// SPDX-License-Identifier: Apache-2.0\n")

    def test_missing_licence_and_bad_bytes(self):
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "a.py"), "wb") as file:
                file.write(b"x = '\xff'\n")
            found = check_files.check(root)
        self.assertEqual(len(found), 2, found)
        self.assertIn("LICENSE: missing", found[0])
        self.assertIn("not UTF-8", found[1])


if __name__ == "__main__":
    unittest.main()

"""tools/check_floors.py finds what it is meant to find."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import check_floors  # noqa: E402


class Floors(unittest.TestCase):
    def findings(self, files: dict) -> list:
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return check_floors.check(root)

    def test_downward_include_is_fine(self):
        self.assertEqual(self.findings({
            "athanor/base/error.h": "#include <string>\n",
            "athanor/nn/linear.h": '#include "athanor/base/error.h"\n#include "athanor/nn/module.h"\n',
            "athanor/nn/module.h": "",
            "athanor/athanor.h": '#include "athanor/nn/linear.h"\n',
            "tests/nn/linear_test.cpp": '#include "athanor/athanor.h"\n#include "helpers.h"\n',
        }), [])

    def test_upward_include_is_found_with_its_line(self):
        found = self.findings({"athanor/tensor/tensor.cpp": '#include <x>\n\n#include "athanor/nn/linear.h"\n'})
        self.assertEqual(len(found), 1)
        self.assertIn("athanor/tensor/tensor.cpp:3: tensor (floor 3) includes", found[0])

    def test_same_floor_include_is_found(self):
        self.assertEqual(len(self.findings({"athanor/nn/a.cpp": '#include "athanor/optim/sgd.h"\n'})), 1)

    def test_umbrella_header_inside_a_room_is_found(self):
        self.assertEqual(len(self.findings({"athanor/nn/a.cpp": '#include "athanor/athanor.h"\n'})), 1)

    def test_tests_included_by_the_library_are_found(self):
        self.assertEqual(len(self.findings({"athanor/nn/a.cpp": '#include "tests/support/x.h"\n'})), 1)

    def test_unknown_room_is_found(self):
        self.assertEqual(len(self.findings({"athanor/attic/a.cpp": "int x;\n"})), 1)
        self.assertEqual(len(self.findings({"athanor/nn/a.cpp": '#include "athanor/attic/a.h"\n'})), 1)

    def test_include_not_written_from_the_root_is_found(self):
        self.assertEqual(len(self.findings({"athanor/nn/a.cpp": '#include "module.h"\n'})), 1)

    def test_circle_inside_a_room_is_found(self):
        found = self.findings({
            "athanor/nn/a.h": '#include "athanor/nn/b.h"\n',
            "athanor/nn/b.h": '#include "athanor/nn/c.h"\n',
            "athanor/nn/c.h": '#include "athanor/nn/a.h"\n',
        })
        self.assertEqual(found, ["circle of includes: athanor/nn/a.h -> athanor/nn/b.h -> athanor/nn/c.h -> athanor/nn/a.h"])

    def test_diamond_is_no_circle(self):
        self.assertEqual(self.findings({
            "athanor/nn/a.h": '#include "athanor/nn/b.h"\n#include "athanor/nn/c.h"\n',
            "athanor/nn/b.h": '#include "athanor/nn/d.h"\n',
            "athanor/nn/c.h": '#include "athanor/nn/d.h"\n',
            "athanor/nn/d.h": "",
        }), [])

    def test_private_library_in_an_interface_header_is_found_through_others(self):
        for name in ("fmt/format.h", "spdlog/spdlog.h", "oneapi/dnnl/dnnl.hpp", "hwy/highway.h", "nlohmann/json.hpp",
                     "zlib.h", "curl/curl.h", "CLI/CLI.hpp", "png.h", "jpeglib.h", "omp.h"):
            with self.subTest(name):
                found = self.findings({
                    "athanor/ops/a.h": '#include "athanor/base/b.h"\n',
                    "athanor/base/b.h": f"#include <{name}>\n",
                })
                self.assertEqual(len(found), 2)
                self.assertIn(f"athanor/ops/a.h -> athanor/base/b.h -> {name}", found[1])

    def test_private_library_in_sources_and_kernel_headers_is_fine(self):
        self.assertEqual(self.findings({
            "athanor/device/cpu/onednn.h": "#include <oneapi/dnnl/dnnl.hpp>\n",
            "athanor/base/log.cpp": "#include <spdlog/spdlog.h>\n",
        }), [])


if __name__ == "__main__":
    unittest.main()

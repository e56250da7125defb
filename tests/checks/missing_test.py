"""tools/missing.py finds what is here, what is not, and names without a reason; tools/public_names.py reads headers."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import missing  # noqa: E402
import public_names  # noqa: E402


class Missing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.library = missing.Library()

    def test_knows_what_is_here(self):
        for name in ("torch.matmul", "torch.absolute", "torch.Tensor.masked_fill", "torch.nn.Linear", "torch.nn.Conv2d",
                     "torch.nn.ConvTranspose3d", "torch.nn.AdaptiveAvgPool1d", "torch.nn.functional.max_pool2d",
                     "torch.nn.init.kaiming_uniform_", "torch.optim.Adam", "torch.linalg.inv", "torch.nn.BCELoss",
                     "torch.optim.lr_scheduler.StepLR", "torch.nn.SyncBatchNorm", "torch.nn.functional.relu_",
                     "torch.nn.utils.rnn", "torch.special.erf", "torch.Tensor.numel", "torch.numel", "torch.where"):
            self.assertTrue(self.library.has(name), name)

    def test_knows_what_is_not(self):
        for name in ("torch.fft.fft", "torch.nn.LazyLinear", "torch.frobnicate", "torch.linalg.eig"):
            self.assertFalse(self.library.has(name), name)

    def test_a_word_of_a_header_is_not_a_name_of_the_place(self):
        # Arguments, functions of other places, classes that are no layers and no optimizers.
        for name in ("torch.indices", "torch.Tensor.shape", "torch.Tensor.kaiming_uniform_", "torch.nn.Tensor", "torch.nn.relu",
                     "torch.nn.LinearOptions", "torch.optim.AdamOptions", "torch.optim.StepLR", "torch.optim.lr_scheduler.Adam",
                     "torch.nn.functional.backward", "torch.nn.init.Linear", "torch.linalg.relu"):
            self.assertFalse(self.library.has(name), name)

    def test_asks_for_reasons(self):
        reasons = missing.REASONS
        try:
            missing.REASONS = [r for r in reasons if "fft" not in r[0]]
            self.assertIn("torch.fft.fft", missing.entries(self.library)[1])
        finally:
            missing.REASONS = reasons

    def test_a_page_that_is_old_fails_the_check(self):
        page = missing.PAGE
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            try:
                missing.PAGE = pathlib.Path(folder, "page.md")
                missing.main([])
                self.assertEqual(missing.main(["--check"]), 0)
                written = missing.PAGE.read_text()
                missing.PAGE.write_text(written + "\n`matmul`\n")
                self.assertEqual(missing.main(["--check"]), 1)
            finally:
                missing.PAGE = page
        self.assertIn("is not what tools/missing.py writes", said.getvalue())

    def test_reads_declarations(self):
        names = public_names.PublicNames(TEXT)
        self.assertEqual(names.names("a"), {"T", "kSize", "Base", "Layer", "plain", "templated", "constrained", "made",
                                            "items", "Word", "alias", "imported", "after"})
        self.assertEqual(names.functions("a"), {"plain", "templated", "constrained", "made", "after", "imported"})
        self.assertEqual(names.classes("a"), {"Base", "Layer"})
        self.assertEqual(names.names("a::Layer"), {"Layer", "forward", "value"})
        self.assertTrue(names.is_a("a", "Layer", {"Base"}))
        self.assertFalse(names.is_a("a", "Layer", {"T"}))
        self.assertEqual(names.functions("a::b"), {"imported"})

    def test_page_counts_and_sorts(self):
        text = missing.page([("why", ["torch.b", "torch.a"]), ("other", []), ("why", ["torch.nn.C"])], 9, 3)
        self.assertIn("9 names, 3 of them", text)
        self.assertIn("## why\n\n`a`, `b`, `nn.C`\n", text)


TEXT = r"""
namespace a {
namespace b { int imported(int named = f({1, 2})); }
using T = int;
typedef unsigned alias;
using b::imported;
inline constexpr int kSize = 3;
template <class X, class Y = Two<X, 3>> struct Base { int hidden_in_base; };
template <> struct Base<int> {};
class Layer : public Base<Layer, b::Inner> {
  int secret_;
 public:
  explicit Layer(int n) : secret_(n), other_{n} {}
  [[nodiscard]] std::tuple<int, int> forward(const Layer& given) const { return helper(given); }
  friend int befriended(int);
  Layer operator()(int) const;
  int value = 2;
 private:
  void unseen();
};
int plain(int argument, const char* text = "};");
template <class F> auto templated(F&& f) -> decltype(f()) { int local(3); return call(local); }
template <class F> requires(sizeof(F) > 2) std::function<void(F)> constrained(F f);
Two<int, 3> made(const Two<int, 3>& x) noexcept(false) { if (x) { nothing(); } return x; }
int Layer::outside() { return 0; }
std::vector<int> items = {1, 2};
enum class Word { First, Second };
extern template class Base<char>;
namespace { void local_to_the_file(); }
int after();
}
"""

if __name__ == "__main__":
    unittest.main()

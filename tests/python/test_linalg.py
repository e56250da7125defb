"""Linear algebra: which exceptions singular matrices raise."""
import unittest

import athanor as torch


class LinAlgErrors(unittest.TestCase):
    def test_a_matrix_without_inverse_or_factor_raises_what_pytorch_raises(self):
        singular = torch.zeros(2, 2)
        with self.assertRaisesRegex(torch.linalg.LinAlgError, "linalg.inv: .* the inversion could not be completed"):
            torch.linalg.inv(singular)
        for call in (torch.linalg.inv, torch.linalg.cholesky, lambda a: torch.linalg.solve(a, torch.ones(2)),
                     lambda a: torch.linalg.inv(torch.stack([torch.eye(2), a]))):
            with self.assertRaises(torch.linalg.LinAlgError) as caught:
                call(singular)
            self.assertIsInstance(caught.exception, RuntimeError)
        self.assertEqual(torch.linalg.inv(2 * torch.eye(2)).tolist(), [[0.5, 0], [0, 0.5]])

    def test_norms_written_to_out_give_it_their_shape(self):
        x = torch.tensor([[3.0, 4.0], [6.0, 8.0]])
        for norm, expected in ((lambda out: torch.norm(x, 2, 1, out=out), [5, 10]),
                               (lambda out: torch.norm(x[0], out=out), 5),
                               (lambda out: torch.linalg.norm(x, dim=1, out=out), [5, 10]),
                               (lambda out: torch.tensordot(x, x[0], 1, out=out), [25, 50])):
            out = torch.empty(0)
            self.assertIs(norm(out), out)
            self.assertEqual(out.tolist(), expected)

    def test_matrix_norms_are_sums_of_columns_and_rows(self):
        x = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
        for order, expected in ((1, 6), (-1, 4), (float("inf"), 7), (float("-inf"), 3)):
            self.assertEqual(torch.linalg.matrix_norm(x, order).item(), expected)
            self.assertEqual(torch.linalg.norm(input=x, ord=order).item(), expected)
        stacked = torch.stack([x, 2 * x])
        self.assertEqual(torch.linalg.norm(stacked, 1, dim=(1, 2)).tolist(), [6, 12])
        self.assertEqual(torch.linalg.matrix_norm(stacked, 1, dim=(2, 1)).tolist(), [7, 14])
        self.assertEqual(torch.linalg.matrix_norm(input=stacked, ord=1, dim=(0, 1), keepdim=True).tolist(), [[[9, 12]]])
        self.assertEqual(torch.linalg.matrix_norm(torch.ones(0, 3), float("inf")).item(), 0)
        diagonal = torch.tensor([[3.0, 0, 0], [0, -4.0, 0]])
        for order, expected in ((2, 4), (-2, 3), ("nuc", 7), ("fro", 5)):
            self.assertAlmostEqual(torch.linalg.matrix_norm(diagonal, order).item(), expected, 5)
            self.assertAlmostEqual(torch.linalg.norm(diagonal, order).item(), expected, 5)
        for call in (lambda: torch.norm(diagonal, "nuc"), lambda: diagonal.norm("nuc"), lambda: diagonal.norm("nuc", (0, 1))):
            self.assertAlmostEqual(call().item(), 7, 5)
        out = torch.empty(0)
        self.assertIs(torch.linalg.matrix_norm(stacked, 1, out=out), out)
        self.assertEqual(out.tolist(), [6, 12])

    def test_products_and_diagonals_by_their_names_of_linear_algebra(self):
        x = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
        self.assertEqual(torch.linalg.vecdot(x, x).tolist(), [5, 25])
        self.assertEqual(torch.linalg.vecdot(x, x, dim=0, out=torch.empty(2)).tolist(), [10, 20])
        self.assertEqual(torch.linalg.diagonal(torch.stack([x, -x]), offset=1).tolist(), [[-2], [2]])
        self.assertEqual(torch.linalg.matmul(x, x).tolist(), (x @ x).tolist())

    def test_powers_and_inverses_of_tensors(self):
        x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
        self.assertEqual(torch.linalg.vander(x, 3).tolist(), [[[1, 1, 1], [1, 2, 4]], [[1, 3, 9], [1, -1, 1]]])
        self.assertEqual(torch.linalg.vander(torch.tensor([2, 3])).tolist(), [[1, 2], [1, 3]])
        self.assertEqual(torch.linalg.vander(torch.tensor(2), 4).tolist(), [[1, 2, 4, 8]])
        a = torch.eye(6, dtype=torch.float64).reshape(6, 2, 3) * 2 + 0.1
        self.assertTrue(torch.allclose(torch.linalg.tensorinv(a, 1).reshape(6, 6) @ a.reshape(6, 6), torch.eye(6).double()))
        b = torch.arange(6.0).double()
        solved = torch.linalg.tensorsolve(a, b)
        self.assertEqual(solved.shape, (2, 3))
        self.assertTrue(torch.allclose(torch.tensordot(a, solved, 2), b))
        moved = torch.linalg.tensorsolve(a.movedim(2, 0), b, dims=(0,))
        self.assertTrue(torch.allclose(moved, solved))
        moved = torch.linalg.tensorsolve(a.permute(1, 2, 0), b, dims=(0, 1))
        self.assertTrue(torch.allclose(moved, solved))
        for call in (lambda: torch.linalg.vander(x, 1), lambda: torch.linalg.tensorinv(a, 2), lambda: torch.linalg.tensorinv(a, 0),
                     lambda: torch.linalg.tensorsolve(a, b[:5])):
            with self.assertRaisesRegex(RuntimeError, "linalg"):
                call()

    def test_norms_of_wrong_dims_or_orders_are_refused(self):
        x = torch.ones(2, 2)
        for call in (lambda: torch.linalg.matrix_norm(x[0]), lambda: torch.linalg.matrix_norm(x, dim=(0, 0)),
                     lambda: torch.linalg.matrix_norm(x, dim=(0,)), lambda: torch.linalg.matrix_norm(x, 3),
                     lambda: torch.linalg.norm(x[None], 2), lambda: torch.linalg.norm(x[0], "fro"),
                     lambda: torch.linalg.norm(x[None], dim=(0, 1, 2))):
            with self.assertRaisesRegex(RuntimeError, "linalg"):
                call()

    def test_probabilities_outside_0_to_1_are_refused(self):
        half = torch.full((2,), 0.5)
        for wrong in (torch.tensor([1.5, 0.5]), torch.tensor([-0.1, 0.5]), torch.tensor([float("nan"), 0.5])):
            with self.assertRaisesRegex(RuntimeError, "all elements of input should be between 0 and 1"):
                torch.nn.functional.binary_cross_entropy(wrong, half)
            with self.assertRaisesRegex(RuntimeError, "all elements of target should be between 0 and 1"):
                torch.nn.functional.binary_cross_entropy(half, wrong)


if __name__ == "__main__":
    unittest.main()

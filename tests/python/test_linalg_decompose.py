"""Decompositions by PyTorch's names: what the factors give together, which names results have, and what is refused."""
import unittest

import athanor as torch

L = torch.linalg


def matrix(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Decompositions(unittest.TestCase):
    def assertClose(self, a, b, tolerance=1e-10):
        self.assertEqual(a.shape, b.shape)
        self.assertTrue(torch.allclose(a, b, tolerance, tolerance), (a - b).abs().max() if a.numel() else "")

    def check(self, a):
        m, n = a.shape[-2:]
        for full in (True, False):
            u, s, vh = L.svd(a, full_matrices=full)
            k = s.shape[-1]
            self.assertEqual((u.shape[-1], vh.shape[-2]), (m, n) if full else (k, k))
            self.assertClose((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a)
            self.assertClose(u.mT @ u, torch.eye(u.shape[-1], dtype=a.dtype).expand(*a.shape[:-2], -1, -1))
            self.assertClose(vh @ vh.mT, torch.eye(vh.shape[-2], dtype=a.dtype).expand(*a.shape[:-2], -1, -1))
            self.assertTrue(bool((s.diff(dim=-1) <= 0).all() & (s >= 0).all()))
        self.assertClose(L.svdvals(a), s, 1e-12)
        q, r = L.qr(a)
        self.assertClose(q @ r, a)
        self.assertTrue(torch.equal(r, r.triu()))
        symmetric = a @ a.mT
        values, vectors = L.eigh(symmetric)
        self.assertClose((vectors * values.unsqueeze(-2)) @ vectors.mT, symmetric)
        self.assertClose(L.eigvalsh(symmetric.triu(), UPLO="U"), values)
        self.assertClose(a @ L.pinv(a) @ a, a)

    def test_least_squares_are_as_exact_as_the_equations_allow(self):
        for m, n in ((12, 10), (12, 12)):
            hilbert = 1 / (torch.arange(m, dtype=torch.float64).unsqueeze(-1) + torch.arange(n, dtype=torch.float64) + 1)
            sums = hilbert.sum(-1, keepdim=True)
            for driver in ("gelsy", "gelsd", "gels"):
                self.assertLess(float((hilbert @ L.lstsq(hilbert, sums, driver=driver).solution - sums).norm()), 1e-13)

    def test_gels_takes_every_matrix_for_one_of_full_rank(self):
        a = torch.diag(torch.tensor([1.0, 1e-3, 1e-20], dtype=torch.float64))
        ones = torch.ones(3, 1, dtype=torch.float64)
        self.assertClose(L.lstsq(a, ones, rcond=0.5, driver="gels").solution, 1 / a.diagonal().unsqueeze(-1))
        self.assertEqual(L.lstsq(torch.zeros(4, 2), torch.ones(4, 1), driver="gels").residuals.shape, (1,))

    def test_columns_of_very_different_sizes_keep_their_directions(self):
        sizes = 10.0 ** (-10 * torch.arange(24, dtype=torch.float64))
        eye = torch.eye(24, dtype=torch.float64)
        u, s, vh = L.svd(matrix(24, 24) * sizes)
        self.assertClose(u.mT @ u, eye, 1e-13)
        self.assertClose(vh @ vh.mT, eye, 1e-13)
        self.assertTrue(bool((s > 0).all()))
        v = L.eigh((matrix(16, 16, seed=3) * sizes[:16]).mT.contiguous() * sizes[:16]).eigenvectors
        self.assertClose(v.mT @ v, eye[:16, :16], 1e-13)
        a = torch.diag(torch.tensor([1e100, 1e-100], dtype=torch.float64))
        self.assertEqual(L.svdvals(a).tolist(), [1e100, 1e-100])
        self.assertEqual(L.matrix_rank(a, atol=1e-200, rtol=0.0).item(), 2)
        for size in (1e-300, 1e200):
            self.assertAlmostEqual(L.cond(size * eye[:2, :2], "fro").item(), 2)

    def test_many_rows_go_through_a_triangle(self):
        a = matrix(5000, 20)
        u, s, vh = L.svd(a, full_matrices=False)
        self.assertClose((u * s) @ vh, a)
        self.assertClose(s.square(), L.eigvalsh(a.mT @ a).flip(0))

    def test_factors_multiply_to_the_matrix_whatever_its_shape_and_rank(self):
        for m, n in ((1, 1), (3, 3), (23, 24), (40, 23), (7, 2), (2, 7), (40, 40), (70, 33), (33, 70), (0, 0), (0, 3), (3, 0)):
            self.check(matrix(m, n))
            self.check(matrix(2, 3, m, n))
            self.check(matrix(n, m).mT)
            self.check(torch.zeros(m, n, dtype=torch.float64))
            self.check(matrix(m, 1) @ matrix(1, n, seed=1))
            self.check(matrix(1, n).expand(m, -1))
            self.check(matrix(m, 1).expand(-1, n))
            self.check(3 * torch.eye(m, n, dtype=torch.float64))
        self.check(matrix(5, 6, 4)[::2, 1::2])
        for size in (1e-150, 1e150):
            a = matrix(40, 40)
            self.assertClose(L.svdvals(a * size) / size, L.svdvals(a))
            self.assertClose(L.eigvalsh((a + a.mT) * size) / size, L.eigvalsh(a + a.mT))

    def test_results_have_the_names_of_pytorch(self):
        a = matrix(3, 3)
        for results, names in ((L.svd(a), "U S Vh"), (torch.svd(a), "U S V"), (L.qr(a), "Q R"),
                               (L.eigh(a), "eigenvalues eigenvectors"),
                               (L.lstsq(a, a), "solution residuals rank singular_values")):
            self.assertEqual([getattr(results, name) is result for name, result in zip(names.split(), results)],
                             [True] * len(results))
        out = torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.float64)
        self.assertIs(L.qr(a, out=out).Q, out[0])
        self.assertClose(out[0] @ out[1], a)

    def test_modes_of_qr(self):
        a = matrix(5, 3)
        q, r = L.qr(a, "complete")
        self.assertEqual((q.shape, r.shape), ((5, 5), (5, 3)))
        self.assertClose(q @ r, a)
        none, upper = L.qr(a, mode="r")
        self.assertEqual(none.shape, (0,))
        self.assertTrue(torch.equal(upper, r[:3]))
        with self.assertRaisesRegex(RuntimeError, "unrecognized mode"):
            L.qr(a, "full")

    def test_what_is_not_finite(self):
        for bad in (float("nan"), float("inf")):
            a = matrix(30, 30)
            a[3, 2] = bad
            for call in (L.svd, L.svdvals, L.pinv, lambda x: L.svd(torch.stack([torch.eye(30).double(), x]))):
                with self.assertRaisesRegex(L.LinAlgError, "non-finite"):
                    call(a)
            self.assertTrue(L.eigh(a).eigenvalues.isnan().all())
            self.assertTrue(L.eigvalsh(torch.stack([a, torch.eye(30).double()])).isnan()[0].all())
            self.assertTrue(L.qr(a).R.isnan().any())

    def test_triangular_systems(self):
        a, b = matrix(3, 40, 40) + 9 * torch.eye(40).double(), matrix(40, 5)
        self.assertClose(a.triu() @ L.solve_triangular(a, b, upper=True), b.expand(3, -1, -1))
        self.assertClose(L.solve_triangular(a, b.mT, upper=False, left=False) @ a.tril(), b.mT.expand(3, -1, -1))
        ones = a.triu(1) * 0.1 + torch.eye(40).double()
        self.assertClose(ones @ L.solve_triangular(a * 0.1, b, upper=True, unitriangular=True), b.expand(3, -1, -1))
        factor = L.cholesky(a @ a.mT)
        self.assertClose(a @ a.mT @ torch.cholesky_solve(b, factor), b.expand(3, -1, -1), 1e-8)
        self.assertClose(b.cholesky_solve(factor.mT, upper=True), torch.cholesky_solve(b, factor))
        self.assertTrue(L.solve_triangular(torch.zeros(2, 2), torch.ones(2, 1), upper=True).isinf()[1, 0])
        with self.assertRaisesRegex(TypeError, "upper"):
            L.solve_triangular(a, b)

    def test_ranks_conditions_and_least_squares(self):
        a = matrix(6, 2) @ matrix(2, 4, seed=1)
        self.assertEqual(L.matrix_rank(a).item(), 2)
        self.assertEqual(L.matrix_rank(torch.diag(torch.tensor([1.0, 1e-3])), tol=1e-2).item(), 1)
        self.assertEqual(L.matrix_rank(torch.diag(torch.tensor([-1.0, 1e-3])), hermitian=True).item(), 2)
        self.assertEqual(L.matrix_rank(torch.ones(3, 0, 2)).tolist(), [0, 0, 0])
        d = torch.diag(torch.tensor([4.0, -2.0]))
        for order in (None, 1, 2, float("inf")):
            self.assertAlmostEqual(L.cond(d, order).item(), 2, 5)
        self.assertAlmostEqual(L.cond(d, "nuc").item(), 4.5, 5)
        self.assertEqual(L.cond(torch.ones(2, 2), 1).item(), float("inf"))
        with self.assertRaises(ValueError):
            L.cond(d, 3)
        tall, b = matrix(6, 3), matrix(6, 2)
        found = L.lstsq(tall, b, driver="gelsd")
        self.assertClose(tall.mT @ (tall @ found.solution - b), torch.zeros(3, 2).double())
        self.assertClose(found.residuals, (tall @ found.solution - b).square().sum(-2))
        self.assertClose(found.singular_values, L.svdvals(tall))
        self.assertEqual(found.rank.item(), 3)
        self.assertClose(L.lstsq(tall, b[:, 0]).solution, found.solution[:, 0])
        with self.assertRaisesRegex(RuntimeError, "driver"):
            L.lstsq(tall, b, driver="qr")

    def test_gradients_of_what_does_not_depend_on_signs(self):
        def squares(name):
            def call(a):
                factors = getattr(L, name)(a + a.mT if name == "eigh" else a, *((False,) if name == "svd" else ()))
                return tuple(f if f.dim() == 1 else f * f for f in factors)
            return call
        for m, n in ((3, 3), (4, 2), (2, 4)):
            a = matrix(m, n).requires_grad_(True)
            calls = [squares("svd"), squares("qr"), L.svdvals, L.pinv, lambda x: L.lstsq(x, matrix(m, 2, seed=3)).solution]
            if m == n:
                calls += [squares("eigh"), lambda x: L.eigvalsh(x + x.mT), lambda x: L.cond(x, "fro"),
                          lambda x: L.solve_triangular(x, matrix(m, 2, seed=3), upper=True)]
            for call in calls:
                self.assertTrue(torch.autograd.gradcheck(call, (a,)))
                self.assertTrue(torch.autograd.gradgradcheck(call, (a,)))
        # The rank decides of pinv's gradient, not whether singular values meet.
        low = (matrix(4, 1) @ matrix(1, 4, seed=2)).requires_grad_(True)
        self.assertTrue(L.pinv(low, rtol=1e-8).sum().isfinite())
        for x in (torch.eye(3).double(), torch.zeros(3, 2).double()):
            x.requires_grad_(True)
            L.pinv(x).sum().backward()
            self.assertTrue(x.grad.isfinite().all())

    def test_results_do_not_depend_on_threads(self):
        a = matrix(150, 150)
        before = torch.get_num_threads()
        results = []
        try:
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                results.append([*L.svd(a), *L.qr(a), *L.eigh(a + a.mT), L.solve_triangular(a, a, upper=True)])
        finally:
            torch.set_num_threads(before)
        for other in results[1:]:
            for x, y in zip(results[0], other):
                self.assertTrue(torch.equal(x, y))

    def test_halves_and_integers_are_refused(self):
        for dtype in (torch.float16, torch.bfloat16, torch.int64):
            x = torch.ones(2, 2).to(dtype)
            for call in (L.svd, L.svdvals, L.qr, L.eigh, L.eigvalsh, L.pinv, L.matrix_rank, L.cond, lambda a: L.lstsq(a, a),
                         lambda a: L.solve_triangular(a, a, upper=True), lambda a: torch.cholesky_solve(a, a)):
                with self.assertRaisesRegex(NotImplementedError, "float32 or float64"):
                    call(x)


if __name__ == "__main__":
    unittest.main()

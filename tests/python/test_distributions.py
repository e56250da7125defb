"""athanor.distributions against formulas: samples, densities, entropies, divergences, what is refused."""
import math
import unittest

import athanor
from athanor import distributions as D
from athanor.testing import assert_close


def integral(density, low, high, steps=20001):
    x = athanor.linspace(low, high, steps, dtype=athanor.float64)
    y = density(x)
    return float((y.sum() - (y[0] + y[-1]) / 2) * (high - low) / (steps - 1))


def f64(*values):
    return athanor.tensor(values, dtype=athanor.float64)


ONE = f64(1.0)[0]
CONTINUOUS = [  # distribution, an interval that holds nearly all of it
    (D.Normal(0.3 * ONE, 1.5 * ONE), -20, 20), (D.Laplace(0.3 * ONE, 0.7 * ONE), -20, 20),
    (D.Gumbel(0.3 * ONE, 0.7 * ONE), -5, 25), (D.Exponential(1.5 * ONE), 0, 30), (D.HalfNormal(1.5 * ONE), 0, 20),
    (D.Uniform(-1.0 * ONE, 2.0 * ONE), -1, 2), (D.LogNormal(0.1 * ONE, 0.3 * ONE), 1e-9, 20),
    (D.TransformedDistribution(D.Normal(0.1 * ONE, 0.4 * ONE), [D.TanhTransform()]), -1 + 1e-9, 1 - 1e-9),
    (D.TransformedDistribution(D.Normal(0.1 * ONE, 0.4 * ONE), [D.AffineTransform(1.0, -2.0)]), -8, 8),
]


class Continuous(unittest.TestCase):
    def test_densities_integrate_to_one_and_to_mean_variance_and_entropy(self):
        for d, low, high in CONTINUOUS:
            with self.subTest(repr(d)):
                def p(x):
                    return athanor.where(athanor.isfinite(d.log_prob(x[:-1])), d.log_prob(x[:-1]).exp(), 0.0)

                self.assertAlmostEqual(integral(p, low, high), 1, places=3)
                if isinstance(d, D.LogNormal) or type(d) is not D.TransformedDistribution:
                    mean = integral(lambda x: p(x) * x[:-1], low, high)
                    self.assertAlmostEqual(mean, float(d.mean), places=3)
                    variance = integral(lambda x: p(x) * (x[:-1] - mean) ** 2, low, high)
                    self.assertAlmostEqual(variance, float(d.variance), places=2)
                    entropy = integral(lambda x: -athanor.special.xlogy(p(x), p(x)), low, high)
                    self.assertAlmostEqual(entropy, float(d.entropy()), places=2)

    def test_icdf_undoes_cdf_and_samples_follow_it(self):
        athanor.manual_seed(0)
        for d, low, high in CONTINUOUS:
            with self.subTest(repr(d)):
                q = f64(0.1, 0.5, 0.8)
                assert_close(d.cdf(d.icdf(q)), q)
                x = d.sample((4000,))
                self.assertEqual((x.shape, x.dtype, x.requires_grad), ((4000,), athanor.float64, False))
                for level in q:
                    self.assertAlmostEqual(float((x <= d.icdf(level)).double().mean()), float(level), delta=0.04)

    def test_rsample_has_gradients_of_the_parameters(self):
        for make in (D.Normal, D.Laplace, D.Gumbel, D.Cauchy):
            loc, scale = f64(0.5).requires_grad_(), f64(2.0).requires_grad_()
            x = make(loc, scale).rsample((3,))
            x.sum().backward()
            assert_close(loc.grad, f64(3.0))
            assert_close(scale.grad, ((x - loc) / scale).sum(0).detach())

    def test_multivariate_normal_from_any_matrix(self):
        cov = f64(2.0, 0.3, 0.3, 1.0).view(2, 2)
        x, mean = f64(0.4, -1.0), f64(0.1, 0.2)
        expected = -0.5 * ((x - mean) @ cov.inverse() @ (x - mean)) - 0.5 * cov.det().log() - math.log(2 * math.pi)
        for d in (D.MultivariateNormal(mean, cov), D.MultivariateNormal(mean, precision_matrix=cov.inverse()),
                  D.MultivariateNormal(mean, scale_tril=athanor.linalg.cholesky(cov))):
            assert_close(d.log_prob(x), expected)
            assert_close(d.covariance_matrix, cov)
            assert_close(d.log_prob(x.expand(5, 2)), expected.expand(5))
        athanor.manual_seed(0)
        assert_close(d.sample((20000,)).T.cov(), cov, atol=0.08, rtol=0)
        with self.assertRaises(ValueError):
            D.MultivariateNormal(mean, -cov)
        with self.assertRaises(ValueError):
            D.MultivariateNormal(mean)

    def test_tanh_keeps_what_it_made_its_result_of(self):
        squashed = D.TransformedDistribution(D.Normal(f64(0.0), f64(50.0)), [D.TanhTransform(cache_size=1)])
        x = squashed.rsample((64,))
        self.assertTrue(squashed.log_prob(x).isfinite().all())


class Discrete(unittest.TestCase):
    def test_categorical(self):
        d = D.Categorical(f64(1.0, 3.0, 4.0))
        assert_close(d.probs, f64(0.125, 0.375, 0.5))
        assert_close(d.log_prob(athanor.tensor([2, 0])), f64(0.5, 0.125).log())
        assert_close(d.entropy(), -(d.probs * d.probs.log()).sum())
        assert_close(D.Categorical(logits=d.logits + 7).probs, d.probs)
        athanor.manual_seed(0)
        x = d.sample((8000,))
        self.assertEqual(x.dtype, athanor.int64)
        assert_close(athanor.bincount(x) / 8000, d.probs.float(), atol=0.02, rtol=0)
        self.assertEqual(d.enumerate_support().tolist(), [0, 1, 2])
        self.assertEqual(repr(D.Categorical(athanor.ones(3))), "Categorical(probs: torch.Size([3]))")
        self.assertEqual(repr(D.Normal(0.0, 1.0)), "Normal(loc: 0.0, scale: 1.0)")
        self.assertEqual(type(d.sample().item()), int)

    def test_policy_gradient_reaches_the_logits(self):
        logits = f64(0.3, 0.1).requires_grad_()
        D.Categorical(logits=logits).log_prob(athanor.tensor(1)).backward()
        chances = athanor.softmax(logits.detach(), 0)
        assert_close(logits.grad, f64(0.0, 1.0) - chances)

    def test_shapes_of_batches(self):
        d = D.Categorical(athanor.rand(4, 3, 5))
        self.assertEqual((d.batch_shape, d.event_shape), ((4, 3), ()))
        self.assertEqual(d.sample((2,)).shape, (2, 4, 3))
        self.assertEqual(d.log_prob(d.sample((2,))).shape, (2, 4, 3))
        self.assertEqual(d.expand((7, 4, 3)).sample().shape, (7, 4, 3))
        one_hot = D.OneHotCategorical(athanor.rand(4, 5))
        self.assertEqual(one_hot.sample((2,)).shape, (2, 4, 5))
        self.assertEqual(one_hot.log_prob(one_hot.sample()).shape, (4,))
        independent = D.Independent(D.Normal(athanor.zeros(4, 3), 1.0), 1)
        self.assertEqual((independent.batch_shape, independent.event_shape), ((4,), (3,)))
        self.assertEqual(independent.log_prob(independent.sample()).shape, (4,))

    def test_bernoulli_and_geometric(self):
        d = D.Bernoulli(f64(0.2, 0.7))
        assert_close(d.log_prob(f64(1.0, 0.0)), f64(0.2, 0.3).log())
        assert_close(D.Bernoulli(logits=d.logits).probs, d.probs)
        self.assertTrue(set(d.sample((50,)).flatten().tolist()) <= {0.0, 1.0})
        g = D.Geometric(f64(0.2))
        k = athanor.arange(200, dtype=athanor.float64)
        chances = g.log_prob(k).exp()
        assert_close(chances.sum(), ONE)
        assert_close((chances * k).sum(), g.mean[0])


class Divergence(unittest.TestCase):
    def test_against_the_integral(self):
        pairs = [(D.Normal(0.3 * ONE, 1.5 * ONE), D.Normal(1.0 * ONE, 0.8 * ONE), -25, 25),
                 (D.Laplace(0.3 * ONE, 1.5 * ONE), D.Laplace(1.0 * ONE, 0.8 * ONE), -25, 25),
                 (D.Normal(0.3 * ONE, 1.5 * ONE), D.Laplace(1.0 * ONE, 0.8 * ONE), -25, 25),
                 (D.Exponential(1.5 * ONE), D.Exponential(0.5 * ONE), 0, 30),
                 (D.HalfNormal(1.5 * ONE), D.HalfNormal(0.5 * ONE), 0, 20)]
        for p, q, low, high in pairs:
            with self.subTest(f"{p} {q}"):
                value = integral(lambda x: p.log_prob(x).exp() * (p.log_prob(x) - q.log_prob(x)), low, high)
                self.assertAlmostEqual(value, float(D.kl_divergence(p, q)), places=2)

    def test_of_chances_and_vectors(self):
        p, q = f64(0.2, 0.8), f64(0.5, 0.5)
        assert_close(D.kl_divergence(D.Categorical(p), D.Categorical(q)), (p * (p / q).log()).sum())
        assert_close(D.kl_divergence(D.Bernoulli(p[0]), D.Bernoulli(q[0])), (p * (p / q).log()).sum())
        scale = f64(1.0, 2.0)
        a = D.MultivariateNormal(p, athanor.diag(scale**2))
        b = D.MultivariateNormal(q, athanor.eye(2, dtype=athanor.float64))
        plain = D.kl_divergence(D.Independent(D.Normal(p, scale), 1), D.Independent(D.Normal(q, 1.0), 1))
        assert_close(D.kl_divergence(a, b), plain)

    def test_unknown_pairs_are_refused_and_can_be_registered(self):
        class Mine(D.Normal):
            pass

        with self.assertRaises(NotImplementedError):
            D.kl_divergence(D.Normal(0.0, 1.0), D.Categorical(athanor.ones(2)))
        assert_close(D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)), athanor.tensor(0.0))
        D.register_kl(Mine, Mine)(lambda p, q: athanor.tensor(42.0))
        self.assertEqual(D.kl_divergence(Mine(0.0, 1.0), Mine(0.0, 1.0)).item(), 42)


class Refusals(unittest.TestCase):
    def test_parameters(self):
        for make in (lambda: D.Normal(0.0, -1.0), lambda: D.Categorical(athanor.tensor([-1.0, 2.0])),
                     lambda: D.Bernoulli(1.5), lambda: D.Uniform(1.0, 0.0), lambda: D.Normal("a", 1.0),
                     lambda: D.Categorical(athanor.ones(2), athanor.ones(2)), lambda: D.Categorical(athanor.tensor(1.0)),
                     lambda: D.Normal(athanor.tensor(float("nan")), 1.0)):
            with self.assertRaises(ValueError):
                make()

    def test_values(self):
        d = D.Categorical(athanor.ones(2))
        with self.assertRaisesRegex(ValueError, "within the support"):
            d.log_prob(athanor.tensor(2))
        with self.assertRaisesRegex(ValueError, "must be a Tensor"):
            D.Normal(0.0, 1.0).log_prob(0.5)
        with self.assertRaisesRegex(ValueError, "not broadcastable"):
            D.Normal(athanor.zeros(3), 1.0).log_prob(athanor.zeros(2))
        D.Bernoulli(0.5, validate_args=False).log_prob(athanor.tensor(0.3))


if __name__ == "__main__":
    unittest.main()

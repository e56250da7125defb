"""Layers against what they stand for, written out with other operations; chance; first values."""

from __future__ import annotations

import math
import unittest
import warnings

import athanor as torch
import athanor.nn.functional as F
from athanor import nn


class Close(unittest.TestCase):
    def assertClose(self, a, b, tolerance: float = 1e-5) -> None:
        self.assertEqual(tuple(a.shape), tuple(b.shape))
        difference = float((a.double() - b.double()).abs().max()) if a.numel() else 0.0
        self.assertLessEqual(difference, tolerance)


class Refused(unittest.TestCase):
    def test_options_of_another_type(self) -> None:
        for error, make in (
            (TypeError, lambda: nn.Softmax(dim=1.0)), (TypeError, lambda: nn.LogSoftmax(dim=True)),
            (TypeError, lambda: nn.LSTM(2, 3, bias=1)), (TypeError, lambda: nn.GRU(2, 3, batch_first=0)),
            (TypeError, lambda: nn.RNN(2.0, 3)), (TypeError, lambda: nn.RNN("2", 3)), (TypeError, lambda: nn.RNN(2, 3.0)),
            (ValueError, lambda: nn.RNN(0, 3)), (ValueError, lambda: nn.LSTM(2, 3, num_layers=0)),
        ):
            with self.assertRaises(error):
                make()

    def test_inputs_that_do_not_fit(self) -> None:
        x = torch.ones(2, 1, 4)
        for error, call in (
            (ValueError, lambda: nn.LSTM(4, 3)(x.double())),
            (AssertionError, lambda: nn.MultiheadAttention(4, 2)(x, x, torch.ones(2, 1, 5))),
            (AssertionError, lambda: nn.MultiheadAttention(4, 2, vdim=5)(x, x, torch.ones(3, 1, 5))),
            (ValueError, lambda: nn.BatchNorm1d(4, eps=0.0)(torch.ones(2, 4))),
            (RuntimeError, lambda: F.cross_entropy(x[:, 0], x[:, 0], ignore_index=1)),
        ):
            with self.assertRaises(error):
                call()
        self.assertTrue(torch.equal(nn.BatchNorm1d(4, eps=0.0).eval()(torch.ones(2, 4)), torch.ones(2, 4)))

    def test_a_variance_may_be_shared_by_the_examples(self) -> None:
        x, target, var = torch.randn(4, 3), torch.randn(4, 3), torch.rand(1, 3) + 0.5
        self.assertTrue(torch.equal(F.gaussian_nll_loss(x, target, var), F.gaussian_nll_loss(x, target, var.repeat(4, 1))))


class Empty(unittest.TestCase):
    def test_batch_norm_of_no_examples_learns_nothing(self) -> None:
        layer, x = nn.BatchNorm1d(3), torch.ones(0, 3, requires_grad=True)
        y = layer(x)
        y.sum().backward()
        self.assertEqual((y.shape, x.grad.shape), ((0, 3), (0, 3)))
        self.assertEqual((layer.running_mean.tolist(), layer.running_var.tolist()), ([0] * 3, [1] * 3))
        self.assertEqual((layer.weight.grad.tolist(), layer.bias.grad.tolist()), ([0] * 3, [0] * 3))


class Layers(Close):
    def setUp(self) -> None:
        torch.manual_seed(1)

    def test_linear_is_a_product(self) -> None:
        layer, x = nn.Linear(3, 4), torch.randn(2, 5, 3)
        self.assertClose(layer(x), x @ layer.weight.t() + layer.bias)

    def test_bilinear_is_a_sum_over_both_inputs(self) -> None:
        layer, a, b = nn.Bilinear(3, 4, 5), torch.randn(2, 3), torch.randn(2, 4)
        self.assertClose(layer(a, b), torch.einsum("bi,oij,bj->bo", [a, layer.weight, b]) + layer.bias)

    def test_convolution_is_unfold_and_product(self) -> None:
        layer, x = nn.Conv2d(2, 3, (2, 3), stride=2, padding=1), torch.randn(2, 2, 6, 7)
        columns = F.unfold(x, (2, 3), padding=1, stride=2)
        expected = layer.weight.reshape(3, -1) @ columns + layer.bias.reshape(-1, 1)
        self.assertClose(layer(x).flatten(2), expected)

    def test_transposed_convolution_is_the_gradient_of_a_convolution(self) -> None:
        layer, x = nn.ConvTranspose2d(3, 2, 3, stride=2, bias=False), torch.randn(1, 3, 4, 4)
        big = torch.zeros(1, 2, 9, 9, requires_grad=True)
        F.conv2d(big, layer.weight, stride=2).backward(x)
        self.assertClose(layer(x), big.grad)
        self.assertEqual(tuple(layer(x, output_size=(10, 9)).shape), (1, 2, 10, 9))

    def test_padding_same_keeps_the_size(self) -> None:
        for kernel in (1, 2, 3, 4):
            layer = nn.Conv1d(1, 1, kernel, padding="same", dilation=2)
            self.assertEqual(tuple(layer(torch.randn(1, 1, 9)).shape), (1, 1, 9))

    def test_batch_norm_learns_its_statistics(self) -> None:
        norm, x = nn.BatchNorm2d(3), torch.randn(4, 3, 5, 5) * 2 + 1
        y = norm(x)
        self.assertClose(y.mean((0, 2, 3)), torch.zeros(3))
        self.assertClose(norm.running_mean, 0.1 * x.mean((0, 2, 3)))
        self.assertClose(norm.running_var, 0.9 + 0.1 * x.transpose(0, 1).flatten(1).var(1))
        self.assertEqual(int(norm.num_batches_tracked), 1)
        norm.eval()
        scale = (norm.running_var + norm.eps).rsqrt().reshape(3, 1, 1)
        self.assertClose(norm(x), (x - norm.running_mean.reshape(3, 1, 1)) * scale)
        self.assertEqual(int(norm.num_batches_tracked), 1)
        norm.reset_running_stats()
        self.assertClose(norm.running_mean, torch.zeros(3))

    def test_batch_norm_without_momentum_averages(self) -> None:
        norm = nn.BatchNorm1d(2, momentum=None)
        xs = [torch.randn(6, 2) for _ in range(3)]
        for x in xs:
            norm(x)
        self.assertClose(norm.running_mean, sum(x.mean(0) for x in xs) / 3)

    def test_norms_of_single_examples(self) -> None:
        x = torch.randn(2, 4, 6)
        flat = x.reshape(2, 2, 12)
        expected = (flat - flat.mean(2, keepdim=True)) / (flat.var(2, False, True) + 1e-5).sqrt()
        self.assertClose(nn.GroupNorm(2, 4)(x), expected.reshape(2, 4, 6))
        expected = (x - x.mean(2, keepdim=True)) / (x.var(2, False, True) + 1e-5).sqrt()
        self.assertClose(nn.LayerNorm(6)(x), expected)
        self.assertClose(nn.InstanceNorm1d(4)(x), expected)
        self.assertClose(nn.RMSNorm(6, eps=1e-3)(x), x / (x.square().mean(2, keepdim=True) + 1e-3).sqrt())

    def test_lstm_is_its_cell_step_by_step(self) -> None:
        lstm, cell, x = nn.LSTM(3, 4), nn.LSTMCell(3, 4), torch.randn(5, 2, 3)
        cell.load_state_dict({k[:-3]: v for k, v in lstm.state_dict().items()})
        state = (torch.zeros(2, 4), torch.zeros(2, 4))
        steps = []
        for t in range(5):
            state = cell(x[t], state)
            steps.append(state[0])
        out, (h, c) = lstm(x)
        self.assertClose(out, torch.stack(steps))
        self.assertClose(h[0], state[0])
        self.assertClose(c[0], state[1])

    def test_gru_and_rnn_are_their_cells(self) -> None:
        for layer, cell in ((nn.GRU(3, 4), nn.GRUCell(3, 4)), (nn.RNN(3, 4), nn.RNNCell(3, 4))):
            cell.load_state_dict({k[:-3]: v for k, v in layer.state_dict().items()})
            x, h = torch.randn(3, 2, 3), torch.zeros(2, 4)
            for t in range(3):
                h = cell(x[t], h)
            self.assertClose(layer(x)[1][0], h)

    def test_batch_first_and_no_batch(self) -> None:
        torch.manual_seed(3)
        first = nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True)
        torch.manual_seed(3)
        second = nn.LSTM(3, 4, 2, bidirectional=True)
        x = torch.randn(2, 5, 3)
        a, (ha, _) = first(x)
        b, (hb, _) = second(x.transpose(0, 1))
        self.assertClose(a, b.transpose(0, 1))
        self.assertClose(ha, hb)
        c, (hc, _) = first(x[1])
        self.assertClose(c, a[1])
        self.assertClose(hc, ha[:, 1])
        self.assertEqual([len(w) for w in first.all_weights], [4] * 4)

    def test_packed_sequences_are_single_sequences(self) -> None:
        gru = nn.GRU(3, 4, bidirectional=True)
        sequences = [torch.randn(n, 3) for n in (2, 5, 3)]
        out, h = gru(nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False))
        for i, (s, o) in enumerate(zip(sequences, nn.utils.rnn.unpack_sequence(out))):
            expected, last = gru(s)
            self.assertClose(o, expected)
            self.assertClose(h[:, i], last)

    def test_attention_written_out(self) -> None:
        attention, x = nn.MultiheadAttention(6, 2), torch.randn(4, 3, 6)
        out, weights = attention(x, x, x, average_attn_weights=False)
        q, k, v = (x @ attention.in_proj_weight.t() + attention.in_proj_bias).chunk(3, -1)
        q, k, v = (t.reshape(4, 3, 2, 3).permute(1, 2, 0, 3) for t in (q, k, v))
        expected = ((q @ k.transpose(-2, -1)) / math.sqrt(3)).softmax(-1)
        self.assertClose(weights, expected)
        mixed = (expected @ v).permute(2, 0, 1, 3).reshape(4, 3, 6)
        self.assertClose(out, attention.out_proj(mixed))
        again, none = attention(x, x, x, need_weights=False)
        self.assertClose(again, out)
        self.assertIsNone(none)

    def test_attention_of_one_example_has_keys_and_values_of_their_own_widths(self) -> None:
        layer = nn.MultiheadAttention(4, 2, kdim=3, vdim=5)
        q, k, v = torch.randn(2, 4), torch.randn(6, 3), torch.randn(6, 5)
        out, weights = layer(q, k, v)
        batched, batched_weights = layer(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1))
        self.assertClose(out, batched.squeeze(1))
        self.assertClose(weights, batched_weights.squeeze(0))

    def test_causal_masks_agree(self) -> None:
        attention, x = nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(2, 5, 6)
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        a = attention(x, x, x, attn_mask=mask)[0]
        b = attention(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]
        c = attention(x, x, x, attn_mask=mask == -math.inf)[0]
        self.assertClose(a, b)
        self.assertClose(a, c)
        self.assertClose(attention(x[:, :2], x[:, :2], x[:, :2])[0][:, 1], a[:, 1])

    def test_padding_mask_hides_keys(self) -> None:
        attention, x = nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(2, 5, 6)
        hidden = torch.tensor([[False, False, False, True, True], [False] * 5])
        out = attention(x, x, x, key_padding_mask=hidden)[0]
        self.assertClose(out[0, :3], attention(x[:1, :3], x[:1, :3], x[:1, :3])[0][0])

    def test_transformer_layers_are_their_parts(self) -> None:
        layer, x = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0), torch.randn(4, 3, 6)
        y = layer.norm1(x + layer.self_attn(x, x, x)[0])
        y = layer.norm2(y + layer.linear2(layer.linear1(y).relu()))
        self.assertClose(layer(x), y)
        encoder = nn.TransformerEncoder(layer, 2)
        self.assertClose(encoder(x), layer(layer(x)))
        self.assertIsNot(encoder.layers[0], layer)

    def test_embedding_reads_rows(self) -> None:
        table = nn.Embedding(5, 3, padding_idx=-1)
        self.assertEqual(table.padding_idx, 4)
        self.assertEqual(float(table.weight[4].abs().sum()), 0.0)
        i = torch.tensor([[1, 4], [1, 0]])
        self.assertClose(table(i), table.weight[i])
        table(i).sum().backward()
        self.assertEqual(table.weight.grad[:, 0].tolist(), [1.0, 2.0, 0.0, 0.0, 0.0])
        frozen = nn.Embedding.from_pretrained(torch.ones(2, 3))
        self.assertFalse(frozen.weight.requires_grad)
        limited = nn.Embedding(2, 3, max_norm=0.1)
        limited(torch.tensor([0]))
        self.assertLessEqual(float(limited.weight[0].norm()), 0.1001)

    def test_embedding_bag_combines_rows(self) -> None:
        table, i = torch.randn(5, 3), torch.tensor([0, 3, 3, 1])
        bag = nn.EmbeddingBag.from_pretrained(table, mode="sum")
        self.assertClose(bag(i, torch.tensor([0, 3])), torch.stack([table[i[:3]].sum(0), table[1]]))
        self.assertClose(nn.EmbeddingBag.from_pretrained(table)(i.reshape(2, 2)), table[i.reshape(2, 2)].mean(1))

    def test_embedding_bag_may_run_again_where_max_norm_changes_its_weight(self) -> None:
        for mode in ("sum", "mean", "max"):
            layer = nn.EmbeddingBag(4, 3, max_norm=0.5, mode=mode)
            first, second = layer(torch.tensor([[0, 1]])), layer(torch.tensor([[2, 3]]))
            (first.sum() + second.sum()).backward()
            self.assertEqual(layer.weight.grad.sum().item(), 12 if mode == "sum" else 6)

    def test_losses_with_classes(self) -> None:
        x, y = torch.randn(3, 4, 2), torch.tensor([[0, 1], [2, 3], [1, -100]])
        log_p = x.log_softmax(1)
        picked = [log_p[i, int(y[i, j]), j] for i in range(3) for j in range(2) if int(y[i, j]) >= 0]
        self.assertClose(nn.CrossEntropyLoss()(x, y), -sum(picked) / 5)
        self.assertClose(nn.NLLLoss(reduction="sum")(log_p, y), -sum(picked))

    def test_legacy_reductions(self) -> None:
        x, y = torch.randn(3), torch.randn(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual(nn.MSELoss(size_average=False).reduction, "sum")
            self.assertEqual(nn.MSELoss(reduce=False).reduction, "none")
        with self.assertWarnsRegex(UserWarning, "please use reduction='sum' instead"):
            self.assertClose(F.mse_loss(x, y, size_average=False), ((x - y) ** 2).sum())
        with self.assertWarnsRegex(UserWarning, "Using a target size"):
            F.mse_loss(x, y[:1])

    def test_adaptive_softmax_is_a_distribution(self) -> None:
        layer, x = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 12], div_value=2.0), torch.randn(4, 8)
        log_p = layer.log_prob(x)
        self.assertClose(log_p.exp().sum(1), torch.ones(4))
        y = torch.tensor([0, 5, 13, 19])
        output, loss = layer(x, y)
        self.assertClose(output, log_p.gather(1, y.unsqueeze(1)).squeeze(1))
        self.assertClose(loss, -output.mean())
        self.assertEqual(layer.predict(x).tolist(), log_p.argmax(1).tolist())

    def test_pooling_and_its_way_back(self) -> None:
        x = torch.randn(1, 2, 6, 6)
        values, places = nn.MaxPool2d(2, return_indices=True)(x)
        back = nn.MaxUnpool2d(2)(values, places)
        self.assertClose(nn.MaxPool2d(2)(back.abs()), values.abs())
        self.assertEqual(int((back != 0).sum()), 18)
        self.assertClose(nn.AdaptiveAvgPool2d(1)(x).flatten(), x.mean((2, 3)).flatten())
        self.assertEqual(tuple(nn.AdaptiveAvgPool2d((None, 2))(x).shape), (1, 2, 6, 2))

    def test_empty_batches_pass(self) -> None:
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)).eval()
        self.assertEqual(tuple(net(torch.zeros(0, 1, 6, 6)).shape), (0, 3))

    def test_a_column_of_a_bigger_tensor_is_as_good(self) -> None:
        layer, x = nn.Linear(3, 2), torch.randn(3, 4).t()
        self.assertClose(layer(x), layer(x.contiguous()))
        conv, image = nn.Conv2d(3, 2, 3), torch.randn(1, 6, 6, 3).permute(0, 3, 1, 2)
        self.assertClose(conv(image), conv(image.contiguous()))

    def test_a_step_of_training_lowers_the_loss(self) -> None:
        net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
        x, y = torch.randn(30, 4), torch.arange(30) % 3
        losses = []
        for _ in range(20):
            loss = nn.CrossEntropyLoss()(net(x), y)
            losses.append(float(loss.detach()))
            net.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in net.parameters():
                    p -= 0.5 * p.grad
        self.assertLess(losses[-1], 0.9 * losses[0])


class Chance(Close):
    def setUp(self) -> None:
        torch.manual_seed(2)

    def test_dropout_zeroes_and_scales(self) -> None:
        x = torch.ones(10000)
        y = nn.Dropout(0.25)(x)
        self.assertAlmostEqual(float((y == 0).float().mean()), 0.25, delta=0.03)
        self.assertClose(y[y != 0], torch.full((int((y != 0).sum()),), 1 / 0.75))
        self.assertClose(nn.Dropout(0.25).eval()(x), x)
        self.assertEqual(float(nn.Dropout(1.0)(x).sum()), 0.0)

    def test_seeds_repeat(self) -> None:
        torch.manual_seed(5)
        a, x = nn.Linear(3, 4), nn.Dropout()(torch.ones(20))
        torch.manual_seed(5)
        b, y = nn.Linear(3, 4), nn.Dropout()(torch.ones(20))
        self.assertTrue(torch.equal(a.weight, b.weight) and torch.equal(a.bias, b.bias) and torch.equal(x, y))

    def test_channels_are_dropped_as_a_whole(self) -> None:
        y = nn.Dropout2d(0.5)(torch.ones(20, 10, 3, 3)).flatten(2)
        self.assertTrue(bool(((y == 0).all(2) | (y == 2).all(2)).all()))
        self.assertTrue(0 < int((y[:, :, 0] == 0).sum()) < 200)
        y = nn.Dropout1d(0.5)(torch.ones(10, 30))
        self.assertTrue(bool(((y == 0).all(1) | (y == 2).all(1)).all()))

    def test_inplace_dropout_changes_its_input(self) -> None:
        x = torch.ones(100)
        self.assertIs(F.dropout(x, 0.5, inplace=True), x)
        self.assertTrue(bool((x != 1).all()))

    def test_alpha_dropout_keeps_moments(self) -> None:
        y = nn.AlphaDropout(0.3)(torch.randn(20000))
        self.assertAlmostEqual(float(y.mean()), 0.0, delta=0.05)
        self.assertAlmostEqual(float(y.std()), 1.0, delta=0.05)

    def test_rrelu_draws_slopes(self) -> None:
        y = -nn.RReLU(0.2, 0.4)(-torch.ones(1000))
        self.assertTrue(0.2 <= float(y.min()) < 0.23 and 0.37 < float(y.max()) <= 0.4)

    def test_gumbel_softmax_samples_the_distribution(self) -> None:
        logits = torch.tensor([0.7, 0.2, 0.1]).log().expand(5000, 3)
        hard = F.gumbel_softmax(logits, hard=True)
        self.assertClose(hard.sum(1), torch.ones(5000))
        self.assertAlmostEqual(float(hard[:, 0].mean()), 0.7, delta=0.04)
        self.assertClose(F.gumbel_softmax(logits, tau=2.0).sum(1), torch.ones(5000))

    def test_fractional_pooling_draws_windows(self) -> None:
        x = torch.randn(1, 2, 9, 9)
        y = nn.FractionalMaxPool2d(2, output_ratio=0.5)(x)
        self.assertEqual(tuple(y.shape), (1, 2, 4, 4))
        self.assertTrue(all(float(v) in x.flatten().tolist() for v in y.flatten()))


class FirstValues(Close):
    def setUp(self) -> None:
        torch.manual_seed(4)

    def test_linear_and_convolution(self) -> None:
        layer = nn.Linear(100, 200)
        self.assertTrue(0.095 < float(layer.weight.detach().abs().max()) <= 0.1)
        self.assertTrue(0.08 < float(layer.bias.detach().abs().max()) <= 0.1)
        conv = nn.Conv2d(4, 50, 5)
        self.assertTrue(0.095 < float(conv.weight.detach().abs().max()) <= 0.1)

    def test_deviations(self) -> None:
        w = torch.empty(300, 200)
        for fill, std in (
            (lambda: nn.init.xavier_uniform_(w), math.sqrt(2 / 500)),
            (lambda: nn.init.xavier_normal_(w, gain=2), 2 * math.sqrt(2 / 500)),
            (lambda: nn.init.kaiming_uniform_(w, nonlinearity="relu"), math.sqrt(2 / 200)),
            (lambda: nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu"), math.sqrt(2 / 300)),
            (lambda: nn.init.normal_(w, 3.0, 0.5), 0.5),
        ):
            self.assertIs(fill(), w)
            self.assertAlmostEqual(float(w.std()) / std, 1.0, delta=0.03)

    def test_truncated(self) -> None:
        w = nn.init.trunc_normal_(torch.empty(5000), std=1.0, a=-0.5, b=1.0)
        self.assertTrue(-0.5 <= float(w.min()) and float(w.max()) <= 1.0)

    def test_orthogonal(self) -> None:
        for shape in ((5, 5), (3, 7), (7, 3), (4, 2, 3)):
            w = nn.init.orthogonal_(torch.empty(*shape, dtype=torch.float64), gain=2.0).flatten(1)
            product = w @ w.t() if w.shape[0] <= w.shape[1] else w.t() @ w
            self.assertClose(product, 4 * torch.eye(min(w.shape), dtype=torch.float64), 1e-10)

    def test_sparse(self) -> None:
        w = nn.init.sparse_(torch.empty(10, 6), 0.25)
        self.assertEqual((w == 0).sum(0).tolist(), [3] * 6)

    def test_generator_is_used(self) -> None:
        def draw():
            generator = torch.Generator()
            generator.manual_seed(3)
            return nn.init.uniform_(torch.empty(4), generator=generator)

        self.assertTrue(torch.equal(draw(), draw()))

    def test_nothing_is_recorded(self) -> None:
        p = nn.Parameter(torch.empty(3, 4))
        for fill in (nn.init.ones_, nn.init.zeros_, nn.init.eye_, nn.init.orthogonal_, nn.init.kaiming_normal_):
            fill(p)
            self.assertTrue(p.is_leaf and p.requires_grad and p.grad_fn is None)


if __name__ == "__main__":
    unittest.main()

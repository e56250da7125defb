"""Optimizers: formulas, groups, state, hooks, subclasses."""

from __future__ import annotations

import copy
import inspect
import io
import math
import pickle
import re
import unittest
import warnings

import athanor
import optim_cases
from athanor import optim


def parameter(*values: float, dtype=athanor.float64) -> athanor.Tensor:
    return athanor.tensor(values, dtype=dtype).requires_grad_()


def set_gradient(p: athanor.Tensor, *values: float) -> None:
    p.grad = athanor.tensor(values, dtype=p.dtype)


class Formulas(unittest.TestCase):
    def test_sgd_with_momentum_follows_the_formula(self) -> None:
        p = parameter(1.0, -2.0)
        optimizer = optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.01)
        x, v = [1.0, -2.0], None
        for i in range(5):
            gradient = [math.sin(i + 1), math.cos(i)]
            set_gradient(p, *gradient)
            optimizer.step()
            g = [a + 0.01 * b for a, b in zip(gradient, x)]
            v = g if v is None else [0.9 * a + b for a, b in zip(v, g)]
            x = [a - 0.1 * b for a, b in zip(x, v)]
            for a, b in zip(p.tolist(), x):
                self.assertAlmostEqual(a, b, places=14)

    def test_adam_follows_the_formula(self) -> None:
        p = parameter(1.0)
        optimizer = optim.Adam([p], lr=0.1)
        x = m = v = 0.0
        x = 1.0
        for t in range(1, 6):
            g = math.sin(t)
            set_gradient(p, g)
            optimizer.step()
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            x -= 0.1 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
            self.assertAlmostEqual(p.item(), x, places=14)
        self.assertEqual(optimizer.state[p]["step"].item(), 5)

    def test_parameters_that_are_not_dense_are_updated_in_place(self) -> None:
        for name in ("SGD", "Adam", "RMSprop", "Rprop"):
            base = athanor.arange(12.0).reshape(3, 4)
            part = base[:, ::2].detach().requires_grad_()
            plain = part.detach().clone().requires_grad_()
            for p in (part, plain):
                optimizer = getattr(optim, name)([p], lr=0.1)
                for i in range(3):
                    p.grad = athanor.full((3, 2), 0.5 + i)
                    optimizer.step()
            self.assertTrue(athanor.equal(part, plain), name)
            self.assertEqual(base[:, 1].tolist(), [1.0, 5.0, 9.0])

    def test_lbfgs_finds_the_minimum_of_a_valley(self) -> None:
        p = parameter(-1.2, 1.0)
        optimizer = optim.LBFGS([p], line_search_fn="strong_wolfe", max_iter=60)

        def closure() -> athanor.Tensor:
            optimizer.zero_grad()
            loss = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
            loss.backward()
            return loss

        first = optimizer.step(closure)
        self.assertAlmostEqual(first.item(), 24.2)
        optimizer.step(closure)
        for value in p.tolist():
            self.assertAlmostEqual(value, 1.0, places=4)


class Behaviour(unittest.TestCase):
    def test_groups_have_options_of_their_own(self) -> None:
        a, b = parameter(1.0), parameter(1.0)
        optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
        for p in (a, b):
            set_gradient(p, 1.0)
        optimizer.step()
        self.assertAlmostEqual(a.item(), 0.9)
        self.assertAlmostEqual(b.item(), 0.5)
        optimizer.param_groups[0]["lr"] = 0.2
        optimizer.step()
        self.assertAlmostEqual(a.item(), 0.7)

    def test_parameters_without_gradient_stay_and_get_no_state(self) -> None:
        a, b = parameter(1.0), parameter(2.0)
        optimizer = optim.Adam([a, b])
        set_gradient(a, 1.0)
        optimizer.step()
        self.assertEqual(b.item(), 2.0)
        self.assertNotIn(b, optimizer.state)

    def test_infinite_parameters_stay_without_weight_decay(self) -> None:
        for name in ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "ASGD"):
            p = parameter(-math.inf, math.inf, 1.0)
            optimizer = getattr(optim, name)([p], lr=0.1, weight_decay=0)
            for _ in range(2):
                set_gradient(p, 0, 0, 1)
                optimizer.step()
            self.assertEqual(p[:2].tolist(), [-math.inf, math.inf], name)
            self.assertLess(p[2].item(), 1, name)

    def test_zero_grad_drops_gradients_or_fills_them(self) -> None:
        p = parameter(1.0)
        optimizer = optim.SGD([p])
        set_gradient(p, 3.0)
        gradient = p.grad
        optimizer.zero_grad(set_to_none=False)
        self.assertIs(p.grad, gradient)
        self.assertEqual(gradient.item(), 0.0)
        optimizer.zero_grad()
        self.assertIsNone(p.grad)

    def test_step_returns_the_loss_of_its_closure(self) -> None:
        p = parameter(2.0)
        optimizer = optim.SGD([p], lr=0.1)

        def closure() -> athanor.Tensor:
            self.assertTrue(athanor.is_grad_enabled())
            optimizer.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss

        with athanor.no_grad():
            self.assertEqual(optimizer.step(closure).item(), 4.0)
        self.assertAlmostEqual(p.item(), 1.6)

    def test_a_change_by_step_is_seen_by_backward(self) -> None:
        p = parameter(2.0)
        optimizer = optim.SGD([p], lr=0.1)
        loss = (p * p).sum()
        set_gradient(p, 1.0)
        optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "modified by an in"):
            loss.backward()

    def test_training_goes_on_from_a_state_dict(self) -> None:
        for name in "SGD Adam AdamW NAdam ASGD Rprop RMSprop Adagrad Adadelta Adamax RAdam".split():
            options = {"momentum": 0.9} if name == "SGD" else {}
            first = parameter(1.0, 2.0)
            optimizer = getattr(optim, name)([first], **options)
            for i in range(3):
                set_gradient(first, 0.1 * i + 0.1, -0.2)
                optimizer.step()
            file = io.BytesIO()
            athanor.save(optimizer.state_dict(), file)
            file.seek(0)
            second = first.detach().clone().requires_grad_()
            other = getattr(optim, name)([second], lr=123.0)
            other.load_state_dict(athanor.load(file))
            for i in range(3):
                for p, o in ((first, optimizer), (second, other)):
                    set_gradient(p, 0.3, 0.1 * i)
                    o.step()
            for a, b in zip(first.tolist(), second.tolist()):
                # What these keep beside the step becomes float64 when it is loaded, as in PyTorch.
                self.assertAlmostEqual(a, b, places=9 if name in ("NAdam", "ASGD") else 15, msg=name)

    def test_a_state_dict_that_does_not_fit_changes_nothing(self) -> None:
        a = parameter(1.0)
        optimizer = optim.Adam([a])
        set_gradient(a, 1.0)
        optimizer.step()
        before = copy.deepcopy(optimizer.state_dict())
        bad = optimizer.state_dict()
        bad["param_groups"] = [{**bad["param_groups"][0], "params": [0, 1]}]
        with self.assertRaisesRegex(ValueError, "doesn't match the size"):
            optimizer.load_state_dict(bad)
        self.assertEqual(repr(before), repr(optimizer.state_dict()))

    def test_a_state_of_another_shape_is_refused_with_both_shapes(self) -> None:
        a = parameter(1.0)
        optimizer = optim.Adam([a])
        set_gradient(a, 1.0)
        optimizer.step()
        optimizer.state[a]["exp_avg"] = athanor.zeros(2, dtype=athanor.float64)
        with self.assertRaisesRegex(ValueError, r"Adam.*\[2\].*\[1\]"):
            optimizer.step()

    def test_states_get_the_dtype_of_their_parameter(self) -> None:
        a = parameter(1.0)
        optimizer = optim.Adam([a])
        set_gradient(a, 1.0)
        optimizer.step()
        b = parameter(1.0, dtype=athanor.float32)
        other = optim.Adam([b])
        other.load_state_dict(optimizer.state_dict())
        self.assertIs(other.state[b]["exp_avg"].dtype, athanor.float32)
        self.assertIs(other.state[b]["step"].dtype, athanor.float32)

    def test_counts_that_older_files_keep_as_numbers_are_taken(self) -> None:
        a = parameter(1.0)
        optimizer = optim.Adam([a])
        set_gradient(a, 1.0)
        optimizer.step()
        state = copy.deepcopy(optimizer.state_dict())
        state["state"][0]["step"] = 1
        optimizer.load_state_dict(state)
        optimizer.step()
        self.assertEqual(optimizer.state[a]["step"].item(), 2)

    def test_optimizers_are_copied_and_pickled_with_their_state(self) -> None:
        a = parameter(1.0)
        optimizer = optim.Adam([a], lr=0.25)
        set_gradient(a, 1.0)
        optimizer.step()
        for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
            p = other.param_groups[0]["params"][0]
            self.assertEqual(other.state[p]["step"].item(), 1)
            set_gradient(p, 1.0)
            other.step()
            self.assertEqual(other.param_groups[0]["lr"], 0.25)

    def test_a_rate_may_be_a_tensor(self) -> None:
        p = parameter(1.0)
        for kind in (optim.Adam, optim.AdamW):
            with self.assertRaisesRegex(ValueError, "lr as a Tensor is not supported for capturable=False and foreach=True"):
                kind([p], lr=athanor.tensor(0.5), foreach=True)
            kind([p], lr=athanor.tensor(0.5))
        optimizer = optim.SGD([p], lr=athanor.tensor(0.5))
        set_gradient(p, 1.0)
        scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        optimizer.step()
        scheduler.step()
        self.assertAlmostEqual(p.item(), 0.5)
        self.assertAlmostEqual(optimizer.param_groups[0]["lr"].item(), 0.25)

    def test_names_of_parameters_are_kept(self) -> None:
        p = parameter(1.0)
        optimizer = optim.SGD([("weight", p)])
        self.assertEqual(optimizer.param_groups[0]["param_names"], ["weight"])
        with self.assertRaisesRegex(ValueError, "with/without names"):
            optimizer.add_param_group({"params": [parameter(1.0)]})

    def test_a_group_of_a_set_and_two_ways_at_once_are_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "ordered collections"):
            optim.SGD([{"params": {parameter(1.0)}}], lr=1.0)
        with self.assertRaisesRegex(RuntimeError, "cannot be `True` together"):
            optim.Adam([parameter(1.0)], foreach=True, fused=True)


class Hooks(unittest.TestCase):
    def test_hooks_run_around_a_step(self) -> None:
        p = parameter(1.0)
        optimizer = optim.SGD([p], lr=1.0)
        seen = []
        before = optimizer.register_step_pre_hook(lambda o, a, k: seen.append(("before", p.item())))
        after = optimizer.register_step_post_hook(lambda o, a, k: seen.append(("after", p.item())))
        everywhere = optim.optimizer.register_optimizer_step_post_hook(lambda o, a, k: seen.append("global"))
        set_gradient(p, 1.0)
        optimizer.step()
        self.assertEqual(seen, [("before", 1.0), ("after", 0.0), "global"])
        for handle in (before, after, everywhere):
            handle.remove()
        optimizer.step()
        self.assertEqual(len(seen), 3)

    def test_step_hooks_get_and_may_replace_all_arguments(self) -> None:
        optimizer = optim.SGD([parameter(1.0)], lr=1.0)
        seen = []
        optimizer.register_step_pre_hook(lambda o, a, k: ((o, lambda: athanor.tensor(7.0)), {}))
        optimizer.register_step_post_hook(lambda o, a, k: seen.append(a))
        self.assertEqual(optimizer.step().item(), 7.0)
        self.assertIs(seen[0][0], optimizer)
        self.assertEqual(len(seen[0]), 2)

    def test_hooks_change_state_dicts(self) -> None:
        optimizer = optim.SGD([parameter(1.0)])
        optimizer.register_state_dict_post_hook(lambda o, d: {**d, "extra": 1})
        optimizer.register_load_state_dict_pre_hook(lambda o, d: {k: v for k, v in d.items() if k != "extra"})
        state = optimizer.state_dict()
        self.assertEqual(state["extra"], 1)
        optimizer.load_state_dict(state)

    def test_a_class_of_ones_own_is_an_optimizer(self) -> None:
        class Sign(optim.Optimizer):
            def __init__(self, params, lr=0.1) -> None:
                super().__init__(params, {"lr": lr})

            @athanor.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.add_(p.grad.sign(), alpha=-group["lr"])
                        self.state[p]["steps"] = self.state[p].get("steps", 0) + 1

        p = parameter(1.0, 1.0)
        optimizer = Sign([p])
        seen = []
        optimizer.register_step_post_hook(lambda *a: seen.append(1))
        scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
        set_gradient(p, 3.0, -4.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()
            scheduler.step()
        self.assertEqual(p.tolist(), [0.9, 1.1])
        self.assertEqual(seen, [1])
        self.assertEqual(optimizer.state_dict()["state"], {0: {"steps": 1}})


class Schedules(unittest.TestCase):
    def test_a_step_before_the_optimizers_warns(self) -> None:
        optimizer = optim.SGD([parameter(1.0)], lr=1.0)
        scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
        with self.assertWarnsRegex(UserWarning, "before `optimizer.step"):
            scheduler.step()

    def test_a_step_schedule_made_for_a_later_epoch_decays_where_one_is_due(self) -> None:
        for last_epoch, rate in ((3, 0.025), (4, 0.05)):
            optimizer = optim.SGD([{"params": [parameter(1.0)], "initial_lr": 0.2}], lr=0.05)
            scheduler = optim.lr_scheduler.StepLR(optimizer, 2, 0.5, last_epoch=last_epoch)
            self.assertEqual(scheduler.get_last_lr(), [rate])

    def test_a_schedule_goes_on_from_its_state(self) -> None:
        import optim_cases

        for name, make in optim_cases.SCHEDULES.items():
            optimizers = [optim_cases.two_groups(athanor) for _ in range(2)]
            first, second = (make(optim.lr_scheduler, o) for o in optimizers)
            for _ in range(5):
                optimizers[0].step()
                first.step()
            second.load_state_dict(copy.deepcopy(first.state_dict()))
            optimizers[1].load_state_dict(optimizers[0].state_dict())
            for _ in range(6):
                for o, s in zip(optimizers, (first, second)):
                    o.step()
                    s.step()
                self.assertEqual(first.get_last_lr(), second.get_last_lr(), name)

    def test_a_schedule_of_ones_own(self) -> None:
        class Halves(optim.lr_scheduler.LRScheduler):
            def get_lr(self):
                return [base / 2**self.last_epoch for base in self.base_lrs]

        optimizer = optim.SGD([parameter(1.0)], lr=1.0)
        scheduler = Halves(optimizer)
        optimizer.step()
        scheduler.step()
        scheduler.step()
        self.assertEqual(scheduler.get_last_lr(), [0.25])

    def test_one_cycle_refuses_a_step_beyond_its_end(self) -> None:
        optimizer = optim.SGD([parameter(1.0)], lr=1.0, momentum=0.9)
        scheduler = optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=3)
        optimizer.step()
        for _ in range(3):
            scheduler.step()
        with self.assertRaisesRegex(ValueError, "Tried to step 4 times"):
            scheduler.step()


class Averages(unittest.TestCase):
    def setUp(self) -> None:
        from athanor import nn

        self.nn = nn

    def test_averaged_model_is_the_mean_of_the_models(self) -> None:
        model = self.nn.Linear(1, 1, bias=False)
        averaged = optim.swa_utils.AveragedModel(model)
        for value in (1.0, 2.0, 6.0):
            with athanor.no_grad():
                model.weight.fill_(value)
            averaged.update_parameters(model)
        self.assertAlmostEqual(averaged.module.weight.item(), 3.0, places=6)
        self.assertEqual(averaged.n_averaged.item(), 3)

    def test_exponential_average_keeps_its_share(self) -> None:
        model = self.nn.Linear(1, 1, bias=False)
        averaged = optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.75))
        for value in (1.0, 5.0):
            with athanor.no_grad():
                model.weight.fill_(value)
            averaged.update_parameters(model)
        self.assertAlmostEqual(averaged.module.weight.item(), 2.0, places=6)

    def test_update_bn_measures_statistics_anew(self) -> None:
        model = self.nn.Sequential(self.nn.BatchNorm1d(1))
        with athanor.no_grad():
            model[0].running_mean.fill_(100.0)
        model.eval()
        batches = [athanor.tensor([[0.0], [2.0]]), athanor.tensor([[4.0], [6.0]])]
        optim.swa_utils.update_bn(batches, model)
        self.assertAlmostEqual(model[0].running_mean.item(), 3.0, places=5)
        self.assertFalse(model.training)
        self.assertEqual(model[0].momentum, 0.1)


class Cases(unittest.TestCase):
    def test_every_optimizer_and_schedule_is_compared_with_pytorchs(self) -> None:
        text = inspect.getsource(optim_cases)
        schedules = set(re.findall(r"\bs\.(\w+)\(", text)) | set(re.findall(r"lr_scheduler\.(\w+)\(", text))
        optimizers = {name for name, _ in optim_cases.OPTIMIZERS} | set(re.findall(r"torch\.optim\.([A-Z]\w+)\(", text))
        bases = {"Optimizer", "LRScheduler", "_LRScheduler"}
        kinds = {name for name, v in vars(optim).items() if isinstance(v, type) and issubclass(v, optim.Optimizer)}
        self.assertEqual(kinds - optimizers - bases, set(), "without a case in optim_cases.py")
        kinds = {name for name, v in vars(optim.lr_scheduler).items() if isinstance(v, type)}
        self.assertEqual(kinds - schedules - bases, set(), "without a case in optim_cases.py")


if __name__ == "__main__":
    unittest.main()

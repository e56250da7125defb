"""Document 002 (pipelines over several GPUs): its code with the import changed, on virtual devices; sizes are smaller
than the document's, so that the test takes seconds."""
import importlib.util
import unittest

import ranks

NET = """
import athanor as torch
import athanor.nn as nn
import athanor.optim as optim
if torch.cuda.is_available():
    print(f"Number of GPUs available: {torch.cuda.device_count()}")
    for i in range(torch.cuda.device_count()):
        print(f"GPU {i}: {torch.cuda.get_device_name(i)}")
else:
    print("No GPU available.")
"""

MAIN_MODEL = """
class MainModel(nn.Module):
    def __init__(self):
        super(MainModel, self).__init__()
        self.net1 = torch.nn.Linear(10, 10).to('cuda:0')
        self.relu = torch.nn.ReLU()
        self.net2 = torch.nn.Linear(10, 5).to('cuda:1')

    def forward(self, x):
        x = self.relu(self.net1(x.to('cuda:0')))
        return self.net2(x.to('cuda:1'))

model = MainModel()
loss_fn = nn.MSELoss()
optimizer = optim.SGD(model.parameters(), lr=0.001)
optimizer.zero_grad()
before = [p.detach().cpu().clone() for p in model.parameters()]
outputs = model(torch.randn(20, 10))
labels = torch.randn(20, 5).to('cuda:1')
loss_fn(outputs, labels).backward()
optimizer.step()
print(outputs.device, all(not b.equal(p.detach().cpu()) for b, p in zip(before, model.parameters())))
"""

RESNETS = """
import athanor as torch
import athanor.nn as nn
import athanor.optim as optim
import timeit
import athanor.vision.models as models
from athanor.vision.models.resnet import ResNet, Bottleneck

torch.manual_seed(0)
num_classes = 10

class ModelParallelResNet50(ResNet):
    def __init__(self, *args, **kwargs):
        super(ModelParallelResNet50, self).__init__(
            Bottleneck, LAYERS, num_classes=num_classes, *args, **kwargs)
        self.seq1 = nn.Sequential(
            self.conv1,
            self.bn1,
            self.relu,
            self.maxpool,
            self.layer1,
            self.layer2
        ).to('cuda:0')
        self.seq2 = nn.Sequential(
            self.layer3,
            self.layer4,
            self.avgpool,
        ).to('cuda:1')
        self.fc.to('cuda:1')

    def forward(self, x):
        x = self.seq2(self.seq1(x).to('cuda:1'))
        return self.fc(x.view(x.size(0), -1))

num_batches = 1
batch_size = 8
image_w = 32
image_h = 32

def train(model):
    model.train(True)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(model.parameters(), lr=0.001)
    one_hot_indices = torch.LongTensor(batch_size) \\
        .random_(0, num_classes) \\
        .view(batch_size, 1)
    for _ in range(num_batches):
        # generate random inputs and labels
        inputs = torch.randn(batch_size, 3, image_w, image_h)
        labels = torch.zeros(batch_size, num_classes) \\
            .scatter_(1, one_hot_indices, 1)
        # run forward pass
        optimizer.zero_grad()
        outputs = model(inputs.to('cuda:0'))
        # run backward pass
        labels = labels.to(outputs.device)
        loss = loss_fn(outputs, labels)
        loss.backward()
        optimizer.step()
    return outputs

class PipelineParallelResNet50(ModelParallelResNet50):
    def __init__(self, split_size=20, *args, **kwargs):
        super(PipelineParallelResNet50, self).__init__(*args, **kwargs)
        self.split_size = split_size

    def forward(self, x):
        splits = iter(x.split(self.split_size, dim=0))
        s_next = next(splits)
        s_prev = self.seq1(s_next).to('cuda:1')
        ret = []
        for s_next in splits:
            # A. ``s_prev`` runs on ``cuda:1``
            s_prev = self.seq2(s_prev)
            ret.append(self.fc(s_prev.view(s_prev.size(0), -1)))
            # B. ``s_next`` runs on ``cuda:0``, which can run concurrently with A
            s_prev = self.seq1(s_next).to('cuda:1')
        s_prev = self.seq2(s_prev)
        ret.append(self.fc(s_prev.view(s_prev.size(0), -1)))
        return torch.cat(ret)
"""


class Pipelines(unittest.TestCase):
    def test_without_a_device_it_says_so(self):
        self.assertEqual(ranks.run_program(NET), "No GPU available.\n")

    def test_two_devices_and_a_model_on_them(self):
        lines = ranks.run_program(NET + MAIN_MODEL, devices=2).splitlines()
        self.assertEqual(lines[0], "Number of GPUs available: 2")
        self.assertRegex(lines[1], "^GPU 0: .+")
        self.assertRegex(lines[2], "^GPU 1: .+")
        self.assertEqual(lines[3], "cuda:1 True")

    def test_a_resnet_on_two_devices_trains(self):
        out = ranks.run_program(RESNETS.replace("LAYERS", "[1, 1, 1, 1]") + """
stmt = "train(model)"
setup = "model = ModelParallelResNet50()"
mp_run_times = timeit.repeat(stmt, setup, number=1, repeat=2, globals=globals())
setup = "import athanor.vision.models as models;" + \\
        "model = models.resnet18(num_classes=num_classes).to('cuda:0')"
rn_run_times = timeit.repeat(stmt, setup, number=1, repeat=2, globals=globals())
outputs = train(ModelParallelResNet50())
print(len(mp_run_times), len(rn_run_times), outputs.device, outputs.shape, bool(outputs.isfinite().all()))
""", devices=2)
        self.assertEqual(out, "2 2 cuda:1 torch.Size([8, 10]) True\n")

    def test_the_pipeline_gives_what_the_split_model_gives(self):
        out = ranks.run_program(RESNETS.replace("LAYERS", "[1, 1, 1, 1]") + """
model = PipelineParallelResNet50(split_size=3)
plain = ModelParallelResNet50()
plain.load_state_dict(model.state_dict())
x = torch.randn(8, 3, 32, 32).to('cuda:0')
model.eval()
plain.eval()
with torch.no_grad():
    a, b = model(x).cpu(), plain(x).cpu()
print(((a - b).abs().max() <= 1e-5 * b.abs().max()).item(), train(model).shape)
# In training each part has batch statistics of its own.
plain.load_state_dict(model.state_dict())
model.zero_grad()
model.train()
plain.train()
model(x).pow(2).sum().backward()
for part in x.split(3):
    plain(part).pow(2).sum().backward()
worst = max(((p.grad - q.grad).abs().max() / q.grad.abs().max()).item()
            for p, q in zip(model.parameters(), plain.parameters()))
print(worst <= 1e-5 or worst)
""", devices=2)
        self.assertEqual(out, "True torch.Size([8, 10])\nTrue\n")


CHARTS = """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

num_repeat = 2
stmt = "train(model)"

def timed(setup):
    times = timeit.repeat(stmt, setup, number=1, repeat=num_repeat, globals=globals())
    return np.mean(times), np.std(times)

def plot(means, stds, labels, fig_name):
    fig, ax = plt.subplots()
    ax.bar(np.arange(len(means)), means, yerr=stds,
           align='center', alpha=0.5, ecolor='red', capsize=10, width=0.6)
    ax.set_ylabel('ResNet50 Execution Time (Second)')
    ax.set_xticks(np.arange(len(means)))
    ax.set_xticklabels(labels)
    ax.yaxis.grid(True)
    plt.tight_layout()
    plt.savefig(fig_name)
    plt.close(fig)

mp_mean, mp_std = timed("model = ModelParallelResNet50()")
rn_mean, rn_std = timed("import athanor.vision.models as models;" +
                        "model = models.resnet18(num_classes=num_classes).to('cuda:0')")
plot([mp_mean, rn_mean],
     [mp_std, rn_std],
     ['Model Parallel', 'Single GPU'],
     'mp_and_rn.png')
pp_mean, pp_std = timed("model = PipelineParallelResNet50(split_size=2)")
plot([mp_mean, rn_mean, pp_mean],
     [mp_std, rn_std, pp_std],
     ['Model Parallel', 'Single GPU', 'Pipelining Model Parallel'],
     'mp_and_rn_and_pp.png')
for name in ('mp_and_rn.png', 'mp_and_rn_and_pp.png'):
    with open(name, "rb") as file:
        print(file.read(8) == b"\\x89PNG\\r\\n\\x1a\\n")
"""


class Charts(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
    def test_are_drawn_from_measured_times(self):
        self.assertEqual(ranks.run_program(RESNETS.replace("LAYERS", "[1, 1, 1, 1]") + CHARTS, devices=2), "True\nTrue\n")


if __name__ == "__main__":
    unittest.main()

"""The program of a PyTorchJob: trains a small convolutional network on MNIST, alone or as one of several replicas.

Started by an operator or a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT it trains together with the
others; every replica works on its share of the images. `--log-path` collects the lines of this replica in a file.
"""
from __future__ import annotations

import argparse
import logging
import os

import athanor as torch
from athanor import distributed as dist
from athanor import nn, optim
from athanor.nn import functional as F
from athanor.utils.data import DataLoader, Subset
from athanor.utils.data.distributed import DistributedSampler
from athanor.vision import datasets, transforms

WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))


class Net(nn.Module):
    """Two convolutions, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5, 1)
        self.conv2 = nn.Conv2d(20, 50, 5, 1)
        self.fc1 = nn.Linear(4 * 4 * 50, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2, 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2, 2)
        x = F.relu(self.fc1(x.view(-1, 4 * 4 * 50)))
        return F.log_softmax(self.fc2(x), dim=1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a network on MNIST")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="images per step (64)")
    parser.add_argument("--test-batch-size", type=int, default=1000, metavar="N", help="images per test step (1000)")
    parser.add_argument("--epochs", type=int, default=10, metavar="N", help="passes over the training set (10)")
    parser.add_argument("--lr", type=float, default=0.01, metavar="LR", help="learning rate (0.01)")
    parser.add_argument("--momentum", type=float, default=0.5, metavar="M", help="momentum of SGD (0.5)")
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU although there are devices")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="random seed (1)")
    parser.add_argument("--log-interval", type=int, default=10, metavar="N", help="steps between log lines (10)")
    parser.add_argument("--log-path", default="", help="file for the log lines; the terminal without it")
    parser.add_argument("--save-model", action="store_true", help="save the model as mnist_cnn.pt")
    parser.add_argument("--dry-run", action="store_true", help="one step of training, one of testing")
    parser.add_argument("--backend", default="tcp", help="how replicas communicate: tcp, gloo, mpi, nccl (tcp)")
    parser.add_argument("--data", default="../data", help="folder of the images; fetched if they are not there")
    parser.add_argument("--synthetic", action="store_true", help="generated digits instead of MNIST")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="use only the first N images of each set")
    return parser.parse_args()


def begin_log(path: str) -> None:
    # Replicas of one host that are told the same file write one each.
    rank = int(os.environ.get("RANK", 0))
    if path and rank > 0:
        path = f"{path}.rank{rank}"
    logging.basicConfig(
        format="%(asctime)s %(levelname)-8s %(message)s", datefmt="%Y-%m-%dT%H:%M:%SZ", level=logging.INFO,
        handlers=[logging.StreamHandler()] + ([logging.FileHandler(path)] if path else []),
    )


def sets(args: argparse.Namespace):
    steps = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    for train in (True, False):
        if args.synthetic:
            whole = datasets.FakeData(60000 if train else 10000, (1, 28, 28), 10, steps, random_offset=int(not train))
        else:
            whole = datasets.MNIST(args.data, train=train, download=True, transform=steps)
        yield Subset(whole, range(min(args.limit, len(whole)))) if args.limit else whole


def train(args, model, device, loader, epoch, optimizer) -> None:
    model.train()
    images = len(loader.dataset)
    for step, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if step % args.log_interval == 0:
            done = step * len(data) * WORLD_SIZE
            logging.info(f"Train Epoch: {epoch} [{done}/{images} ({100.0 * step / len(loader):.0f}%)]\t"
                         f"loss={loss.item():.4f}")
        if args.dry_run:
            break


def test(args, model, device, loader, epoch) -> None:
    model.eval()
    loss, correct, seen = 0.0, 0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            correct += (output.argmax(dim=1) == target).sum().item()
            seen += len(target)
            if args.dry_run:
                break
    logging.info(f"{{metricName: accuracy, metricValue: {correct / seen:.4f}}};{{metricName: loss, metricValue: "
                 f"{loss / seen:.4f}}}")
    print(f"epoch={epoch} accuracy={correct / seen:.4f} loss={loss / seen:.4f}", flush=True)
    logging.info(f"accuracy={correct / seen:.4f}")


def main() -> None:
    args = parse_arguments()
    begin_log(args.log_path)
    torch.manual_seed(args.seed)
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local_rank % torch.cuda.device_count()) if use_cuda else torch.device("cpu")
    distributed = dist.is_available() and WORLD_SIZE > 1
    if distributed:
        logging.info(f"Using distributed PyTorch with {args.backend} backend")
        dist.init_process_group(backend=args.backend)

    train_set, test_set = sets(args)
    sampler = DistributedSampler(train_set) if distributed else None
    train_loader = DataLoader(train_set, args.batch_size, shuffle=sampler is None, sampler=sampler)
    test_loader = DataLoader(test_set, args.test_batch_size)
    model = Net().to(device)
    if distributed:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if use_cuda else None)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    for epoch in range(1, args.epochs + 1):
        if sampler is not None:
            sampler.set_epoch(epoch)
        train(args, model, device, train_loader, epoch, optimizer)
        test(args, model, device, test_loader, epoch)
    if args.save_model and (not distributed or dist.get_rank() == 0):
        torch.save((model.module if distributed else model).state_dict(), "mnist_cnn.pt")
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

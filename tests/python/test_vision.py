"""vision: data sets, transforms, residual networks."""

from __future__ import annotations

import gzip
import os
import struct
import tempfile
import unittest
from unittest import mock

import athanor
import athanor.nn as nn
from athanor.utils.data import DataLoader, Subset, default_collate
from athanor.vision import datasets, transforms, utils
from athanor.vision.transforms import functional as F

try:
    import numpy
except ImportError:
    numpy = None
try:
    from PIL import Image
except ImportError:
    Image = None




def write_mnist(folder: str, n: int = 50) -> None:
    """Files in MNIST's form: pixel k of image i is (i * 7 + k) % 256, class i % 10."""
    os.makedirs(folder, exist_ok=True)
    for prefix in ("train", "t10k"):
        pixels = b"".join(bytes((i * 7 + k) % 256 for k in range(784)) for i in range(n))
        with gzip.open(os.path.join(folder, f"{prefix}-images-idx3-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">IIII", 2051, n, 28, 28) + pixels)
        with open(os.path.join(folder, f"{prefix}-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">II", 2049, n) + bytes(i % 10 for i in range(n)))


class Mnist(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = folder.name
        write_mnist(os.path.join(folder.name, "MNIST", "raw"))

    def test_examples_are_images_and_classes(self) -> None:
        dataset = datasets.MNIST(self.root, train=True, transform=transforms.ToTensor())
        self.assertEqual(len(dataset), 50)
        image, target = dataset[3]
        self.assertEqual(tuple(image.shape), (1, 28, 28))
        self.assertAlmostEqual(image[0, 0, 5].item(), 26 / 255, places=6)
        self.assertEqual(target, 3)
        self.assertEqual(tuple(dataset.data.shape), (50, 28, 28))
        self.assertEqual(dataset.targets[:3].tolist(), [0, 1, 2])
        self.assertEqual(dataset.class_to_idx["3 - three"], 3)
        self.assertEqual(datasets.MNIST(self.root, target_transform=lambda t: -t)[3][1], -3)

    def test_repr_is_torchvisions(self) -> None:
        compose = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
        self.assertEqual(
            repr(datasets.MNIST(self.root, train=False, transform=compose)),
            f"Dataset MNIST\n    Number of datapoints: 50\n    Root location: {self.root}\n    Split: Test\n"
            "    StandardTransform\nTransform: Compose(\n               ToTensor()\n"
            "               Normalize(mean=(0.1307,), std=(0.3081,))\n           )",
        )

    def test_missing_files_name_the_way_out(self) -> None:
        with tempfile.TemporaryDirectory() as empty:
            for folder in (empty, os.path.join(empty, "none")):
                with self.assertRaisesRegex(RuntimeError, "Dataset not found. You can use download=True"):
                    datasets.MNIST(folder)

    def test_damaged_files_are_an_error_of_their_own(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            write_mnist(folder)
            with open(os.path.join(folder, "train-labels-idx1-ubyte"), "ab") as file:
                file.truncate(20)
            with self.assertRaisesRegex(OSError, "train-labels"):
                datasets.MNIST(folder)

    def test_a_loader_gathers_what_collation_gives(self) -> None:
        for steps in ([], [((0.1307,), (0.3081,))], [([0.5], [0.25]), ([1.0], [3.0])]):
            parts = [transforms.ToTensor(), *(transforms.Normalize(*s) for s in steps)]
            for transform in [transforms.Compose(parts)] + parts[: len(parts) == 1]:
                dataset = datasets.MNIST(self.root, transform=transform)
                expected = default_collate([dataset[i] for i in range(8, 16)])
                for workers in (0, 2):
                    batches = list(DataLoader(dataset, batch_size=8, num_workers=workers))
                    self.assertEqual([len(b[1]) for b in batches], [8] * 6 + [2])
                    self.assertTrue(athanor.equal(batches[1][0], expected[0]))
                    self.assertTrue(athanor.equal(batches[1][1], expected[1]))
                    self.assertIs(batches[1][1].dtype, athanor.int64)
                part = next(iter(DataLoader(Subset(dataset, range(9, 50)), batch_size=7)))
                self.assertTrue(athanor.equal(part[0], expected[0][1:]))

    def test_a_subclass_decides_what_an_example_is(self) -> None:
        class Negative(datasets.MNIST):
            def __getitem__(self, index):
                image, target = super().__getitem__(index)
                return -image, target

        first = next(iter(DataLoader(Negative(self.root, transform=transforms.ToTensor()), batch_size=2)))[0]
        self.assertLess(first.sum().item(), 0)

    def test_changed_data_and_targets_count(self) -> None:
        dataset = datasets.MNIST(self.root, transform=transforms.ToTensor())
        dataset.data = dataset.data[10:20]
        dataset.targets = [7] * 10
        images, targets = next(iter(DataLoader(dataset, batch_size=10)))
        self.assertEqual(targets.tolist(), [7] * 10)
        self.assertAlmostEqual(images[0, 0, 0, 0].item(), 70 / 255, places=6)

    def test_indices_beyond_the_end_are_index_errors(self) -> None:
        dataset = datasets.MNIST(self.root, transform=transforms.ToTensor())
        with self.assertRaises(IndexError):
            list(DataLoader(dataset, sampler=[50], batch_size=1))

    @unittest.skipIf(Image is None, "PIL is not installed")
    def test_without_a_transform_images_are_pils(self) -> None:
        image, _ = datasets.MNIST(self.root)[0]
        self.assertEqual((image.mode, image.size), ("L", (28, 28)))
        self.assertEqual(image.getpixel((5, 0)), 5)


class Transforms(unittest.TestCase):
    image = athanor.arange(2 * 5 * 7, dtype=athanor.uint8).reshape(2, 5, 7)

    def test_bytes_become_floats_from_0_to_1(self) -> None:
        self.assertAlmostEqual(F.to_tensor(self.image)[1, 4, 6].item(), 69 / 255, places=6)
        self.assertEqual(F.to_tensor(athanor.ones(1, 2, 2) * 3).max().item(), 3.0)
        with self.assertRaisesRegex(TypeError, "pic should be PIL Image or ndarray"):
            F.to_tensor([1])

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_arrays_have_their_channels_last(self) -> None:
        array = numpy.arange(24, dtype=numpy.uint8).reshape(2, 4, 3)
        tensor = transforms.ToTensor()(array)
        self.assertEqual(tuple(tensor.shape), (3, 2, 4))
        self.assertAlmostEqual(tensor[2, 1, 3].item(), 23 / 255, places=6)
        self.assertEqual(tuple(F.to_tensor(array[:, :, 0]).shape), (1, 2, 4))

    def test_normalize_works_by_channel_and_refuses_what_it_cannot_do(self) -> None:
        x = athanor.ones(2, 3, 3)
        y = transforms.Normalize([1.0, 0.0], [1.0, 0.5])(x)
        self.assertEqual(y[:, 0, 0].tolist(), [0.0, 2.0])
        self.assertEqual(x[0, 0, 0].item(), 1.0)
        with self.assertRaisesRegex(ValueError, "division by zero"):
            F.normalize(x, [0.0], [0.0])
        with self.assertRaisesRegex(TypeError, "should be a float tensor"):
            F.normalize(self.image, [0.0], [1.0])

    def test_crops_take_zeros_from_beyond_the_edge(self) -> None:
        part = F.crop(self.image, -1, 5, 3, 4)
        self.assertEqual(part[0].tolist(), [[0, 0, 0, 0], [5, 6, 0, 0], [12, 13, 0, 0]])
        self.assertEqual(F.crop(self.image, 20, 20, 2, 2).sum().item(), 0)
        self.assertEqual(F.center_crop(self.image, [1, 3])[0].tolist(), [[16, 17, 18]])
        self.assertEqual(tuple(F.center_crop(self.image, 9).shape), (2, 9, 9))

    def test_borders_continue_the_image(self) -> None:
        row = athanor.tensor([[[1, 2, 3]]])
        for mode, expected in (
            ("constant", [0, 0, 1, 2, 3, 0]),
            ("edge", [1, 1, 1, 2, 3, 3]),
            ("reflect", [3, 2, 1, 2, 3, 2]),
            ("symmetric", [2, 1, 1, 2, 3, 3]),
        ):
            self.assertEqual(F.pad(row, [2, 0, 1, 0], padding_mode=mode)[0, 0].tolist(), expected, mode)

    def test_flips_turn_the_image(self) -> None:
        self.assertEqual(F.hflip(self.image)[0, 0].tolist(), [6, 5, 4, 3, 2, 1, 0])
        self.assertEqual(F.vflip(self.image)[0, :, 0].tolist(), [28, 21, 14, 7, 0])
        for p, changed in ((0.0, False), (1.0, True)):
            flipped = transforms.RandomHorizontalFlip(p)(self.image)
            self.assertEqual(not athanor.equal(flipped, self.image), changed)

    def test_a_number_is_the_shorter_edge(self) -> None:
        self.assertEqual(tuple(F.resize(athanor.rand(3, 40, 60), 20).shape), (3, 20, 30))
        self.assertEqual(tuple(F.resize(athanor.rand(3, 40, 60), 20, max_size=24).shape), (3, 16, 24))
        self.assertEqual(tuple(F.resize(athanor.rand(1, 3, 40, 60), [7, 9]).shape), (1, 3, 7, 9))

    def test_random_crops_are_parts_of_the_image(self) -> None:
        athanor.manual_seed(0)
        seen = set()
        for _ in range(40):
            part = transforms.RandomCrop(3)(self.image)
            first = part[0, 0, 0].item()
            seen.add(first)
            self.assertEqual(part[0].tolist(), [[first + 7 * r + c for c in range(3)] for r in range(3)])
        self.assertGreater(len(seen), 8)
        with self.assertRaisesRegex(ValueError, "larger than input image size"):
            transforms.RandomCrop(6)(self.image)

    def test_seeds_decide_what_is_drawn(self) -> None:
        chain = transforms.Compose(
            [
                transforms.RandomResizedCrop(4),
                transforms.ColorJitter(0.2, 0.2, 0.2, 0.1),
                transforms.RandomErasing(1.0),
            ]
        )
        image = athanor.rand(3, 16, 16)
        results = []
        for _ in range(2):
            athanor.manual_seed(3)
            results.append(chain(image))
        self.assertTrue(athanor.equal(*results))
        self.assertFalse(athanor.equal(results[0], chain(image)))

    def test_a_hue_turned_around_is_the_same(self) -> None:
        image = athanor.rand(3, 8, 8)
        self.assertTrue(athanor.allclose(F.adjust_hue(F.adjust_hue(image, 0.3), -0.3), image, atol=1e-5))
        red = athanor.tensor([1.0, 0.0, 0.0]).view(3, 1, 1)
        self.assertTrue(athanor.allclose(F.adjust_hue(red, 1 / 3).flatten(), athanor.tensor([0.0, 1.0, 0.0]), atol=1e-6))

    def test_hues_of_bytes_are_torchvisions(self) -> None:
        weights = athanor.tensor([37, 91, 151]).view(3, 1, 1)
        image = (athanor.arange(36).view(3, 3, 4) * weights % 256).to(athanor.uint8)
        # Of torchvision 0.29.
        self.assertEqual(F.adjust_hue(image, 0.3).flatten().tolist(), [
            26, 191, 74, 237, 132, 62, 202, 35, 224, 111, 14, 165, 0, 37, 97, 85, 157, 185, 222, 3, 28, 77, 153, 127,
            68, 190, 250, 89, 176, 11, 102, 193, 55, 119, 210, 45])
        gray = athanor.arange(256).to(athanor.uint8).view(1, 16, 16).expand(3, 16, 16)
        self.assertTrue(F.adjust_hue(gray, 0.25).equal(gray))
        self.assertIs(F.adjust_hue(image.to(athanor.int16), 0.1).dtype, athanor.int16)

    @unittest.skipIf(Image is None or numpy is None, "PIL or NumPy is not installed")
    def test_pils_images_and_tensors_give_the_same(self) -> None:
        array = numpy.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=numpy.uint8)
        image = Image.fromarray(array)
        tensor = F.pil_to_tensor(image)
        self.assertEqual(tensor.permute(1, 2, 0).tolist(), array.tolist())
        for name, call, tolerance in (
            ("crop", lambda x: F.crop(x, -3, -5, 60, 40), 0),
            ("center_crop", lambda x: F.center_crop(x, 61), 0),
            ("hflip", F.hflip, 0),
            ("reflect", lambda x: F.pad(x, [1, 2, 3, 4], padding_mode="reflect"), 0),
            ("resize", lambda x: F.resize(x, [20, 30]), 1),
            ("gray", F.rgb_to_grayscale, 1),
            ("brightness", lambda x: F.adjust_brightness(x, 1.4), 1),
            ("contrast", lambda x: F.adjust_contrast(x, 0.5), 1),
            ("saturation", lambda x: F.adjust_saturation(x, 1.7), 1),
        ):
            ours = call(tensor).to(athanor.int64)
            theirs = F.pil_to_tensor(call(image)).to(athanor.int64)
            self.assertEqual(ours.shape, theirs.shape, name)
            self.assertLessEqual((ours - theirs).abs().max().item(), tolerance, name)
        self.assertEqual(F.to_pil_image(tensor).tobytes(), image.tobytes())

    def test_prints_are_torchvisions(self) -> None:
        for transform, text in (
            (transforms.Resize(32), "Resize(size=32, interpolation=bilinear, max_size=None, antialias=True)"),
            (transforms.CenterCrop(10), "CenterCrop(size=(10, 10))"),
            (transforms.RandomCrop(32, padding=4), "RandomCrop(size=(32, 32), padding=4)"),
            (transforms.RandomHorizontalFlip(), "RandomHorizontalFlip(p=0.5)"),
            (transforms.Compose([transforms.ToTensor()]), "Compose(\n    ToTensor()\n)"),
        ):
            self.assertEqual(repr(transform), text)


def write_png(path: str, color: tuple) -> None:
    """A PNG file of 2 x 3 pixels of one colour."""
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = (b"\0" + bytes(color) * 3) * 2
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 2, 8, 2, 0, 0, 0)))
        file.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Folders(unittest.TestCase):
    def test_folders_are_classes(self) -> None:
        with tempfile.TemporaryDirectory() as root:
            for i, name in enumerate(("cat", "dog")):
                os.makedirs(os.path.join(root, name, "more"))
                write_png(os.path.join(root, name, "b.png"), (10, 20, 30 + i))
                write_png(os.path.join(root, name, "more", "a.PNG"), (1, 2, 3))
                open(os.path.join(root, name, "readme.txt"), "w").close()
            dataset = datasets.ImageFolder(root, transform=transforms.ToTensor())
            self.assertEqual(dataset.classes, ["cat", "dog"])
            self.assertEqual(len(dataset), 4)
            self.assertEqual(dataset.targets, [0, 0, 1, 1])
            image, target = dataset[2]
            self.assertEqual(target, 1)
            self.assertEqual((image * 255).round()[:, 0, 0].tolist(), [10, 20, 31])
            for workers in (0, 1):
                batch = next(iter(DataLoader(dataset, batch_size=4, num_workers=workers)))
                self.assertEqual(tuple(batch[0].shape), (4, 3, 2, 3))
            os.makedirs(os.path.join(root, "empty"))
            with self.assertRaisesRegex(FileNotFoundError, "classes empty"):
                datasets.ImageFolder(root)
        with tempfile.TemporaryDirectory() as root, self.assertRaisesRegex(FileNotFoundError, "class folder"):
            datasets.ImageFolder(root)

    def test_fake_data_is_the_same_every_time(self) -> None:
        dataset = datasets.FakeData(5, (3, 4, 4), transform=transforms.ToTensor())
        self.assertTrue(athanor.equal(dataset[2][0], dataset[2][0]))
        self.assertFalse(athanor.equal(dataset[2][0], dataset[3][0]))
        with self.assertRaises(IndexError):
            dataset[5]

    def test_cifar_is_read_from_its_binary_files(self) -> None:
        with tempfile.TemporaryDirectory() as root:
            folder = os.path.join(root, "cifar-10-batches-bin")
            os.makedirs(folder)
            example = bytes([7]) + bytes(k % 256 for k in range(3072))
            for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(example * 10000)
            dataset = datasets.CIFAR10(root, train=False, transform=transforms.ToTensor())
            self.assertEqual(len(dataset), 10000)
            images, targets = next(iter(DataLoader(dataset, batch_size=3)))
            self.assertEqual(targets.tolist(), [7, 7, 7])
            self.assertTrue(athanor.equal(images[1], dataset[1][0]))
        with tempfile.TemporaryDirectory() as root, self.assertRaisesRegex(RuntimeError, "not found"):
            datasets.CIFAR10(root)


class Halves(unittest.TestCase):
    def test_the_half_that_was_not_asked_for_is_there_after_the_one_that_was(self) -> None:
        asked = []

        def load(name: str, root: str, train: bool, download: bool, generate: bool) -> tuple:
            asked.append((train, download, generate))
            if not download:
                raise OSError("no files")
            return athanor.zeros(1, 1, 28, 28, dtype=athanor.uint8), athanor.zeros(1, dtype=athanor.int64)

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(datasets.mnist._data, "mnist", load):
            with self.assertRaisesRegex(RuntimeError, "use download=True"):
                datasets.MNIST(folder, train=False)
            datasets.MNIST(folder, train=True, download=True)
            datasets.MNIST(os.path.join(folder, "."), train=False)
            with self.assertRaisesRegex(RuntimeError, "use download=True"):
                datasets.FashionMNIST(folder, train=False)
        self.assertEqual(asked, [(False, False, False), (True, True, True), (False, True, True), (False, False, False)])


class Grids(unittest.TestCase):
    def test_images_lie_in_rows_with_borders_around(self) -> None:
        images = athanor.arange(1, 6).float().view(5, 1, 1, 1).expand(5, 3, 2, 4)
        grid = utils.make_grid(images, nrow=3, padding=1, pad_value=9)
        self.assertEqual(grid.shape, (3, 2 * 3 + 1, 3 * 5 + 1))
        for k in range(5):
            row, column = k // 3, k % 3
            self.assertTrue((grid[:, row * 3 + 1 : row * 3 + 3, column * 5 + 1 : column * 5 + 5] == k + 1).all())
        self.assertTrue((grid[:, 0] == 9).all())
        self.assertTrue((grid[:, 4:, 11:] == 9).all())

    def test_one_channel_becomes_three_and_one_image_has_no_border(self) -> None:
        self.assertEqual(utils.make_grid(athanor.zeros(4, 1, 2, 2)).shape, (3, 6, 18))
        self.assertEqual(utils.make_grid(athanor.zeros(2, 2)).shape, (3, 2, 2))
        self.assertEqual(utils.make_grid([athanor.zeros(3, 2, 2)] * 2).shape, (3, 6, 10))
        with self.assertRaises(TypeError):
            utils.make_grid("image")

    def test_values_are_normalized_together_or_each(self) -> None:
        images = athanor.tensor([0.0, 1.0, 0.0, 3.0]).view(2, 1, 1, 2)
        together = utils.make_grid(images, padding=0, normalize=True)[0, 0]
        athanor.testing.assert_close(together, athanor.tensor([0, 1 / 3, 0, 1]))
        each = utils.make_grid(images, padding=0, normalize=True, scale_each=True)[0, 0]
        self.assertEqual(each.tolist(), [0, 1, 0, 1])
        within = utils.make_grid(images, padding=0, normalize=True, value_range=(0, 2))[0, 0]
        self.assertEqual(within.tolist(), [0, 0.5, 0, 1])
        self.assertEqual(images.flatten().tolist(), [0, 1, 0, 3])

    def test_a_saved_image_is_read_back(self) -> None:
        image = athanor.rand(3, 5, 7)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "image.png")
            utils.save_image(image.requires_grad_(), path)
            back = athanor.vision.io.read_image(path)
            self.assertEqual(os.listdir(folder), ["image.png"])
        self.assertEqual(back.tolist(), (image * 255 + 0.5).byte().tolist())

    def test_images_are_read_with_the_channels_asked_for(self) -> None:
        from athanor.vision.io import ImageReadMode, read_image

        image = athanor.rand(3, 5, 7)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "image.png")
            utils.save_image(image, path)
            whole = read_image(path)
            channels = dict(UNCHANGED=3, GRAY=1, GRAY_ALPHA=2, RGB=3, RGB_ALPHA=4)
            self.assertEqual([m.name for m in ImageReadMode], list(channels))
            for name, count in channels.items():
                for mode in (name, name.lower(), ImageReadMode[name]):
                    read = read_image(path, mode)
                    self.assertEqual(tuple(read.shape), (count, 5, 7), mode)
                self.assertEqual(read[:3].equal(whole), count >= 3)
                if count in (2, 4):
                    self.assertTrue((read[-1] == 255).all())
            for mode in ("L", "BGR", "", None, 3):
                with self.assertRaisesRegex(ValueError, "read_image: mode .*expected one of UNCHANGED, GRAY"):
                    read_image(path, mode)


class ResNets(unittest.TestCase):
    def setUp(self) -> None:
        from athanor.vision import models

        self.models = models

    def test_numbers_of_parameters_are_those_of_the_papers(self) -> None:
        for name, count in (
            ("resnet18", 11_689_512),
            ("resnet34", 21_797_672),
            ("resnet50", 25_557_032),
            ("resnext50_32x4d", 25_028_904),
        ):
            model = getattr(self.models, name)()
            self.assertEqual(sum(p.numel() for p in model.parameters()), count, name)

    def test_names_of_parameters_are_torchvisions(self) -> None:
        names = list(self.models.resnet18().state_dict())
        self.assertEqual(len(names), 122)
        for name in ("conv1.weight", "bn1.num_batches_tracked", "layer2.0.downsample.1.running_var", "fc.bias"):
            self.assertIn(name, names)
        self.assertIn("layer1.0.conv3.weight", self.models.resnet50().state_dict())

    def test_a_network_split_by_its_subclass_computes_the_same(self) -> None:
        from athanor.vision.models.resnet import BasicBlock, ResNet

        class Split(ResNet):
            def __init__(self) -> None:
                super().__init__(BasicBlock, [1, 1, 1, 1], num_classes=10)
                self.seq1 = nn.Sequential(self.conv1, self.bn1, self.relu, self.maxpool, self.layer1, self.layer2)
                self.seq2 = nn.Sequential(self.layer3, self.layer4, self.avgpool)

            def forward(self, x):
                x = self.seq2(self.seq1(x))
                return self.fc(x.view(x.size(0), -1))

        model = Split().eval()
        x = athanor.randn(2, 3, 32, 32)
        with athanor.no_grad():
            self.assertTrue(athanor.allclose(model(x), ResNet.forward(model, x)))

    def test_weights_that_do_not_come_with_the_library_name_the_way_out(self) -> None:
        with self.assertRaisesRegex(ValueError, "load_state_dict"):
            self.models.resnet18(weights="DEFAULT")


if __name__ == "__main__":
    unittest.main()

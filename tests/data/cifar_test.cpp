#include "athanor/data/cifar.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "athanor/ops/factory.h"
#include "io/helpers.h"
#include "io/python.h"

namespace athanor::data::datasets {

namespace {

using io::error_of;

std::string record(std::initializer_list<int> labels, int value) {
  std::string text;
  for (const int label : labels) text += static_cast<char>(label);
  for (int i = 0; i < 3072; ++i) text += static_cast<char>((value + i) % 256);
  return text;
}

}  // namespace

TEST(CIFAR10, ReadsBinaryBatchesInOrder) {
  const io::TempFolder folder;
  std::filesystem::create_directory(folder / "cifar-10-batches-bin");
  for (int b = 1; b <= 5; ++b)
    io::write_file(folder / ("cifar-10-batches-bin/data_batch_" + std::to_string(b) + ".bin"),
                   record({b}, b) + record({b + 1}, 10 * b));
  CIFAR10 train(folder.path());
  EXPECT_EQ(*train.size(), 10U);
  EXPECT_TRUE(equal(train.targets(), tensor({1, 2, 2, 3, 3, 4, 4, 5, 5, 6}, kLong)));
  EXPECT_EQ(train.bytes().sizes().vec(), (std::vector<std::int64_t>{10, 3, 32, 32}));
  // Channel 1 begins after 1024 bytes.
  EXPECT_EQ(train.bytes()[3][1][0][2].item<int>(), (20 + 1024 + 2) % 256);
  EXPECT_FLOAT_EQ(train.get(3).data[1][0][2].item<float>(), static_cast<float>((20 + 1026) % 256) / 255);
  const auto batch = train.get_stacked({9, 0});
  EXPECT_TRUE(equal(batch.data[0], train.get(9).data));
  EXPECT_TRUE(equal(batch.target, tensor({6, 1}, kLong)));
  EXPECT_THROW(train.get(10), IndexError);
  EXPECT_CONTAINS(error_of([&] { CIFAR10 test(folder.path(), CIFAR10::Mode::kTest); }), "test_batch");
  io::write_file(folder / "cifar-10-batches-bin/data_batch_3.bin", record({10}, 0));
  EXPECT_CONTAINS(error_of([&] { CIFAR10 bad(folder.path()); }), "data_batch_3.bin': class 10");
  io::write_file(folder / "cifar-10-batches-bin/data_batch_3.bin", record({1}, 0) + "x");
  EXPECT_CONTAINS(error_of([&] { CIFAR10 bad(folder.path()); }), "no multiple of 3073");
}

TEST(CIFAR100, HasFineAndCoarseLabels) {
  const io::TempFolder folder;
  io::write_file(folder / "test.bin", record({19, 99}, 1) + record({0, 7}, 2));
  EXPECT_TRUE(equal(CIFAR100(folder.path(), CIFAR::Mode::kTest).targets(), tensor({99, 7}, kLong)));
  EXPECT_TRUE(
      equal(CIFAR100(folder.path(), CIFAR::Mode::kTest, CIFAR100::Labels::kCoarse).targets(), tensor({19, 0}, kLong)));
}

TEST(CIFAR10, ReadsPythonsBatches) {
  SKIP_WITHOUT_PYTHON("numpy");
  const io::TempFolder folder;
  // As the data set's own files: pickled by Python 2, whose texts are bytes; then as Python 3 writes.
  ASSERT_TRUE(io::run_python(folder, "numpy", R"(
import numpy as np, pickle, os
os.mkdir('cifar-10-batches-py'); os.mkdir('cifar-100-python')
data = (np.arange(2 * 3072) % 256).astype(np.uint8).reshape(2, 3072)
pickle.dump({'data': data, 'labels': [3, 9], 'filenames': ['a', 'b']}, open('cifar-10-batches-py/test_batch', 'wb'), protocol=2)
pickle.dump({'data': np.asfortranarray(data), 'fine_labels': [1, 2], 'coarse_labels': [0, 1]},
            open('cifar-100-python/train', 'wb'), protocol=4)
)"));
  CIFAR10 test(folder.path(), CIFAR::Mode::kTest);
  EXPECT_TRUE(equal(test.targets(), tensor({3, 9}, kLong)));
  EXPECT_TRUE(equal(test.bytes().reshape({-1}), arange(2 * 3072).remainder(256).to(kByte)));
  CIFAR100 train(folder.path());
  EXPECT_TRUE(equal(train.bytes(), test.bytes()));
}

TEST(CIFAR10, ReadsAPickleOfPython2) {
  const io::TempFolder folder;
  using namespace std::string_literals;
  // Python 2's pickle of {'data': array of (1, 3072) bytes, 'labels': [6]}.
  std::string pixels;
  for (int i = 0; i < 3072; ++i) pixels += static_cast<char>(i % 251);
  const std::string pickle =
      "\x80\x02}q\x01(U\x04"
      "dataq\x02"
      "cnumpy.core.multiarray\n_reconstruct\nq\x03"
      "cnumpy\nndarray\nq\x04K\x00\x85U\x01"
      "b\x87Rq\x05"
      "(K\x01K\x01M\x00\x0c\x86"
      "cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00"s +
      pixels +
      "tbU\x06labelsq\x08]q\x09K\x06"
      "au."s;
  io::write_file(folder / "test_batch", pickle);
  CIFAR10 test(folder.path(), CIFAR::Mode::kTest);
  EXPECT_TRUE(equal(test.targets(), tensor({6}, kLong)));
  EXPECT_EQ(test.bytes()[0][2][31][31].item<int>(), 3071 % 251);
}

}  // namespace athanor::data::datasets

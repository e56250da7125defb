#include "athanor/data/mnist_dataset.h"

#include <array>
#include <numeric>

#include "athanor/data/synthetic_digits.h"
#include "athanor/io/idx.h"
#include "io/helpers.h"
#include "io/http_server.h"
#include "shared_data.h"

namespace athanor::data {

namespace {

using io::error_of;
using io::TempFolder;

/// Runs in a folder of its own, so that no data of the machine is found.
class Mnist : public ::testing::Test {
 protected:
  Mnist() : real_(find_shared_data("mnist")), before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder_.path());
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    for (const char* name : {"ATHANOR_DATA", "ATHANOR_DATA_MIRROR", "ATHANOR_OFFLINE"}) {
      if (const char* value = std::getenv(name)) kept_.emplace_back(name, value);
      unsetenv(name);
    }
    options_.download = false;
    options_.generate = false;
    options_.generated_train = 30;
    options_.generated_test = 20;
    options_.log = [this](const std::string& line) { lines_.push_back(line); };
  }

 public:
  ~Mnist() override {
    std::filesystem::current_path(before_);
    unsetenv("XDG_CACHE_HOME");
    for (const auto& [name, value] : kept_) setenv(name.c_str(), value.c_str(), 1);
  }

 protected:
  static io::Array images(std::int64_t count, std::int64_t rows = 28, std::int64_t columns = 28) {
    io::Array a = io::empty_array(kByte, {count, rows, columns});
    for (std::size_t i = 0; i < a.nbytes(); ++i) a.data[i] = static_cast<std::byte>(i * 31);
    return a;
  }
  static io::Array labels(std::int64_t count, int step = 1) {
    io::Array a = io::empty_array(kByte, {count});
    for (std::size_t i = 0; i < a.nbytes(); ++i)
      a.data[i] = static_cast<std::byte>(i * static_cast<std::size_t>(step) % 10);
    return a;
  }
  // A data set of `train` and `test` images.
  void write_set(const std::string& where, std::int64_t train, std::int64_t test, const std::string& suffix = "",
                 const std::string& prefix = "", const std::string& test_name = "t10k", char separator = '-') const {
    const std::string base = folder_ / where;
    io::make_folders(base);
    const auto path = [&](const std::string& half, const std::string& kind) {
      return base + "/" + prefix + half + "-" + kind.substr(0, 6) + separator + kind.substr(6) + suffix;
    };
    io::write_idx(path("train", "imagesidx3-ubyte"), images(train));
    io::write_idx(path("train", "labelsidx1-ubyte"), labels(train));
    io::write_idx(path(test_name, "imagesidx3-ubyte"), images(test));
    io::write_idx(path(test_name, "labelsidx1-ubyte"), labels(test));
  }
  std::string error() {
    return error_of([this] { load_mnist(options_); });
  }

  const std::string real_;  // the folder of the true files, if there are any
  TempFolder folder_;
  MnistOptions options_;
  std::vector<std::string> lines_;

 private:
  std::filesystem::path before_;
  std::vector<std::pair<std::string, std::string>> kept_;
};

}  // namespace

TEST_F(Mnist, IsFoundInEveryUsualLayout) {
  struct Variant {
    const char* layout;
    const char* suffix;
    char separator;
  };
  const Variant variants[] = {{"", "", '-'},          {"raw", "", '-'},   {"MNIST", "", '-'},
                              {"MNIST/raw", "", '-'}, {"mnist", "", '-'}, {"mnist/raw", "", '-'},
                              {"", ".gz", '-'},       {"", "", '.'},      {"MNIST/raw", ".gz", '.'}};
  int n = 0;
  for (const auto& [layout, suffix, separator] : variants) {
    const std::string base = "base" + std::to_string(n++);
    write_set(base + "/" + layout, 7, 5, suffix, "", "t10k", separator);
    options_.root = folder_ / base;
    const MnistData data = load_mnist(options_);
    EXPECT_EQ(data.train.count(), 7);
    EXPECT_EQ(data.test.count(), 5);
    EXPECT_EQ(data.train.images.size(), 7U * 784);
    EXPECT_EQ(data.train.images[100], static_cast<std::uint8_t>(100 * 31));
    EXPECT_EQ(data.test.labels[4], 4);
    EXPECT_EQ(data.source, MnistSource::Folder);
  }
  ASSERT_EQ(lines_.size(), 9U);
  EXPECT_CONTAINS(lines_[0], "mnist: read from '" + folder_.path());
}

TEST_F(Mnist, FoldersAreSearchedInOrder) {
  write_set("data", 1, 1);
  EXPECT_EQ(load_mnist(options_).train.count(), 1);
  write_set("env", 2, 1);
  setenv("ATHANOR_DATA", (folder_ / "env").c_str(), 1);
  EXPECT_EQ(load_mnist(options_).train.count(), 2);
  write_set("root", 3, 1);
  options_.root = folder_ / "root";
  EXPECT_EQ(load_mnist(options_).train.count(), 3);
  options_.root = folder_ / "cache";
  io::make_folders(options_.root);
  EXPECT_EQ(load_mnist(options_).train.count(), 2);
  unsetenv("ATHANOR_DATA");
}

TEST_F(Mnist, CacheFolderIsSearched) {
  write_set("cache/athanor/MNIST/raw", 4, 1);
  EXPECT_EQ(load_mnist(options_).train.count(), 4);
}

TEST_F(Mnist, OneHalfCanBeLoadedAlone) {
  write_set("data", 6, 4);
  EXPECT_EQ(load_mnist_split(false, options_).count(), 4);
  std::filesystem::remove(folder_ / "data/t10k-labels-idx1-ubyte");
  std::filesystem::remove(folder_ / "data/t10k-images-idx3-ubyte");
  EXPECT_EQ(load_mnist_split(true, options_).count(), 6);
  EXPECT_CONTAINS(error(), "mnist is incomplete: 'data' holds only the training half, and downloads are switched off");
}

TEST_F(Mnist, AFileWithoutItsPartnerIsAnErrorNotAReasonToGenerate) {
  write_set("data", 6, 4);
  std::filesystem::remove(folder_ / "data/train-labels-idx1-ubyte");
  options_.generate = true;
  EXPECT_CONTAINS(error(), "found 'data/train-images-idx3-ubyte' but no 'train-labels-idx1-ubyte' (plain or .gz)");
}

TEST_F(Mnist, RelativesHaveFoldersAndLabelsOfTheirOwn) {
  write_set("data/FashionMNIST/raw", 2, 1);
  write_set("data/KMNIST/raw", 3, 1);
  write_set("data/EMNIST/raw", 4, 1, ".gz", "emnist-letters-", "test");
  options_.name = "fashion-mnist";
  EXPECT_EQ(load_mnist(options_).train.count(), 2);
  options_.name = "kmnist";
  EXPECT_EQ(load_mnist(options_).train.count(), 3);
  options_.name = "emnist-letters";
  EXPECT_EQ(load_mnist(options_).train.count(), 4);
  EXPECT_EQ(load_mnist(options_).classes, 27);
  options_.name = "mnist";
  EXPECT_CONTAINS(error(), "no mnist files in 'data', '" + folder_ / "cache/athanor" + "'");
  options_.name = "emnist-digits";
  EXPECT_CONTAINS(error(), "cannot be downloaded");
}

TEST_F(Mnist, MnistFilesAreNotTakenForFashion) {
  write_set("data", 2, 1);
  options_.name = "fashion-mnist";
  EXPECT_CONTAINS(error(), "no fashion-mnist files");
  options_.root = folder_ / "data";
  EXPECT_EQ(load_mnist(options_).train.count(), 2) << "a folder chosen by the user is believed";
}

TEST_F(Mnist, MissingFoldersAndUnknownNamesAreErrors) {
  options_.root = folder_ / "none";
  EXPECT_CONTAINS(error(), "the data folder '" + folder_ / "none" + "' given by --data or root does not exist");
  options_.root = "";
  setenv("ATHANOR_DATA", "/nowhere", 1);
  EXPECT_CONTAINS(error(), "'/nowhere' given by $ATHANOR_DATA does not exist");
  unsetenv("ATHANOR_DATA");
  options_.name = "mist";
  EXPECT_CONTAINS(error_of<ValueError>([this] { load_mnist(options_); }),
                  "unknown data set 'mist', expected one of mnist,");
}

TEST_F(Mnist, WrongFilesAreNamed) {
  const auto broken = [this](const char* name, const io::Array& array) {
    write_set("data", 6, 4);
    io::write_idx(folder_ / "data/" + name, array);
    return error();
  };
  EXPECT_CONTAINS(broken("train-images-idx3-ubyte", images(5)), "holds 5 images but 'data/train-labels-idx1-ubyte' 6");
  EXPECT_CONTAINS(broken("train-images-idx3-ubyte", images(6, 28, 27)), "images of 28x27, expected 28x28");
  EXPECT_CONTAINS(broken("train-images-idx3-ubyte", labels(6)), "uint8 of sizes [6], expected uint8 images");
  EXPECT_CONTAINS(broken("t10k-labels-idx1-ubyte", images(4)), "expected uint8 labels");
  io::Array high = labels(4);
  high.data[2] = std::byte{10};
  EXPECT_CONTAINS(broken("t10k-labels-idx1-ubyte", high), "label 2 is 10, expected less than 10");
  EXPECT_CONTAINS(broken("t10k-labels-idx1-ubyte", io::empty_array(kFloat, {4})), "float32 of sizes [4]");
  write_set("data", 6, 4);
  io::write_file(folder_ / "data/train-images-idx3-ubyte", "junk that is no IDX");
  EXPECT_CONTAINS(error(), "'data/train-images-idx3-ubyte': not an IDX file");
  write_set("data", 0, 4);
  EXPECT_CONTAINS(error(), "holds no images");
}

TEST_F(Mnist, GeneratorIsTheLastResortAndSaysSo) {
  options_.generate = true;
  const MnistData data = load_mnist(options_);
  EXPECT_EQ(data.source, MnistSource::Generator);
  EXPECT_EQ(data.train.count(), 30);
  EXPECT_EQ(data.test.count(), 20);
  EXPECT_EQ(data.train.images.size(), 30U * 784);
  EXPECT_FALSE(std::equal(data.test.images.begin(), data.test.images.end(), data.train.images.begin()));
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_CONTAINS(lines_[0], "and downloads are switched off; using generated digits instead");
  EXPECT_EQ(load_mnist_split(false, options_).images, data.test.images);
  options_.name = "kmnist";
  EXPECT_CONTAINS(error(), "Put them into a folder and name it with --data");
}

TEST_F(Mnist, FailedDownloadFallsBackToTheGenerator) {
  const io::HttpServer server({{"/MNIST/raw/train-images-idx3-ubyte.gz", {.content = "junk"}}});
  options_.generate = options_.download = true;
  options_.mirrors = {server.url("")};
  EXPECT_EQ(load_mnist(options_).source, MnistSource::Generator);
  EXPECT_CONTAINS(lines_.back(), "SHA-256 is ");
  EXPECT_EQ(server.requests().size(), 1U);
  setenv("ATHANOR_OFFLINE", "1", 1);
  EXPECT_EQ(load_mnist(options_).source, MnistSource::Generator);
  unsetenv("ATHANOR_OFFLINE");
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST_F(Mnist, RealFilesAreDownloadedCheckedAndReadAgain) {
  if (real_.empty()) GTEST_SKIP() << "no MNIST files found: set ATHANOR_DATA to the folder with mnist/";
  std::map<std::string, io::HttpFile> files;
  for (const char* name : {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
                           "t10k-labels-idx1-ubyte.gz"})
    files[std::string("/MNIST/raw/") + name].content = io::read_text(real_ + "/" + name);
  const io::HttpServer server(files);
  setenv("ATHANOR_DATA_MIRROR", server.url("").c_str(), 1);
  options_.root = folder_ / "mine";
  io::make_folders(options_.root);
  options_.download = true;
  options_.mirrors = {"http://127.0.0.1:1"};
  const MnistData data = load_mnist(options_);
  EXPECT_EQ(data.source, MnistSource::Download);
  EXPECT_EQ(data.folder, folder_ / "mine/MNIST/raw");
  EXPECT_EQ(server.requests().size(), 4U);

  std::array<int, 10> train{}, test{};
  for (const auto label : data.train.labels) ++train.at(label);
  for (const auto label : data.test.labels) ++test.at(label);
  EXPECT_EQ(train, (std::array<int, 10>{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}));
  EXPECT_EQ(test, (std::array<int, 10>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}));
  const double sum = std::accumulate(data.train.images.begin(), data.train.images.end(), 0.0);
  EXPECT_NEAR(sum / 255 / static_cast<double>(data.train.images.size()), 0.13066, 1e-5);

  options_.download = false;
  EXPECT_EQ(load_mnist(options_).source, MnistSource::Folder);
  unsetenv("ATHANOR_DATA_MIRROR");
}

TEST_F(Mnist, RelativesAreDatasetsToo) {
  using datasets::MNIST;
  write_set("base/FashionMNIST/raw", 3, 2);
  write_set("base/KMNIST/raw", 4, 2, ".gz");
  write_set("base/EMNIST/raw", 5, 2, "", "emnist-letters-", "test");
  EXPECT_EQ(datasets::FashionMNIST(folder_ / "base").size(), 3U);
  EXPECT_EQ(datasets::KMNIST(folder_ / "base", MNIST::Mode::kTest).size(), 2U);
  EXPECT_EQ(datasets::EMNIST(folder_ / "base", "letters").size(), 5U);
  EXPECT_CONTAINS(error_of<ValueError>([&] { datasets::EMNIST(folder_ / "base", "runes"); }), "emnist-runes");
  EXPECT_CONTAINS(error_of([&] { datasets::EMNIST(folder_ / "base", "digits"); }), "no emnist-digits files");
}

TEST_F(Mnist, QmnistTakesTheFirstColumnOfItsLabels) {
  const std::string base = folder_ / "QMNIST/raw";
  io::make_folders(base);
  io::Array table = io::empty_array(kInt, {3, 8});
  for (std::size_t i = 0; i < 24; ++i) table.values<std::int32_t>()[i] = i % 8 ? -70000 : static_cast<int>(9 - i / 8);
  io::write_idx(base + "/qmnist-train-images-idx3-ubyte.gz", images(3));
  io::write_idx(base + "/qmnist-train-labels-idx2-int.gz", table);
  const datasets::QMNIST train(folder_.path());
  EXPECT_EQ(train.targets().data_ptr<std::int64_t>()[0], 9);
  EXPECT_EQ(train.targets().data_ptr<std::int64_t>()[2], 7);
  table.values<std::int32_t>()[8] = 300;
  io::write_idx(base + "/qmnist-train-labels-idx2-int.gz", table);
  EXPECT_CONTAINS(error_of([&] { datasets::QMNIST(folder_.path()); }), "label 1 is 300");
}

TEST_F(Mnist, DatasetLooksIntoItsRootOnly) {
  write_set("data", 1, 1);
  write_set("root", 2, 1);
  EXPECT_EQ(datasets::MNIST(folder_ / "root").size(), 2U);
  io::make_folders(folder_ / "empty");
  EXPECT_CONTAINS(error_of([&] { datasets::MNIST(folder_ / "empty"); }), "empty");
  EXPECT_CONTAINS(error_of([&] { datasets::MNIST(folder_ / "nowhere"); }), "nowhere");
  options_.root = folder_ / "root";
  EXPECT_EQ(datasets::MNIST(options_, datasets::MNIST::Mode::kTest).size(), 1U);
}

TEST_F(Mnist, DatasetConvertsExamplesAndBatchesAlike) {
  write_set("root", 9, 1);
  datasets::MNIST set(folder_ / "root");
  EXPECT_EQ(set.bytes().dtype(), kByte);
  const std::vector<std::size_t> indices{8, 0, 8};
  const Example<> batch = set.get_stacked(indices);
  EXPECT_EQ(batch.data.sizes().vec(), (std::vector<std::int64_t>{3, 1, 28, 28}));
  for (std::int64_t i = 0; i < 3; ++i) {
    const Example<> one = set.get(indices[static_cast<std::size_t>(i)]);
    EXPECT_TRUE(equal(batch.data.select(0, i), one.data));
    EXPECT_TRUE(equal(batch.target.select(0, i), one.target));
    EXPECT_TRUE(
        equal(set.images().select(0, static_cast<std::int64_t>(indices[static_cast<std::size_t>(i)])), one.data));
  }
  EXPECT_EQ(set.get(0).data.data_ptr<float>()[1], 31.0F / 255);
  EXPECT_THROW(set.get(9), IndexError);
  EXPECT_THROW(set.get_stacked(std::vector<std::size_t>{9}), IndexError);
}

}  // namespace athanor::data

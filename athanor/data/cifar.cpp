#include "athanor/data/cifar.h"

#include <cstring>
#include <filesystem>

#include "athanor/io/file.h"
#include "athanor/io/pickle.h"

namespace athanor::data::datasets {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kImage = std::size_t{3} * 32 * 32;

/// What the files of one data set look like.
struct Layout {
  const char* name;
  std::vector<std::string> files;  // without ".bin"
  const char* binary_folder;
  const char* python_folder;
  std::size_t label_bytes, label;  // of a binary record: how many, and which counts
  const char* python_label;
  int classes;
};

class Collected {
 public:
  void add(const std::uint8_t* image, std::int64_t label, int classes, const std::string& what) {
    ATHANOR_CHECK_TYPE(IoError, label >= 0 && label < classes, what, ": class ", label, " of image ", labels_.size(),
                       ", expected 0 to ", classes - 1);
    bytes_.insert(bytes_.end(), image, image + kImage);
    labels_.push_back(label);
  }
  std::pair<Tensor, Tensor> tensors() const {
    const auto n = static_cast<std::int64_t>(labels_.size());
    Tensor bytes = empty({n, 3, 32, 32}, kByte), targets = empty({n}, kLong);
    if (n > 0) std::memcpy(bytes.data_ptr(), bytes_.data(), bytes_.size());
    std::copy(labels_.begin(), labels_.end(), targets.data_ptr<std::int64_t>());
    return {bytes, targets};
  }

 private:
  std::vector<std::uint8_t> bytes_;
  std::vector<std::int64_t> labels_;
};

// Records of labels and pixels, without a header.
void read_binary(const std::string& path, const Layout& layout, Collected& out) {
  const auto content = io::read_file(path);
  const std::size_t record = layout.label_bytes + kImage;
  const std::string what = athanor::detail::str("'", path, "'");
  ATHANOR_CHECK_TYPE(IoError, !content.empty() && content.size() % record == 0, what, ": not a file of ", layout.name,
                     ": its ", content.size(), " bytes are no multiple of ", record);
  const auto* at = reinterpret_cast<const std::uint8_t*>(content.data());
  for (std::size_t i = 0; i < content.size() / record; ++i, at += record)
    out.add(at + layout.label_bytes, at[layout.label], layout.classes, what);
}

void read_python(const std::string& path, const Layout& layout, Collected& out) {
  const std::string what = athanor::detail::str("'", path, "'");
  const IValue batch = io::unpickle(io::read_file(path), what);
  const IValue* data = batch.isGenericDict() ? batch.toGenericDict().find("data") : nullptr;
  const IValue* labels = batch.isGenericDict() ? batch.toGenericDict().find(layout.python_label) : nullptr;
  ATHANOR_CHECK_TYPE(IoError, data && data->isTensor() && labels && labels->isList(), what, ": not a file of ",
                     layout.name, ": expected a dict with 'data' and '", layout.python_label, "'");
  const Tensor images = data->toTensor().contiguous();
  const auto& list = labels->toListRef();
  ATHANOR_CHECK_TYPE(IoError,
                     images.dtype() == kByte && images.dim() == 2 &&
                         images.size(1) == static_cast<std::int64_t>(kImage) &&
                         images.size(0) == static_cast<std::int64_t>(list.size()),
                     what, ": ", images.sizes(), " values of dtype ", images.dtype(), " for ", list.size(),
                     " labels, expected bytes (N, 3072)");
  if (list.empty()) return;
  const auto* at = images.data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < list.size(); ++i, at += kImage) {
    ATHANOR_CHECK_TYPE(IoError, list[i].isInt(), what, ": label ", i, " is no integer");
    out.add(at, list[i].toInt(), layout.classes, what);
  }
}

std::pair<Tensor, Tensor> read(const std::string& root, const Layout& layout) {
  const fs::path base(root);
  std::error_code ignored;
  Collected out;
  for (const fs::path& folder : {base, base / layout.binary_folder, base / layout.python_folder})
    for (const char* ending : {".bin", ""}) {
      if (!fs::is_regular_file(folder / (layout.files[0] + ending), ignored)) continue;
      for (const std::string& file : layout.files) {
        const std::string path = (folder / (file + ending)).string();
        *ending ? read_binary(path, layout, out) : read_python(path, layout, out);
      }
      return out.tensors();
    }
  ATHANOR_THROW(IoError, layout.name, ": no ", layout.files[0], ".bin or ", layout.files[0], " in '", root, "', its ",
                layout.binary_folder, " or its ", layout.python_folder,
                "; unpack the archive from https://www.cs.toronto.edu/~kriz/cifar.html there");
}

}  // namespace

Example<> CIFAR::get(std::size_t index) {
  const NoGradGuard off;
  ATHANOR_CHECK_INDEX(index < *size(), "CIFAR: index ", index, " is out of range for ", *size(), " examples");
  const auto i = static_cast<std::int64_t>(index);
  return {detail::to_floats(content_->bytes.select(0, i)), content_->targets.select(0, i)};
}

Example<> CIFAR::get_stacked(ArrayRef<std::size_t> indices) {
  const NoGradGuard off;
  return {detail::to_floats(detail::gather_rows(content_->bytes, indices)),
          detail::gather_rows(content_->targets, indices)};
}

CIFAR10::CIFAR10(const std::string& root, Mode mode)
    : CIFAR([&] {
        const bool train = mode == Mode::kTrain;
        std::vector<std::string> files = {"test_batch"};
        if (train) files = {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"};
        auto [bytes, targets] =
            read(root, {"CIFAR10", files, "cifar-10-batches-bin", "cifar-10-batches-py", 1, 0, "labels", 10});
        return Content{bytes, targets};
      }()) {}

CIFAR100::CIFAR100(const std::string& root, Mode mode, Labels labels)
    : CIFAR([&] {
        const bool fine = labels == Labels::kFine;
        auto [bytes, targets] = read(root, {"CIFAR100",
                                            {mode == Mode::kTrain ? "train" : "test"},
                                            "cifar-100-binary",
                                            "cifar-100-python",
                                            2,
                                            fine ? std::size_t{1} : std::size_t{0},
                                            fine ? "fine_labels" : "coarse_labels",
                                            fine ? 100 : 20});
        return Content{bytes, targets};
      }()) {}

}  // namespace athanor::data::datasets

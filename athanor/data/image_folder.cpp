#include "athanor/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <set>

namespace athanor::data::datasets {

namespace {

namespace fs = std::filesystem;

enum class Kind { Image, OtherImage, NoImage };

Kind kind_of(const fs::path& file) {
  static constexpr const char* kRead[] = {".png", ".jpg", ".jpeg"};
  static constexpr const char* kOther[] = {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};
  std::string ending = file.extension().string();
  for (char& c : ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (std::ranges::count(kRead, ending) > 0) return Kind::Image;
  return std::ranges::count(kOther, ending) > 0 ? Kind::OtherImage : Kind::NoImage;
}

// Folders sorted by path, files in each by name: the order of Python's sorted(os.walk(…)).
class Walk {
 public:
  explicit Walk(const ImageFolder::IsValidFile& is_valid) : is_valid_(is_valid) {}

  std::vector<std::string> run(const fs::path& folder) {
    visit(folder);
    std::vector<std::string> all;
    for (auto& [name, files] : by_folder_) {
      std::ranges::sort(files);
      for (const std::string& file : files) all.push_back((fs::path(name) / file).string());
    }
    return all;
  }

 private:
  void visit(const fs::path& folder) {
    // Links may lead back up.
    if (!seen_.insert(fs::canonical(folder).string()).second) return;
    for (const auto& entry : fs::directory_iterator(folder)) {
      std::error_code gone;
      if (entry.is_directory(gone))
        visit(entry.path());
      else if (wanted(entry.path()))
        by_folder_[folder.string()].push_back(entry.path().filename().string());
    }
  }
  bool wanted(const fs::path& file) const {
    if (is_valid_) return is_valid_(file.string());
    const Kind kind = kind_of(file);
    ATHANOR_CHECK_TYPE(IoError, kind != Kind::OtherImage, "ImageFolder: '", file.string(),
                       "' is in a format that is not read here; turn it into PNG or JPEG, or leave it out by "
                       "is_valid_file");
    return kind == Kind::Image;
  }

  const ImageFolder::IsValidFile& is_valid_;
  std::set<std::string> seen_;
  std::map<std::string, std::vector<std::string>> by_folder_;
};

std::vector<std::string> folders_in(const std::string& root) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error))
    if (at->is_directory()) names.push_back(at->path().filename().string());
  ATHANOR_CHECK_TYPE(IoError, !error, "ImageFolder: cannot read folder '", root, "': ", error.message());
  ATHANOR_CHECK_TYPE(IoError, !names.empty(), "ImageFolder: no class folders in '", root,
                     "'; expected root/class/image.png");
  std::ranges::sort(names);
  return names;
}

}  // namespace

ImageFolder::ImageFolder(const std::string& root, io::ImageMode mode, const IsValidFile& is_valid_file) : mode_(mode) {
  auto content = std::make_shared<Content>();
  content->classes = folders_in(root);
  for (std::size_t c = 0; c < content->classes.size(); ++c) {
    const auto label = static_cast<std::int64_t>(c);
    const std::string& name = content->classes[c];
    content->class_to_idx[name] = label;
    try {
      const auto files = Walk(is_valid_file).run(fs::path(root) / name);
      ATHANOR_CHECK_TYPE(IoError, !files.empty(), "ImageFolder: no PNG or JPEG images in the class folder '",
                         (fs::path(root) / name).string(), "'");
      for (const std::string& file : files) content->samples.emplace_back(file, label);
    } catch (const fs::filesystem_error& e) {
      ATHANOR_THROW(IoError, "ImageFolder: ", e.what());
    }
  }
  content_ = std::move(content);
}

Example<> ImageFolder::get(std::size_t index) {
  ATHANOR_CHECK_INDEX(index < content_->samples.size(), "ImageFolder: index ", index, " is out of range for ",
                      content_->samples.size(), " images");
  const auto& [path, label] = content_->samples[index];
  return {io::read_image(path, mode_), scalar_tensor(label, kLong)};
}

std::vector<std::int64_t> ImageFolder::targets() const {
  std::vector<std::int64_t> labels;
  for (const auto& [path, label] : content_->samples) labels.push_back(label);
  return labels;
}

}  // namespace athanor::data::datasets

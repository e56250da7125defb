#include "athanor/data/image_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "athanor/data/data_loader.h"
#include "athanor/data/image_transforms.h"
#include "athanor/ops/factory.h"
#include "io/helpers.h"
#include "io/image_builder.h"

namespace athanor::data::datasets {

namespace {

using io::error_of;
using namespace std::string_literals;
namespace fs = std::filesystem;

// zebra/1.png, ant/a.JPG, ant/deep/b.png and something that is no image.
class ImageFolderTest : public testing::Test {
 protected:
  ImageFolderTest() {
    fs::create_directories(folder / "zebra");
    fs::create_directories(folder / "ant/deep");
    io::write_file(folder / "zebra/1.png", io::png_file(2, 1, 8, 0, "\0\1\2"s));
    io::write_file(folder / "ant/deep/b.png", io::png_file(1, 1, 8, 2, "\0\5\6\7"s));
    io::write_file(folder / "ant/a.JPG", io::jpeg_file(8, 8, 3, std::vector<std::uint8_t>(192, 100)));
    io::write_file(folder / "ant/notes.txt", "none");
    io::write_file(folder / "readme", "none");
  }
  io::TempFolder folder;
};

}  // namespace

TEST_F(ImageFolderTest, ClassesAreTheFoldersInOrder) {
  ImageFolder images(folder.path());
  EXPECT_EQ(images.classes(), (std::vector<std::string>{"ant", "zebra"}));
  EXPECT_EQ(images.class_to_idx().at("zebra"), 1);
  EXPECT_EQ(images.targets(), (std::vector<std::int64_t>{0, 0, 1}));
  EXPECT_EQ(images.samples()[0].first, folder / "ant/a.JPG");
  EXPECT_EQ(images.samples()[1].first, folder / "ant/deep/b.png");
  EXPECT_EQ(*images.size(), 3U);
  const auto zebra = images.get(2);
  EXPECT_TRUE(equal(zebra.data, tensor({1, 2, 1, 2, 1, 2}, kByte).view({3, 1, 2})));
  EXPECT_EQ(zebra.target.item<std::int64_t>(), 1);
  EXPECT_EQ(ImageFolder(folder.path(), io::ImageMode::Unchanged).get(2).data.size(0), 1);
  EXPECT_THROW(images.get(3), IndexError);
}

TEST_F(ImageFolderTest, IsDecodedByTheLoadersWorkers) {
  for (const std::size_t workers : {0U, 2U}) {
    auto loader = make_data_loader<samplers::SequentialSampler>(ImageFolder(folder.path())
                                                                    .map(transforms::Resize<>(4, 4))
                                                                    .map(transforms::ToTensor<>())
                                                                    .map(transforms::Stack<>()),
                                                                DataLoaderOptions(3).workers(workers));
    auto batch = *loader->begin();
    EXPECT_EQ(batch.data.sizes().vec(), (std::vector<std::int64_t>{3, 3, 4, 4}));
    EXPECT_TRUE(equal(batch.target, tensor({0, 0, 1}, kLong)));
    EXPECT_NEAR(batch.data[0][0][0][0].item<float>(), 100 / 255.0, 0.01);
  }
}

TEST_F(ImageFolderTest, DamagedImagesAreNamedThroughTheLoader) {
  io::write_file(folder / "ant/deep/b.png", io::png_file(1, 1, 8, 2, "\0\5\6\7"s).substr(0, 45));
  auto loader = make_data_loader<samplers::SequentialSampler>(ImageFolder(folder.path()).map(transforms::Stack<>()),
                                                              DataLoaderOptions(1).workers(1));
  const std::string what = error_of<WorkerException>([&] {
    for (auto& batch : *loader) (void)batch;
  });
  EXPECT_CONTAINS(what, "ant/deep/b.png': not a valid PNG image");
  EXPECT_CONTAINS(what, "samples [1]");
}

TEST_F(ImageFolderTest, RefusesFoldersThatAreNoDataSet) {
  EXPECT_CONTAINS(error_of([&] { ImageFolder images(folder / "nowhere"); }), "nowhere");
  EXPECT_CONTAINS(error_of([&] { ImageFolder images(folder / "zebra"); }), "no class folders");
  fs::create_directories(folder / "bee");
  EXPECT_CONTAINS(error_of([&] { ImageFolder images(folder.path()); }), "bee");
  io::write_file(folder / "bee/b.webp", "RIFF");
  EXPECT_CONTAINS(error_of([&] { ImageFolder images(folder.path()); }), "b.webp");
  ImageFolder texts(folder.path(), io::ImageMode::Rgb, [](const std::string& path) {
    return path.ends_with(".txt") || path.ends_with(".webp") || path.ends_with("1.png");
  });
  EXPECT_EQ(*texts.size(), 3U);
}

TEST_F(ImageFolderTest, LinksThatLeadUpAreFollowedOnce) {
  fs::create_directory_symlink(folder / "ant", folder / "ant/deep/up");
  EXPECT_EQ(*ImageFolder(folder.path()).size(), 3U);
}

}  // namespace athanor::data::datasets

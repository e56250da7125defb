#include "athanor/data/chunk_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "athanor/data/data_loader.h"
#include "athanor/io/archive.h"

namespace athanor::chunk_dataset_test {
namespace {

using data::datasets::ChunkDataset;
using data::datasets::ChunkDatasetOptions;
using data::samplers::RandomSampler;
using data::samplers::SequentialSampler;
using testing::ElementsAre;
using testing::HasSubstr;

/// Chunk i holds `sizes[i]` numbers; all are different.
struct Reader : data::datasets::ChunkDataReader<int> {
  explicit Reader(std::vector<int> sizes) : sizes(std::move(sizes)) {}
  std::vector<int> read_chunk(std::size_t index) override {
    ATHANOR_CHECK(sizes[index] >= 0, "chunk ", index, " is broken");
    std::vector<int> chunk;
    for (int i = 0; i < sizes[index]; ++i) chunk.push_back(static_cast<int>(index) * 100 + i);
    return chunk;
  }
  std::size_t chunk_count() override { return sizes.size(); }
  void reset() override {}
  std::vector<int> sizes;
};

template <class Chunks = SequentialSampler, class Examples = SequentialSampler>
auto chunks_of(std::vector<int> sizes, ChunkDatasetOptions options,
               std::function<void(std::vector<int>&)> preprocess = nullptr) {
  return data::datasets::make_shared_dataset<ChunkDataset<Reader, Chunks, Examples>>(
      Reader(std::move(sizes)), Chunks(0), Examples(0), options, std::move(preprocess));
}

template <class DatasetType>
std::vector<std::vector<int>> epoch(DatasetType dataset, std::size_t batch_size, std::size_t workers = 0) {
  auto loader = data::make_data_loader(dataset, data::DataLoaderOptions(batch_size).workers(workers));
  std::vector<std::vector<int>> batches;
  for (const auto& batch : *loader) batches.push_back(batch);
  return batches;
}

TEST(ChunkDataset, CutsBatchesAcrossChunks) {
  const auto dataset = chunks_of({3, 0, 4}, ChunkDatasetOptions(1, 5, 5));
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(epoch(dataset, 5), ElementsAre(ElementsAre(0, 1, 2, 200, 201), ElementsAre(202, 203)));
  EXPECT_TRUE(epoch(chunks_of({0}, ChunkDatasetOptions(1, 5)), 5).empty());
}

TEST(ChunkDataset, YieldsEveryExampleOnceWithManyReadersAndWorkers) {
  for (const std::size_t workers : {0, 2}) {
    const auto dataset = chunks_of<RandomSampler, RandomSampler>({10, 5, 20, 1}, ChunkDatasetOptions(3, 7, 8, 2));
    std::multiset<int> seen;
    for (const auto& batch : epoch(dataset, 7, workers)) seen.insert(batch.begin(), batch.end());
    EXPECT_EQ(seen.size(), 36U);
    EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), 36U);
  }
}

TEST(ChunkDataset, PreprocessesGroupsOfChunks) {
  const auto dataset = chunks_of({2, 2, 1}, ChunkDatasetOptions(1, 4, 4, 2),
                                 [](std::vector<int>& group) { std::reverse(group.begin(), group.end()); });
  EXPECT_THAT(epoch(dataset, 4), ElementsAre(ElementsAre(101, 100, 1, 0), ElementsAre(200)));
}

TEST(ChunkDataset, HandsOnWhatTheReaderThrows) {
  const auto dataset = chunks_of({2, -1}, ChunkDatasetOptions(1, 2, 2));
  std::string message;
  try {
    epoch(dataset, 2);
  } catch (const Error& e) {
    message = e.what();
  }
  EXPECT_THAT(message, HasSubstr("chunk 1 is broken"));
}

TEST(ChunkDataset, CanBeAbandonedWhileReadersWait) {
  auto dataset = chunks_of({100, 100, 100}, ChunkDatasetOptions(2, 5, 10));
  auto loader = data::make_data_loader(dataset, data::DataLoaderOptions(5));
  EXPECT_EQ((*loader->begin()).size(), 5U);
}

TEST(ChunkDataset, GoesOnAtTheSavedChunk) {
  SequentialSampler ahead(0);
  ahead.reset(3);
  ahead.next(2);
  serialize::OutputArchive out;
  ahead.save(out);
  std::stringstream bytes;
  out.save_to(bytes);
  serialize::InputArchive in;
  in.load_from(bytes);
  auto dataset = chunks_of({2, 2, 2}, ChunkDatasetOptions(1, 2));
  dataset->load(in);
  EXPECT_THAT(epoch(dataset, 2), ElementsAre(ElementsAre(200, 201)));
  EXPECT_EQ(epoch(dataset, 2).size(), 3U);
}

TEST(ChunkDataset, RefusesOptionsThatCannotWork) {
  EXPECT_THROW(ChunkDatasetOptions(0, 1), Error);
  EXPECT_THROW(ChunkDatasetOptions(1, 0), Error);
  EXPECT_THROW(ChunkDatasetOptions(1, 1, 0), Error);
  EXPECT_THROW(ChunkDatasetOptions(1, 10, 5), Error);
  EXPECT_THROW(ChunkDatasetOptions(1, 1, 1, 0), Error);
  auto dataset = chunks_of({4}, ChunkDatasetOptions(1, 2));
  EXPECT_THROW(epoch(dataset, 3), Error);
}

}  // namespace
}  // namespace athanor::chunk_dataset_test

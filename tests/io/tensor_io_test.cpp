#include "athanor/io/tensor_io.h"

#include "athanor/io/npy.h"
#include "athanor/ops/factory.h"
#include "helpers.h"
#include "python.h"

namespace athanor::io::tensor_io_test {

namespace {

constexpr DType kAllTypes[] = {kByte, kChar, kShort, kInt, kLong, kHalf, kFloat, kDouble, kBool, kBFloat16};

// 0, 1, 2, … in the given dtype.
Tensor counted(DType dtype, IntArrayRef sizes) {
  const Array a = empty_array(dtype, sizes);
  dispatch_all(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t i = 0; i < a.numel(); ++i)
      reinterpret_cast<T*>(a.data)[i] =
          static_cast<T>(dtype == kBool ? static_cast<float>(i % 2) : static_cast<float>(i));
  });
  return to_tensor(a);
}

std::string values_text(const Tensor& t) {
  const Array a = to_array(t, "test");
  return text_of({a.data, a.nbytes()});
}

std::vector<std::int64_t> sizes_of(const Tensor& t) { return t.sizes().vec(); }

}  // namespace

TEST(TensorIo, TensorsShareTheArraysMemoryAndKeepIt) {
  Tensor t;
  std::weak_ptr<void> owner;
  {
    const Array a = empty_array(kFloat, {2, 2});
    a.values<float>()[3] = 7;
    owner = a.owner;
    t = to_tensor(a);
    EXPECT_EQ(t.data_ptr(), a.data);
  }
  EXPECT_FALSE(owner.expired());
  EXPECT_EQ(t.data_ptr<float>()[3], 7);
  t.reset();
  EXPECT_TRUE(owner.expired());
}

TEST(TensorIo, ArraysShareTheTensorsMemoryIfTheyCan) {
  const Tensor t = counted(kInt, {2, 3});
  EXPECT_EQ(to_array(t, "x").data, t.data_ptr());
  const Array transposed = to_array(t.transpose(0, 1), "x");
  EXPECT_EQ(transposed.sizes, (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(transposed.values<std::int32_t>()[1], 3);
  EXPECT_THROW(to_array(Tensor(), "x"), ValueError);
}

TEST(TensorIo, SafetensorsRoundTripEveryDtypeAndShape) {
  const TempFolder folder;
  NamedTensors tensors;
  for (const DType t : kAllTypes)
    for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{}, {3}, {0, 7}, {2, 3, 5}})
      tensors.emplace_back("t" + std::to_string(tensors.size()), counted(t, sizes));
  save_safetensors(folder / "m", tensors, {{"epoch", "3"}});
  for (const Loading loading : {Loading::Mapped, Loading::Copied}) {
    Metadata metadata;
    const NamedTensors loaded = load_safetensors(folder / "m", &metadata, loading);
    EXPECT_EQ(metadata, (Metadata{{"epoch", "3"}}));
    ASSERT_EQ(loaded.size(), tensors.size());
    const std::map<std::string, Tensor> by_name(loaded.begin(), loaded.end());
    for (const auto& [name, t] : tensors) {
      const Tensor& u = by_name.at(name);
      EXPECT_EQ(u.dtype(), t.dtype());
      EXPECT_EQ(sizes_of(u), sizes_of(t));
      EXPECT_TRUE(values_text(u) == values_text(t)) << name;
      EXPECT_FALSE(u.requires_grad());
    }
  }
}

TEST(TensorIo, MappedTensorsCanBeChangedWithoutChangingTheFile) {
  const TempFolder folder;
  save_safetensors(folder / "m", {{"w", counted(kFloat, {4})}});
  const std::string before = read_text(folder / "m");
  const Tensor w = load_safetensors(folder / "m")[0].second;
  w.data_ptr<float>()[0] = 42;
  EXPECT_EQ(w.data_ptr<float>()[0], 42);
  EXPECT_EQ(read_text(folder / "m"), before);
  save_safetensors(folder / "m", {{"w", w}});
  EXPECT_EQ(load_safetensors(folder / "m")[0].second.data_ptr<float>()[0], 42);
}

TEST(TensorIo, ParametersViewsAndSharedMemoryAreSavedByValue) {
  const TempFolder folder;
  Tensor w = counted(kFloat, {3, 4});
  w.requires_grad_();
  save_safetensors(folder / "m", {{"w", w}, {"tied", w}, {"row", w.select(0, 1)}, {"wt", w.transpose(0, 1)}});
  const NamedTensors loaded = load_safetensors(folder / "m");
  const std::map<std::string, Tensor> by_name(loaded.begin(), loaded.end());
  EXPECT_EQ(by_name.size(), 4U);
  EXPECT_EQ(values_text(by_name.at("w")), values_text(by_name.at("tied")));
  EXPECT_EQ(by_name.at("row").data_ptr<float>()[0], 4);
  EXPECT_EQ(by_name.at("wt").data_ptr<float>()[1], 4);
}

TEST(TensorIo, UndefinedTensorsAreNamed) {
  const TempFolder folder;
  EXPECT_CONTAINS(error_of<ValueError>([&] {
                    save_safetensors(folder / "m", {{"fc.bias", Tensor()}});
                  }),
                  "save_safetensors: 'fc.bias': undefined tensor");
  EXPECT_TRUE(folder.names().empty());
}

TEST(TensorIo, NpyRoundTripsEveryDtype) {
  const TempFolder folder;
  for (const DType t : kAllTypes) {
    if (t == kBFloat16) continue;
    const Tensor a = counted(t, {2, 3});
    save_npy(folder / "a.npy", a.transpose(0, 1));
    for (const Loading loading : {Loading::Mapped, Loading::Copied}) {
      const Tensor b = load_npy(folder / "a.npy", loading);
      EXPECT_EQ(sizes_of(b), (std::vector<std::int64_t>{3, 2}));
      EXPECT_TRUE(values_text(b) == values_text(a.transpose(0, 1))) << dtype_name(t);
    }
  }
  EXPECT_CONTAINS(error_of<TypeError>([&] { save_npy(folder / "b.npy", counted(kBFloat16, {1})); }), "no bfloat16");
}

TEST(TensorIo, MappedFortranFileIsATransposedView) {
  const TempFolder folder;
  std::string header = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string text("\x93NUMPY\1\0", 8);
  text += static_cast<char>(header.size());
  text += '\0';
  text += header;
  const float values[] = {0, 3, 1, 4, 2, 5};
  text.append(reinterpret_cast<const char*>(values), sizeof values);
  write_file(folder / "f.npy", text);
  const Tensor mapped = load_npy(folder / "f.npy", Loading::Mapped);
  EXPECT_EQ(mapped.strides().vec(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(values_text(mapped), values_text(counted(kFloat, {2, 3})));
  EXPECT_TRUE(load_npy(folder / "f.npy").is_contiguous());
}

TEST(TensorIo, IdxRoundTrips) {
  const TempFolder folder;
  for (const char* name : {"a", "a.gz"}) {
    save_idx(folder / name, counted(kByte, {2, 3}));
    EXPECT_EQ(values_text(load_idx(folder / name)), values_text(counted(kByte, {2, 3})));
  }
}

TEST(TensorIo, PyTorchReadsAndWritesTheSameFiles) {
  SKIP_WITHOUT_PYTHON("torch, safetensors.torch");
  const TempFolder folder;
  NamedTensors tensors;
  for (const DType t : kAllTypes) tensors.emplace_back(dtype_name(t), counted(t, {2, 3}));
  save_safetensors(folder / "ours", tensors, {{"format", "pt"}});
  ASSERT_TRUE(run_python(folder, "torch, safetensors.torch", R"(
import torch, safetensors.torch as st
ours = st.load_file('ours')
assert len(ours) == 10, ours.keys()
for name, t in ours.items():
    assert t.dtype == getattr(torch, name), (name, t.dtype)
    expected = torch.arange(6) % 2 if name == 'bool' else torch.arange(6)
    assert torch.equal(t, expected.to(t.dtype).reshape(2, 3)), (name, t)
st.save_file(ours, 'theirs', metadata={'format': 'pt'})
)"));
  EXPECT_TRUE(read_text(folder / "theirs") == read_text(folder / "ours"));
  EXPECT_EQ(load_safetensors(folder / "theirs").size(), 10U);
}

}  // namespace athanor::io::tensor_io_test

#include "athanor/io/pt.h"

#include <gtest/gtest.h>

#include <sstream>

#include "athanor/io/archive.h"
#include "athanor/io/zip.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/algorithms.h"
#include "helpers.h"
#include "io/pt_builder.h"
#include "python.h"

namespace athanor::io {

namespace {

// A tensor as PyTorch writes it: storage "0" of floats.
std::string tensor_pickle(const std::string& geometry, const std::string& type = "FloatStorage",
                          const std::string& key = "0", int numel = 6) {
  return Pickle::tensor(geometry, type, key, numel);
}

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

IValue load(const std::string& pickle, const std::map<std::string, std::string>& storages = {}) {
  return parse_pt(bytes_of(pt_file(pickle, storages)), "'x.pt'");
}

}  // namespace

TEST(LoadPt, ReadsAStridedTensorOfAStorage) {
  // torch.arange(6.).view(2, 3).t()
  const IValue v = load(Pickle::whole(tensor_pickle("K\0K\3K\2\x86K\1K\3\x86"s)), {{"0", floats({0, 1, 2, 3, 4, 5})}});
  const Tensor& t = v.toTensor();
  EXPECT_EQ(t.sizes().vec(), (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(t.strides().vec(), (std::vector<std::int64_t>{1, 3}));
  EXPECT_TRUE(equal(t, arange(6, kFloat).view({2, 3}).t()));
  EXPECT_FALSE(t.requires_grad());
}

TEST(LoadPt, TensorsOfOneStorageShareIt) {
  const std::string first = tensor_pickle("K\0K\6\x85K\1\x85"s), second = tensor_pickle("K\2K\2\x85K\2\x85"s);
  const IValue v = load(Pickle::whole("](" + first + second + "e"), {{"0", floats({0, 1, 2, 3, 4, 5})}});
  Tensor a = v[0].toTensor(), b = v[1].toTensor();
  EXPECT_TRUE(a.is_alias_of(b));
  EXPECT_TRUE(equal(b, tensor({2.0F, 4.0F})));
  a.fill_(7);
  EXPECT_TRUE(equal(b, tensor({7.0F, 7.0F})));
}

TEST(LoadPt, ReadsEveryDtypeThereIs) {
  const std::vector<std::pair<std::string, DType>> types = {
      {"FloatStorage", kFloat}, {"DoubleStorage", kDouble}, {"HalfStorage", kHalf},   {"BFloat16Storage", kBFloat16},
      {"LongStorage", kLong},   {"IntStorage", kInt},       {"ShortStorage", kShort}, {"CharStorage", kChar},
      {"ByteStorage", kByte},   {"BoolStorage", kBool}};
  for (const auto& [name, dtype] : types) {
    const Tensor expected = tensor({1, 0, 1}, kLong).to(dtype);
    const std::string bytes(static_cast<const char*>(expected.data_ptr()), expected.nbytes());
    const Tensor t = load(Pickle::whole(tensor_pickle("K\0K\3\x85K\1\x85"s, name, "0", 3)), {{"0", bytes}}).toTensor();
    EXPECT_EQ(t.dtype(), dtype) << name;
    EXPECT_TRUE(equal(t, expected)) << name;
  }
}

TEST(LoadPt, ReadsScalarsEmptyTensorsParametersAndNumbers) {
  const std::string scalar = tensor_pickle("K\5))"s),
                    none = tensor_pickle("K\0K\0K\3\x86K\3K\1\x86"s, "FloatStorage", "1", 0);
  const std::string parameter = "ctorch._utils\n_rebuild_parameter\n" + tensor_pickle("K\0K\2\x85K\1\x85"s) +
                                "\x88"
                                "ccollections\nOrderedDict\n)R\x87R";
  const std::string pickle = Pickle::whole(
      "}(" + Pickle::text("scalar") + scalar + Pickle::text("empty") + none + Pickle::text("parameter") + parameter +
      Pickle::text("lr") + "G\x3f\xe0\0\0\0\0\0\0"s + Pickle::text("betas") + "J\xff\xff\xff\xff\x88N\x87" +
      Pickle::text("big") + "\x8a\5\0\0\0\0\1"s + Pickle::text("negative") + "\x8a\2\0\x80"s + "K\3" +
      Pickle::text("int key") + Pickle::text("size") + "ctorch\nSize\nK\1K\2\x86\x85R" + Pickle::text("dtype") +
      "ctorch\nfloat32\n" + Pickle::text("device") + "ctorch\ndevice\n" + Pickle::text("cuda") + "K\1\x86R" + "u}" +
      Pickle::text("_metadata") + "Nsb");
  const IValue v = load(pickle, {{"0", floats({0, 1, 2, 3, 4, 5})}, {"1", ""}});
  EXPECT_EQ(v["scalar"].toTensor().dim(), 0);
  EXPECT_EQ(v["scalar"].toTensor().item<float>(), 5);
  EXPECT_EQ(v["empty"].toTensor().sizes().vec(), (std::vector<std::int64_t>{0, 3}));
  EXPECT_TRUE(v["parameter"].toTensor().requires_grad());
  EXPECT_TRUE(v["parameter"].toTensor().is_leaf());
  EXPECT_EQ(v["lr"].toDouble(), 0.5);
  EXPECT_EQ(v["betas"][0].toInt(), -1);
  EXPECT_TRUE(v["betas"][1].toBool());
  EXPECT_TRUE(v["betas"][2].isNone());
  EXPECT_EQ(v["big"].toInt(), std::int64_t{1} << 32);
  EXPECT_EQ(v["negative"].toInt(), -32768);
  EXPECT_EQ(v[3].toStringRef(), "int key");
  EXPECT_EQ(v["size"][1].toInt(), 2);
  EXPECT_EQ(v["dtype"].toStringRef(), "torch.float32");
  EXPECT_EQ(v["device"].toStringRef(), "cuda:1");
  EXPECT_CONTAINS(error_of<IndexError>([&] { v["bias"]; }), "no key 'bias' among its 11: 'scalar'");
  EXPECT_CONTAINS(error_of<TypeError>([&] { v["lr"].toTensor(); }), "Expected Tensor but got Double");
}

TEST(LoadPt, RefusesByNameWhatStateDictsDoNotNeed) {
  EXPECT_CONTAINS(error_of([] { load(Pickle::whole("cos\nsystem\n" + Pickle::text("id") + "\x85R")); }), "os.system");
  EXPECT_CONTAINS(error_of([] { load(Pickle::whole("cbuiltins\neval\n")); }), "builtins.eval");
  EXPECT_CONTAINS(error_of([] { load(Pickle::whole("c__main__\nNet\n)\x81")); }), "save the state_dict()");
  EXPECT_CONTAINS(error_of([] { load(Pickle::whole("S'x'\n")); }), "opcode 'S'");
  EXPECT_CONTAINS(error_of([] { load(Pickle::whole("ctorch\nFloatStorage\n)R")); }), "torch.FloatStorage");
  EXPECT_CONTAINS(
      error_of<TypeError>([] {
        load(Pickle::whole(tensor_pickle("K\0K\1\x85K\1\x85"s, "ComplexFloatStorage", "0", 1)), {{"0", "12345678"}});
      }),
      "complex64, which this library lacks");
}

TEST(LoadPt, RefusesTensorsBeyondTheirStorage) {
  const std::map<std::string, std::string> six = {{"0", floats({0, 1, 2, 3, 4, 5})}};
  for (const std::string& geometry :
       {"K\0K\7\x85K\1\x85"s, "K\1K\6\x85K\1\x85"s, "K\0K\2K\4\x86K\3K\1\x86"s, "K\6))"s,
        "K\0J\xff\xff\xff\xff\x85K\1\x85"s, "J\xff\xff\xff\xffK\1\x85K\1\x85"s,
        "K\0\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85"s})
    error_of([&] { load(Pickle::whole(tensor_pickle(geometry)), six); });
  EXPECT_CONTAINS(
      error_of([&] { load(Pickle::whole(tensor_pickle("K\0K\1\x85K\1\x85"s, "FloatStorage", "0", 7)), six); }),
      "storage '0' should have 7 elements, the file holds 6");
  EXPECT_CONTAINS(error_of([&] { load(Pickle::whole(tensor_pickle("K\0K\1\x85K\1\x85"s, "FloatStorage", "9")), six); }),
                  "storage '9' is not in the archive");
  EXPECT_CONTAINS(error_of([&] {
                    load(Pickle::whole(tensor_pickle("K\0K\1\x85K\1\x85"s, "BoolStorage", "0", 1)), {{"0", "\2"}});
                  }),
                  "'x.pt'");
}

TEST(LoadPt, RefusesValuesThatContainThemselvesOrNestTooDeep) {
  EXPECT_CONTAINS(error_of([] { load(Pickle::whole("]q\0h\0a"s)); }), "contains itself");
  EXPECT_CONTAINS(error_of([] { load(Pickle::whole("}q\0K\1h\0s"s)); }), "contains itself");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "(";
  for (int i = 0; i < 100000; ++i) deep += "t";
  EXPECT_CONTAINS(error_of([&] { load(Pickle::whole(deep)); }), "nested too deep");
  // The same, dropped on the way: nothing may be destroyed by recursion.
  EXPECT_TRUE(load(Pickle::whole("}" + deep + "b")).isGenericDict());
  // 2^100 elements if every list were visited wherever it stands.
  std::string wide = "(]q\0"s;
  for (int i = 0; i < 100; ++i) wide += "h\0h\0\x86q\0"s;
  EXPECT_TRUE(load(Pickle::whole(wide + "t")).isTuple());
}

TEST(LoadPt, RefusesTruncatedPickles) {
  const std::string whole = Pickle::whole("}(" + Pickle::text("a") + tensor_pickle("K\0K\6\x85K\1\x85"s) + "u");
  for (std::size_t n = 0; n < whole.size(); ++n)
    error_of([&] { load(whole.substr(0, n), {{"0", floats({0, 1, 2, 3, 4, 5})}}); });
}

TEST(LoadPt, RefusesOtherFilesAndSaysWhatToDo) {
  const auto message = [](const std::string& content) {
    return error_of([&] { parse_pt(bytes_of(content), "'x.pt'"); });
  };
  EXPECT_CONTAINS(message("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."), "PyTorch before 1.6");
  EXPECT_CONTAINS(message(std::string(257, '\0') + "ustar" + std::string(300, '\0')), "PyTorch before 1.6");
  EXPECT_CONTAINS(message("hello"), "neither a ZIP archive");
  EXPECT_CONTAINS(message(""), "neither a ZIP archive");
  EXPECT_CONTAINS(message(zip_file({{"x/constants.pkl", ""}, {"x/data.pkl", ""}})), "TorchScript");
  EXPECT_CONTAINS(message(zip_file({{"x/y", ""}})), "without data.pkl");
}

TEST(LoadPt, TurnsBytesOfBigEndianMachines) {
  const std::string pickle = Pickle::whole(tensor_pickle("K\0K\2\x85K\1\x85"s, "IntStorage", "0", 2));
  const std::string file =
      zip_file({{"m/data.pkl", pickle}, {"m/byteorder", "big"}, {"m/data/0", "\0\0\0\1\1\0\0\0"s}});
  EXPECT_TRUE(equal(parse_pt(bytes_of(file), "x").toTensor(), tensor({1, 1 << 24}, kInt)));
}

TEST(SavePt, IsReadBackWithSharingTypesAndOrder) {
  const TempFolder folder;
  const Tensor base = arange(12, kFloat).view({3, 4});
  GenericDict inner;
  inner.insert_or_assign(0, IValue::tuple({0.25, true, IValue()}));
  inner.insert_or_assign("text", "caf\xc3\xa9");
  GenericDict dict;
  dict.insert_or_assign("transposed", base.t());
  dict.insert_or_assign("row", base[1]);
  dict.insert_or_assign("half", tensor({1.5, -2.0}).to(kBFloat16));
  dict.insert_or_assign("scalar", tensor(3.0));
  dict.insert_or_assign("empty", empty({0, 2}, kLong));
  dict.insert_or_assign("numbers", std::vector<IValue>{1, -1, 255, 256, 1LL << 40, INT64_MIN});
  dict.insert_or_assign("inner", inner);
  for (const Loading loading : {Loading::Mapped, Loading::Copied}) {
    save_pt(folder / "x.pt", dict);
    const IValue v = load_pt(folder / "x.pt", loading);
    EXPECT_TRUE(equal(v["transposed"].toTensor(), base.t()));
    EXPECT_EQ(v["transposed"].toTensor().strides().vec(), base.t().strides().vec());
    EXPECT_TRUE(v["row"].toTensor().is_alias_of(v["transposed"].toTensor()));
    EXPECT_TRUE(equal(v["row"].toTensor(), base[1]));
    EXPECT_EQ(v["half"].toTensor().dtype(), kBFloat16);
    EXPECT_EQ(v["scalar"].toTensor().dim(), 0);
    EXPECT_EQ(v["empty"].toTensor().sizes().vec(), (std::vector<std::int64_t>{0, 2}));
    EXPECT_EQ(v["numbers"][4].toInt(), 1LL << 40);
    EXPECT_EQ(v["numbers"][5].toInt(), INT64_MIN);
    EXPECT_EQ(v["inner"][0][0].toDouble(), 0.25);
    EXPECT_EQ(v["inner"]["text"].toStringRef(), "caf\xc3\xa9");
    EXPECT_EQ(v.toGenericDict().begin()->key().toStringRef(), "transposed");
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"x.pt"});
}

TEST(SavePt, LeavesWhatWasThereIfTheValueCannotBeWritten) {
  const TempFolder folder;
  save_pt(folder / "x.pt", 1);
  EXPECT_THROW(save_pt(folder / "x.pt", Tensor()), ValueError);
  GenericDict cyclic;
  cyclic.insert_or_assign("self", cyclic);
  EXPECT_THROW(save_pt(folder / "x.pt", cyclic), ValueError);
  EXPECT_EQ(load_pt(folder / "x.pt").toInt(), 1);
  cyclic.insert_or_assign("self", 0);
}

TEST(SavePt, DamageIsSeenWhereBytesAreCopied) {
  const TempFolder folder;
  save_pt(folder / "x.pt", ones({100}));
  std::string bytes = read_text(folder / "x.pt");
  const auto at = bytes.find("\0\0\x80\x3f\0\0\x80\x3f"s);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 1;
  write_file(folder / "x.pt", bytes);
  EXPECT_CONTAINS(error_of([&] { load_pt(folder / "x.pt", Loading::Copied); }), "damaged");
}

TEST(PickleSave, GoesThroughMemory) {
  const auto bytes = pickle_save(std::vector<Tensor>{ones({2}), zeros({3}, kLong)});
  const auto list = pickle_load(bytes).toTensorVector();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_TRUE(equal(list[1], zeros({3}, kLong)));
}

TEST(Modules, LoadPyTorchsFilesStrictOrNot) {
  const TempFolder folder;
  nn::Sequential saved(nn::Linear(2, 3), nn::BatchNorm1d(3)), loaded(nn::Linear(2, 3), nn::BatchNorm1d(3)),
      larger(nn::Linear(2, 3), nn::BatchNorm1d(3), nn::Linear(3, 1));
  save_pt(folder / "x.pt", *saved);
  load_module(folder / "x.pt", *loaded);
  EXPECT_TRUE(equal(loaded->parameters()[0], saved->parameters()[0]));
  manual_seed(7);
  nn::Sequential third(nn::Linear(2, 3), nn::BatchNorm1d(3));
  athanor::load(third, folder / "x.pt");
  EXPECT_TRUE(equal(third->parameters()[0], saved->parameters()[0]));
  std::istringstream stream(read_text(folder / "x.pt"));
  nn::Sequential fourth(nn::Linear(2, 3), nn::BatchNorm1d(3));
  athanor::load(fourth, stream);
  EXPECT_TRUE(equal(fourth->parameters()[0], saved->parameters()[0]));
  EXPECT_THROW(load_module(folder / "x.pt", *larger), Error);
  const auto keys = larger->load_state_dict(to_state_dict(load_pt(folder / "x.pt")), false);
  EXPECT_EQ(keys.missing_keys, (std::vector<std::string>{"2.weight", "2.bias"}));
  GenericDict outer;
  outer.insert_or_assign("model", to_ivalue(saved->state_dict()));
  outer.insert_or_assign("epoch", 3);
  save_pt(folder / "y.pt", outer);
  EXPECT_CONTAINS(error_of<ValueError>([&] { to_state_dict(load_pt(folder / "y.pt")); }), "'model'");
  serialize::InputArchive archive, model;
  archive.load_from(folder / "y.pt");
  std::int64_t epoch = 0;
  archive.read("epoch", epoch);
  EXPECT_EQ(epoch, 3);
  archive.read("model", model);
  third->load(model);
}

TEST(Optimizers, GoOnFromPyTorchsForm) {
  const TempFolder folder;
  const auto step = [](nn::Linear& net, optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    net(ones({4, 2})).pow(2).sum().backward();
    optimizer.step();
  };
  manual_seed(1);
  nn::Linear net(2, 3), other(2, 3);
  optim::Adam adam(net->parameters(), optim::AdamOptions(0.1).betas({0.5, 0.75}).amsgrad(true)),
      loaded(other->parameters());
  step(net, adam);
  GenericDict both;
  both.insert_or_assign("net", to_ivalue(net->state_dict()));
  both.insert_or_assign("adam", to_ivalue(adam));
  save_pt(folder / "x.pt", both);
  const IValue v = load_pt(folder / "x.pt");
  EXPECT_EQ(v["adam"]["param_groups"][0]["betas"][1].toDouble(), 0.75);
  EXPECT_TRUE(v["adam"]["param_groups"][0]["amsgrad"].toBool());
  EXPECT_EQ(v["adam"]["state"][1]["step"].toTensor().item<float>(), 1);
  other->load_state_dict(to_state_dict(v["net"]));
  loaded.load_state_dict(to_optimizer_state(v["adam"]));
  step(net, adam);
  step(other, loaded);
  EXPECT_TRUE(equal(net->weight, other->weight));
  EXPECT_THROW(to_optimizer_state(v["net"]), ValueError);
}

TEST(Zip, ReadsWhatPythonPacked) {
  // zipfile.ZipFile(f, 'w', ZIP_DEFLATED).writestr('a', b'x' * 100) of Python 3.11.
  const TempFolder folder;
  SKIP_WITHOUT_PYTHON("zipfile");
  ASSERT_TRUE(run_python(folder, "zipfile", R"(
import zipfile
with zipfile.ZipFile('x.zip', 'w', zipfile.ZIP_DEFLATED) as z:
    z.writestr('a', b'x' * 100000)
    with z.open('big', 'w', force_zip64=True) as f: f.write(bytes(range(256)) * 10)
    z.writestr('empty', b'')
    z.comment = b'a comment PK'
)"));
  const auto bytes = read_file(folder / "x.zip");
  const ZipReader zip(bytes, "x.zip");
  EXPECT_EQ(text_of(zip.read("a")), std::string(100000, 'x'));
  EXPECT_EQ(zip.read("big").size(), 2560U);
  EXPECT_EQ(zip.read("empty").size(), 0U);
  EXPECT_CONTAINS(error_of([&] { zip.read("a", 1000); }), "the limit is 1000");
  EXPECT_CONTAINS(error_of([&] { zip.read("b"); }), "no ZIP entry 'b'");
  for (std::size_t n = 0; n < bytes.size() - 12; n += 7) error_of([&] { ZipReader(Bytes(bytes).first(n), "x.zip"); });
}

TEST(Zip, WritesBothFormsForPython) {
  const TempFolder folder;
  for (const std::uint64_t large : {std::uint64_t{0xffffffff}, std::uint64_t{0}}) {
    std::string out;
    ZipWriter zip([&](const void* p, std::size_t n) { out.append(static_cast<const char*>(p), n); }, large);
    zip.add("folder/a", bytes_of("hello"));
    zip.add("b", {});
    zip.finish();
    const ZipReader reader(std::as_bytes(std::span(out)), "x");
    EXPECT_EQ(text_of(reader.read("folder/a")), "hello");
    EXPECT_EQ((reader.find("folder/a")->packed.data() - std::as_bytes(std::span(out)).data()) % 64, 0);
    write_file(folder / (large ? "small.zip" : "large.zip"), out);
  }
  SKIP_WITHOUT_PYTHON("zipfile");
  EXPECT_TRUE(run_python(folder, "zipfile", R"(
import zipfile
for name in 'small.zip', 'large.zip':
    z = zipfile.ZipFile(name)
    assert z.testzip() is None
    assert z.read('folder/a') == b'hello' and z.read('b') == b''
)"));
}

TEST(PyTorch, ReadsOursAndWeReadPyTorchs) {
  SKIP_WITHOUT_PYTHON("torch");
  const TempFolder folder;
  GenericDict dict;
  const Tensor base = arange(6, kFloat).view({2, 3});
  dict.insert_or_assign("t", base.t());
  dict.insert_or_assign("row", base[1]);
  dict.insert_or_assign("bf", tensor({1.5, 2.5}).to(kBFloat16));
  dict.insert_or_assign("flag", tensor({1, 0}, kLong).to(kBool));
  dict.insert_or_assign("scalar", tensor(2.0));
  dict.insert_or_assign("empty", empty({0, 3}));
  dict.insert_or_assign("list", std::vector<IValue>{1, 2.5, "x", IValue(), true, 1LL << 40});
  dict.insert_or_assign("tuple", IValue::tuple({0.9, 0.999}));
  dict.insert_or_assign(0, "int key");
  save_pt(folder / "ours.pt", dict);
  nn::Sequential net(nn::Linear(2, 3), nn::BatchNorm1d(3));
  save_pt(folder / "net.pt", *net);
  optim::Adam adam(net->parameters(), optim::AdamOptions(0.01).betas({0.5, 0.75}));
  net->forward(ones({4, 2})).pow(2).sum().backward();
  adam.step();
  save_pt(folder / "adam.pt", to_ivalue(adam));
  ASSERT_TRUE(run_python(folder, "torch", R"(
import torch
# 1.13's restricted reader knows no floats outside tensors, not even those that it wrote itself.
restricted = not torch.__version__.startswith('1.')
d = torch.load('ours.pt', weights_only=restricted)
base = torch.arange(6.).view(2, 3)
assert list(d) == ['t', 'row', 'bf', 'flag', 'scalar', 'empty', 'list', 'tuple', 0]
assert torch.equal(d['t'], base.t()) and d['t'].stride() == (1, 3) and d['t'].data_ptr() + 12 == d['row'].data_ptr()
assert d['bf'].dtype == torch.bfloat16 and d['bf'].tolist() == [1.5, 2.5]
assert d['flag'].tolist() == [True, False] and d['scalar'].shape == () and d['scalar'].item() == 2
assert d['empty'].shape == (0, 3) and d['list'] == [1, 2.5, 'x', None, True, 1 << 40] and d['tuple'] == (0.9, 0.999)
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
net.load_state_dict(torch.load('net.pt'))

torch.manual_seed(0)
opt = torch.optim.Adam(net.parameters(), betas=(0.5, 0.75))
net(torch.ones(4, 2)).sum().backward()
opt.step()
opt.load_state_dict(torch.load('adam.pt', weights_only=restricted))
assert opt.param_groups[0]['betas'] == (0.5, 0.75) and opt.param_groups[0]['lr'] == 0.01
assert opt.state[net[0].weight]['step'] == 1
opt.step()
torch.save({'model': net.state_dict(), 'optimizer': opt.state_dict(), 'epoch': 3}, 'theirs.pt')
for protocol in 2, 3, 4, 5:
    torch.save({'w': net[0].weight, 'list': [torch.ones(2, dtype=torch.bfloat16), torch.Size([1, 2])],
                'sum': net(torch.ones(4, 2)).sum().item(), 's': {1, 2}}, f'p{protocol}.pt', pickle_protocol=protocol)
torch.save(net, 'whole.pt')
torch.save(torch.ones(3), 'legacy.pt', _use_new_zipfile_serialization=False)
torch.jit.save(torch.jit.script(net), 'script.pt')
torch.save(net.state_dict(), 'state.pt')
)"));
  nn::Sequential theirs(nn::Linear(2, 3), nn::BatchNorm1d(3));
  const IValue v = load_pt(folder / "theirs.pt", Loading::Copied);
  theirs->load_state_dict(to_state_dict(v["model"]));
  EXPECT_EQ(v["epoch"].toInt(), 3);
  EXPECT_EQ(v["optimizer"]["param_groups"][0]["betas"][1].toDouble(), 0.75);
  EXPECT_EQ(v["optimizer"]["state"][0]["exp_avg"].toTensor().sizes(), theirs->parameters()[0].sizes());
  optim::Adam resumed(theirs->parameters());
  resumed.load_state_dict(to_optimizer_state(v["optimizer"]));
  EXPECT_EQ(resumed.state_dict().state[0].numbers.at("step"), 2);
  for (const char* name : {"p2.pt", "p3.pt", "p4.pt", "p5.pt"}) {
    const IValue p = load_pt(folder / name);
    EXPECT_TRUE(p["w"].toTensor().requires_grad()) << name;
    EXPECT_TRUE(equal(p["w"].toTensor(), theirs->parameters()[0])) << name;
    EXPECT_EQ(p["list"][0].toTensor().dtype(), kBFloat16);
    EXPECT_EQ(p["s"].elements().size(), 2U);
  }
  athanor::load(theirs, folder / "state.pt");
  EXPECT_CONTAINS(error_of([&] { load_pt(folder / "whole.pt"); }), "torch.nn.modules");
  EXPECT_CONTAINS(error_of([&] { load_pt(folder / "legacy.pt"); }), "PyTorch before 1.6");
  EXPECT_CONTAINS(error_of([&] { load_pt(folder / "script.pt"); }), "TorchScript");
}

}  // namespace athanor::io

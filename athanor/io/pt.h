#pragma once
/// PyTorch's own files, as torch.save writes them and torch.load reads them: a ZIP archive of a pickle and the values
/// of the tensors' storages. Reading runs nothing of what a file asks for (see io/pickle.h). Files of PyTorch
/// before 1.6 and TorchScript archives are refused with a word on what to do. Malformed content is an IoError naming
/// the file.

#include <string>
#include <vector>

#include "athanor/io/file.h"
#include "athanor/io/tensor_io.h"
#include "athanor/nn/module.h"
#include "athanor/ops/ivalue.h"
#include "athanor/optim/optimizer.h"

namespace athanor {

namespace io {

/// True if the file holds a ZIP archive, as torch.save writes.
bool is_pt(const std::string& path);

/// What torch.save wrote, on the host, whatever device it was on. Tensors that shared a storage share it again.
/// Mapped storages are not read before they are touched; the others' checksums are verified.
IValue load_pt(const std::string& path, Loading loading = Loading::Mapped);
/// The same of bytes in memory, which are copied; `name` is used in messages.
IValue parse_pt(Bytes content, const std::string& name);

/// Writes atomically what torch.load(path) reads, weights_only=True included. Storages are written whole and once,
/// whatever part of them the tensors use; tensors of other devices as contiguous ones. Throws as pickle does.
void save_pt(const std::string& path, const IValue& value);
/// A module's state_dict.
void save_pt(const std::string& path, const nn::Module& module);

/// The tensors of a state_dict, for Module::load_state_dict; entries that are no tensors are left out. Throws
/// ValueError unless the value is a dict with texts as its keys, listing those keys under which it holds such dicts:
/// `net->load_state_dict(io::to_state_dict(io::load_pt(path)["model"]), /*strict=*/false)`.
nn::Module::StateDict to_state_dict(const IValue& value);
IValue to_ivalue(const nn::Module::StateDict& state);

/// Python's optimizer.state_dict(), for Optimizer::load_state_dict, and the same of an optimizer here, for
/// load_state_dict there: names of options and states are PyTorch's. Throws ValueError for a dict of another form.
optim::OptimizerStateDict to_optimizer_state(const IValue& value);
IValue to_ivalue(const optim::Optimizer& optimizer);

}  // namespace io

/// libtorch's names for the same in memory.
IValue pickle_load(const std::vector<char>& data);
std::vector<char> pickle_save(const IValue& value);

}  // namespace athanor

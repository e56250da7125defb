#pragma once
/// How a program spells the argument that the old launcher gives it: --local_rank before PyTorch 2.0, --local-rank
/// since.

#include <chrono>
#include <string>
#include <vector>

#include "athanor/launch/process.h"

namespace athanor::launch {

/// "--local_rank" or "--local-rank", whichever the text mentions; empty if it mentions neither or both.
std::string local_rank_spelling(const std::string& text);

/// The same for a program. Its file is read first; a file that is no text (a binary), or none at all (`source` empty),
/// and that mentions not just one of the two, is asked: `program` is started once more with --help as its last
/// argument, its output kept from the console. It and all of its process group are killed when it ends, or after
/// `patience`. "--local-rank" if nothing decides. Throws nothing: a program that cannot be started says so later.
std::string local_rank_flag(const std::string& source, const Program& program,
                            std::chrono::milliseconds patience = std::chrono::seconds(2));

/// The file that `python -m module` would run, as `importlib` of that interpreter finds it, or a package's __main__;
/// empty if there is none, or no answer within `patience`.
std::string file_of_module(const std::string& python, const std::string& module,
                           std::chrono::milliseconds patience = std::chrono::seconds(5));

}  // namespace athanor::launch

#pragma once
/// How ranks come to hold the same: comparing what they say about themselves, and handing tensors around.

#include <string>
#include <utility>
#include <vector>

#include "athanor/distributed/process_group.h"

namespace athanor::nn::parallel {

/// Every rank's text, by rank.
std::vector<std::string> gather_texts(distributed::ProcessGroup& group, const std::string& text);
/// Makes the values of all ranks those of `root`. Small tensors of any dtype travel together. `purpose` stands in error
/// messages and in the flight recorder.
void broadcast_tensors(distributed::ProcessGroup& group, const std::vector<Tensor>& tensors, int root,
                       const std::string& purpose);
/// For a collective that no line of the program calls: messages say what it is for, instead of a file and its line. The
/// text is kept for ever.
distributed::CallSite call_for(const std::string& purpose);
/// Throws ValueError on every rank, naming the first tensor that differs and the ranks, unless number, names, dtypes,
/// shapes and strides of the tensors are the same on all. `what` says whose they are, `kind` what they are.
void check_same_tensors(distributed::ProcessGroup& group, const char* what, const char* kind,
                        const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace athanor::nn::parallel

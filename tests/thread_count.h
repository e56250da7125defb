#pragma once
/// How many threads this process has.

#include <fstream>
#include <string>

namespace athanor {

/// As the kernel counts them: a listing of /proc/self/task leaves some out while others end. -1 if it does not say.
inline int number_of_threads() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int count = 0; word == "Threads:" && status >> count) return count;
  return -1;
}

}  // namespace athanor

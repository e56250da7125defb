// Calls every row of the op table once per case, dtype and sample, and writes what was called to a folder.
#include <cstdio>

#include "op_table/driver.h"
#include "parity/recorder.h"

int main(int argc, char** argv) {
  using namespace athanor;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  int calls = 0;
  for (const op_table::Row& row : op_table::all_rows())
    for (const op_table::Case& c : row.cases)
      for (const DType t : row.dtypes)
        for (std::size_t k = 0; k < c.samples.size(); ++k) {
          const op_table::Sample& s = c.samples[k];
          if (!op_table::takes(s, t) || (!s.inputs.empty() && s.inputs[0].array.numel() > 700)) continue;
          const op_table::Tensors in = op_table::inputs_of(s, t);
          const std::string label = row.name + (row.overload.empty() ? "" : "." + row.overload) + " " + c.name + " " +
                                    dtype_name(t) + " sample " + std::to_string(k);
          try {
            const parity::Recorder::Noting noting(label);
            c.call(in);
            ++calls;
          } catch (const std::exception& e) {
            std::fprintf(stderr, "%s: %s\n", label.c_str(), e.what());
            return 1;
          }
        }
  parity::Recorder::write(argv[1]);
  std::printf("%d samples\n", calls);
}

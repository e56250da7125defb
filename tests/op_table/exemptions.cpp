#include "op_table/table.h"

namespace athanor::op_table {

const std::vector<Exemption>& exemptions() {
  static const std::vector<Exemption> list;
  return list;
}

}  // namespace athanor::op_table

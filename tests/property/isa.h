// The kernel tables that this machine can run.
#pragma once

#include <vector>

#include "kernels/ops.h"

namespace quire::test {

inline std::vector<const Ops*> tables() {
  std::vector<const Ops*> found;
  for (const char* name : {"scalar", "avx2", "avx512"}) {
    if (const Ops* table = ops_by_name(name)) found.push_back(table);
  }
  return found;
}

}  // namespace quire::test

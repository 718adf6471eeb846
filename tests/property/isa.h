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

// Whether this run is forced onto plainer kernels than the machine has. Beside the run on the widest it goes
// through every value of what a test crosses, but not through every combination.
inline bool is_forced_plainer() { return &ops() != tables().back(); }

}  // namespace quire::test

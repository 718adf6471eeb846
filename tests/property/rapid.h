// rapidcheck with a fixed seed, so that a run can be repeated; RC_PARAMS in the environment overrides it.
#pragma once

#include <rapidcheck.h>

#include <cstdlib>

namespace quire::test {

inline const bool kSeeded = setenv("RC_PARAMS", "seed=20240917 max_success=200", /*replace=*/0) == 0;

}  // namespace quire::test

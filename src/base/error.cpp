#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace quire {

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "quire: internal error at %s:%d: %s does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace quire

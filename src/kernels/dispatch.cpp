// The one place that reads CPU flags.
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/ops.h"

namespace quire {

namespace scalar {
extern const Ops kOps;
}
namespace avx2 {
extern const Ops kOps;
}
namespace avx512 {
extern const Ops kOps;
}

namespace {

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

const Ops& choose() {
  if (const char* forced = std::getenv("QUIRE_FORCE_ISA"); forced != nullptr && *forced != '\0') {
    const Ops* table = ops_by_name(forced);
    if (table == nullptr) {
      throw Error("QUIRE_FORCE_ISA: '" + std::string(forced) +
                  "' is not one of scalar, avx2, avx512, or this machine lacks it");
    }
    return *table;
  }
  if (has_avx512()) return avx512::kOps;
  return has_avx2() ? avx2::kOps : scalar::kOps;
}

}  // namespace

const Ops* ops_by_name(const char* name) {
  if (std::strcmp(name, "scalar") == 0) return &scalar::kOps;
  if (std::strcmp(name, "avx2") == 0) return has_avx2() ? &avx2::kOps : nullptr;
  if (std::strcmp(name, "avx512") == 0) return has_avx512() ? &avx512::kOps : nullptr;
  return nullptr;
}

const Ops& ops() {
  static const Ops& chosen = choose();
  return chosen;
}

}  // namespace quire

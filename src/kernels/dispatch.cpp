// The one place that reads CPU flags.
#include <cpuid.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/ops.h"

namespace quire {

// Of each instruction set: isa_*.cpp add their kernels to its table.
namespace scalar {
void add_weights(Ops& ops);
void add_rows(Ops& ops);
void add_panel_codes(Ops& ops);
void add_plane_codes(Ops& ops);
}  // namespace scalar
namespace avx2 {
void add_weights(Ops& ops);
void add_rows(Ops& ops);
void add_panel_codes(Ops& ops);
void add_plane_codes(Ops& ops);
}  // namespace avx2
namespace avx512 {
void add_weights(Ops& ops);
void add_rows(Ops& ops);
void add_panel_codes(Ops& ops);
void add_plane_codes(Ops& ops);
}  // namespace avx512

namespace {

// A table is made when it is first asked for: what adds to it is code that the machine must have.
template <void (*... kAdd)(Ops&)>
const Ops& table_of() {
  static const Ops table = [] {
    Ops ops{};
    (kAdd(ops), ...);
    return ops;
  }();
  return table;
}

const Ops& scalar_ops() {
  using namespace scalar;
  return table_of<add_weights, add_rows, add_panel_codes, add_plane_codes>();
}
const Ops& avx2_ops() {
  using namespace avx2;
  return table_of<add_weights, add_rows, add_panel_codes, add_plane_codes>();
}
const Ops& avx512_ops() {
  using namespace avx512;
  return table_of<add_weights, add_rows, add_panel_codes, add_plane_codes>();
}

// Not every compiler's __builtin_cpu_supports() knows the name.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
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
  if (has_avx512()) return avx512_ops();
  return has_avx2() ? avx2_ops() : scalar_ops();
}

}  // namespace

const Ops* ops_by_name(const char* name) {
  if (std::strcmp(name, "scalar") == 0) return &scalar_ops();
  if (std::strcmp(name, "avx2") == 0) return has_avx2() ? &avx2_ops() : nullptr;
  if (std::strcmp(name, "avx512") == 0) return has_avx512() ? &avx512_ops() : nullptr;
  return nullptr;
}

const Ops& ops() {
  static const Ops& chosen = choose();
  return chosen;
}

}  // namespace quire

#include "format/code_lookup.h"

namespace quire {

std::optional<Code> code_by_name(std::string_view name) {
  for (int i = 0; i < kCodeCount; ++i) {
    const Code code = static_cast<Code>(i);
    if (name == info(code).name) return code;
  }
  return std::nullopt;
}

}  // namespace quire

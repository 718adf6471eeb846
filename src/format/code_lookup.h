// Coded formats by name, and what must be made before one can be used.
#pragma once

#include <optional>
#include <string_view>

#include "format/code_catalogue.h"

namespace quire {

// nullopt when there is no coded format of that name.
std::optional<Code> code_by_name(std::string_view name);

}  // namespace quire

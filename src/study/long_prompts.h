// Requests for long answers, our own.
#pragma once

#include <span>
#include <string_view>

namespace quire {

std::span<const std::string_view> long_prompts();  // 20

}  // namespace quire

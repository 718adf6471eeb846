// What a recipe says of where its pages lie, as text.
#pragma once

#include <string>
#include <string_view>

#include "cache/place.h"
#include "cache/setting_number.h"

namespace quire {

// "place=host(ahead=2)", "place=disk(path=/tmp,size=8G)"; empty for memory.
std::string place_text(const PagePlace& place);
// What stands behind "place=". Calls `fail` for what is none.
PagePlace parse_place(std::string_view text, const SettingError& fail);
// The places and their settings, for `quire recipes`.
std::string place_summary(PagePlace::Kind kind);

}  // namespace quire

// Escapes in the string literals of a template, as in Python's.
#pragma once

#include <string>
#include <string_view>

namespace quire::jinja {

// Unknown escapes stay as they are; one that names no character is an Error with the line.
std::string unescape(std::string_view literal, int line);

}  // namespace quire::jinja

// From the tokens of a template to its parts, by Jinja's grammar.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace quire::jinja {

// Throws Error of one sentence that names the line.
Ast parse(std::string_view source);

}  // namespace quire::jinja

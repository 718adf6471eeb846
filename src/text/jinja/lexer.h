// A template's text cut into tokens, with white space around tags taken away as transformers sets Jinja up:
// trim_blocks, lstrip_blocks, and without a last newline.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

enum class TokenType : uint8_t {
  kData,  // text between tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type;
  int line;               // from 1
  std::string_view text;  // of a string: what it means
  int64_t integer = 0;
  double floating = 0;
};

// The tokens, the last of which is kEnd, and what they view.
struct TokenList {
  std::string source;               // newlines as "\n"
  std::deque<std::string> strings;  // those with escapes
  std::vector<Token> tokens;
};

// Throws Error of one sentence that names the line. The list must not be moved afterwards, as it views
// itself.
void read_tokens(std::string_view source, TokenList& list);

// Error "the chat template, line 7: ...".
[[noreturn]] void fail_at(int line, const std::string& what);
// A piece of a template for a message: quoted, printable and short.
std::string in_quotes(std::string_view text);

}  // namespace quire::jinja

// The tokens of a template, read from left to right.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/lexer.h"

namespace quire::jinja {

class TokenStream {
 public:
  explicit TokenStream(const TokenList& list) : tokens_(list.tokens) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }

  // The current token, of which it goes on to the next.
  const Token& take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }

  bool at(TokenType type) const { return current().type == type; }
  bool at_operator(std::string_view text) const { return at(TokenType::kOperator) && current().text == text; }
  bool at_name(std::string_view text) const { return at(TokenType::kName) && current().text == text; }

  bool skip_operator(std::string_view text) { return skip(at_operator(text)); }
  bool skip_name(std::string_view text) { return skip(at_name(text)); }

  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_expected(in_quotes(text));
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) fail_expected(in_quotes(text));
  }
  const Token& expect(TokenType type, const char* what) {
    if (!at(type)) fail_expected(what);
    return take();
  }

  [[noreturn]] void fail_expected(const std::string& what) const {
    fail_at(line(), "there is " + in_quotes(current().text) + " where " + what + " is due");
  }

 private:
  bool skip(bool here) {
    if (here) take();
    return here;
  }

  const std::vector<Token>& tokens_;
  size_t at_ = 0;
};

}  // namespace quire::jinja

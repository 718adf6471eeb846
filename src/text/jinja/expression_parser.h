// The expressions of a template.
#pragma once

#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace quire::jinja {

// Levels of recursion, of expressions and statements together.
class Nesting {
 public:
  Nesting(size_t& depth, int line);
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  size_t& depth_;
};

// Names that a macro uses without saying that it takes them.
struct MacroUses {
  bool caller = false;
  bool more_positional = false;
  bool more_named = false;
};

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& stream, size_t& depth) : stream_(stream), depth_(depth) {}

  enum class Ternary { kAllowed, kNot };  // in "for x in a if b" the "if" is not the expression's

  ExprPtr expression(Ternary ternary = Ternary::kAllowed);
  // One expression, or several with commas as a tuple. It ends at the tag's end, at ")" and at the name
  // `end`.
  ExprPtr tuple(Ternary ternary = Ternary::kAllowed, std::string_view end = {}, bool may_be_empty = false);
  // "|upper|trim" without an input, as blocks have them; `first_bare`: the first one has no "|" before it.
  ExprPtr filters(ExprPtr input, bool first_bare = false);
  // A name, a namespace's attribute, or a tuple of such, which ends at the name `end`.
  Target target(std::string_view end = {}, bool may_be_attribute = false);
  bool at_end(std::string_view end) const;

  MacroUses uses;
  size_t n_literals = 0;

 private:
  ExprPtr conditional();
  ExprPtr logic_or();
  ExprPtr logic_and();
  ExprPtr logic_not();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary();
  ExprPtr name();
  ExprPtr text();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filter_or_test(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr slice_or_expression();
  ExprPtr call(ExprPtr node);
  ExprPtr test(ExprPtr node);
  CallArguments arguments(Expr& parent);
  void argument(Expr& parent, CallArguments& arguments);
  Target one_target(bool may_be_attribute);
  ExprPtr binary(BinaryOp op, int line, ExprPtr left, ExprPtr right);
  static ExprPtr adopt(Expr& parent, ExprPtr child);

  TokenStream& stream_;
  size_t& depth_;
};

}  // namespace quire::jinja

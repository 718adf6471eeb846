// Literals and names: what expressions are made of.
#include <utility>

#include "text/jinja/expression_parser.h"

namespace quire::jinja {

ExprPtr ExpressionParser::primary() {
  switch (stream_.current().type) {
    case TokenType::kName: return name();
    case TokenType::kString: return text();
    case TokenType::kInteger: {
      const Token& token = stream_.take();
      auto node = std::make_unique<Constant>(token.line, ConstantType::kInt);
      node->integer = token.integer;
      return node;
    }
    case TokenType::kFloat: {
      const Token& token = stream_.take();
      auto node = std::make_unique<Constant>(token.line, ConstantType::kFloat);
      node->floating = token.floating;
      return node;
    }
    default: break;
  }
  if (stream_.skip_operator("(")) {
    ExprPtr inside = tuple(Ternary::kAllowed, {}, true);
    stream_.expect_operator(")");
    return inside;
  }
  if (stream_.at_operator("[")) return list();
  if (stream_.at_operator("{")) return dict();
  stream_.fail_expected("an expression");
}

ExprPtr ExpressionParser::name() {
  const Token& token = stream_.take();
  const std::string_view text = token.text;
  if (text == "true" || text == "True" || text == "false" || text == "False") {
    auto node = std::make_unique<Constant>(token.line, ConstantType::kBool);
    node->integer = text == "true" || text == "True" ? 1 : 0;
    return node;
  }
  if (text == "none" || text == "None") return std::make_unique<Constant>(token.line, ConstantType::kNone);
  uses.caller = uses.caller || text == "caller";
  uses.more_positional = uses.more_positional || text == "varargs";
  uses.more_named = uses.more_named || text == "kwargs";
  return std::make_unique<Name>(token.line, std::string(text));
}

// Literals that stand side by side are one.
ExprPtr ExpressionParser::text() {
  const int line = stream_.line();
  std::string joined;
  while (stream_.at(TokenType::kString)) joined += stream_.take().text;
  return std::make_unique<TextLiteral>(line, std::move(joined), n_literals++);
}

ExprPtr ExpressionParser::list() {
  auto node = std::make_unique<ItemsLiteral>(ExprKind::kList, stream_.take().line);
  while (!stream_.at_operator("]")) {
    if (!node->items.empty()) {
      stream_.expect_operator(",");
      if (stream_.at_operator("]")) break;
    }
    node->items.push_back(adopt(*node, expression()));
  }
  stream_.take();
  return node;
}

ExprPtr ExpressionParser::dict() {
  auto node = std::make_unique<DictLiteral>(stream_.take().line);
  while (!stream_.at_operator("}")) {
    if (!node->items.empty()) {
      stream_.expect_operator(",");
      if (stream_.at_operator("}")) break;
    }
    ExprPtr key = adopt(*node, expression());
    stream_.expect_operator(":");
    ExprPtr value = adopt(*node, expression());
    node->items.emplace_back(std::move(key), std::move(value));
  }
  stream_.take();
  return node;
}

}  // namespace quire::jinja

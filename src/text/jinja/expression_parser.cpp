// Jinja's grammar of expressions, loosest binding first:
//   a if b else c | or | and | not | comparisons, in | + - | ~ | * / // % | ** | unary - + | . [] () |
//   filters, tests
#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/jinja/limits.h"

namespace quire::jinja {
namespace {

// Levels of one expression: chains such as a + b + c nest without recursion of the parser.
constexpr size_t kMostLevels = 400;

std::optional<CompareOp> compare_operator(const Token& token) {
  constexpr std::pair<std::string_view, CompareOp> kAll[] = {
      {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual}};
  if (token.type != TokenType::kOperator) return std::nullopt;
  for (const auto& [text, op] : kAll) {
    if (token.text == text) return op;
  }
  return std::nullopt;
}

}  // namespace

Nesting::Nesting(size_t& depth, int line) : depth_(depth) {
  if (depth >= kMaxNesting)
    fail_at(line, "parts nest deeper than " + std::to_string(kMaxNesting) + " levels");
  ++depth_;
}

ExprPtr ExpressionParser::adopt(Expr& parent, ExprPtr child) {
  parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMostLevels) {
    fail_at(parent.line, "an expression has more than " + std::to_string(kMostLevels) + " levels");
  }
  return child;
}

ExprPtr ExpressionParser::expression(Ternary ternary) {
  const Nesting nesting(depth_, stream_.line());
  return ternary == Ternary::kAllowed ? conditional() : logic_or();
}

bool ExpressionParser::at_end(std::string_view end) const {
  return stream_.at(TokenType::kVariableEnd) || stream_.at(TokenType::kBlockEnd) ||
         stream_.at_operator(")") || (!end.empty() && stream_.at_name(end));
}

ExprPtr ExpressionParser::tuple(Ternary ternary, std::string_view end, bool may_be_empty) {
  auto tuple = std::make_unique<ItemsLiteral>(ExprKind::kTuple, stream_.line());
  bool has_comma = false;
  while (!at_end(end)) {
    tuple->items.push_back(adopt(*tuple, expression(ternary)));
    if (!stream_.skip_operator(",")) break;
    has_comma = true;
  }
  if (has_comma) return tuple;
  if (!tuple->items.empty()) return std::move(tuple->items.front());
  if (!may_be_empty) stream_.fail_expected("an expression");
  return tuple;
}

Target ExpressionParser::one_target(bool may_be_attribute) {
  const Nesting nesting(depth_, stream_.line());
  if (stream_.skip_operator("(")) {
    Target inner = target({}, may_be_attribute);
    stream_.expect_operator(")");
    return inner;
  }
  const Token& token = stream_.expect(TokenType::kName, "a name to assign to");
  constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), token.text) != std::end(kConstants)) {
    fail_at(token.line, in_quotes(token.text) + " cannot be assigned to");
  }
  Target made;
  made.line = token.line;
  made.name = token.text;
  if (may_be_attribute && stream_.skip_operator(".")) {
    made.attribute = stream_.expect(TokenType::kName, "the name of an attribute").text;
  }
  return made;
}

Target ExpressionParser::target(std::string_view end, bool may_be_attribute) {
  Target first = one_target(may_be_attribute);
  if (!stream_.at_operator(",")) return first;
  Target tuple;
  tuple.line = first.line;
  tuple.items.push_back(std::move(first));
  while (stream_.skip_operator(",") && !at_end(end) && !stream_.at_operator("=")) {
    tuple.items.push_back(one_target(may_be_attribute));
  }
  return tuple;
}

ExprPtr ExpressionParser::conditional() {
  int line = stream_.line();
  ExprPtr value = logic_or();
  while (stream_.skip_name("if")) {
    auto node = std::make_unique<Conditional>(line);
    node->condition = adopt(*node, logic_or());
    node->value = adopt(*node, std::move(value));
    if (stream_.skip_name("else")) node->otherwise = adopt(*node, expression());
    value = std::move(node);
    line = stream_.line();
  }
  return value;
}

ExprPtr ExpressionParser::binary(BinaryOp op, int line, ExprPtr left, ExprPtr right) {
  auto node = std::make_unique<Binary>(line, op);
  node->left = adopt(*node, std::move(left));
  node->right = adopt(*node, std::move(right));
  return node;
}

ExprPtr ExpressionParser::logic_or() {
  ExprPtr left = logic_and();
  for (int line = stream_.line(); stream_.skip_name("or"); line = stream_.line()) {
    left = binary(BinaryOp::kOr, line, std::move(left), logic_and());
  }
  return left;
}

ExprPtr ExpressionParser::logic_and() {
  ExprPtr left = logic_not();
  for (int line = stream_.line(); stream_.skip_name("and"); line = stream_.line()) {
    left = binary(BinaryOp::kAnd, line, std::move(left), logic_not());
  }
  return left;
}

ExprPtr ExpressionParser::logic_not() {
  if (!stream_.at_name("not")) return comparison();
  const Nesting nesting(depth_, stream_.line());
  auto node = std::make_unique<Unary>(stream_.take().line, UnaryOp::kNot);
  node->operand = adopt(*node, logic_not());
  return node;
}

ExprPtr ExpressionParser::comparison() {
  auto node = std::make_unique<Compare>(stream_.line());
  ExprPtr first = sum();
  while (true) {
    CompareOp op = CompareOp::kIn;
    if (const auto found = compare_operator(stream_.current())) {
      op = *found;
      stream_.take();
    } else if (stream_.at_name("not") && stream_.ahead().type == TokenType::kName &&
               stream_.ahead().text == "in") {
      op = CompareOp::kNotIn;
      stream_.take();
      stream_.take();
    } else if (!stream_.skip_name("in")) {
      break;
    }
    node->more.emplace_back(op, adopt(*node, sum()));
  }
  if (node->more.empty()) return first;
  node->first = adopt(*node, std::move(first));
  return node;
}

ExprPtr ExpressionParser::sum() {
  ExprPtr left = concat();
  while (stream_.at_operator("+") || stream_.at_operator("-")) {
    const Token& token = stream_.take();
    const BinaryOp op = token.text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    left = binary(op, token.line, std::move(left), concat());
  }
  return left;
}

ExprPtr ExpressionParser::concat() {
  ExprPtr first = product();
  if (!stream_.at_operator("~")) return first;
  auto node = std::make_unique<Concat>(stream_.line());
  node->parts.push_back(adopt(*node, std::move(first)));
  while (stream_.skip_operator("~")) node->parts.push_back(adopt(*node, product()));
  return node;
}

ExprPtr ExpressionParser::product() {
  constexpr std::pair<std::string_view, BinaryOp> kAll[] = {{"*", BinaryOp::kMultiply},
                                                            {"/", BinaryOp::kDivide},
                                                            {"//", BinaryOp::kFloorDivide},
                                                            {"%", BinaryOp::kModulo}};
  ExprPtr left = power();
  while (true) {
    const auto* op = std::find_if(std::begin(kAll), std::end(kAll),
                                  [&](const auto& entry) { return stream_.at_operator(entry.first); });
    if (op == std::end(kAll)) return left;
    const int line = stream_.take().line;
    left = binary(op->second, line, std::move(left), power());
  }
}

ExprPtr ExpressionParser::power() {
  ExprPtr left = unary();
  while (stream_.at_operator("**")) {
    const int line = stream_.take().line;
    left = binary(BinaryOp::kPower, line, std::move(left), unary());
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filter) {
  ExprPtr node;
  if (stream_.at_operator("-") || stream_.at_operator("+")) {
    const Nesting nesting(depth_, stream_.line());
    const Token& token = stream_.take();
    auto made = std::make_unique<Unary>(token.line, token.text == "-" ? UnaryOp::kMinus : UnaryOp::kPlus);
    made->operand = adopt(*made, unary(false));
    node = std::move(made);
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filter_or_test(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::postfix(ExprPtr node) {
  while (true) {
    if (stream_.at_operator(".") || stream_.at_operator("[")) {
      node = subscript(std::move(node));
    } else if (stream_.at_operator("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::filter_or_test(ExprPtr node) {
  while (true) {
    if (stream_.at_operator("|")) {
      node = filters(std::move(node));
    } else if (stream_.at_name("is")) {
      node = test(std::move(node));
    } else if (stream_.at_operator("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr node) {
  const Token& token = stream_.take();
  auto item = std::make_unique<Item>(token.line);
  if (token.text == ".") {
    const Token& which = stream_.take();
    if (which.type == TokenType::kName) {
      auto attribute = std::make_unique<Attribute>(token.line, std::string(which.text));
      attribute->object = adopt(*attribute, std::move(node));
      return attribute;
    }
    if (which.type != TokenType::kInteger)
      fail_at(which.line, "behind '.' stands neither a name nor a number");
    auto index = std::make_unique<Constant>(which.line, ConstantType::kInt);
    index->integer = which.integer;
    item->key = std::move(index);
  } else {
    std::vector<ExprPtr> keys;
    while (!stream_.at_operator("]")) {
      if (!keys.empty()) stream_.expect_operator(",");
      keys.push_back(slice_or_expression());
    }
    stream_.take();
    if (keys.size() != 1)
      fail_at(token.line, "there are " + std::to_string(keys.size()) + " keys in '[]', not one");
    item->key = adopt(*item, std::move(keys.front()));
  }
  item->object = adopt(*item, std::move(node));
  return item;
}

ExprPtr ExpressionParser::slice_or_expression() {
  auto slice = std::make_unique<Slice>(stream_.line());
  for (size_t i = 0; i < 3; ++i) {
    if (!stream_.at_operator(":") && !stream_.at_operator("]") && !stream_.at_operator(",")) {
      slice->bounds[i] = adopt(*slice, expression());
    }
    if (i == 0 && !stream_.at_operator(":")) {
      if (slice->bounds[0] == nullptr) stream_.fail_expected("an expression");
      return std::move(slice->bounds[0]);
    }
    if (i < 2 && !stream_.skip_operator(":")) break;
  }
  return slice;
}

ExprPtr ExpressionParser::call(ExprPtr node) {
  auto made = std::make_unique<Call>(stream_.line());
  made->arguments = arguments(*made);
  made->function = adopt(*made, std::move(node));
  return made;
}

void ExpressionParser::argument(Expr& parent, CallArguments& arguments) {
  const int line = stream_.line();
  const auto require = [&](bool holds) {
    if (!holds) fail_at(line, "the arguments of the call are out of order");
  };
  if (stream_.skip_operator("*")) {
    require(arguments.more_positional == nullptr && arguments.more_named == nullptr);
    arguments.more_positional = adopt(parent, expression());
  } else if (stream_.skip_operator("**")) {
    require(arguments.more_named == nullptr);
    arguments.more_named = adopt(parent, expression());
  } else if (stream_.at(TokenType::kName) && stream_.ahead().type == TokenType::kOperator &&
             stream_.ahead().text == "=") {
    require(arguments.more_named == nullptr);
    std::string name(stream_.take().text);
    stream_.take();
    for (const auto& earlier : arguments.named) {
      if (earlier.first == name) fail_at(line, "the argument " + in_quotes(name) + " is there twice");
    }
    arguments.named.emplace_back(std::move(name), adopt(parent, expression()));
  } else {
    require(arguments.more_positional == nullptr && arguments.more_named == nullptr &&
            arguments.named.empty());
    arguments.positional.push_back(adopt(parent, expression()));
  }
}

CallArguments ExpressionParser::arguments(Expr& parent) {
  CallArguments all;
  stream_.expect_operator("(");
  bool first = true;
  while (!stream_.at_operator(")")) {
    if (!first) {
      stream_.expect_operator(",");
      if (stream_.at_operator(")")) break;
    }
    first = false;
    argument(parent, all);
  }
  stream_.take();
  return all;
}

ExprPtr ExpressionParser::filters(ExprPtr input, bool first_bare) {
  while (first_bare || stream_.skip_operator("|")) {
    first_bare = false;
    const Token& token = stream_.expect(TokenType::kName, "the name of a filter");
    auto node = std::make_unique<Applied>(ExprKind::kFilter, token.line, std::string(token.text));
    if (stream_.at_operator("(")) node->arguments = arguments(*node);
    if (input != nullptr) node->input = adopt(*node, std::move(input));
    input = std::move(node);
  }
  return input;
}

ExprPtr ExpressionParser::test(ExprPtr node) {
  stream_.take();
  const bool negated = stream_.skip_name("not");
  const Token& token = stream_.expect(TokenType::kName, "the name of a test");
  auto made = std::make_unique<Applied>(ExprKind::kTest, token.line, std::string(token.text));
  const auto begins_argument = [&] {
    switch (stream_.current().type) {
      case TokenType::kName:
        return !stream_.at_name("else") && !stream_.at_name("or") && !stream_.at_name("and");
      case TokenType::kString:
      case TokenType::kInteger:
      case TokenType::kFloat: return true;
      default: return stream_.at_operator("[") || stream_.at_operator("{");
    }
  };
  if (stream_.at_operator("(")) {
    made->arguments = arguments(*made);
  } else if (begins_argument()) {
    if (stream_.at_name("is")) fail_at(stream_.line(), "tests cannot be chained with 'is'");
    made->arguments.positional.push_back(adopt(*made, postfix(primary())));
  }
  made->input = adopt(*made, std::move(node));
  if (!negated) return made;
  auto inverse = std::make_unique<Unary>(token.line, UnaryOp::kNot);
  inverse->operand = adopt(*inverse, std::move(made));
  return inverse;
}

}  // namespace quire::jinja

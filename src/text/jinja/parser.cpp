#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "text/jinja/expression_parser.h"
#include "text/jinja/limits.h"

namespace quire::jinja {
namespace {

class StatementParser {
 public:
  explicit StatementParser(const TokenList& list) : stream_(list), expressions_(stream_, depth_) {}

  Ast run() {
    Ast ast;
    ast.body = body({});
    ast.n_literals = expressions_.n_literals;
    return ast;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  bool at_any(Ends ends) const {
    return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return stream_.at_name(end); });
  }

  // Up to a tag that begins with one of `ends`, of which the name is the current token then; without ends, up
  // to the end of the template.
  Body body(Ends ends) {
    const Nesting nesting(depth_, stream_.line());
    const int line = stream_.line();
    Body all;
    while (!stream_.at(TokenType::kEnd)) {
      if (stream_.at(TokenType::kData)) {
        const Token& token = stream_.take();
        all.push_back(std::make_unique<DataNode>(token.line, std::string(token.text)));
      } else if (stream_.at(TokenType::kVariableBegin)) {
        const int at = stream_.take().line;
        all.push_back(std::make_unique<PrintNode>(at, expressions_.tuple()));
        stream_.expect(TokenType::kVariableEnd, "'}}'");
      } else {
        stream_.expect(TokenType::kBlockBegin, "a tag");
        if (at_any(ends)) return all;
        all.push_back(statement());
        end_of_tag();
      }
    }
    if (ends.size() > 0)
      fail_at(line, "there is no tag " + in_quotes(*(ends.end() - 1)) + " to the block that begins here");
    return all;
  }

  // The same for a block's own body, behind the tag that opens it.
  Body block(Ends ends) {
    stream_.skip_operator(":");
    end_of_tag();
    return body(ends);
  }
  Body block_until(std::string_view end) {
    Body all = block({end});
    stream_.take();
    return all;
  }

  void end_of_tag() { stream_.expect(TokenType::kBlockEnd, "'%}'"); }

  std::unique_ptr<Statement> statement() {
    const Token& token = stream_.expect(TokenType::kName, "the name of a tag");
    const std::string_view name = token.text;
    if (name == "if") return if_statement(token.line);
    if (name == "for") return for_statement(token.line);
    if (name == "set") return set_statement(token.line);
    if (name == "macro") return macro_statement(token.line);
    if (name == "call") return call_statement(token.line);
    if (name == "filter") return filter_statement(token.line);
    if (name == "with") return with_statement(token.line);
    if (name == "generation") return generation_statement(token.line);
    if (name == "break" || name == "continue") return loop_control(token.line, name == "break");
    fail_at(token.line, "the tag " + in_quotes(name) + " is not known, or closes nothing");
  }

  std::unique_ptr<Statement> loop_control(int line, bool is_break) {
    if (!in_loop_)
      fail_at(line, std::string(is_break ? "'break'" : "'continue'") + " stands outside of a loop");
    return std::make_unique<LoopControlNode>(is_break ? StatementKind::kBreak : StatementKind::kContinue,
                                             line);
  }

  std::unique_ptr<Statement> if_statement(int line) {
    auto node = std::make_unique<IfNode>(line);
    while (true) {
      ExprPtr condition = expressions_.tuple(ExpressionParser::Ternary::kNot);
      node->branches.emplace_back(std::move(condition), block({"elif", "else", "endif"}));
      const std::string_view end = stream_.take().text;
      if (end == "elif") continue;
      if (end == "else") node->otherwise = block_until("endif");
      return node;
    }
  }

  std::unique_ptr<Statement> for_statement(int line) {
    auto node = std::make_unique<ForNode>(line);
    node->target = expressions_.target("in");
    stream_.expect_name("in");
    node->items = expressions_.tuple(ExpressionParser::Ternary::kNot, "recursive");
    if (stream_.skip_name("if")) node->condition = expressions_.expression();
    if (stream_.at_name("recursive")) fail_at(stream_.line(), "recursive loops are not supported");
    const bool outer = std::exchange(in_loop_, true);
    node->body = block({"else", "endfor"});
    in_loop_ = outer;
    if (stream_.take().text == "else") node->otherwise = block_until("endfor");
    return node;
  }

  std::unique_ptr<Statement> set_statement(int line) {
    Target target = expressions_.target({}, true);
    if (stream_.skip_operator("=")) {
      auto node = std::make_unique<SetNode>(line);
      node->target = std::move(target);
      node->value = expressions_.tuple();
      return node;
    }
    auto node = std::make_unique<SetBlockNode>(line);
    node->target = std::move(target);
    node->filter = expressions_.filters(nullptr);
    node->body = block_until("endset");
    return node;
  }

  void signature(MacroNode& macro) {
    stream_.expect_operator("(");
    while (!stream_.at_operator(")")) {
      if (!macro.parameters.empty()) {
        stream_.expect_operator(",");
        if (stream_.at_operator(")")) break;
      }
      const Token& token = stream_.expect(TokenType::kName, "the name of a parameter");
      macro.parameters.emplace_back(token.text);
      if (stream_.skip_operator("=")) {
        macro.defaults.push_back(expressions_.expression());
      } else if (!macro.defaults.empty()) {
        fail_at(token.line,
                "the parameter " + in_quotes(token.text) + " without a default follows one that has one");
      }
    }
    stream_.take();
  }

  // Macros may be called from anywhere, so a loop around one is not theirs.
  void macro_body(MacroNode& macro, std::string_view end) {
    const MacroUses outer = std::exchange(expressions_.uses, {});
    const bool outer_loop = std::exchange(in_loop_, false);
    macro.body = block_until(end);
    macro.uses_caller = expressions_.uses.caller;
    macro.uses_more_positional = expressions_.uses.more_positional;
    macro.uses_more_named = expressions_.uses.more_named;
    // A macro inside counts for the one around it, as in Jinja.
    expressions_.uses.caller |= outer.caller;
    expressions_.uses.more_positional |= outer.more_positional;
    expressions_.uses.more_named |= outer.more_named;
    in_loop_ = outer_loop;
  }

  std::unique_ptr<Statement> macro_statement(int line) {
    auto node = std::make_unique<MacroNode>(line);
    node->name = stream_.expect(TokenType::kName, "the name of a macro").text;
    signature(*node);
    macro_body(*node, "endmacro");
    return node;
  }

  std::unique_ptr<Statement> call_statement(int line) {
    auto node = std::make_unique<CallBlockNode>(line);
    node->caller = std::make_unique<MacroNode>(line);
    node->caller->name = "caller";
    if (stream_.at_operator("(")) signature(*node->caller);
    ExprPtr call = expressions_.expression();
    if (call->kind != ExprKind::kCall) fail_at(line, "'call' needs the call of a macro");
    node->call.reset(static_cast<Call*>(call.release()));
    macro_body(*node->caller, "endcall");
    return node;
  }

  std::unique_ptr<Statement> filter_statement(int line) {
    auto node = std::make_unique<FilterBlockNode>(line);
    node->filter = expressions_.filters(nullptr, true);
    const bool outer = std::exchange(in_loop_, false);
    node->body = block_until("endfilter");
    in_loop_ = outer;
    return node;
  }

  std::unique_ptr<Statement> with_statement(int line) {
    auto node = std::make_unique<WithNode>(line);
    while (!stream_.at(TokenType::kBlockEnd)) {
      if (!node->names.empty()) stream_.expect_operator(",");
      Target target = expressions_.target();
      stream_.expect_operator("=");
      node->names.emplace_back(std::move(target), expressions_.expression());
    }
    node->body = block_until("endwith");
    return node;
  }

  // What transformers marks as the assistant's in training; it is printed like the rest.
  std::unique_ptr<Statement> generation_statement(int line) {
    auto node = std::make_unique<WithNode>(line);
    const bool outer = std::exchange(in_loop_, false);
    node->body = block_until("endgeneration");
    in_loop_ = outer;
    return node;
  }

  TokenStream stream_;
  size_t depth_ = 0;
  ExpressionParser expressions_;
  bool in_loop_ = false;
};

}  // namespace

Ast parse(std::string_view source) {
  if (source.size() > Limits().source_bytes) {
    throw Error("the chat template has " + std::to_string(source.size()) + " bytes, more than " +
                std::to_string(Limits().source_bytes));
  }
  TokenList list;
  read_tokens(source, list);
  return StatementParser(list).run();
}

}  // namespace quire::jinja

// Runs a parsed template.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/builtin.h"
#include "text/jinja/value.h"

namespace quire::jinja {

// A minute of the calendar, for strftime_now().
struct Moment {
  std::function<std::string(const char* format)> format;
};

class Renderer {
 public:
  Renderer(const Ast& ast, Heap& heap, const Moment& now);

  // Names that the template can use.
  void set(std::string_view name, Value value) { globals_->set(name, value, budget_); }
  // All of the template's output. Throws Trouble.
  Text run();

  int line() const { return line_; }  // of what ran last
  const Moment& now() const { return now_; }

  Value call(Value function, Arguments arguments);
  Value apply_filter(std::string_view name, Value input, Arguments arguments);
  bool apply_test(std::string_view name, Value input, Arguments arguments);

 private:
  enum class Flow : uint8_t { kOn, kBreak, kContinue };
  // One more level of recursion, as long as it lives.
  class Level {
   public:
    explicit Level(Renderer& renderer) : level_(renderer.level_) {
      if (level_ >= kMaxRunDepth) {
        throw Trouble("goes deeper than " + std::to_string(kMaxRunDepth) + " levels of calls and parts");
      }
      ++level_;
    }
    ~Level() { --level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    size_t& level_;
  };
  class Output;

  Flow run_body(const Body& body);
  Flow run_statement(const Statement& statement);
  Flow run_if(const IfNode& node);
  Flow run_for(const ForNode& node);
  Flow run_loop(const ForNode& node, const std::vector<Value>& items);
  Flow run_with(const WithNode& node);
  void run_set_block(const SetBlockNode& node);
  void run_call_block(const CallBlockNode& node);
  // The output of a body, in a scope of its own.
  Text captured(const Body& body);
  void define_macro(const MacroNode& node);
  Value macro(const MacroNode& node);
  Value call_macro(const Function& function, Arguments arguments);
  void bind_parameters(const MacroNode& node, Arguments& arguments);
  void assign(const Target& target, Value value);
  void write(const Text& text);
  void write(std::string_view literal);

  Value evaluate(const Expr& expr);
  Value constant(const Constant& expr) const;
  Value text_literal(const TextLiteral& expr);
  Value items_literal(const ItemsLiteral& expr);
  Value dict_literal(const DictLiteral& expr);
  Value unary(const Unary& expr);
  Value binary(const Binary& expr);
  Value comparison(const Compare& expr);
  Value concat(const Concat& expr);
  Value item(const Item& expr);
  Value filter(const Applied& expr);
  Arguments arguments(const CallArguments& all);

  Scope* open_scope();

  const Ast& ast_;
  Heap& heap_;
  Budget& budget_;
  const Moment& now_;
  Scope* globals_;
  Scope* scope_;
  Text* output_ = nullptr;
  std::vector<Value> literals_;  // by TextLiteral::id, once they were used
  Value block_input_;            // what the filters of a block are applied to
  size_t level_ = 0;
  int line_ = 1;
};

}  // namespace quire::jinja

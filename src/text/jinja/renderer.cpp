// The statements of a template.
#include "text/jinja/renderer.h"

#include <algorithm>
#include <utility>

#include "text/jinja/lexer.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"

namespace quire::jinja {

// Output goes to another text, and names to another scope, until it ends.
class Renderer::Output {
 public:
  Output(Renderer& renderer, Text* output, Scope* scope)
      : renderer_(renderer),
        output_(std::exchange(renderer.output_, output)),
        scope_(std::exchange(renderer.scope_, scope)) {}
  ~Output() {
    renderer_.output_ = output_;
    renderer_.scope_ = scope_;
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

 private:
  Renderer& renderer_;
  Text* output_;
  Scope* scope_;
};

Renderer::Renderer(const Ast& ast, Heap& heap, const Moment& now)
    : ast_(ast),
      heap_(heap),
      budget_(heap.budget()),
      now_(now),
      globals_(heap.make<Scope>()),
      scope_(globals_),
      literals_(ast.n_literals) {
  for (const Builtin& builtin : global_functions()) {
    auto* function = heap_.make<Function>();
    function->builtin = &builtin;
    set(builtin.name, Value::object(Kind::kFunction, function));
  }
}

Text Renderer::run() {
  Text out;
  const Output output(*this, &out, open_scope());
  run_body(ast_.body);
  return out;
}

Scope* Renderer::open_scope() {
  budget_.take_memory(200);  // of the names to come
  auto* scope = heap_.make<Scope>();
  scope->parent = scope_;
  return scope;
}

void Renderer::write(const Text& text) {
  budget_.take_bytes(text.size());
  output_->append(text);
  if (output_->size() > budget_.limits().output_bytes) {
    throw Trouble("prints more than " + std::to_string(budget_.limits().output_bytes) + " bytes");
  }
}

void Renderer::write(std::string_view literal) {
  budget_.take_bytes(literal.size());
  output_->append(literal, Origin::kTemplate);
  if (output_->size() > budget_.limits().output_bytes) {
    throw Trouble("prints more than " + std::to_string(budget_.limits().output_bytes) + " bytes");
  }
}

Renderer::Flow Renderer::run_body(const Body& body) {
  const Level level(*this);
  for (const auto& statement : body) {
    const Flow flow = run_statement(*statement);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Renderer::Flow Renderer::run_statement(const Statement& statement) {
  budget_.take_steps(1);
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kData: write(static_cast<const DataNode&>(statement).text); break;
    case StatementKind::kPrint: {
      const Value value = evaluate(*static_cast<const PrintNode&>(statement).value);
      if (value.is(Kind::kText)) {
        write(value.text());
      } else {
        write(printed(value, budget_));
      }
      break;
    }
    case StatementKind::kIf: return run_if(static_cast<const IfNode&>(statement));
    case StatementKind::kFor: return run_for(static_cast<const ForNode&>(statement));
    case StatementKind::kSet: {
      const auto& node = static_cast<const SetNode&>(statement);
      assign(node.target, evaluate(*node.value));
      break;
    }
    case StatementKind::kSetBlock: run_set_block(static_cast<const SetBlockNode&>(statement)); break;
    case StatementKind::kMacro: define_macro(static_cast<const MacroNode&>(statement)); break;
    case StatementKind::kCallBlock: run_call_block(static_cast<const CallBlockNode&>(statement)); break;
    case StatementKind::kFilterBlock: {
      const auto& node = static_cast<const FilterBlockNode&>(statement);
      const Value outer = std::exchange(block_input_, heap_.text(captured(node.body)));
      write(printed(evaluate(*node.filter), budget_));
      block_input_ = outer;
      break;
    }
    case StatementKind::kWith: return run_with(static_cast<const WithNode&>(statement));
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
  }
  return Flow::kOn;
}

Renderer::Flow Renderer::run_if(const IfNode& node) {
  for (const auto& [condition, body] : node.branches) {
    if (is_true(evaluate(*condition))) return run_body(body);
  }
  return run_body(node.otherwise);
}

Renderer::Flow Renderer::run_for(const ForNode& node) {
  std::vector<Value> items = items_of(evaluate(*node.items), heap_);
  budget_.take_memory(items.size() * sizeof(Value));
  if (node.condition != nullptr) {
    const Output output(*this, output_, open_scope());
    std::vector<Value> kept;
    for (const Value item : items) {
      assign(node.target, item);
      if (is_true(evaluate(*node.condition))) kept.push_back(item);
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    const Output output(*this, output_, open_scope());
    return run_body(node.otherwise);
  }
  return run_loop(node, items);
}

Renderer::Flow Renderer::run_loop(const ForNode& node, const std::vector<Value>& items) {
  auto* loop = heap_.make<LoopState>();
  loop->items = &items;
  const Value loop_value = Value::object(Kind::kLoop, loop);
  for (size_t i = 0; i < items.size(); ++i) {
    const Output output(*this, output_, open_scope());  // names set in one round are gone in the next
    loop->index = i;
    line_ = node.line;
    assign(node.target, items[i]);
    scope_->set("loop", loop_value, budget_);
    if (run_body(node.body) == Flow::kBreak) break;
  }
  static const std::vector<Value> kNothing;
  loop->items = &kNothing;  // a macro may still know the loop
  loop->index = 0;
  return Flow::kOn;
}

Renderer::Flow Renderer::run_with(const WithNode& node) {
  Scope* scope = open_scope();
  std::vector<Value> values;
  for (const auto& entry : node.names) values.push_back(evaluate(*entry.second));
  const Output output(*this, output_, scope);
  for (size_t i = 0; i < values.size(); ++i) assign(node.names[i].first, values[i]);
  return run_body(node.body);
}

Text Renderer::captured(const Body& body) {
  Text out;
  const Output output(*this, &out, open_scope());
  run_body(body);
  return out;
}

void Renderer::run_set_block(const SetBlockNode& node) {
  Value value = heap_.text(captured(node.body));
  if (node.filter != nullptr) {
    const Value outer = std::exchange(block_input_, value);
    value = evaluate(*node.filter);
    block_input_ = outer;
  }
  assign(node.target, value);
}

Value Renderer::macro(const MacroNode& node) {
  auto* function = heap_.make<Function>();
  function->macro = &node;
  function->scope = scope_;
  return Value::object(Kind::kFunction, function);
}

void Renderer::define_macro(const MacroNode& node) { scope_->set(node.name, macro(node), budget_); }

void Renderer::run_call_block(const CallBlockNode& node) {
  const Value function = evaluate(*node.call->function);
  Arguments all = arguments(node.call->arguments);
  all.named.emplace_back("caller", macro(*node.caller));
  write(printed(call(function, std::move(all)), budget_));
}

void Renderer::assign(const Target& target, Value value) {
  line_ = target.line;
  if (!target.items.empty()) {
    const std::vector<Value> items = items_of(value, heap_);
    if (items.size() != target.items.size()) {
      throw Trouble("assigns " + std::to_string(items.size()) + " values to " +
                    std::to_string(target.items.size()) + " names");
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    scope_->set(target.name, value, budget_);
    return;
  }
  const Value* object = scope_->find(target.name, budget_);
  if (object == nullptr || !object->is(Kind::kNamespace)) {
    throw Trouble("assigns to an attribute of " + in_quotes(target.name) + ", which is no namespace");
  }
  Dict& members = object->dict();
  budget_.take_steps(members.entries.size() / 8);
  if (const Value* there = members.find(target.attribute)) {
    *const_cast<Value*>(there) = value;  // of a namespace, which may change
  } else {
    budget_.take_memory(2 * sizeof(Value));
    members.entries.emplace_back(heap_.text(target.attribute, Origin::kTemplate), value);
  }
}

}  // namespace quire::jinja

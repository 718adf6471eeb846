// The expressions of a template, and calls.
#include <algorithm>
#include <utility>

#include "text/jinja/lexer.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/renderer.h"

namespace quire::jinja {

Value Renderer::evaluate(const Expr& expr) {
  const Level level(*this);
  budget_.take_steps(1);
  line_ = expr.line;
  switch (expr.kind) {
    case ExprKind::kConstant: return constant(static_cast<const Constant&>(expr));
    case ExprKind::kText: return text_literal(static_cast<const TextLiteral&>(expr));
    case ExprKind::kName: {
      const std::string& name = static_cast<const Name&>(expr).name;
      const Value* found = scope_->find(name, budget_);
      return found != nullptr ? *found : heap_.undefined(in_quotes(name) + " is not defined");
    }
    case ExprKind::kList:
    case ExprKind::kTuple: return items_literal(static_cast<const ItemsLiteral&>(expr));
    case ExprKind::kDict: return dict_literal(static_cast<const DictLiteral&>(expr));
    case ExprKind::kUnary: return unary(static_cast<const Unary&>(expr));
    case ExprKind::kBinary: return binary(static_cast<const Binary&>(expr));
    case ExprKind::kCompare: return comparison(static_cast<const Compare&>(expr));
    case ExprKind::kConcat: return concat(static_cast<const Concat&>(expr));
    case ExprKind::kConditional: {
      const auto& node = static_cast<const Conditional&>(expr);
      if (is_true(evaluate(*node.condition))) return evaluate(*node.value);
      if (node.otherwise != nullptr) return evaluate(*node.otherwise);
      return heap_.undefined("the expression has no 'else' and thus is undefined");
    }
    case ExprKind::kAttribute: {
      const auto& node = static_cast<const Attribute&>(expr);
      const Value object = evaluate(*node.object);
      line_ = expr.line;
      return get_attribute(object, node.name, heap_);
    }
    case ExprKind::kItem: return item(static_cast<const Item&>(expr));
    case ExprKind::kSlice: throw Trouble("slices where nothing can be sliced");
    case ExprKind::kCall: {
      const auto& node = static_cast<const Call&>(expr);
      const Value function = evaluate(*node.function);
      Arguments all = arguments(node.arguments);
      line_ = expr.line;
      return call(function, std::move(all));
    }
    case ExprKind::kFilter: return filter(static_cast<const Applied&>(expr));
    case ExprKind::kTest: {
      const auto& node = static_cast<const Applied&>(expr);
      const Value input = evaluate(*node.input);
      Arguments all = arguments(node.arguments);
      line_ = expr.line;
      return Value::boolean(apply_test(node.name, input, std::move(all)));
    }
  }
  return Value();
}

Value Renderer::constant(const Constant& expr) const {
  switch (expr.type) {
    case ConstantType::kNone: return Value::none();
    case ConstantType::kBool: return Value::boolean(expr.integer != 0);
    case ConstantType::kInt: return Value::integer(expr.integer);
    case ConstantType::kFloat: return Value::floating(expr.floating);
  }
  return Value();
}

// Made once, as a loop may come by often.
Value Renderer::text_literal(const TextLiteral& expr) {
  Value& value = literals_[expr.id];
  if (value.is_undefined()) value = heap_.text(expr.text, Origin::kTemplate);
  return value;
}

Value Renderer::items_literal(const ItemsLiteral& expr) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& each : expr.items) items.push_back(evaluate(*each));
  return heap_.sequence(expr.kind == ExprKind::kList ? SequenceType::kList : SequenceType::kTuple,
                        std::move(items));
}

Value Renderer::dict_literal(const DictLiteral& expr) {
  auto* dict = heap_.make<Dict>();
  for (const auto& [key_expr, value_expr] : expr.items) {
    const Value key = evaluate(*key_expr);
    const Value value = evaluate(*value_expr);
    require_key(key);
    budget_.take_memory(2 * sizeof(Value));
    if (const Value* there = find_key(*dict, key, budget_)) {
      *const_cast<Value*>(there) = value;  // the dict is being made
    } else {
      dict->entries.emplace_back(key, value);
    }
  }
  return Value::object(Kind::kDict, dict);
}

Value Renderer::unary(const Unary& expr) {
  const Value value = evaluate(*expr.operand);
  line_ = expr.line;
  switch (expr.op) {
    case UnaryOp::kNot: return Value::boolean(!is_true(value));
    case UnaryOp::kMinus: return negated(value);
    case UnaryOp::kPlus: return unchanged(value);
  }
  return Value();
}

Value Renderer::binary(const Binary& expr) {
  const Value left = evaluate(*expr.left);
  if (expr.op == BinaryOp::kAnd) return is_true(left) ? evaluate(*expr.right) : left;
  if (expr.op == BinaryOp::kOr) return is_true(left) ? left : evaluate(*expr.right);
  const Value right = evaluate(*expr.right);
  line_ = expr.line;
  return calculate(expr.op, left, right, heap_);
}

Value Renderer::comparison(const Compare& expr) {
  Value left = evaluate(*expr.first);
  for (const auto& [op, operand] : expr.more) {
    const Value right = evaluate(*operand);
    line_ = expr.line;
    if (!compare(op, left, right, heap_)) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Value Renderer::concat(const Concat& expr) {
  Text out;
  for (const ExprPtr& part : expr.parts) append_printed(evaluate(*part), out, budget_);
  return heap_.text(std::move(out));
}

Value Renderer::item(const Item& expr) {
  const Value object = evaluate(*expr.object);
  if (expr.key->kind != ExprKind::kSlice) {
    const Value key = evaluate(*expr.key);
    line_ = expr.line;
    return get_item(object, key, heap_);
  }
  const auto& slice = static_cast<const Slice&>(*expr.key);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i)
    bounds[i] = slice.bounds[i] != nullptr ? evaluate(*slice.bounds[i]) : Value::none();
  line_ = expr.line;
  return get_slice(object, bounds[0], bounds[1], bounds[2], heap_);
}

Value Renderer::filter(const Applied& expr) {
  const Value input = expr.input != nullptr ? evaluate(*expr.input) : block_input_;
  Arguments all = arguments(expr.arguments);
  line_ = expr.line;
  return apply_filter(expr.name, input, std::move(all));
}

Arguments Renderer::arguments(const CallArguments& all) {
  Arguments made;
  for (const ExprPtr& each : all.positional) made.positional.push_back(evaluate(*each));
  for (const auto& [name, each] : all.named) made.named.emplace_back(name, evaluate(*each));
  if (all.more_positional != nullptr) {
    const std::vector<Value> more = items_of(evaluate(*all.more_positional), heap_);
    made.positional.insert(made.positional.end(), more.begin(), more.end());
  }
  if (all.more_named != nullptr) {
    const Value more = evaluate(*all.more_named);
    if (!more.is(Kind::kDict)) throw Trouble("behind '**' stands no dict");
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.is(Kind::kText)) throw Trouble("behind '**' stands a dict with keys that are no texts");
      made.named.emplace_back(key.bytes(), value);
    }
  }
  return made;
}

Value Renderer::apply_filter(std::string_view name, Value input, Arguments arguments) {
  const Level level(*this);  // map() applies what calls map()
  const Builtin* builtin = find_filter(name);
  if (builtin == nullptr) throw Trouble("there is no filter " + in_quotes(name));
  budget_.take_steps(1);
  return invoke(*this, heap_, *builtin, input, std::move(arguments));
}

bool Renderer::apply_test(std::string_view name, Value input, Arguments arguments) {
  const Level level(*this);
  const Builtin* builtin = find_test(name);
  if (builtin == nullptr) throw Trouble("there is no test " + in_quotes(name));
  budget_.take_steps(1);
  return is_true(invoke(*this, heap_, *builtin, input, std::move(arguments)));
}

Value Renderer::call(Value function, Arguments arguments) {
  require_defined(function, "called");
  if (function.is(Kind::kJoiner)) return invoke(*this, heap_, joiner_call(), function, std::move(arguments));
  if (!function.is(Kind::kFunction)) {
    throw Trouble(std::string("a value of type ") + type_name(function) + " cannot be called");
  }
  const Function& object = function.function();
  if (object.macro != nullptr) return call_macro(object, std::move(arguments));
  return invoke(*this, heap_, *object.builtin, object.self, std::move(arguments));
}

// Into the current scope, which is the macro's.
void Renderer::bind_parameters(const MacroNode& node, Arguments& arguments) {
  const size_t n = node.parameters.size();
  const auto named = [&](std::string_view name) {
    budget_.take_steps(1 + arguments.named.size());
    return std::find_if(arguments.named.begin(), arguments.named.end(),
                        [&](const auto& a) { return a.first == name; });
  };
  for (size_t i = 0; i < n; ++i) {
    const std::string& name = node.parameters[i];
    const auto given = named(name);
    if (i < arguments.positional.size()) {
      if (given != arguments.named.end()) throw Trouble("the macro is given " + in_quotes(name) + " twice");
      scope_->set(name, arguments.positional[i], budget_);
    } else if (given != arguments.named.end()) {
      scope_->set(name, given->second, budget_);
      arguments.named.erase(given);
    } else if (i + node.defaults.size() >= n) {
      scope_->set(name, evaluate(*node.defaults[i + node.defaults.size() - n]), budget_);
    } else {
      scope_->set(name, heap_.undefined("the parameter " + in_quotes(name) + " is not given"), budget_);
    }
  }
  if (node.uses_caller) {
    const auto caller = named("caller");
    scope_->set("caller",
                caller != arguments.named.end() ? caller->second : heap_.undefined("there is no caller"),
                budget_);
    if (caller != arguments.named.end()) arguments.named.erase(caller);
  }
  std::vector<Value> more;
  if (arguments.positional.size() > n) {
    more.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(n), arguments.positional.end());
  }
  if (!more.empty() && !node.uses_more_positional) {
    throw Trouble("the macro " + in_quotes(node.name) + " takes " + std::to_string(n) + " arguments, not " +
                  std::to_string(arguments.positional.size()));
  }
  if (node.uses_more_positional)
    scope_->set("varargs", heap_.sequence(SequenceType::kTuple, std::move(more)), budget_);
  if (!arguments.named.empty() && !node.uses_more_named) {
    throw Trouble("the macro " + in_quotes(node.name) + " takes no argument " +
                  in_quotes(arguments.named.front().first));
  }
  if (!node.uses_more_named) return;
  auto* dict = heap_.make<Dict>();
  for (const auto& [name, value] : arguments.named) {
    dict->entries.emplace_back(heap_.text(std::string(name), Origin::kOutside), value);  // may come by **
  }
  scope_->set("kwargs", Value::object(Kind::kDict, dict), budget_);
}

Value Renderer::call_macro(const Function& function, Arguments arguments) {
  Text out;
  Scope* outer_scope = std::exchange(scope_, function.scope);
  Text* outer_output = std::exchange(output_, &out);
  struct Restore {
    Renderer& renderer;
    Scope* scope;
    Text* output;
    ~Restore() {
      renderer.scope_ = scope;
      renderer.output_ = output;
    }
  };
  const Restore restore{*this, outer_scope, outer_output};
  scope_ = open_scope();
  bind_parameters(*function.macro, arguments);
  run_body(function.macro->body);
  return heap_.text(std::move(out));
}

}  // namespace quire::jinja

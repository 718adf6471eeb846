// The parts of a parsed template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace quire::jinja {

enum class ExprKind : uint8_t {
  kConstant,
  kText,
  kName,
  kList,
  kTuple,
  kDict,
  kUnary,
  kBinary,
  kCompare,
  kConcat,
  kConditional,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

struct Expr {
  Expr(ExprKind kind_in, int line_in) : kind(kind_in), line(line_in) {}
  Expr(const Expr&) = delete;
  Expr& operator=(const Expr&) = delete;
  virtual ~Expr() = default;

  ExprKind kind;
  int line;
  size_t depth = 1;  // levels of this expression; the parser limits them, as they are walked recursively
};
using ExprPtr = std::unique_ptr<Expr>;

enum class ConstantType : uint8_t { kNone, kBool, kInt, kFloat };

struct Constant : Expr {
  Constant(int line_in, ConstantType type_in) : Expr(ExprKind::kConstant, line_in), type(type_in) {}
  ConstantType type;
  int64_t integer = 0;
  double floating = 0;
};

struct TextLiteral : Expr {
  TextLiteral(int line_in, std::string text_in, size_t id_in)
      : Expr(ExprKind::kText, line_in), text(std::move(text_in)), id(id_in) {}
  std::string text;
  size_t id;  // counts the literals of the template
};

struct Name : Expr {
  Name(int line_in, std::string name_in) : Expr(ExprKind::kName, line_in), name(std::move(name_in)) {}
  std::string name;
};

// A list or a tuple.
struct ItemsLiteral : Expr {
  using Expr::Expr;
  std::vector<ExprPtr> items;
};

struct DictLiteral : Expr {
  explicit DictLiteral(int line_in) : Expr(ExprKind::kDict, line_in) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};

enum class UnaryOp : uint8_t { kNot, kMinus, kPlus };

struct Unary : Expr {
  Unary(int line_in, UnaryOp op_in) : Expr(ExprKind::kUnary, line_in), op(op_in) {}
  UnaryOp op;
  ExprPtr operand;
};

enum class BinaryOp : uint8_t {
  kAnd,
  kOr,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};

struct Binary : Expr {
  Binary(int line_in, BinaryOp op_in) : Expr(ExprKind::kBinary, line_in), op(op_in) {}
  BinaryOp op;
  ExprPtr left;
  ExprPtr right;
};

enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

// a < b <= c
struct Compare : Expr {
  explicit Compare(int line_in) : Expr(ExprKind::kCompare, line_in) {}
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> more;
};

// a ~ b ~ c
struct Concat : Expr {
  explicit Concat(int line_in) : Expr(ExprKind::kConcat, line_in) {}
  std::vector<ExprPtr> parts;
};

// value if condition else otherwise
struct Conditional : Expr {
  explicit Conditional(int line_in) : Expr(ExprKind::kConditional, line_in) {}
  ExprPtr condition;
  ExprPtr value;
  ExprPtr otherwise;  // or none: undefined
};

struct Attribute : Expr {
  Attribute(int line_in, std::string name_in)
      : Expr(ExprKind::kAttribute, line_in), name(std::move(name_in)) {}
  ExprPtr object;
  std::string name;
};

struct Item : Expr {
  explicit Item(int line_in) : Expr(ExprKind::kItem, line_in) {}
  ExprPtr object;
  ExprPtr key;  // may be a Slice
};

struct Slice : Expr {
  explicit Slice(int line_in) : Expr(ExprKind::kSlice, line_in) {}
  ExprPtr bounds[3];  // start, stop, step; any may be missing
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr more_positional;  // *list
  ExprPtr more_named;       // **dict
};

struct Call : Expr {
  explicit Call(int line_in) : Expr(ExprKind::kCall, line_in) {}
  ExprPtr function;
  CallArguments arguments;
};

// A filter, or a test.
struct Applied : Expr {
  Applied(ExprKind kind_in, int line_in, std::string name_in)
      : Expr(kind_in, line_in), name(std::move(name_in)) {}
  std::string name;
  ExprPtr input;  // of filters of blocks none: the block's text
  CallArguments arguments;
};

// What is assigned to: a name, an attribute of a namespace, or a tuple of such.
struct Target {
  int line = 0;
  std::string name;           // empty: a tuple
  std::string attribute;      // of the namespace `name`; empty: the name itself
  std::vector<Target> items;  // of a tuple
};

enum class StatementKind : uint8_t {
  kData,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kBreak,
  kContinue,
};

struct Statement {
  Statement(StatementKind kind_in, int line_in) : kind(kind_in), line(line_in) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  virtual ~Statement() = default;

  StatementKind kind;
  int line;
};
using Body = std::vector<std::unique_ptr<Statement>>;

struct DataNode : Statement {
  DataNode(int line_in, std::string text_in)
      : Statement(StatementKind::kData, line_in), text(std::move(text_in)) {}
  std::string text;
};

struct PrintNode : Statement {
  PrintNode(int line_in, ExprPtr value_in)
      : Statement(StatementKind::kPrint, line_in), value(std::move(value_in)) {}
  ExprPtr value;
};

struct IfNode : Statement {
  explicit IfNode(int line_in) : Statement(StatementKind::kIf, line_in) {}
  std::vector<std::pair<ExprPtr, Body>> branches;  // if, and each elif
  Body otherwise;
};

struct ForNode : Statement {
  explicit ForNode(int line_in) : Statement(StatementKind::kFor, line_in) {}
  Target target;
  ExprPtr items;
  ExprPtr condition;  // or none
  Body body;
  Body otherwise;
};

struct SetNode : Statement {
  explicit SetNode(int line_in) : Statement(StatementKind::kSet, line_in) {}
  Target target;
  ExprPtr value;
};

struct SetBlockNode : Statement {
  explicit SetBlockNode(int line_in) : Statement(StatementKind::kSetBlock, line_in) {}
  Target target;
  ExprPtr filter;  // or none
  Body body;
};

struct MacroNode : Statement {
  explicit MacroNode(int line_in) : Statement(StatementKind::kMacro, line_in) {}
  std::string name;  // "caller" for the body of a call block
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;      // of the last parameters
  bool uses_caller = false;           // and so takes one
  bool uses_more_positional = false;  // varargs
  bool uses_more_named = false;       // kwargs
  Body body;
};

struct CallBlockNode : Statement {
  explicit CallBlockNode(int line_in) : Statement(StatementKind::kCallBlock, line_in) {}
  std::unique_ptr<Call> call;
  std::unique_ptr<MacroNode> caller;
};

struct FilterBlockNode : Statement {
  explicit FilterBlockNode(int line_in) : Statement(StatementKind::kFilterBlock, line_in) {}
  ExprPtr filter;
  Body body;
};

// A body with names of its own; also {% generation %}, which has none.
struct WithNode : Statement {
  explicit WithNode(int line_in) : Statement(StatementKind::kWith, line_in) {}
  std::vector<std::pair<Target, ExprPtr>> names;
  Body body;
};

struct LoopControlNode : Statement {
  using Statement::Statement;
};

struct Ast {
  Body body;
  size_t n_literals = 0;
};

}  // namespace quire::jinja

#include "text/expression.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "text/one_line.h"
#include "text/utf8.h"

namespace quire {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr size_t kFirstStackBytes = size_t{1} << 20;
constexpr size_t kMostStackBytes = size_t{256} << 20;
constexpr uint32_t kHeapKibibytes = 1 << 18;  // for one match, where there is no JIT

// A match first gets a few steps. Where they do not suffice it gets 16 times as many, but those are paid from
// what the text has: a long word may need them, an expression that needs them everywhere is refused.
constexpr uint32_t kFewSteps = 2000;
constexpr uint32_t kMostSteps = 100'000'000;
constexpr uint64_t kStepsOfText = 100'000'000;
constexpr uint64_t kStepsOfByte = 256;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeJitStack {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string message_of(int code) {
  PCRE2_UCHAR text[128];
  const int size = pcre2_get_error_message(code, text, sizeof text);
  return size < 0 ? "error " + std::to_string(code) : std::string(reinterpret_cast<const char*>(text));
}

// One search through a text: matches with limits that grow while the text can pay for them.
class Search {
 public:
  Search(const pcre2_code* code, const std::string& pattern, MatchBudget& budget)
      : code_(code),
        pattern_(pattern),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        budget_(budget) {
    if (!data_ || !context_) throw std::bad_alloc();
    pcre2_set_heap_limit(context_.get(), kHeapKibibytes);
    pcre2_set_match_limit(context_.get(), kFewSteps);
  }

  // The next match in `text`, which is UTF-8, from `from` on; false if there is none.
  bool next(std::string_view text, size_t from, Expression::Match& match) {
    uint32_t limit = kFewSteps;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    for (;;) {
      const int rc = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options,
                                 data_.get(), context_.get());
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
        enlarge_stack();
      } else if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        options |= PCRE2_NO_JIT;  // the interpreter keeps its stack on the heap
      } else if (rc == PCRE2_ERROR_MATCHLIMIT && limit < kMostSteps) {
        limit = raise(limit);
      } else {
        if (limit != kFewSteps) pcre2_set_match_limit(context_.get(), kFewSteps);
        return read(rc, match);
      }
    }
  }

 private:
  // In place of the 32 KiB on the thread's own stack, which do for all but very long words.
  void enlarge_stack() {
    stack_.reset(pcre2_jit_stack_create(kFirstStackBytes, kMostStackBytes, nullptr));
    if (!stack_) throw std::bad_alloc();
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  uint32_t raise(uint32_t limit) {
    const uint32_t raised = limit * 16;
    if (!budget_.pay(raised)) fail("needs too many steps on this text");
    pcre2_set_match_limit(context_.get(), raised);
    return raised;
  }

  bool read(int rc, Expression::Match& match) const {
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT) {
      fail("needs too many steps on this text");
    }
    if (rc < 0) fail("failed: " + message_of(rc));
    const PCRE2_SIZE* places = pcre2_get_ovector_pointer(data_.get());
    match = {places[0], places[1]};
    return true;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error("the regular expression '" + one_line(pattern_) + "' " + what);
  }

  const pcre2_code* code_;
  const std::string& pattern_;
  std::unique_ptr<pcre2_match_data, FreeMatchData> data_;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context_;
  std::unique_ptr<pcre2_jit_stack, FreeJitStack> stack_;  // once it was needed
  MatchBudget& budget_;
};

// Size of the UTF-8 at the start of `text`.
size_t valid_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Char c = decode_utf8(text.substr(at));
    if (c.state != Utf8Char::State::kValid) break;
    at += c.size_bytes;
  }
  return at;
}

// All matches in `text`, which is UTF-8 and lies `offset` bytes behind the start of the whole.
void find_in_valid(Search& search, std::string_view text, size_t offset,
                   std::vector<Expression::Match>& matches) {
  Expression::Match match{};
  for (size_t at = 0; at <= text.size() && search.next(text, at, match);) {
    // \K is refused, but a lookahead may still move the end before the start.
    const bool empty = match.end <= match.begin;
    if (!empty) matches.push_back({offset + match.begin, offset + match.end});
    at = std::max(match.end, at);
    if (!empty) continue;
    at = std::max(match.begin, at);
    if (at >= text.size()) return;
    at += decode_utf8(text.substr(at)).size_bytes;
  }
}

}  // namespace

MatchBudget::MatchBudget(size_t text_bytes) : left_(kStepsOfText + kStepsOfByte * text_bytes) {}

bool MatchBudget::pay(uint64_t n_steps) {
  if (left_ < n_steps) return false;
  left_ -= n_steps;
  return true;
}

Expression::Expression(std::string_view pattern) : pattern_(pattern) {
  if (pattern.size() > kMaxPatternBytes)
    throw Error("a regular expression of the tokenizer is longer than 64 KiB");
  const std::string translated = to_pcre2(pattern);
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE place = 0;
  std::unique_ptr<pcre2_code, FreeCode> compiled(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &place, context.get()));
  if (!compiled) {
    throw Error("the regular expression '" + one_line(pattern_) + "' is not understood: " + message_of(code));
  }
  // Where the machine has no JIT the interpreter gives the same matches, more slowly.
  pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);
  code_ = std::shared_ptr<const pcre2_code>(
      compiled.release(), [](const pcre2_code* c) { pcre2_code_free(const_cast<pcre2_code*>(c)); });
}

void Expression::find_all(std::string_view text, MatchBudget& budget, std::vector<Match>& matches) const {
  matches.clear();
  Search search(code_.get(), pattern_, budget);
  for (size_t at = 0; at < text.size();) {
    const size_t n_valid = valid_bytes(text.substr(at));
    if (n_valid > 0) find_in_valid(search, text.substr(at, n_valid), at, matches);
    at += n_valid;
    if (at < text.size()) at += decode_utf8(text.substr(at)).size_bytes;
  }
}

}  // namespace quire

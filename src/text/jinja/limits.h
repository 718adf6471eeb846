// What a template may cost, so that a hostile one ends with a sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace quire::jinja {

// The largest real templates have 30 KB, and render in a few thousand steps a message.
struct Limits {
  size_t source_bytes = size_t{1} << 20;
  uint64_t steps = 20'000'000;  // parts of a template evaluated, and 64 bytes or one item handled
  uint64_t memory_bytes = uint64_t{512} << 20;  // of all values made
  size_t output_bytes = size_t{128} << 20;      // of the rendered text
};

// How deep the parts of a template nest, values lie in each other, and calls go while it runs: each level
// takes about a KB of stack, several with sanitizers.
constexpr size_t kMaxNesting = 150;
constexpr size_t kMaxValueDepth = 150;
constexpr size_t kMaxRunDepth = 700;
constexpr int64_t kMaxRange = 100'000;  // items of range(), as in Jinja's sandbox

// Whatever a template does wrong while it runs; Template::render() adds the line and makes an Error of it.
class Trouble : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What is left of the limits.
class Budget {
 public:
  explicit Budget(const Limits& limits)
      : limits_(limits), steps_(limits.steps), memory_bytes_(limits.memory_bytes) {}

  void take_steps(uint64_t n) {
    if (n > steps_) throw Trouble("takes more than " + std::to_string(limits_.steps) + " steps");
    steps_ -= n;
  }
  // Making or looking through so many bytes.
  void take_bytes(size_t n) { take_steps(1 + n / 64); }
  void take_memory(size_t n) {
    if (n > memory_bytes_)
      throw Trouble("needs more than " + std::to_string(limits_.memory_bytes) + " bytes of memory");
    memory_bytes_ -= n;
  }
  // Before so many bytes are made, which are charged when they become a value.
  void check_memory(size_t n) const {
    if (n > memory_bytes_)
      throw Trouble("needs more than " + std::to_string(limits_.memory_bytes) + " bytes of memory");
  }
  const Limits& limits() const { return limits_; }

 private:
  Limits limits_;
  uint64_t steps_;
  uint64_t memory_bytes_;
};

}  // namespace quire::jinja

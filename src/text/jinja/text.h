// Text that knows which of its bytes the template itself says. What messages, tools and other values bring in
// must never become a control token, so the origin of every byte is kept through all that a template does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

enum class Origin : uint8_t {
  kTemplate,  // a literal of the template, or a text that the model's files give (bos, eos)
  kOutside,   // everything else, also whatever is made of both
};

// Bytes (UTF-8, or what was given as such) and their origin, in runs.
class Text {
 public:
  struct Run {
    size_t end;  // where it ends; it begins where the one before it ends
    Origin origin;
  };

  Text() = default;
  Text(std::string bytes, Origin origin);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  size_t memory_bytes() const { return bytes_.size() + runs_.size() * sizeof(Run); }
  // None is empty, and neighbours differ in their origin.
  std::span<const Run> runs() const { return runs_; }

  void append(std::string_view bytes, Origin origin);
  void append(const Text& other) { append_part(other, 0, other.size()); }
  // Bytes [begin, begin + n) of another text, which lie within it.
  void append_part(const Text& other, size_t begin, size_t n);
  Text part(size_t begin, size_t n) const;

  // Calls use(bytes, origin) for each run.
  template <typename Use>
  void for_each_run(const Use& use) const {
    size_t begin = 0;
    for (const Run& run : runs_) {
      use(std::string_view(bytes_).substr(begin, run.end - begin), run.origin);
      begin = run.end;
    }
  }

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace quire::jinja

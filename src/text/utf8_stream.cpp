#include "text/utf8_stream.h"

#include <utility>

#include "text/utf8.h"

namespace quire {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  const std::string joined = held_.empty() ? std::string() : std::exchange(held_, {}).append(bytes);
  std::string_view rest = joined.empty() ? bytes : std::string_view(joined);
  std::string out;
  out.reserve(rest.size());
  while (!rest.empty()) {
    const Utf8Char c = decode_utf8(rest);
    if (c.state == Utf8Char::State::kIncomplete) {
      held_ = rest;
      break;
    }
    out += c.state == Utf8Char::State::kValid ? rest.substr(0, c.size_bytes) : kReplacement;
    rest.remove_prefix(c.size_bytes);
  }
  return out;
}

std::string Utf8Stream::flush() {
  return std::exchange(held_, {}).empty() ? std::string() : std::string(kReplacement);
}

}  // namespace quire

#include "text/jinja/text.h"

#include <algorithm>
#include <utility>

namespace quire::jinja {

Text::Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), origin});
}

void Text::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void Text::append_part(const Text& other, size_t begin, size_t n) {
  if (&other == this) {
    append_part(Text(other), begin, n);
    return;
  }
  const size_t end = begin + n;
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](size_t at, const Run& r) { return at < r.end; });
  for (; begin < end; ++run) {
    const size_t stop = std::min(run->end, end);
    append(std::string_view(other.bytes_).substr(begin, stop - begin), run->origin);
    begin = stop;
  }
}

Text Text::part(size_t begin, size_t n) const {
  Text out;
  out.append_part(*this, begin, n);
  return out;
}

}  // namespace quire::jinja

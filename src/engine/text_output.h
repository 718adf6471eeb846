// From generated tokens to the text that is shown: whole characters only, cut before a stop string.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/stop_matcher.h"
#include "text/utf8_stream.h"

namespace quire {

using OnText = std::function<void(std::string_view piece)>;

// What on_text gets in pieces is, joined, exactly text(), and that depends only on the bytes pushed.
class TextOutput {
 public:
  TextOutput(const std::vector<std::string>& stops, OnText on_text);

  void push(std::string_view bytes);
  // The end of the text: shows what was held back, unless a stop began there and was completed.
  void finish();

  // A stop string was completed; nothing more is shown.
  bool stopped() const { return stops_.stopped(); }
  const std::string& text() const { return text_; }

 private:
  void show(std::string_view piece);

  Utf8Stream characters_;
  StopMatcher stops_;
  OnText on_text_;
  std::string text_;
};

}  // namespace quire

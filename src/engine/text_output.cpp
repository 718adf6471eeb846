#include "engine/text_output.h"

#include <utility>

namespace quire {

TextOutput::TextOutput(const std::vector<std::string>& stops, OnText on_text)
    : stops_(stops), on_text_(std::move(on_text)) {}

void TextOutput::push(std::string_view bytes) { show(stops_.push(characters_.push(bytes))); }

void TextOutput::finish() {
  show(stops_.push(characters_.flush()));
  show(stops_.flush());
}

void TextOutput::show(std::string_view piece) {
  if (piece.empty()) return;
  text_ += piece;
  if (on_text_) on_text_(piece);
}

}  // namespace quire

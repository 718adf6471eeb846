#include "text/jinja/attribute_path.h"

#include <algorithm>
#include <charconv>

#include "text/jinja/operators.h"
#include "text/jinja/text_pieces.h"

namespace quire::jinja {
namespace {

Value path_part(const Text& text, const Piece& piece, Heap& heap) {
  const std::string_view bytes = std::string_view(text.bytes()).substr(piece.begin, piece.n);
  int64_t index = 0;
  const auto got = std::from_chars(bytes.data(), bytes.data() + bytes.size(), index);
  const bool is_index = !bytes.empty() && bytes.front() != '-' && got.ec == std::errc() &&
                        got.ptr == bytes.data() + bytes.size();
  return is_index ? Value::integer(index) : heap.text(text.part(piece.begin, piece.n));
}

}  // namespace

AttributePath::AttributePath(Value attribute, Heap& heap) : heap_(heap) {
  if (attribute.is_undefined() || attribute.is(Kind::kNone)) return;
  if (!attribute.is(Kind::kText)) {
    parts_.push_back(attribute);
    return;
  }
  const Text& text = attribute.text();
  for (const Piece& piece : split_text(text.bytes(), ".", std::string_view::npos, false, heap.budget())) {
    parts_.push_back(path_part(text, piece, heap));
  }
}

Value AttributePath::of(Value item, const Value* otherwise) const {
  for (const Value part : parts_) {
    item = get_item(item, part, heap_);
    if (item.is_undefined() && otherwise != nullptr && !otherwise->is(Kind::kNone)) item = *otherwise;
  }
  return item;
}

std::vector<AttributePath> attribute_paths(Value attributes, Heap& heap) {
  std::vector<AttributePath> paths;
  if (!attributes.is(Kind::kText)) {
    paths.emplace_back(attributes, heap);
    return paths;
  }
  const Text& text = attributes.text();
  for (const Piece& piece : split_text(text.bytes(), ",", std::string_view::npos, false, heap.budget())) {
    paths.emplace_back(heap.text(text.part(piece.begin, piece.n)), heap);
  }
  return paths;
}

Value case_key(Value value, bool case_sensitive, Heap& heap) {
  if (case_sensitive || !value.is(Kind::kText)) return value;
  return heap.text(map_characters(value.text(), to_lower));
}

}  // namespace quire::jinja

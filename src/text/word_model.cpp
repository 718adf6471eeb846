#include "text/word_model.h"

#include <algorithm>

namespace quire {

bool UnknownText::append(std::string_view character, bool follows_unknown, std::vector<int32_t>& ids) const {
  const auto id_of = [this](char c) { return byte_ids[static_cast<uint8_t>(c)]; };
  if (std::ranges::all_of(character, [&](char c) { return id_of(c) != PieceTable::kNone; })) {
    for (const char c : character) ids.push_back(id_of(c));
    return false;
  }
  if (unknown_id == PieceTable::kNone) return false;
  if (!fuse || !follows_unknown) ids.push_back(unknown_id);
  return true;
}

namespace {

// Whether `mark` stands in `text` behind something other than a mark.
bool has_inner_mark(std::string_view text, std::string_view mark) {
  while (text.starts_with(mark)) text.remove_prefix(mark.size());
  return text.find(mark) != std::string_view::npos;
}

}  // namespace

SpaceBreaks::SpaceBreaks(std::string_view mark, const PieceTable& pieces, const std::vector<bool>& is_piece) {
  if (mark.empty() || pieces.find(mark) == PieceTable::kNone) return;
  for (size_t id = 0; id < is_piece.size(); ++id) {
    if (is_piece[id] && has_inner_mark(pieces.texts()[static_cast<int32_t>(id)], mark)) return;
  }
  mark_ = mark;
}

size_t SpaceBreaks::next(std::string_view text) const {
  if (mark_.empty()) return text.size();
  size_t at = 0;
  while (text.substr(at).starts_with(mark_)) at += mark_.size();
  return std::min(text.size(), text.find(mark_, at));
}

}  // namespace quire

#include "text/jinja/text_pieces.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "text/jinja/characters.h"

namespace quire::jinja {
namespace {

bool is_space_at(std::string_view text, size_t at) {
  return is_space(first_character(text.substr(at)).code_point);
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size() && is_space_at(text, at)) at += first_character(text.substr(at)).size_bytes;
  return at;
}

size_t skip_word(std::string_view text, size_t at) {
  while (at < text.size() && !is_space_at(text, at)) at += first_character(text.substr(at)).size_bytes;
  return at;
}

// Back from `end` over white space, or over a word.
size_t back_over(std::string_view text, size_t end, bool space) {
  while (end > 0) {
    const size_t at = last_character(text.substr(0, end));
    if (is_space_at(text, at) != space) break;
    end = at;
  }
  return end;
}

// Bytes of the line break at `at`; 0: there is none.
size_t line_break(std::string_view text, size_t at) {
  if (text.substr(at, 2) == "\r\n") return 2;
  const Character c = first_character(text.substr(at));
  const uint32_t p = c.code_point;
  const bool breaks =
      (p >= 0x0a && p <= 0x0d) || (p >= 0x1c && p <= 0x1e) || p == 0x85 || p == 0x2028 || p == 0x2029;
  return breaks ? c.size_bytes : 0;
}

// Characters to look up, so that a set costs its size only once.
class CharacterSet {
 public:
  CharacterSet(std::string_view set, Budget& budget) {
    budget.take_bytes(set.size());
    while (!set.empty()) {
      const Character c = first_character(set);
      if (c.size_bytes == 1) {
        bytes_.set(static_cast<uint8_t>(set[0]));
      } else {
        if (c.code_point >= code_points_.size()) code_points_.resize(c.code_point + 1);
        code_points_[c.code_point] = true;
      }
      set.remove_prefix(c.size_bytes);
    }
    budget.take_bytes(code_points_.size() / 8);
  }
  bool has(std::string_view character) const {
    if (character.size() == 1) return bytes_[static_cast<uint8_t>(character[0])];
    const uint32_t p = first_character(character).code_point;
    return p < code_points_.size() && code_points_[p];
  }

 private:
  std::bitset<256> bytes_;  // of characters of one byte, and bytes that belong to none
  std::vector<bool> code_points_;
};

// Pieces, refused before the texts that they will become could need more memory than is left.
class PieceList {
 public:
  explicit PieceList(const Budget& budget) : budget_(budget) {}

  void push(size_t begin, size_t end) {
    budget_.check_memory((pieces_.size() + 1) * (sizeof(Piece) + sizeof(Value) + sizeof(TextObject)));
    pieces_.push_back({begin, end - begin});
  }
  size_t size() const { return pieces_.size(); }
  std::vector<Piece> take() { return std::move(pieces_); }
  std::vector<Piece> take_reversed() {
    std::reverse(pieces_.begin(), pieces_.end());
    return std::move(pieces_);
  }

 private:
  const Budget& budget_;
  std::vector<Piece> pieces_;
};

// Takes a step for each 64 bytes that are the same, but none where the texts differ early, as nearly always.
bool begins_with(std::string_view text, std::string_view what, Budget& budget) {
  constexpr size_t kPart = 64;
  for (size_t at = 0; at < what.size(); at += kPart) {
    const size_t n = std::min(kPart, what.size() - at);
    if (at + n > text.size() || text.compare(at, n, what, at, n) != 0) return false;
    budget.take_steps(1);
  }
  return true;
}

}  // namespace

size_t find_text(std::string_view text, std::string_view what, size_t from, Budget& budget) {
  if (from > text.size()) return std::string_view::npos;
  if (what.empty()) return from;
  for (size_t at = text.find(what[0], from); at != std::string_view::npos; at = text.find(what[0], at + 1)) {
    if (what.size() > text.size() - at) break;
    if (begins_with(text.substr(at), what, budget)) return at;
  }
  return std::string_view::npos;
}

size_t find_last_text(std::string_view text, std::string_view what, Budget& budget) {
  if (what.empty()) return text.size();
  if (what.size() > text.size()) return std::string_view::npos;
  for (size_t end = text.size() - what.size() + 1; end > 0;) {
    const size_t at = text.substr(0, end).rfind(what[0]);
    if (at == std::string_view::npos) break;
    if (begins_with(text.substr(at), what, budget)) return at;
    end = at;
  }
  return std::string_view::npos;
}

std::vector<Piece> split_text(std::string_view text, std::string_view separator, size_t limit,
                              bool from_right, Budget& budget) {
  PieceList pieces(budget);
  if (from_right) {
    size_t end = text.size();
    while (pieces.size() < limit) {
      const size_t at = find_last_text(text.substr(0, end), separator, budget);
      if (at == std::string_view::npos) break;
      pieces.push(at + separator.size(), end);
      end = at;
    }
    pieces.push(0, end);
    return pieces.take_reversed();
  }
  size_t begin = 0;
  while (pieces.size() < limit) {
    const size_t at = find_text(text, separator, begin, budget);
    if (at == std::string_view::npos) break;
    pieces.push(begin, at);
    begin = at + separator.size();
  }
  pieces.push(begin, text.size());
  return pieces.take();
}

std::vector<Piece> split_words(std::string_view text, size_t limit, bool from_right, Budget& budget) {
  PieceList pieces(budget);
  if (from_right) {
    size_t end = back_over(text, text.size(), true);
    while (end > 0 && pieces.size() < limit) {
      const size_t begin = back_over(text, end, false);
      pieces.push(begin, end);
      end = back_over(text, begin, true);
    }
    if (end > 0) pieces.push(0, end);
    return pieces.take_reversed();
  }
  size_t begin = skip_space(text, 0);
  while (begin < text.size() && pieces.size() < limit) {
    const size_t end = skip_word(text, begin);
    pieces.push(begin, end);
    begin = skip_space(text, end);
  }
  if (begin < text.size()) pieces.push(begin, text.size());
  return pieces.take();
}

std::vector<Piece> split_lines(std::string_view text, bool keep_ends, Budget& budget) {
  PieceList pieces(budget);
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t n = line_break(text, at);
    if (n > 0) {
      pieces.push(begin, keep_ends ? at + n : at);
      begin = at + n;
      at = begin;
    } else {
      at += first_character(text.substr(at)).size_bytes;
    }
  }
  if (begin < text.size()) pieces.push(begin, text.size());
  return pieces.take();
}

Piece strip_text(std::string_view text, const std::string* set, bool left, bool right, Budget& budget) {
  budget.take_bytes(text.size());
  const CharacterSet characters(set == nullptr ? std::string_view() : *set, budget);
  const auto goes = [&](std::string_view character) {
    return set == nullptr ? is_space(first_character(character).code_point) : characters.has(character);
  };
  size_t begin = 0;
  while (left && begin < text.size()) {
    const size_t n = first_character(text.substr(begin)).size_bytes;
    if (!goes(text.substr(begin, n))) break;
    begin += n;
  }
  size_t end = text.size();
  while (right && end > begin) {
    const size_t at = last_character(text.substr(0, end));
    if (!goes(text.substr(at, end - at))) break;
    end = at;
  }
  return {begin, end - begin};
}

Value piece_list(Heap& heap, const Text& text, const std::vector<Piece>& pieces) {
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (const Piece& piece : pieces) items.push_back(heap.text(text.part(piece.begin, piece.n)));
  return heap.list(std::move(items));
}

Text replace_text(const Text& text, std::string_view from, const Text& to, size_t limit, Budget& budget) {
  budget.take_bytes(text.size());
  const std::string_view bytes = text.bytes();
  Text out;
  const auto put = [&] {
    out.append(to);
    budget.take_bytes(to.size());
    budget.check_memory(out.memory_bytes());
  };
  size_t at = 0;
  size_t n = 0;
  if (from.empty()) {
    for (; at < bytes.size() && n < limit; ++n) {
      put();
      const size_t size = first_character(bytes.substr(at)).size_bytes;
      out.append_part(text, at, size);
      at += size;
    }
    if (at == bytes.size() && n < limit) put();
  } else {
    for (; n < limit; ++n) {
      const size_t found = find_text(bytes, from, at, budget);
      if (found == std::string_view::npos) break;
      out.append_part(text, at, found - at);
      put();
      at = found + from.size();
    }
  }
  out.append_part(text, at, bytes.size() - at);
  return out;
}

}  // namespace quire::jinja

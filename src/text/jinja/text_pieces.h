// Where texts are cut, by Python's rules: places in bytes, so that the pieces can keep their origin.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace quire::jinja {

// Where `what` first lies in `text`, at `from` or behind, and where it last does; npos: nowhere. They charge
// only for what nearly matches, which may cost the product of the sizes; going through the text once is the
// caller's to charge.
size_t find_text(std::string_view text, std::string_view what, size_t from, Budget& budget);
size_t find_last_text(std::string_view text, std::string_view what, Budget& budget);

struct Piece {
  size_t begin;
  size_t n;
};

// At a separator that is not empty, at most `limit` times.
std::vector<Piece> split_text(std::string_view text, std::string_view separator, size_t limit,
                              bool from_right, Budget& budget);
// At runs of white space, which no piece begins or ends with, but the last (first) one where the limit is
// met.
std::vector<Piece> split_words(std::string_view text, size_t limit, bool from_right, Budget& budget);
std::vector<Piece> split_lines(std::string_view text, bool keep_ends, Budget& budget);
// Without what is at the ends of the characters in `set`, or of white space where there is none.
Piece strip_text(std::string_view text, const std::string* set, bool left, bool right, Budget& budget);

Value piece_list(Heap& heap, const Text& text, const std::vector<Piece>& pieces);

// With every `from` (at most `limit` of them) replaced. An empty one stands between all characters.
Text replace_text(const Text& text, std::string_view from, const Text& to, size_t limit, Budget& budget);

// The text with each character changed; `change` gets and gives code points.
template <typename Change>
Text map_characters(const Text& text, const Change& change);

}  // namespace quire::jinja

#include "text/jinja/characters.h"

namespace quire::jinja {

template <typename Change>
Text map_characters(const Text& text, const Change& change) {
  Text out;
  text.for_each_run([&](std::string_view run, Origin origin) {
    std::string changed;
    while (!run.empty()) {
      const Character c = first_character(run);
      const uint32_t to = change(c.code_point);
      if (to == c.code_point) {
        changed += run.substr(0, c.size_bytes);
      } else if (c.code_point == 0xdf) {  // the one common letter (of German) whose capitals are two
        changed += "SS";
      } else {
        append_utf8(to, changed);
      }
      run.remove_prefix(c.size_bytes);
    }
    out.append(changed, origin);
  });
  return out;
}

}  // namespace quire::jinja

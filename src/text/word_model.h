// What turns one word, or a whole normalized text, into tokens: the part in which kinds of tokenizers differ.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/piece_table.h"

namespace quire {

// Immutable, so safe to use from many threads.
class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the tokens of `word`, which is any bytes; of 2 GiB at most.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
};

// What becomes of text that no token spells.
struct UnknownText {
  std::array<int32_t, 256> byte_ids;  // tokens of single bytes; PieceTable::kNone where there is none
  int32_t unknown_id = PieceTable::kNone;
  bool fuse = true;  // neighbours become one unknown token

  UnknownText() { byte_ids.fill(PieceTable::kNone); }

  // The tokens of the bytes of one character, if all have one, else the unknown token, else nothing.
  // `follows_unknown`: the token before came from here too, as unknown. True if now the unknown token stands
  // there.
  bool append(std::string_view character, bool follows_unknown, std::vector<int32_t>& ids) const;
};

// Long texts of models that mark spaces fall into parts that no token reaches across, so that each can be
// encoded by itself: a part begins at a mark that follows something else.
class SpaceBreaks {
 public:
  SpaceBreaks() = default;

  // Cuts only if no token with type_is_piece has the mark behind something else, and the mark is a token.
  SpaceBreaks(std::string_view mark, const PieceTable& pieces, const std::vector<bool>& is_piece);

  // Size of the part at the start of `text`, which is not empty.
  size_t next(std::string_view text) const;

 private:
  std::string mark_;  // empty: the text is one part
};

}  // namespace quire

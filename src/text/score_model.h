// SentencePiece's BPE: two neighbours merge if what they spell together is a token, the one of the highest
// score first. There is no list of merges; the scores are the order. (Kudo and Richardson, SentencePiece,
// 2018)
#pragma once

#include <memory>
#include <span>

#include "text/pair_merging.h"
#include "text/word_model.h"

namespace quire {

class ScoreModel final : public WordModel {
 public:
  // scores by id, none of them NaN.
  ScoreModel(std::shared_ptr<const PieceTable> pieces, std::span<const double> scores, UnknownText unknown,
             SpaceBreaks breaks);

  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  struct Symbol {
    const char* begin;
    uint32_t size_bytes;
    int32_t id;  // kNone: a character that is no token
  };

  void encode_part(std::string_view part, std::vector<Symbol>& symbols, std::vector<int32_t>& ids) const;

  std::shared_ptr<const PieceTable> pieces_;
  std::vector<uint32_t> ranks_;  // by id: how many different scores are higher
  UnknownText unknown_;
  SpaceBreaks breaks_;
};

}  // namespace quire

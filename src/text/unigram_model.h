// The unigram model: of all ways to cut a text into tokens the one whose scores, logarithms of probabilities,
// have the highest sum, found by Viterbi's algorithm. (Kudo, Subword Regularization, 2018)
#pragma once

#include <memory>
#include <span>

#include "text/piece_trie.h"
#include "text/word_model.h"

namespace quire {

class UnigramModel final : public WordModel {
 public:
  // scores by id; `is_piece` by id: which tokens text may become.
  UnigramModel(std::shared_ptr<const PieceTable> pieces, std::span<const double> scores,
               const std::vector<bool>& is_piece, UnknownText unknown, SpaceBreaks breaks);

  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  // The best way to cut the text before a place ends with this token.
  struct Step {
    double score;
    uint32_t begin;
    int32_t id;  // kNone: a character that no token spells
  };

  // Kept between the parts of a text.
  struct Lattice {
    std::vector<Step> steps;     // by place in the part
    std::vector<uint32_t> ends;  // of the tokens of the best cut, the last first
  };

  void encode_part(std::string_view part, Lattice& lattice, std::vector<int32_t>& ids) const;

  std::shared_ptr<const PieceTable> pieces_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  PieceTrie trie_;
  UnknownText unknown_;
  SpaceBreaks breaks_;
};

}  // namespace quire

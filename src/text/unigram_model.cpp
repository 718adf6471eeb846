#include "text/unigram_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "text/utf8.h"

namespace quire {
namespace {

// What a character that no token spells costs beyond the worst token (SentencePiece's kUnkPenalty).
constexpr double kUnknownPenalty = 10.0;

size_t bytes_of_pieces(const PieceTable& pieces, const std::vector<bool>& is_piece) {
  size_t n_bytes = 0;
  for (size_t id = 0; id < is_piece.size(); ++id) {
    if (is_piece[id]) n_bytes += pieces.texts()[static_cast<int32_t>(id)].size();
  }
  return n_bytes;
}

}  // namespace

UnigramModel::UnigramModel(std::shared_ptr<const PieceTable> pieces, std::span<const double> scores,
                           const std::vector<bool>& is_piece, UnknownText unknown, SpaceBreaks breaks)
    : pieces_(std::move(pieces)),
      scores_(scores.begin(), scores.end()),
      trie_(bytes_of_pieces(*pieces_, is_piece)),
      unknown_(std::move(unknown)),
      breaks_(std::move(breaks)) {
  double lowest = std::numeric_limits<double>::max();
  for (size_t i = 0; i < is_piece.size(); ++i) {
    if (!is_piece[i]) continue;
    const auto id = static_cast<int32_t>(i);
    lowest = std::min(lowest, scores_[i]);
    if (!pieces_->texts()[id].empty()) trie_.insert(pieces_->texts()[id], id);
  }
  unknown_score_ = lowest - kUnknownPenalty;
}

void UnigramModel::encode(std::string_view word, std::vector<int32_t>& ids) const {
  Lattice lattice;
  while (!word.empty()) {
    const size_t size_bytes = breaks_.next(word);
    encode_part(word.substr(0, size_bytes), lattice, ids);
    word.remove_prefix(size_bytes);
  }
}

void UnigramModel::encode_part(std::string_view part, Lattice& lattice, std::vector<int32_t>& ids) const {
  constexpr double kUnreached = -std::numeric_limits<double>::infinity();
  std::vector<Step>& steps = lattice.steps;
  steps.assign(part.size() + 1, Step{kUnreached, 0, PieceTable::kNone});
  steps[0].score = 0;
  for (size_t at = 0, character_bytes = 0; at < part.size(); at += character_bytes) {
    const std::string_view rest = part.substr(at);
    character_bytes = decode_utf8(rest).size_bytes;
    const double before = steps[at].score;
    // Of equals the one that was there first stays: the longer token.
    const auto offer = [&](size_t size_bytes, double score, int32_t id) {
      Step& step = steps[at + size_bytes];
      if (before + score > step.score) step = {before + score, static_cast<uint32_t>(at), id};
    };
    bool has_character = false;
    trie_.prefixes(rest, [&](size_t size_bytes, int32_t id) {
      has_character = has_character || size_bytes == character_bytes;
      offer(size_bytes, scores_[static_cast<size_t>(id)], id);
    });
    if (!has_character) offer(character_bytes, unknown_score_, PieceTable::kNone);
  }
  lattice.ends.clear();
  for (size_t end = part.size(); end > 0; end = steps[end].begin)
    lattice.ends.push_back(static_cast<uint32_t>(end));
  bool unknown = false;
  for (size_t i = lattice.ends.size(); i-- > 0;) {
    const size_t end = lattice.ends[i];
    const Step& step = steps[end];
    if (step.id == PieceTable::kNone) {
      unknown = unknown_.append(part.substr(step.begin, end - step.begin), unknown, ids);
    } else {
      ids.push_back(step.id);
      unknown = false;
    }
  }
}

}  // namespace quire

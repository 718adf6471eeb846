#include "text/score_model.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "text/utf8.h"

namespace quire {
namespace {

std::vector<uint32_t> ranks_of(std::span<const double> scores) {
  std::vector<std::pair<double, uint32_t>> order(scores.size());
  for (size_t id = 0; id < scores.size(); ++id) order[id] = {-scores[id], static_cast<uint32_t>(id)};
  // Most files list their tokens by score.
  if (!std::ranges::is_sorted(order)) std::ranges::sort(order);
  std::vector<uint32_t> ranks(scores.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && order[i].first != order[i - 1].first) ++rank;
    ranks[order[i].second] = rank;
  }
  return ranks;
}

}  // namespace

ScoreModel::ScoreModel(std::shared_ptr<const PieceTable> pieces, std::span<const double> scores,
                       UnknownText unknown, SpaceBreaks breaks)
    : pieces_(std::move(pieces)),
      ranks_(ranks_of(scores)),
      unknown_(std::move(unknown)),
      breaks_(std::move(breaks)) {}

void ScoreModel::encode(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<Symbol> symbols;
  while (!word.empty()) {
    const size_t size_bytes = breaks_.next(word);
    encode_part(word.substr(0, size_bytes), symbols, ids);
    word.remove_prefix(size_bytes);
  }
}

void ScoreModel::encode_part(std::string_view part, std::vector<Symbol>& symbols,
                             std::vector<int32_t>& ids) const {
  symbols.clear();
  while (!part.empty()) {
    const std::string_view character = part.substr(0, decode_utf8(part).size_bytes);
    symbols.push_back({character.data(), static_cast<uint32_t>(character.size()), pieces_->find(character)});
    part.remove_prefix(character.size());
  }
  const auto pair_of = [this](const Symbol& left, const Symbol& right) -> Merge {
    const int32_t id = pieces_->find({left.begin, left.size_bytes + right.size_bytes});
    return {id == PieceTable::kNone ? Merge::kNoRank : ranks_[static_cast<size_t>(id)], id};
  };
  const auto join = [](Symbol& left, const Symbol& right, Merge merge) {
    left.size_bytes += right.size_bytes;
    left.id = merge.id;
  };
  symbols.resize(merge_pairs(symbols.data(), symbols.size(), pair_of, join));
  bool unknown = false;
  for (const Symbol& symbol : symbols) {
    if (symbol.id == PieceTable::kNone) {
      unknown = unknown_.append({symbol.begin, symbol.size_bytes}, unknown, ids);
    } else {
      ids.push_back(symbol.id);
      unknown = false;
    }
  }
}

}  // namespace quire

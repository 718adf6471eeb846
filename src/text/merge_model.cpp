#include "text/merge_model.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/one_line.h"
#include "text/utf8.h"

namespace quire {

MergeModel::MergeModel(std::shared_ptr<const PieceTable> pieces, std::span<const std::string_view> merges,
                       MergeModelOptions options)
    : pieces_(std::move(pieces)), options_(std::move(options)) {
  if (merges.size() >= Merge::kNoRank) throw Error("the vocabulary has too many merges");
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) read_merge(rank, merges[rank]);
}

void MergeModel::read_merge(size_t rank, std::string_view text) {
  const auto refuse = [&](const char* reason) {
    throw Error("merge " + std::to_string(rank) + " '" + one_line(text) + "' " + reason);
  };
  const size_t space = text.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == text.size()) refuse("is not a pair");
  std::string bytes;
  const auto append = [&](std::string_view part) {
    if (!options_.over_bytes || !append_alphabet_bytes(part, bytes)) bytes += part;
    return bytes.size();
  };
  const size_t left_bytes = append(text.substr(0, space));
  append(text.substr(space + 1));
  const std::string_view whole = bytes;
  const int32_t left = pieces_->find(whole.substr(0, left_bytes));
  const int32_t right = pieces_->find(whole.substr(left_bytes));
  const int32_t merged = pieces_->find(whole);
  if (left == PieceTable::kNone || right == PieceTable::kNone) refuse("joins a piece that is no token");
  if (merged == PieceTable::kNone) refuse("makes a piece that is no token");
  if (!merges_.insert(left, right, {static_cast<uint32_t>(rank), merged})) refuse("is there twice");
}

void MergeModel::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    const int32_t whole = pieces_->find(word);
    if (whole != PieceTable::kNone) {
      ids.push_back(whole);
      return;
    }
  }
  while (!word.empty()) {
    const size_t size_bytes = options_.breaks.next(word);
    encode_part(word.substr(0, size_bytes), ids);
    word.remove_prefix(size_bytes);
  }
}

void MergeModel::encode_part(std::string_view part, std::vector<int32_t>& ids) const {
  const size_t begin = ids.size();
  append_symbols(part, ids);
  ids.resize(begin + merges_.apply(ids.data() + begin, ids.size() - begin));
}

void MergeModel::append_symbols(std::string_view part, std::vector<int32_t>& ids) const {
  bool unknown = false;
  if (options_.over_bytes) {
    // Neighbours of a byte without a token meet before they merge, as in Hugging Face's tokenizers.
    for (size_t i = 0; i < part.size(); ++i) {
      const int32_t id = options_.unknown.byte_ids[static_cast<uint8_t>(part[i])];
      if (id == PieceTable::kNone) {
        unknown = options_.unknown.append(part.substr(i, 1), unknown, ids);
      } else {
        ids.push_back(id);
        unknown = false;
      }
    }
    return;
  }
  while (!part.empty()) {
    const std::string_view character = part.substr(0, decode_utf8(part).size_bytes);
    const int32_t id = pieces_->find(character);
    if (id == PieceTable::kNone) {
      unknown = options_.unknown.append(character, unknown, ids);
    } else {
      ids.push_back(id);
      unknown = false;
    }
    part.remove_prefix(character.size());
  }
}

}  // namespace quire

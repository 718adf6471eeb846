// BPE by a list of merges, over the bytes of a word (the GPT-2 family) or over its characters (what
// tokenizer.json makes of SentencePiece's BPE).
#pragma once

#include <memory>
#include <span>

#include "text/merge_table.h"
#include "text/word_model.h"

namespace quire {

struct MergeModelOptions {
  bool over_bytes = true;
  bool ignore_merges = false;  // a word that is a token is that token, without merging
  UnknownText unknown =
      {};  // over_bytes: byte_ids are where words begin, and the rest is dropped without unknown_id
  SpaceBreaks breaks = {};
};

class MergeModel final : public WordModel {
 public:
  // `merges`: "left right", in GPT-2's byte alphabet if over_bytes. A merge that joins or makes no token is
  // an Error.
  MergeModel(std::shared_ptr<const PieceTable> pieces, std::span<const std::string_view> merges,
             MergeModelOptions options);

  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  void read_merge(size_t rank, std::string_view text);
  void encode_part(std::string_view part, std::vector<int32_t>& ids) const;
  void append_symbols(std::string_view part, std::vector<int32_t>& ids) const;

  std::shared_ptr<const PieceTable> pieces_;
  MergeModelOptions options_;
  MergeTable merges_;
};

}  // namespace quire

// The JSON of a tokenizer.json, parsed: a tree of everything but the two parts that are large, the vocabulary
// and the merges, which go into flat arrays as they come. (Gemma's file is 33 MB, of which the tree is 2.)
// For the reader only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace quire {

struct TokenizerDocument {
  // A range of `text`.
  struct Text {
    size_t begin;
    uint32_t size_bytes;
  };
  struct Piece {
    Text text;
    int64_t id;    // of a vocabulary that maps texts to ids; else its place in the list
    double score;  // of a vocabulary that is a list; else 0
  };

  nlohmann::json tree;  // "model" without "vocab" and "merges"
  std::vector<char> text;
  std::vector<Piece> pieces;
  std::vector<Text> merges;  // "left right"
  bool scored = false;       // the vocabulary is a list of texts and scores

  std::string_view view(Text t) const { return {text.data() + t.begin, t.size_bytes}; }
  Text append(std::string_view bytes);
};

// Throws Error for what is no JSON, is too large or too deep, or has a vocabulary or merges of another form.
TokenizerDocument parse_tokenizer_document(std::string_view json);

// Any other JSON, an object; the same limits.
nlohmann::json parse_json_object(std::string_view json);

}  // namespace quire

// What a model says about its tokenizer, as plain data: the hand-over from files (GGUF, tokenizer.json) to
// Tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_rules.h"

namespace quire {

// Values of tokenizer.ggml.token_type.
enum TokenType : int32_t {
  kTokenNormal = 1,
  kTokenUnknown = 2,
  kTokenControl = 3,
  kTokenUserDefined = 4,
  kTokenUnused = 5,
  kTokenByte = 6,
};

// How the text of a control or user-defined token is found in the input, where that is not just wherever it
// stands.
struct LiteralRule {
  int32_t id = 0;
  bool strip_left = false;   // white space before it belongs to it
  bool strip_right = false;  // white space after it belongs to it
  bool single_word = false;  // only where no letter, digit or underscore touches it
  bool normalized = false;   // found after the normalizer, in its own normalized form
};

// The views may point into a mapped file: Tokenizer copies what it keeps, so they need to live only
// until its constructor returns.
struct Vocabulary {
  // As tokenizer.ggml.model names them:
  //   "gpt2"   byte-level BPE: tokens and merges are written in GPT-2's byte alphabet
  //   "llama"  BPE over characters, SentencePiece's: by `merges` where there are any, else by `scores`
  //   "t5"     unigram, by `scores`
  std::string model;
  std::string
      pre_tokenizer;  // tokenizer.ggml.pre, for example "smollm"; "gpt2" only; may be empty with `rules`
  std::vector<std::string_view>
      tokens;                        // by id; normal tokens in GPT-2's byte alphabet ("Ġthe") or as "▁the"
  std::vector<int32_t> token_types;  // by id, a TokenType each
  std::vector<std::string_view> merges;  // "left right", best first
  std::vector<double> scores;            // by id, logarithms of probabilities or the order of merging
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> eot_id;  // end of a turn, where it differs from eos
  std::optional<int32_t> eom_id;  // end of a message (tool call), where it differs
  std::optional<int32_t> unk_id;  // what no token spells; without: the token of type kTokenUnknown
  std::optional<int32_t> pad_id;  // for what writes vocabularies only
  std::vector<int32_t> end_ids;   // more tokens that end a generation
  bool add_bos = false;           // for prompts: encode() itself never adds them
  bool add_eos = false;
  bool add_space_prefix = true;           // "llama", "t5": a text begins with a space of its own
  bool remove_extra_whitespaces = false;  // "t5": runs of spaces become one, those at both ends none
  bool ignore_merges =
      false;  // a word that is a token is that token; counts with `rules`, else `pre_tokenizer`
  bool fuse_unknown = true;           // neighbours that no token spells become one unknown token
  std::vector<LiteralRule> literals;  // only of tokens whose rule is not the plain one
  // What tokenizer.json spells out and GGUF leaves to `model`, `pre_tokenizer` and the flags above.
  std::optional<TextRules> rules;
  // Why GGUF's keys cannot say all of this, as the end of a sentence; empty where they can.
  std::string gguf_obstacle;
};

// A vocabulary with the bytes that its views point to. Moved, never copied: a copy's views would be the
// original's.
struct OwnedVocabulary : Vocabulary {
  OwnedVocabulary() = default;
  OwnedVocabulary(OwnedVocabulary&&) noexcept = default;
  OwnedVocabulary& operator=(OwnedVocabulary&&) noexcept = default;

  std::vector<char> storage;  // empty where the views point into a file
};

// The scores that make SentencePiece's BPE merge as the merges of a "llama" vocabulary say, by id: what GGUF
// has in place of merges. Throws Error where scores cannot say it.
std::vector<double> scores_of_merges(const Vocabulary& vocabulary);

}  // namespace quire

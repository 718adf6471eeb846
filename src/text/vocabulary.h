// What a model file says about its tokenizer, as plain data: the hand-over from `weights` to `text`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// The views may point into a mapped file: Tokenizer copies what it keeps, so they need to live only
// until its constructor returns.
struct Vocabulary {
  std::string model;                     // tokenizer.ggml.model; "gpt2" is byte-level BPE
  std::string pre_tokenizer;             // tokenizer.ggml.pre, for example "smollm"
  std::vector<std::string_view> tokens;  // by id; normal tokens in GPT-2's byte alphabet ("Ġthe")
  std::vector<int32_t> token_types;      // by id, a TokenType each
  std::vector<std::string_view> merges;  // "left right" in the byte alphabet, best first
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> eot_id;  // end of a turn, where it differs from eos
  std::optional<int32_t> eom_id;  // end of a message (tool call), where it differs
  bool add_bos = false;           // for prompts: encode() itself never adds them
  bool add_eos = false;
};

}  // namespace quire

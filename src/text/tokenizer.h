// Byte-level BPE as in the GPT-2 family: text to token ids and back. It exists so that a prompt becomes
// the ids the model was trained on, exactly, and so that text typed by a user can never become a control
// token unless the caller asks for that.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/merge_table.h"
#include "text/piece_table.h"
#include "text/pre_tokenizer.h"
#include "text/special_tokens.h"
#include "text/vocabulary.h"

namespace quire {

// Whether the text of a control token ("<|im_end|>") inside the input becomes that token or stays text.
enum class ControlTokens { kParse, kAsText };

// Immutable after construction and free of pointers into the Vocabulary; every method is const and safe
// to call from many threads at once.
//
// decode(encode(x)) == x for every byte sequence x, invalid UTF-8 and NUL included, as long as the
// vocabulary has a token for every byte of x. Real vocabularies lack a few (SmolLM2 has 235 of 256):
// such bytes are dropped, as Hugging Face's tokenizers and llama.cpp drop them, and missing_bytes()
// names them. No Unicode normalization is applied (Hugging Face's Qwen2 applies NFC, llama.cpp does not).
class Tokenizer {
 public:
  // Throws Error in one sentence for an unsupported model or pre-tokenizer and for a vocabulary that
  // contradicts itself.
  explicit Tokenizer(const Vocabulary& vocabulary);

  // Ids of `bytes`; adds neither BOS nor EOS. User-defined tokens are found in both modes.
  std::vector<int32_t> encode(std::string_view bytes, ControlTokens control) const;

  // The same, appended to `ids`.
  void encode_append(std::string_view bytes, ControlTokens control, std::vector<int32_t>& ids) const;

  // The bytes of `ids`, which may be cut inside a UTF-8 character. Control tokens are left out unless
  // `with_control`. An id outside the vocabulary is an Error.
  std::string decode(std::span<const int32_t> ids, bool with_control = false) const;

  // Raw bytes of one token (the text of a control token); the view lives as long as the tokenizer.
  // An id outside the vocabulary is an Error.
  std::string_view token_bytes(int32_t id) const;

  int32_t size() const { return static_cast<int32_t>(types_.size()); }

  // False also for ids outside the vocabulary.
  bool is_control(int32_t id) const {
    return in_range(id) && types_[static_cast<size_t>(id)] == kTokenControl;
  }

  // True for eos, eot and eom of the file and for control tokens whose well-known text ends a turn or a
  // document ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", ...); false for ids outside the vocabulary.
  bool is_end_of_generation(int32_t id) const;

  // Id of the control token with exactly this text.
  std::optional<int32_t> find_control(std::string_view text) const;

  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }

  // Bytes that no token stands for, ascending; encode() drops them.
  std::vector<uint8_t> missing_bytes() const;

 private:
  // Places inside a word are 32 bit.
  static constexpr size_t kMaxTextBytes = 0x7fffffff;

  PieceTable::Keys keys() const { return {arena_.data(), offsets_.data()}; }
  bool in_range(int32_t id) const { return id >= 0 && id < size(); }
  void read_tokens(const Vocabulary& vocabulary);
  void read_byte_tokens();
  void read_special_tokens(const Vocabulary& vocabulary);
  void read_merges(const Vocabulary& vocabulary);
  void read_end_of_generation(const Vocabulary& vocabulary);
  void encode_plain(std::string_view bytes, std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  PreTokenizer pre_tokenizer_;
  std::string arena_;              // raw bytes of all tokens, one after the other
  std::vector<uint32_t> offsets_;  // size() + 1 offsets into arena_
  std::vector<int32_t> types_;
  PieceTable pieces_;  // raw bytes -> id, for tokens that plain text may become
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_{};  // -1 where the vocabulary has no token for the byte
  SpecialTokens user_defined_;           // split out always
  SpecialTokens special_;                // user-defined and control tokens, split out when parsing
  std::vector<int32_t> end_of_generation_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

}  // namespace quire

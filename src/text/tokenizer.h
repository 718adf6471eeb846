// Text to token ids and back, for byte-level BPE, SentencePiece's BPE and unigram models. It exists so that a
// prompt becomes the ids the model was trained on, exactly, and so that text typed by a user can never become
// a control token unless the caller asks for that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/special_tokens.h"
#include "text/token_texts.h"
#include "text/vocabulary.h"
#include "text/word_model.h"

namespace quire {

// Whether the text of a control token ("<|im_end|>") inside the input becomes that token or stays text.
enum class ControlTokens { kParse, kAsText };

// Immutable after construction and free of pointers into the Vocabulary; every method is const and safe
// to call from many threads at once.
//
// decode(encode(x)) == x for every byte sequence x, invalid UTF-8 and NUL included, as long as the vocabulary
// has a token for every byte of x (or every character, where it spells those) and its normalizer changes
// nothing in x (Qwen2 brings text into NFC). Real vocabularies lack a few bytes (SmolLM2 has 235 of 256):
// such bytes are dropped, as Hugging Face's tokenizers and llama.cpp drop them, or become the unknown token
// where there is one; missing_bytes() names them.
class Tokenizer {
 public:
  // Throws Error in one sentence for an unsupported model or pre-tokenizer and for a vocabulary that
  // contradicts itself.
  explicit Tokenizer(const Vocabulary& vocabulary);

  // Ids of `bytes`, a text of its own; adds neither BOS nor EOS. User-defined tokens are found in both modes.
  std::vector<int32_t> encode(std::string_view bytes, ControlTokens control) const;

  // The same, appended to `ids`, as the text that follows them: the space that a model puts before a text
  // comes only where nothing precedes or, in some models, a control or user-defined token does.
  void encode_append(std::string_view bytes, ControlTokens control, std::vector<int32_t>& ids) const;

  // The same, where the texts of control tokens become these only within the trusted parts of `bytes`, which
  // are in order and do not overlap. All else, also a marker over the border of a part, stays text.
  void encode_append(std::string_view bytes, std::span<const TextPart> trusted,
                     std::vector<int32_t>& ids) const;

  // The text of `ids`, which may be cut inside a UTF-8 character. The space that the model itself put before
  // a text is left out again. Control tokens are left out unless `with_control`. An id outside the vocabulary
  // is an Error.
  std::string decode(std::span<const int32_t> ids, bool with_control = false) const;

  // Raw bytes of one token (the text of a control token) inside a text; the view lives as long as the
  // tokenizer. An id outside the vocabulary is an Error.
  std::string_view token_bytes(int32_t id) const;

  // The same for the first token of a text: without the space that the model put there.
  std::string_view first_token_bytes(int32_t id) const;

  int32_t size() const { return static_cast<int32_t>(types_.size()); }

  // Control tokens and the unknown token: those that stand for no text. False also for ids outside the
  // vocabulary.
  bool is_control(int32_t id) const {
    if (!in_range(id)) return false;
    const int32_t type = types_[static_cast<size_t>(id)];
    return type == kTokenControl || type == kTokenUnknown;
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

  // Bytes that no token stands for, ascending; encode() drops them, or makes them the unknown token.
  const std::vector<uint8_t>& missing_bytes() const { return missing_bytes_; }

 private:
  // Places inside a word are 32 bit.
  static constexpr size_t kMaxTextBytes = 0x7fffffff;

  // Literal texts of one mode: those found in the text as it is, and those found in the normalized text.
  struct Literals {
    SpecialTokens raw;
    SpecialTokens normalized;
  };

  bool in_range(int32_t id) const { return id >= 0 && id < size(); }
  bool is_literal(int32_t id) const;
  void read_special_tokens(const Vocabulary& vocabulary);
  void read_end_of_generation(const Vocabulary& vocabulary);
  TextPlace place_after(const std::vector<int32_t>& ids) const;
  void encode_segment(std::string_view bytes, const Literals& literals, TextPlace place,
                      std::vector<int32_t>& ids) const;
  void encode_words(std::string text, TextPlace place, std::vector<int32_t>& ids) const;

  std::vector<int32_t> types_;
  TokenTexts bytes_;  // what decoding gives
  Normalizer normalizer_;
  Normalizer marking_;
  PreTokenizer pre_tokenizer_;
  std::shared_ptr<const WordModel> model_;
  LeadingSpace leading_space_ = LeadingSpace::kKept;
  Literals user_defined_;  // split out always
  Literals special_;       // user-defined and control tokens, split out when parsing
  std::vector<int32_t> end_of_generation_;
  std::vector<uint8_t> missing_bytes_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

}  // namespace quire

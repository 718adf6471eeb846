// From a file's vocabulary to the tables of the tokenizer, with every check that makes them safe to use.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/merge_model.h"
#include "text/one_line.h"
#include "text/score_model.h"
#include "text/tokenizer.h"
#include "text/unigram_model.h"

namespace quire {
namespace {

// Control tokens that end a turn or a document in the families that are supported. Files
// name only one of them as eos: SmolLM2's says "<|im_end|>" and is silent on "<|endoftext|>".
constexpr std::string_view kEndTexts[] = {"<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>",
                                          "<|eom_id|>", "<|end|>",       "<end_of_turn>"};

enum class Kind : uint8_t { kByteLevel, kPieces, kUnigram };

Kind kind_of(const std::string& model) {
  if (model == "gpt2") return Kind::kByteLevel;
  if (model == "llama") return Kind::kPieces;
  if (model == "t5") return Kind::kUnigram;
  throw Error("tokenizer model '" + model +
              "' is not supported; supported are gpt2 (byte-level BPE), llama (SentencePiece's BPE) and t5 "
              "(unigram)");
}

void check_sizes(const Vocabulary& vocabulary, Kind kind) {
  const size_t n_tokens = vocabulary.tokens.size();
  if (n_tokens == 0) throw Error("the vocabulary has no tokens");
  if (n_tokens > 0x7fffffff) throw Error("the vocabulary has more tokens than ids");
  if (vocabulary.token_types.size() != n_tokens) {
    throw Error("the vocabulary has " + std::to_string(n_tokens) + " tokens but " +
                std::to_string(vocabulary.token_types.size()) + " token types");
  }
  for (size_t id = 0; id < n_tokens; ++id) {
    const int32_t type = vocabulary.token_types[id];
    if (type >= kTokenNormal && type <= kTokenByte) continue;
    throw Error("token " + std::to_string(id) + " has the unknown type " + std::to_string(type));
  }
  uint64_t n_bytes = 0;
  for (const std::string_view token : vocabulary.tokens) {
    n_bytes = checked_add(n_bytes, token.size(), "the text of the vocabulary");
  }
  if (n_bytes > 0xffffffffu) throw Error("the text of the vocabulary is larger than 4 GiB");
  const bool scored = kind == Kind::kUnigram || (kind == Kind::kPieces && vocabulary.merges.empty());
  if (!scored) return;
  if (vocabulary.scores.size() != n_tokens) {
    throw Error("the vocabulary has " + std::to_string(n_tokens) + " tokens but " +
                std::to_string(vocabulary.scores.size()) + " scores");
  }
  const auto bad =
      std::ranges::find_if_not(vocabulary.scores, [](double score) { return std::isfinite(score); });
  if (bad == vocabulary.scores.end()) return;
  throw Error("the score of token " + std::to_string(bad - vocabulary.scores.begin()) + " is no number");
}

std::optional<int32_t> checked_id(const char* name, std::optional<int32_t> id, int32_t n_tokens) {
  if (id && (*id < 0 || *id >= n_tokens)) {
    throw Error(std::string(name) + " token id " + std::to_string(*id) + " is outside the vocabulary of " +
                std::to_string(n_tokens) + " tokens");
  }
  return id;
}

// Some files say of the tokens that mark turns, or end a text, that they are user-defined. Those are found in
// every text, and what a user types must not become one. ("<s>" alone tells nothing: it is a tag of HTML in
// Gemma's.)
bool looks_like_control(std::string_view text) {
  constexpr std::string_view kTurns[] = {"<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>"};
  if (std::ranges::find(kTurns, text) != std::end(kTurns)) return true;
  constexpr std::pair<std::string_view, std::string_view> kBrackets[] = {
      {"<|", "|>"}, {"<\xEF\xBD\x9C", "\xEF\xBD\x9C>"}};  // U+FF5C is DeepSeek's bar
  return std::ranges::any_of(kBrackets, [&](const auto& pair) {
    return text.size() > pair.first.size() + pair.second.size() && text.starts_with(pair.first) &&
           text.ends_with(pair.second);
  });
}

// The tokens at both ends of a text, as the file names them; checked later.
std::vector<int32_t> named_ends(const Vocabulary& vocabulary) {
  std::vector<int32_t> ids = vocabulary.end_ids;
  for (const auto& id : {vocabulary.bos_id, vocabulary.eos_id, vocabulary.eot_id, vocabulary.eom_id}) {
    if (id) ids.push_back(*id);
  }
  return ids;
}

bool is_made_by_merge(const Vocabulary& vocabulary, std::string_view token) {
  return std::ranges::any_of(vocabulary.merges, [&](std::string_view merge) {
    const size_t space = merge.find(' ');
    return merge.size() == token.size() + 1 && space < merge.size() &&
           merge.substr(0, space) == token.substr(0, space) && merge.substr(space + 1) == token.substr(space);
  });
}

// Files without types, and some with, call "</s>" a normal token. A token that ends a text and looks like a
// marker is a control token all the same, unless merges need it.
bool is_control_at_end(const Vocabulary& vocabulary, int32_t type, std::string_view text) {
  if (type == kTokenUserDefined) return true;
  const bool is_marker = text.size() > 2 && text.starts_with('<') && text.ends_with('>');
  return type == kTokenNormal && is_marker && !is_made_by_merge(vocabulary, text);
}

std::vector<int32_t> read_types(const Vocabulary& vocabulary) {
  std::vector<int32_t> types = vocabulary.token_types;
  for (size_t id = 0; id < types.size(); ++id) {
    const bool control = looks_like_control(vocabulary.tokens[id]);
    if (types[id] == kTokenUserDefined && control) types[id] = kTokenControl;
  }
  for (const int32_t id : named_ends(vocabulary)) {
    const auto at = static_cast<size_t>(id);
    if (id < 0 || at >= types.size()) continue;
    if (is_control_at_end(vocabulary, types[at], vocabulary.tokens[at])) types[at] = kTokenControl;
  }
  return types;
}

bool is_literal_type(int32_t type) {
  return type == kTokenControl || type == kTokenUserDefined || type == kTokenUnknown;
}

// Everything that the two kinds of vocabularies give the rest: what plain text is looked up by, what decoding
// gives, which tokens plain text may become, and the tokens of single bytes.
struct Pieces {
  std::shared_ptr<const PieceTable> table;
  TokenTexts bytes;
  std::vector<bool> is_piece;
  UnknownText unknown;
};

[[noreturn]] void refuse_twins(int32_t first, int32_t second, std::string_view text) {
  throw Error("tokens " + std::to_string(first) + " and " + std::to_string(second) + " are both '" +
              one_line(text) + "'");
}

// Byte-level: normal tokens spell bytes in GPT-2's alphabet. Control, unknown and unused tokens are never
// reached by merging.
Pieces read_byte_level(const Vocabulary& vocabulary, const std::vector<int32_t>& types) {
  TokenTexts texts;
  texts.reserve(types.size(), 0);
  std::vector<bool> spelled(types.size());
  std::string bytes;
  for (size_t id = 0; id < types.size(); ++id) {
    bytes.clear();
    spelled[id] = !is_literal_type(types[id]) && append_alphabet_bytes(vocabulary.tokens[id], bytes);
    texts.append(spelled[id] ? bytes : vocabulary.tokens[id]);
  }
  Pieces pieces;
  pieces.bytes = texts;
  pieces.is_piece.resize(types.size());
  auto table = std::make_shared<PieceTable>(std::move(texts));
  // Those that are not spelled come second, so that a user-defined "  " never takes the place of the token
  // that merges make.
  for (const bool turn : {true, false}) {
    for (size_t i = 0; i < types.size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      const bool is_piece =
          types[i] == kTokenNormal || types[i] == kTokenByte || types[i] == kTokenUserDefined;
      if (spelled[i] != turn || !is_piece || vocabulary.tokens[i].empty()) continue;
      pieces.is_piece[i] = true;
      const int32_t holder = table->insert(id);
      if (turn && holder != id) refuse_twins(holder, id, vocabulary.tokens[i]);
    }
  }
  // Bytes that cannot occur in UTF-8, or hardly do, are missing in real vocabularies; one that lacks
  // printable ASCII or the newline is not byte-level.
  for (size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    pieces.unknown.byte_ids[byte] = table->find({&c, 1});
    const bool needed = (byte >= 0x20 && byte < 0x7f) || byte == '\n';
    if (needed && pieces.unknown.byte_ids[byte] == PieceTable::kNone) {
      throw Error("the vocabulary has no token for byte " + std::to_string(byte) +
                  ", thus it is not a byte-level one");
    }
  }
  pieces.table = std::move(table);
  return pieces;
}

// "<0x0A>" is the byte 10.
uint8_t read_byte_token(std::string_view text, size_t id) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() == 6 && text.starts_with("<0x") && text.ends_with('>')) {
    const size_t high = kDigits.find(text[3]);
    const size_t low = kDigits.find(text[4]);
    if (high != std::string_view::npos && low != std::string_view::npos)
      return static_cast<uint8_t>(high << 4 | low);
  }
  throw Error("token " + std::to_string(id) + " '" + one_line(text) + "' is a byte token but names no byte");
}

std::string without_mark(std::string_view text, std::string_view mark) {
  std::string bytes;
  while (!mark.empty()) {
    const size_t at = text.find(mark);
    if (at == std::string_view::npos) break;
    bytes.append(text.substr(0, at)).append(1, ' ');
    text.remove_prefix(at + mark.size());
  }
  return bytes.append(text);
}

// Character-level: tokens are written as they are, with a mark for the space.
Pieces read_pieces(const Vocabulary& vocabulary, const std::vector<int32_t>& types, std::string_view mark) {
  Pieces pieces;
  TokenTexts texts;
  texts.reserve(types.size(), 0);
  pieces.bytes.reserve(types.size(), 0);
  for (size_t id = 0; id < types.size(); ++id) {
    const std::string_view text = vocabulary.tokens[id];
    texts.append(text);
    if (types[id] == kTokenByte) {
      const uint8_t byte = read_byte_token(text, id);
      pieces.unknown.byte_ids[byte] = static_cast<int32_t>(id);
      const char c = static_cast<char>(byte);
      pieces.bytes.append({&c, 1});
    } else {
      pieces.bytes.append(types[id] == kTokenControl ? std::string(text) : without_mark(text, mark));
    }
  }
  auto table = std::make_shared<PieceTable>(std::move(texts));
  pieces.is_piece.resize(types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    const bool is_piece = types[i] == kTokenNormal || types[i] == kTokenUserDefined;
    if (!is_piece || vocabulary.tokens[i].empty()) continue;
    const auto id = static_cast<int32_t>(i);
    pieces.is_piece[i] = table->insert(id) == id;
  }
  pieces.table = std::move(table);
  return pieces;
}

// The rules of GGUF's kinds of models, as llama.cpp has them.
TextRules rules_of(const Vocabulary& vocabulary, Kind kind) {
  if (vocabulary.rules) return *vocabulary.rules;
  TextRules rules;
  if (kind == Kind::kByteLevel) {
    PreTokenizerFamily family = pre_tokenizer_family(vocabulary.pre_tokenizer);
    rules.splits = std::move(family.steps);
    rules.normalizer = std::move(family.normalizer);
    return rules;
  }
  if (vocabulary.remove_extra_whitespaces) rules.normalizer.push_back({NormalStep::Kind::kCollapseSpaces});
  if (vocabulary.add_space_prefix) {
    rules.normalizer.push_back({NormalStep::Kind::kPrepend, {}, " "});
    rules.leading_space = LeadingSpace::kOneDropped;
  }
  rules.space_mark = kSpaceMark;
  rules.normalizer.push_back({NormalStep::Kind::kReplaceText, " ", rules.space_mark});
  return rules;
}

std::shared_ptr<const WordModel> make_model(const Vocabulary& vocabulary, Kind kind, Pieces& pieces,
                                            std::string_view mark) {
  if (kind == Kind::kByteLevel) {
    MergeModelOptions options;
    options.ignore_merges = vocabulary.rules ? vocabulary.ignore_merges
                                             : pre_tokenizer_family(vocabulary.pre_tokenizer).ignore_merges;
    options.unknown = pieces.unknown;
    return std::make_shared<MergeModel>(pieces.table, vocabulary.merges, std::move(options));
  }
  SpaceBreaks breaks(mark, *pieces.table, pieces.is_piece);
  if (kind == Kind::kUnigram) {
    return std::make_shared<UnigramModel>(pieces.table, vocabulary.scores, pieces.is_piece, pieces.unknown,
                                          std::move(breaks));
  }
  if (vocabulary.merges.empty()) {
    return std::make_shared<ScoreModel>(pieces.table, vocabulary.scores, pieces.unknown, std::move(breaks));
  }
  MergeModelOptions options;
  options.over_bytes = false;
  options.ignore_merges = vocabulary.ignore_merges;
  options.unknown = pieces.unknown;
  options.breaks = std::move(breaks);
  return std::make_shared<MergeModel>(pieces.table, vocabulary.merges, std::move(options));
}

// "<unk>", "[UNK]", "<|unk|>" and the like.
bool is_plain_unknown(std::string_view text) {
  constexpr std::string_view kNames[] = {"unk", "UNK", "unknown", "UNKNOWN"};
  constexpr std::string_view kBrackets = "<>[]|";
  const size_t begin = std::min(text.find_first_not_of(kBrackets), text.size());
  const size_t end = text.find_last_not_of(kBrackets) + 1;
  return begin < end && std::ranges::find(kNames, text.substr(begin, end - begin)) != std::end(kNames);
}

// The token for what no other spells; byte-level vocabularies drop such bytes unless the file names one.
// None where it also ends a text or marks a turn, as in GPT-2's vocabulary: text must never become that.
int32_t unknown_id(const Vocabulary& vocabulary, Kind kind, const std::vector<int32_t>& types) {
  int32_t id = vocabulary.unk_id.value_or(PieceTable::kNone);
  if (!vocabulary.unk_id && kind != Kind::kByteLevel && !vocabulary.rules) {
    const auto found = std::ranges::find(types, kTokenUnknown);
    if (found != types.end()) id = static_cast<int32_t>(found - types.begin());
  }
  if (id == PieceTable::kNone) return id;
  const std::vector<int32_t> ends = named_ends(vocabulary);
  if (std::ranges::find(ends, id) != ends.end()) return PieceTable::kNone;
  const auto at = static_cast<size_t>(id);
  const std::string_view text = vocabulary.tokens[at];
  const bool marks = types[at] == kTokenControl || looks_like_control(text);
  return marks && !is_plain_unknown(text) ? PieceTable::kNone : id;
}

}  // namespace

Tokenizer::Tokenizer(const Vocabulary& vocabulary) {
  const Kind kind = kind_of(vocabulary.model);
  const TextRules rules = rules_of(vocabulary, kind);
  check_sizes(vocabulary, kind);
  types_ = read_types(vocabulary);
  bos_id_ = checked_id("bos", vocabulary.bos_id, size());
  eos_id_ = checked_id("eos", vocabulary.eos_id, size());
  checked_id("unknown", vocabulary.unk_id, size());
  add_bos_ = vocabulary.add_bos;
  add_eos_ = vocabulary.add_eos;
  if (add_bos_ && !bos_id_) throw Error("the vocabulary asks for a bos token but names none");
  if (add_eos_ && !eos_id_) throw Error("the vocabulary asks for an eos token but names none");

  normalizer_ = Normalizer(rules.normalizer);
  marking_ = Normalizer(rules.marking);
  pre_tokenizer_ = PreTokenizer(rules.splits);
  leading_space_ = rules.leading_space;
  Pieces pieces = kind == Kind::kByteLevel ? read_byte_level(vocabulary, types_)
                                           : read_pieces(vocabulary, types_, rules.space_mark);
  pieces.unknown.unknown_id = unknown_id(vocabulary, kind, types_);
  pieces.unknown.fuse = vocabulary.fuse_unknown;
  for (size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool spelled = pieces.unknown.byte_ids[byte] != PieceTable::kNone ||
                         pieces.table->find({&c, 1}) != PieceTable::kNone ||
                         (c == ' ' && pieces.table->find(rules.space_mark) != PieceTable::kNone);
    if (!spelled) missing_bytes_.push_back(static_cast<uint8_t>(byte));
  }
  read_special_tokens(vocabulary);
  model_ = make_model(vocabulary, kind, pieces, rules.space_mark);
  bytes_ = std::move(pieces.bytes);
  read_end_of_generation(vocabulary);
}

void Tokenizer::read_special_tokens(const Vocabulary& vocabulary) {
  std::vector<const LiteralRule*> rules(types_.size());
  for (const LiteralRule& rule : vocabulary.literals) {
    checked_id("literal", rule.id, size());
    rules[static_cast<size_t>(rule.id)] = &rule;
  }
  for (int32_t id = 0; id < size(); ++id) {
    const int32_t type = types_[static_cast<size_t>(id)];
    if (!is_literal_type(type)) continue;
    const LiteralRule* given = rules[static_cast<size_t>(id)];
    LiteralRule rule = given ? *given : LiteralRule{};
    rule.normalized = rule.normalized && !normalizer_.empty();
    std::string text(vocabulary.tokens[static_cast<size_t>(id)]);
    if (type == kTokenUnknown && text.empty()) continue;
    if (rule.normalized) normalizer_.apply(TextPlace::kBegin, text);
    const auto add = [&](Literals& to) { (rule.normalized ? to.normalized : to.raw).add(text, id, rule); };
    add(special_);
    if (type == kTokenUserDefined) add(user_defined_);
  }
  for (SpecialTokens* tokens :
       {&special_.raw, &special_.normalized, &user_defined_.raw, &user_defined_.normalized}) {
    tokens->finish();
  }
}

void Tokenizer::read_end_of_generation(const Vocabulary& vocabulary) {
  const auto add = [&](std::optional<int32_t> id) {
    const auto& ids = end_of_generation_;
    if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) end_of_generation_.push_back(*id);
  };
  add(eos_id_);
  add(checked_id("eot", vocabulary.eot_id, size()));
  add(checked_id("eom", vocabulary.eom_id, size()));
  for (const int32_t id : vocabulary.end_ids) add(checked_id("end", id, size()));
  for (const std::string_view text : kEndTexts) add(find_control(text));
}

}  // namespace quire

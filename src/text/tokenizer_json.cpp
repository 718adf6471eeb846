#include "text/tokenizer_json.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/one_line.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_json_parser.h"
#include "text/tokenizer_json_rules.h"

namespace quire {
namespace {

using Json = nlohmann::json;
using Text = TokenizerDocument::Text;

// A token of the list "added_tokens".
struct AddedToken {
  Text text;
  LiteralRule rule;
  bool control;
};

// Puts together what the parts of the file say.
class Reader {
 public:
  explicit Reader(std::string_view json)
      : document_(parse_tokenizer_document(json)), rules_(read_text_rules(document_.tree)) {}

  OwnedVocabulary read() {
    const auto model = document_.tree.find("model");
    if (model == document_.tree.end()) throw Error("it has no model");
    read_model(JsonPart(*model, "model"));
    read_added_tokens();
    place_tokens();
    read_merges();
    read_ends();
    vocabulary_.gguf_obstacle = gguf_obstacle();
    vocabulary_.rules = std::move(rules_.text);
    vocabulary_.storage = std::move(document_.text);
    return std::move(vocabulary_);
  }

 private:
  void read_model(const JsonPart& model) {
    if (model.type() == "BPE") {
      read_bpe(model);
    } else if (model.type() == "Unigram") {
      read_unigram(model);
    } else {
      model.refuse("is not supported; supported are BPE and Unigram");
    }
    if (byte_fallback_ && !rules_.byte_fallback)
      throw Error("its model has byte_fallback but its decoder has not");
    if (rules_.byte_fallback && !byte_fallback_)
      throw Error("its decoder has ByteFallback but its model has not");
  }

  void read_bpe(const JsonPart& model) {
    model.allow({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                 "byte_fallback", "ignore_merges"});
    if (const Json* dropout = model.find("dropout"); dropout != nullptr && *dropout != 0) {
      model.refuse("with dropout is not supported");
    }
    for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!model.text(field, "").empty())
        model.refuse(std::string("with ").append(field) + " is not supported");
    }
    if (document_.scored) model.refuse("has a vocabulary of scores");
    byte_fallback_ = model.flag("byte_fallback", false);
    if (byte_fallback_ && rules_.byte_level) model.refuse("is byte-level and has byte_fallback");
    vocabulary_.model = rules_.byte_level ? "gpt2" : "llama";
    vocabulary_.ignore_merges = model.flag("ignore_merges", false);
    vocabulary_.fuse_unknown = model.flag("fuse_unk", false);
    unknown_text_ = model.text("unk_token", "");
  }

  void read_unigram(const JsonPart& model) {
    model.allow({"unk_id", "byte_fallback"});
    if (rules_.byte_level) model.refuse("with ByteLevel is not supported");
    if (!document_.scored) model.refuse("has a vocabulary without scores");
    byte_fallback_ = model.flag("byte_fallback", false);
    vocabulary_.model = "t5";
    if (model.find("unk_id") == nullptr) return;
    const uint64_t id = model.number("unk_id", 0);
    if (id >= document_.pieces.size()) model.refuse("has an unk_id outside its vocabulary");
    unknown_text_ = document_.view(document_.pieces[id].text);
  }

  void read_added_tokens() {
    const auto list = document_.tree.find("added_tokens");
    if (list == document_.tree.end() || list->is_null()) return;
    if (!list->is_array()) throw Error("its added_tokens are not a list");
    for (const Json& json : *list) {
      const auto wrong = [&]() -> Error {
        return Error("its added token " + json.dump().substr(0, 80) + " is malformed");
      };
      if (!json.is_object()) throw wrong();
      const auto flag = [&](const char* field, bool otherwise) {
        const auto found = json.find(field);
        if (found == json.end()) return otherwise;
        if (!found->is_boolean()) throw wrong();
        return found->get<bool>();
      };
      const auto id = json.find("id");
      const auto content = json.find("content");
      if (id == json.end() || !id->is_number_unsigned() || content == json.end() || !content->is_string())
        throw wrong();
      if (id->get<uint64_t>() > 0x7fffffff) throw wrong();
      AddedToken token;
      token.control = flag("special", false);
      token.rule.id = static_cast<int32_t>(id->get<uint64_t>());
      token.rule.strip_left = flag("lstrip", false);
      token.rule.strip_right = flag("rstrip", false);
      token.rule.single_word = flag("single_word", false);
      token.rule.normalized = flag("normalized", !token.control);
      token.text = document_.append(content->get<std::string>());
      added_.push_back(token);
    }
  }

  // Ids of a map may have gaps; a few are filled, many would be memory for nothing.
  size_t count_tokens() const {
    int64_t last = -1;
    for (const auto& piece : document_.pieces) {
      if (piece.id < 0)
        throw Error("its token '" + std::string(document_.view(piece.text)) + "' has no valid id");
      last = std::max(last, piece.id);
    }
    for (const AddedToken& token : added_) last = std::max<int64_t>(last, token.rule.id);
    const auto n_known = static_cast<int64_t>(document_.pieces.size() + added_.size());
    if (last >= 2 * n_known + (1 << 16)) {
      throw Error("it has the token id " + std::to_string(last) + " but only " + std::to_string(n_known) +
                  " tokens");
    }
    return static_cast<size_t>(last + 1);
  }

  void place_tokens() {
    std::vector<std::optional<Text>> texts(count_tokens());
    vocabulary_.token_types.assign(texts.size(), kTokenNormal);
    if (document_.scored) vocabulary_.scores.resize(texts.size());
    for (const auto& piece : document_.pieces) {
      const auto id = static_cast<size_t>(piece.id);
      if (texts[id]) {
        throw Error("its tokens '" + std::string(document_.view(*texts[id])) + "' and '" +
                    std::string(document_.view(piece.text)) + "' have one id");
      }
      texts[id] = piece.text;
      vocabulary_.token_types[id] = type_of(document_.view(piece.text));
      if (document_.scored) vocabulary_.scores[id] = piece.score;
    }
    for (const AddedToken& token : added_) place_added(token, texts);
    for (size_t id = 0; id < texts.size(); ++id) {
      if (texts[id]) continue;
      texts[id] = document_.append("[UNUSED" + std::to_string(id) + "]");
      vocabulary_.token_types[id] = kTokenUnused;
    }
    // The bytes stay where they are from now on.
    for (const auto& text : texts) vocabulary_.tokens.push_back(document_.view(*text));
    find_unknown();
  }

  int32_t type_of(std::string_view text) const {
    const bool is_byte = byte_fallback_ && text.size() == 6 && text.starts_with("<0x") &&
                         text.ends_with('>') &&
                         text.substr(3, 2).find_first_not_of("0123456789ABCDEF") == std::string_view::npos;
    return is_byte ? kTokenByte : kTokenNormal;
  }

  void place_added(const AddedToken& token, std::vector<std::optional<Text>>& texts) {
    const auto id = static_cast<size_t>(token.rule.id);
    const std::string_view text = document_.view(token.text);
    if (texts[id] && document_.view(*texts[id]) != text) {
      throw Error("its token " + std::to_string(id) + " is '" + std::string(document_.view(*texts[id])) +
                  "' in the vocabulary and '" + std::string(text) + "' among the added tokens");
    }
    texts[id] = token.text;
    vocabulary_.token_types[id] = token.control ? kTokenControl : kTokenUserDefined;
    const LiteralRule& rule = token.rule;
    if (rule.strip_left || rule.strip_right || rule.single_word || rule.normalized) {
      vocabulary_.literals.push_back(rule);
    }
  }

  void find_unknown() {
    if (unknown_text_.empty()) return;
    const auto found = std::ranges::find(vocabulary_.tokens, unknown_text_);
    if (found == vocabulary_.tokens.end())
      throw Error("its unknown token '" + unknown_text_ + "' is not in the vocabulary");
    vocabulary_.unk_id = static_cast<int32_t>(found - vocabulary_.tokens.begin());
    // Another special token stays one, and the tokenizer makes no text into it.
    int32_t& type = vocabulary_.token_types[static_cast<size_t>(*vocabulary_.unk_id)];
    if (type != kTokenControl || unknown_text_ == "<unk>") type = kTokenUnknown;
  }

  void read_merges() {
    for (const Text merge : document_.merges) vocabulary_.merges.push_back(document_.view(merge));
    if (!document_.scored && vocabulary_.model == "llama" && vocabulary_.merges.empty()) {
      throw Error("its model has no merges");
    }
  }

  void read_ends() {
    const AddedEnds ends = read_post_processor(document_.tree);
    const auto n_tokens = static_cast<int64_t>(vocabulary_.tokens.size());
    for (const std::optional<int64_t>& id : {ends.before, ends.after}) {
      if (id && (*id < 0 || *id >= n_tokens))
        throw Error("its post_processor adds the token " + std::to_string(*id) +
                    ", which is outside the vocabulary");
    }
    if (ends.before) vocabulary_.bos_id = static_cast<int32_t>(*ends.before);
    if (ends.after) vocabulary_.eos_id = static_cast<int32_t>(*ends.after);
    vocabulary_.add_bos = ends.before.has_value();
    vocabulary_.add_eos = ends.after.has_value();
  }

  // Whether there is text that becomes the unknown token.
  bool has_unknown() const {
    return vocabulary_.unk_id && std::ranges::count(vocabulary_.token_types, kTokenByte) < 256;
  }

  // Sets what GGUF has keys for, and says why they do not suffice.
  std::string gguf_obstacle() {
    TextRules& rules = rules_.text;
    if (vocabulary_.model == "gpt2") {
      if (!rules.marking.empty())
        return "it cannot say that a byte-level tokenizer puts a space before a text";
      std::string_view name = pre_tokenizer_name(rules.splits, rules.normalizer, vocabulary_.ignore_merges);
      // Programs that read GGUF leave NFC to the user.
      const bool nfc = rules.normalizer == std::vector<NormalStep>{{NormalStep::Kind::kNfc}};
      if (name.empty() && nfc) name = pre_tokenizer_name(rules.splits, {}, vocabulary_.ignore_merges);
      if (name.empty()) return "it has no name for the pre-tokenizer";
      vocabulary_.pre_tokenizer = name;
      return {};
    }
    using Kind = NormalStep::Kind;
    const NormalStep mark{Kind::kReplaceText, " ", std::string(kSpaceMark)};
    std::vector<NormalStep> steps = rules.normalizer;
    steps.insert(steps.end(), rules.marking.begin(), rules.marking.end());
    const auto is_prefix = [](const NormalStep& step) {
      const bool prepends =
          step.kind == Kind::kPrepend || step.kind == Kind::kPrependOnce || step.kind == Kind::kPrependFirst;
      return prepends && (step.content == kSpaceMark || step.content == " ");
    };
    vocabulary_.add_space_prefix = std::ranges::any_of(steps, is_prefix);
    std::erase_if(steps, is_prefix);
    if (steps != std::vector<NormalStep>{mark}) return "it cannot say what its normalizer does";
    // Behind the mark there is no " " to cut at. Unigram models' tokens have the mark in front, if at all, so
    // a cut there changes nothing.
    const bool is_unigram = vocabulary_.model == "t5";
    const SplitStep at_marks{std::string(kSpaceMark), SplitBehavior::kMergedWithNext, false};
    const bool cuts = std::ranges::any_of(rules.splits, [&](const SplitStep& step) {
      return step.expression != " " && !(is_unigram && step == at_marks);
    });
    if (cuts) return "it cannot say how its pre-tokenizer cuts a text";
    if (is_unigram) return {};
    if (vocabulary_.ignore_merges) return "it cannot say that a word that is a token is not merged";
    if (!vocabulary_.fuse_unknown && has_unknown())
      return "it cannot say that neighbours that no token spells stay apart";
    return {};
  }

  TokenizerDocument document_;
  TokenizerJsonRules rules_;
  OwnedVocabulary vocabulary_;
  std::vector<AddedToken> added_;
  std::string unknown_text_;
  bool byte_fallback_ = false;
};

}  // namespace

OwnedVocabulary read_tokenizer_json(std::string_view json, const std::string& name) {
  try {
    return Reader(json).read();
  } catch (const Error& error) {
    throw Error(name + ": " + one_line(error.what(), 400));
  }
}

}  // namespace quire

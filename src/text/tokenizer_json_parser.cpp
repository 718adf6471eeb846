#include "text/tokenizer_json_parser.h"

#include <string>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxTreeValues = 4'000'000;

// Takes the events of nlohmann's parser, which itself uses no recursion.
class Handler final : public nlohmann::json_sax<Json> {
 public:
  explicit Handler(TokenizerDocument* document, Json* root) : document_(document), root_(root) {}

  bool null() override { return value(Json()); }
  bool boolean(bool v) override { return value(Json(v)); }
  bool number_integer(number_integer_t v) override { return number(static_cast<double>(v), v, Json(v)); }
  bool number_unsigned(number_unsigned_t v) override {
    const bool fits = v <= static_cast<uint64_t>(INT64_MAX);
    return number(static_cast<double>(v), fits ? static_cast<int64_t>(v) : -1, Json(v));
  }
  bool number_float(number_float_t v, const string_t&) override { return number(v, -1, Json(v)); }
  bool binary(binary_t&) override { return false; }

  bool string(string_t& v) override {
    switch (mode_) {
      case Mode::kTree: return value(Json(std::move(v)));
      case Mode::kEntry:
        if (has_text_) refuse_vocabulary();
        piece_.text = document_->append(v);
        has_text_ = true;
        return true;
      case Mode::kMerges: document_->merges.push_back(document_->append(v)); return true;
      case Mode::kMerge: merge_part(v); return true;
      default: refuse_vocabulary();
    }
  }

  bool key(string_t& v) override {
    if (mode_ == Mode::kMap) {
      piece_ = {document_->append(v), -1, 0};
    } else {
      key_ = std::move(v);
    }
    return true;
  }

  bool start_object(size_t) override {
    if (mode_ != Mode::kTree) refuse_mode();
    if (begins("vocab")) {
      if (!document_->pieces.empty()) refuse_vocabulary();
      mode_ = Mode::kMap;
      return true;
    }
    return open(Json::object());
  }

  bool end_object() override {
    if (mode_ == Mode::kMap) {
      mode_ = Mode::kTree;
      return true;
    }
    stack_.pop_back();
    return true;
  }

  bool start_array(size_t) override {
    switch (mode_) {
      case Mode::kTree:
        if (begins("vocab")) {
          if (!document_->pieces.empty()) refuse_vocabulary();
          document_->scored = true;
          mode_ = Mode::kList;
          return true;
        }
        if (begins("merges")) {
          mode_ = Mode::kMerges;
          return true;
        }
        return open(Json::array());
      case Mode::kList:
        mode_ = Mode::kEntry;
        has_text_ = has_score_ = false;
        return true;
      case Mode::kMerges:
        mode_ = Mode::kMerge;
        n_parts_ = 0;
        return true;
      default: refuse_mode();
    }
  }

  bool end_array() override {
    switch (mode_) {
      case Mode::kTree: stack_.pop_back(); return true;
      case Mode::kEntry:
        if (!has_text_ || !has_score_) refuse_vocabulary();
        piece_.id = static_cast<int64_t>(document_->pieces.size());
        document_->pieces.push_back(piece_);
        mode_ = Mode::kList;
        return true;
      case Mode::kMerge:
        if (n_parts_ != 2) refuse_merges();
        mode_ = Mode::kMerges;
        return true;
      default: mode_ = Mode::kTree; return true;
    }
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw Error("is not JSON at byte " + std::to_string(position));
  }

 private:
  enum class Mode {
    kTree,
    kMap,     // {"text": id, ...}
    kList,    // [[text, score], ...]
    kEntry,   // one [text, score]
    kMerges,  // ["left right", ...] or [[left, right], ...]
    kMerge,   // one [left, right]
  };

  [[noreturn]] static void refuse_vocabulary() {
    throw Error("model.vocab is neither an object of texts and ids nor a list of texts and scores");
  }
  [[noreturn]] static void refuse_merges() { throw Error("model.merges is not a list of pairs"); }
  [[noreturn]] void refuse_mode() const {
    if (mode_ == Mode::kMerges || mode_ == Mode::kMerge) refuse_merges();
    refuse_vocabulary();
  }

  // Whether what comes now is the member `name` of "model".
  bool begins(std::string_view name) const {
    return document_ != nullptr && stack_.size() == 2 && stack_[1].name == "model" &&
           stack_[1].json->is_object() && key_ == name;
  }

  bool number(double real, int64_t whole, Json v) {
    switch (mode_) {
      case Mode::kTree: return value(std::move(v));
      case Mode::kMap:
        piece_.id = whole;
        document_->pieces.push_back(piece_);
        return true;
      case Mode::kEntry:
        if (!has_text_ || has_score_) refuse_vocabulary();
        piece_.score = real;
        has_score_ = true;
        return true;
      default: refuse_mode();
    }
  }

  // Pieces are joined by a space, so none may hold one.
  void merge_part(const std::string& part) {
    if (n_parts_ >= 2) refuse_merges();
    if (part.find(' ') != std::string::npos)
      throw Error("model.merges has a piece with a space in it: '" + part + "'");
    if (n_parts_++ == 0) {
      merge_ = part;
      return;
    }
    document_->merges.push_back(document_->append(merge_.append(" ").append(part)));
  }

  Json* place(Json v) {
    if (++n_values_ > kMaxTreeValues) throw Error("has too many values");
    if (stack_.empty()) {
      *root_ = std::move(v);
      return root_;
    }
    Json& parent = *stack_.back().json;
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    Json& member = parent[key_];
    member = std::move(v);
    return &member;
  }

  bool value(Json v) {
    if (mode_ != Mode::kTree) refuse_mode();
    place(std::move(v));
    return true;
  }

  bool open(Json v) {
    if (stack_.size() == kMaxDepth) throw Error("is nested too deeply");
    std::string name = key_;
    stack_.push_back({place(std::move(v)), std::move(name)});
    return true;
  }

  struct Level {
    Json* json;  // stays where it is while it is open: its parent takes nothing else meanwhile
    std::string name;
  };

  TokenizerDocument* document_;  // nullptr: everything goes into the tree
  Json* root_;
  Mode mode_ = Mode::kTree;
  std::vector<Level> stack_;
  std::string key_;
  TokenizerDocument::Piece piece_{};
  bool has_text_ = false;
  bool has_score_ = false;
  int n_parts_ = 0;
  std::string merge_;
  size_t n_values_ = 0;
};

}  // namespace

TokenizerDocument::Text TokenizerDocument::append(std::string_view bytes) {
  const Text t{text.size(), static_cast<uint32_t>(bytes.size())};
  text.insert(text.end(), bytes.begin(), bytes.end());
  return t;
}

TokenizerDocument parse_tokenizer_document(std::string_view json) {
  TokenizerDocument document;
  document.text.reserve(json.size() / 2);
  Handler handler(&document, &document.tree);
  Json::sax_parse(json.begin(), json.end(), &handler);
  if (!document.tree.is_object()) throw Error("is not a JSON object");
  return document;
}

Json parse_json_object(std::string_view json) {
  Json tree;
  Handler handler(nullptr, &tree);
  Json::sax_parse(json.begin(), json.end(), &handler);
  if (!tree.is_object()) throw Error("is not a JSON object");
  return tree;
}

}  // namespace quire

#include "eval_text.h"

#include "base/error.h"

namespace quire::cli {
namespace {

std::vector<int32_t> read_token_file(const std::string& path) {
  const std::string bytes = read_file(path);
  if (bytes.size() % 2 != 0)
    throw Error(path + " has an odd number of bytes, so it holds no 16-bit token ids");
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < bytes.size(); i += 2) {
    tokens.push_back(static_cast<uint8_t>(bytes[i]) | static_cast<uint8_t>(bytes[i + 1]) << 8);
  }
  return tokens;
}

}  // namespace

EvalText::EvalText(const EvalTextOptions& options)
    : is_text_(options.tokens_file.empty()), no_bos_(options.no_bos) {
  if (!is_text_ && options.input.given()) throw Error("give a text or --tokens-file, not both");
  if (is_text_) {
    text_ = read_text(options.input, LastNewline::kKeep);
  } else {
    ids_ = read_token_file(options.tokens_file);
  }
}

std::vector<int32_t> EvalText::tokens(const Engine& engine) const {
  return is_text_ ? engine.tokenizer().encode(text_, ControlTokens::kAsText) : ids_;
}

std::optional<int32_t> EvalText::begin_token(const Engine& engine) const {
  const Tokenizer& tokenizer = engine.tokenizer();
  return is_text_ && !no_bos_ && tokenizer.add_bos() ? tokenizer.bos_id() : std::nullopt;
}

std::string EvalText::text(const Engine& engine) const {
  return is_text_ ? text_ : engine.tokenizer().decode(ids_);
}

void add_eval_text_options(CLI::App& app, EvalTextOptions& options) {
  add_text_options(app, options.input, "the text; without -p and -f it is read from stdin");
  app.add_option("--tokens-file", options.tokens_file,
                 "token ids instead of a text: 16 bit each, little-endian")
      ->type_name("FILE");
}

void add_begin_option(CLI::App& app, EvalTextOptions& options) {
  app.add_flag("--no-bos", options.no_bos,
               "put no begin token before a text, also where the model wants one");
}

}  // namespace quire::cli

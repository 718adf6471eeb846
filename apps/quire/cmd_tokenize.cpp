// quire tokenize: the tokens of a text, and back.
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "engine/vocabulary_reader.h"
#include "options.h"
#include "terminal.h"
#include "weights/open_model.h"

namespace quire::cli {
namespace {

constexpr const char* kTokenizeExamples =
    "Examples:\n"
    "  quire tokenize -m model.gguf -p \"Hello, world\"\n"
    "  quire tokenize -m model.gguf -f book.txt --ids\n"
    "  quire tokenize -m model.gguf -p \"<|im_end|>\" --no-parse-special --json\n"
    "  quire tokenize -m model.gguf --decode 19556 28 905";

struct TokenizeOptions {
  std::string model;
  TextInput input;
  std::vector<int64_t> decode;
  bool decoding = false;
  bool ids_only = false;
  bool json = false;
  bool no_special = false;
  bool no_bos = false;
};

std::vector<int32_t> checked_ids(const std::vector<int64_t>& ids, const Tokenizer& tokenizer) {
  std::vector<int32_t> checked;
  for (const int64_t id : ids) {
    check_range("a token id", id, 0, tokenizer.size() - 1);
    checked.push_back(static_cast<int32_t>(id));
  }
  return checked;
}

void print_text(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  const std::string text = tokenizer.decode(checked_ids(options.decode, tokenizer), true);
  if (options.json) {
    write_json({{"text", text}});
  } else {
    write_out(text);
  }
}

void print_tokens(const TokenizeOptions& options, const Tokenizer& tokenizer,
                  const std::vector<int32_t>& ids) {
  if (options.json) {
    nlohmann::ordered_json pieces = nlohmann::ordered_json::array();
    for (const int32_t id : ids) pieces.push_back(std::string(tokenizer.token_bytes(id)));
    write_json({{"tokens", ids}, {"pieces", pieces}});
    return;
  }
  std::string out;
  if (options.ids_only) {
    for (const int32_t id : ids) out += (out.empty() ? "" : ", ") + std::to_string(id);
    write_out("[" + out + "]\n");
    return;
  }
  for (const int32_t id : ids) {
    std::string number = std::to_string(id);
    number.insert(0, number.size() < 6 ? 6 - number.size() : 0, ' ');
    out += number + "  '" + printable(tokenizer.token_bytes(id)) + "'\n";
  }
  write_out(out);
}

int run(const TokenizeOptions& options) {
  if (options.decoding && options.input.given()) throw Error("give a text or --decode, not both");
  const std::string text = options.decoding ? "" : read_text(options.input, LastNewline::kKeep);
  const GgufFile file = open_model(options.model);
  const Tokenizer tokenizer = load_tokenizer(file);
  if (options.decoding) {
    print_text(options, tokenizer);
    return kOk;
  }
  const ControlTokens control = options.no_special ? ControlTokens::kAsText : ControlTokens::kParse;
  print_tokens(options, tokenizer,
               options.no_bos ? tokenizer.encode(text, control) : encode_prompt(tokenizer, text, control));
  return kOk;
}

}  // namespace

Command add_tokenize(CLI::App& root) {
  CLI::App* app = root.add_subcommand("tokenize", "Print the tokens of a text, or the text of tokens.");
  auto options = std::make_shared<TokenizeOptions>();
  app->add_option("-m,--model", options->model, "model: GGUF file or Hugging Face folder")
      ->required()
      ->type_name("FILE");
  add_text_options(*app, options->input, "the text; without -p and -f it is read from stdin");
  app->add_option("--decode", options->decode, "print the text of these ids instead")
      ->type_name("ID")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',')
      ->each([options](const std::string&) { options->decoding = true; });
  app->add_flag("--ids", options->ids_only, "print a list of ids only");
  app->add_flag("--no-parse-special", options->no_special, "the text of a control token is plain text");
  app->add_flag("--no-bos", options->no_bos, "add no begin token, also where the model wants one");
  app->add_flag("--json", options->json, "print one JSON object");
  app->footer(kTokenizeExamples);
  return {app, [options] { return run(*options); }};
}

}  // namespace quire::cli

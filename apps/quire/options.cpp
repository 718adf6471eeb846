#include "options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "asset_folders.h"
#include "base/error.h"
#include "terminal.h"

namespace quire::cli {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};

std::string read_all(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const size_t n = std::fread(buffer, 1, sizeof buffer, file);
    text.append(buffer, n);
    if (n < sizeof buffer) break;
  }
  if (std::ferror(file)) throw Error(name + " cannot be read: " + std::strerror(errno));
  return text;
}

// Jinja, or "chatml"; empty: the model's. A text without a brace is no template but the name of a file.
std::string chat_template_text(const ModelOptions& options) {
  if (!options.chat_template.empty() && !options.chat_template_file.empty()) {
    throw Error("give the chat template with --chat-template or with --chat-template-file, not with both");
  }
  std::string path = options.chat_template_file;
  if (path.empty()) {
    const std::string& text = options.chat_template;
    if (text.empty() || text == "chatml" || text.find('{') != std::string::npos) return text;
    path = text;
  }
  std::string text = read_file(path);
  if (text.empty()) throw Error(path + ": the chat template is empty");
  return text;
}

// An endless recipe's context is how long it may go on, at positions that stay within the trained ones.
bool needs_positions(const std::vector<Recipe>& recipes) {
  return std::any_of(recipes.begin(), recipes.end(), [](const Recipe& recipe) { return !recipe.endless(); });
}

bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

}  // namespace

void check_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw Error(std::string(name) + " must be between " + std::to_string(low) + " and " + std::to_string(high) +
              ", not " + std::to_string(value));
}

EngineOptions ModelOptions::engine_options() const {
  return engine_options(context_given ? Recipe::parse_list(recipe) : std::vector<Recipe>());
}

EngineOptions ModelOptions::engine_options(const std::vector<Recipe>& recipes) const {
  if (context_given) check_range("--ctx-size", context_tokens, 1, kMostTokens);
  if (threads_given) check_range("--threads", threads, 1, kMaxThreads);
  if (!(budget_mb >= 0 && budget_mb <= 1e9))
    throw Error("--kv-budget-mb must be between 0 (no limit) and 1e9");
  if (!(ram_mb >= 0 && ram_mb <= 1e9)) throw Error("--kv-ram-mb must be between 0 (no limit) and 1e9");
  EngineOptions engine;
  engine.n_threads = static_cast<int>(threads);
  engine.precision = precise ? Precision::kPrecise : Precision::kFast;
  engine.kv_budget_bytes = static_cast<uint64_t>(std::ceil(budget_mb * 1e6));
  engine.kv_ram_bytes = static_cast<uint64_t>(std::ceil(ram_mb * 1e6));
  engine.calibration_path = calibration;
  engine.butler_path = butler;
  engine.rope = rope.overrides();
  if (context_given && needs_positions(recipes)) {
    engine.rope.context_tokens = static_cast<size_t>(context_tokens);
  }
  engine.asset_folders = asset_folders();
  engine.chat_template = chat_template_text(*this);
  engine.on_note = [](const std::string& sentence) { write_note(printable(sentence)); };
  return engine;
}

SessionOptions ModelOptions::session_options() const {
  if (context_given) check_range("--ctx-size", context_tokens, 1, kMostTokens);
  check_range("--chunk", step_tokens, 0, kMostTokens);
  SessionOptions session;
  session.recipe = Recipe::parse(recipe);
  session.context_tokens = static_cast<size_t>(context_tokens);
  session.step_tokens = static_cast<size_t>(step_tokens);
  return session;
}

void add_engine_options(CLI::App& app, ModelOptions& options) {
  app.add_option("-m,--model", options.path, "model: GGUF file or Hugging Face folder")
      ->required()
      ->type_name("FILE");
  app.add_option("-t,--threads", options.threads, "threads (default: all cores)")
      ->type_name("N")
      ->each([&](const std::string&) { options.threads_given = true; });
  app.add_flag("--precise", options.precise, "keep activations in f32: slower, closer to the weights");
  add_rope_options(app, options.rope);
}

void add_context_option(CLI::App& app, ModelOptions& options) {
  app.add_option("-c,--ctx-size", options.context_tokens, "tokens of context (default: the model's)")
      ->type_name("N")
      ->each([&](const std::string&) { options.context_given = true; });
}

void add_recipe_option(CLI::App& app, ModelOptions& options) {
  app.add_option("--kv", options.recipe, "recipe of the KV cache, see `quire recipes`")
      ->type_name("RECIPE")
      ->each([&](const std::string&) { options.recipe_given = true; })
      ->capture_default_str();
  add_fact_options(app, options);
}

void add_fact_options(CLI::App& app, ModelOptions& options) {
  app.add_option("--calibration", options.calibration,
                 "the model's calibration (default: the one that is kept, made at its first use)")
      ->type_name("FILE");
  app.add_option("--butler", options.butler,
                 "the model's trained predictor, of `quire train-butler` (default: the one that ships)")
      ->type_name("FILE");
}

void add_chat_template_options(CLI::App& app, ModelOptions& options) {
  app.add_option("--chat-template", options.chat_template,
                 "the chat template, in Jinja: its text, a file of it, or chatml (default: the model's)")
      ->type_name("TEXT|FILE");
  app.add_option("--chat-template-file", options.chat_template_file, "the same from a file")
      ->type_name("FILE");
}

// An empty text, of a variable that is not set, would be read as 0.
std::string is_given(const std::string& text) { return text.empty() ? "wants a number" : ""; }

void add_model_options(CLI::App& app, ModelOptions& options) {
  add_engine_options(app, options);
  add_recipe_option(app, options);
  add_context_option(app, options);
  app.add_option("--kv-budget-mb", options.budget_mb,
                 "most memory for the KV cache, in MB (default: no limit)")
      ->check(is_given)
      ->type_name("MB");
  app.add_option(
         "--kv-ram-mb", options.ram_mb,
         "most memory for the KV cache where its rows lie in a tier (place=), fetched rows and buffers "
         "included, in MB (default: no limit)")
      ->check(is_given)
      ->type_name("MB");
  app.add_option("--chunk,--ubatch-size", options.step_tokens,
                 "prompt tokens computed together (-ub); 0: the whole prompt, layer by layer")
      ->type_name("N")
      ->capture_default_str();
}

void SamplingFlags::settle() {
  options.check();
  check_range("--n-predict", max_tokens, -2, kMostTokens);
  if (seed < -1) throw Error("--seed must be -1 (random) or more, not " + std::to_string(seed));
  options.seed = seed >= 0 ? static_cast<uint64_t>(seed) : std::random_device{}();
  StopMatcher{stops};  // refuses empty ones
}

size_t SamplingFlags::token_limit() const {
  return max_tokens < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(max_tokens);
}

void add_sampling_options(CLI::App& app, SamplingFlags& flags, int64_t max_tokens) {
  flags.max_tokens = max_tokens;
  const auto add = [&](const char* names, auto& value, const char* text) {
    app.add_option(names, value, text)->capture_default_str()->group("Sampling");
  };
  app.add_option("-n,--n-predict,--predict", flags.max_tokens,
                 "most tokens to generate; -1: until the context is full")
      ->type_name("N")
      ->capture_default_str();
  add("--temp,--temperature", flags.options.temperature, "temperature; 0: always the most likely token");
  add("--top-k", flags.options.top_k, "only the k most likely tokens; 0: no limit");
  add("--top-p", flags.options.top_p, "only the fewest tokens with this probability together; 1: no limit");
  add("--min-p", flags.options.min_p,
      "only tokens with this share of the best one's probability; 0: no limit");
  add("--repeat-penalty", flags.options.repeat_penalty, "penalty of recent tokens; 1: none");
  add("--repeat-last-n", flags.options.repeat_last_n, "how many tokens are recent; 0: none, -1: all");
  add("-s,--seed", flags.seed, "seed; -1: random, and reported");
  app.add_option("-r,--stop,--reverse-prompt", flags.stops,
                 "stop before this text; may be given several times")
      ->type_name("TEXT")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", flags.ignore_end, "go on where the model would end");
}

void add_text_options(CLI::App& app, TextInput& input, const char* what) {
  app.add_option("-p,--prompt", input.text, what)->type_name("TEXT")->each([&](const std::string&) {
    input.text_given = true;
  });
  app.add_option("-f,--file", input.file, "the same from a file; - is stdin")->type_name("FILE");
}

std::string read_file(const std::string& path) {
  if (path == "-") return read_all(stdin, "stdin");
  struct stat info {};
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file || fstat(fileno(file.get()), &info) != 0) throw Error(path + ": " + std::strerror(errno));
  if (S_ISDIR(info.st_mode)) throw Error(path + " is a directory");
  return read_all(file.get(), path);
}

std::string read_text(const TextInput& input, LastNewline last_newline) {
  if (input.text_given && !input.file.empty()) throw Error("give the text with -p or with -f, not with both");
  if (input.text_given) return input.escape ? unescape(input.text) : input.text;
  if (input.file.empty() && isatty(STDIN_FILENO)) {
    throw Error("there is no text: give it with -p TEXT, with -f FILE or on stdin");
  }
  std::string text = read_file(input.file.empty() ? "-" : input.file);
  if (last_newline == LastNewline::kDrop && text.ends_with('\n')) text.pop_back();
  return text;
}

std::string unescape(const std::string& text) {
  constexpr std::string_view kFrom = "nrt\\'\"";
  constexpr std::string_view kTo = "\n\r\t\\'\"";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
    } else if (const size_t at = kFrom.find(text[i + 1]); at != std::string_view::npos) {
      out += kTo[at];
      ++i;
    } else if (text[i + 1] == 'x' && i + 3 < text.size() && is_hex(text[i + 2]) && is_hex(text[i + 3])) {
      out += static_cast<char>(std::stoi(text.substr(i + 2, 2), nullptr, 16));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace quire::cli

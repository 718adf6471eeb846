// quire chat: a conversation in which every turn computes only what is new.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "commands.h"
#include "engine/session.h"
#include "engine/vocabulary_reader.h"
#include "options.h"
#include "saved_sequence.h"
#include "terminal.h"
#include "tier/tier.h"

namespace quire::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  quire chat -m model.gguf\n"
    "  quire chat -m model.gguf --system-prompt \"Answer in one sentence.\" --temp 0\n"
    "  quire chat -m model.gguf --load-kv talk.kv --save-kv talk.kv\n"
    "  printf 'Hello\\nWho are you?\\n' | quire chat -m model.gguf\n"
    "\nIn the conversation: /clear forgets it, /exit ends it, /help lists these. Ctrl-C stops an answer, or "
    "leaves.";

constexpr const char* kHelp =
    "/clear  forget the conversation\n/exit   leave\n/help   this list\nCtrl-C  stop an answer; leave when "
    "there is none";

struct ChatOptions {
  ModelOptions model;
  SamplingFlags sampling;
  TextInput first;
  KvFiles kv_files;
  std::string system_prompt;
};

// Lines of stdin; Ctrl-C while waiting gives an empty optional with `interrupted` set.
class LineReader {
 public:
  ~LineReader() { std::free(line_); }

  bool interrupted = false;

  std::optional<std::string> next() {
    errno = 0;
    const ssize_t n = getline(&line_, &capacity_, stdin);
    interrupted = n < 0 && errno == EINTR;
    if (n < 0) {
      std::clearerr(stdin);
      return std::nullopt;
    }
    std::string text(line_, static_cast<size_t>(n));
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return text;
  }

 private:
  char* line_ = nullptr;
  size_t capacity_ = 0;
};

class Conversation {
 public:
  Conversation(Engine& engine, const ChatOptions& options, const SessionOptions& session_options)
      : engine_(engine),
        options_(options),
        template_(engine.chat_template()),
        session_(engine, session_options),
        sampler_(options.sampling.options) {}

  // Goes on with what was saved.
  void load(SavedSequence& saved) {
    saved.load(session_);
    answered_ = !session_.tokens().empty();
    write_note("loaded " + std::to_string(saved.n_loaded) + " tokens; the conversation goes on behind them");
  }
  const Session& session() const { return session_; }

  // One message and its answer.
  void take_turn(const std::string& message) {
    const std::vector<int32_t> tokens = encode(message);
    if (const size_t needed = session_.tokens().size() + tokens.size(); needed > session_.context_tokens()) {
      write_note("this message would need " + std::to_string(needed) +
                 " tokens, but the context holds only " + std::to_string(session_.context_tokens()) +
                 "; /clear begins a new conversation");
      return;
    }
    PrefillResult prefill;
    try {
      prefill = session_.prefill(tokens, {{}, &interrupt_flag()});
    } catch (const Error& error) {
      const Tier* tier = session_.cache().store().tier();
      if (tier != nullptr && tier->is_faulty()) throw;  // no conversation can go on with it
      write_note(std::string(error.what()) + "; /clear begins a new conversation");
      return;
    }
    if (prefill.interrupted) {
      write_note("interrupted; the message was not taken");
    } else {
      answer(prefill);
    }
  }

  void clear() {
    session_.crop(0);
    answered_ = false;
    write_note("the conversation is forgotten");
  }

 private:
  std::vector<int32_t> encode(const std::string& message) const {
    const Tokenizer& tokenizer = engine_.tokenizer();
    std::vector<int32_t> tokens;
    const auto append = [&](const std::vector<int32_t>& more) {
      tokens.insert(tokens.end(), more.begin(), more.end());
    };
    // An end token is never put into the cache by the session, so the end marker always has to follow.
    if (answered_) append(template_.encode_answer_end(tokenizer, false));
    const bool system_first = !answered_ && !options_.system_prompt.empty();
    if (system_first)
      append(template_.encode_turn(tokenizer, {"system", options_.system_prompt}, false, true));
    append(template_.encode_turn(tokenizer, {"user", message}, true, !answered_ && !system_first));
    return tokens;
  }

  void answer(const PrefillResult& prefill) {
    answered_ = true;
    const GenerateOptions generate{options_.sampling.token_limit(), options_.sampling.stops,
                                   &interrupt_flag()};
    const Generation answer =
        session_.generate(sampler_, generate, [](std::string_view piece) { write_out(piece); });
    write_out("\n");
    std::string note = "[" + std::to_string(prefill.n_computed) + " new tokens, " +
                       std::to_string(prefill.n_reused) + " reused · answer " +
                       std::to_string(answer.tokens.size()) + " tokens " +
                       fixed(answer.tokens_per_second(), 1) + " tokens/s · context " +
                       std::to_string(session_.tokens().size());
    if (!session_.is_endless()) note += " of " + std::to_string(session_.context_tokens());
    if (answer.finish != FinishReason::kEnd)
      note += std::string(" · ended by ") + finish_reason_name(answer.finish);
    write_note(note + "]");
    if (answer.finish == FinishReason::kContext) {
      write_note("the context of " + std::to_string(session_.context_tokens()) +
                 " tokens is full; /clear begins a new conversation");
    }
  }

  Engine& engine_;
  const ChatOptions& options_;
  const ChatTemplate& template_;
  Session session_;
  Sampler sampler_;
  bool answered_ = false;  // the session holds the beginning of a conversation
};

// Handles one line; false: leave.
bool handle_line(Conversation& conversation, const std::string& line) {
  if (line == "/exit" || line == "/quit" || line == "/bye") return false;
  if (line.find_first_not_of(" \t") == std::string::npos) return true;
  if (line == "/clear") {
    conversation.clear();
  } else if (line == "/help" || line == "/?") {
    write_note(kHelp);
  } else {
    conversation.take_turn(line);
  }
  return true;
}

int converse(Conversation& conversation, const ChatOptions& options) {
  const bool interactive = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  if (options.first.given()) conversation.take_turn(read_text(options.first, LastNewline::kDrop));
  LineReader lines;
  while (true) {
    clear_interrupt();
    if (interactive) write_out("> ");
    const std::optional<std::string> line = lines.next();
    if (!line && lines.interrupted) {
      write_out("\n");
      return kOk;  // Ctrl-C while nothing is being answered
    }
    if (!line) break;
    if (!handle_line(conversation, *line)) return kOk;
  }
  if (interactive) write_out("\n");
  return kOk;
}

int run(ChatOptions& options) {
  options.sampling.settle();
  const EngineOptions engine_options = options.model.engine_options();
  SessionOptions session_options = options.model.session_options();
  SavedSequence saved(options.kv_files, options.model, session_options);
  if (options.first.file == "-")
    throw Error("chat reads its turns from stdin, so -f - cannot be the first message");
  catch_interrupts();
  Engine engine(options.model.path, engine_options);
  saved.check_model(engine);
  if (options.sampling.ignore_end) options.sampling.options.banned = end_tokens(engine.tokenizer());
  Conversation conversation(engine, options, session_options);
  if (saved.loads()) conversation.load(saved);
  if (isatty(STDIN_FILENO)) write_note("/help lists what can be done here; /exit leaves");
  const int code = converse(conversation, options);
  if (saved.saves()) saved.save(conversation.session());
  return code;
}

}  // namespace

Command add_chat(CLI::App& root) {
  CLI::App* app = root.add_subcommand("chat", "Hold a conversation; each turn computes only what is new.");
  auto options = std::make_shared<ChatOptions>();
  add_text_options(*app, options->first, "the first message");
  app->add_option("--system-prompt", options->system_prompt, "system message (-sys; default: the model's)")
      ->type_name("TEXT");
  add_kv_files(*app, options->kv_files);
  add_sampling_options(*app, options->sampling, -1);
  add_model_options(*app, options->model);
  app->footer(kExamples);
  return {app, [options] { return run(*options); }};
}

}  // namespace quire::cli

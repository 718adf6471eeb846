// quire chat: a conversation in which every turn computes only what is new.
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/device_error.h"
#include "base/error.h"
#include "commands.h"
#include "engine/session.h"
#include "engine/vocabulary_reader.h"
#include "options.h"
#include "run_on_device.h"
#include "saved_sequence.h"
#include "terminal.h"
#include "text/dialogue.h"

namespace quire::cli {
namespace {

constexpr const char* kChatExamples =
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

constexpr const char* kAnew = "; /clear begins a new conversation";

struct ChatOptions {
  ModelOptions model;
  SamplingFlags sampling;
  TextInput first;
  KvFiles kv_files;
  std::string system_prompt;
  std::string device = "cpu";
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
  Conversation(Engine& engine, const ChatOptions& options, AnySession& session)
      : options_(options), dialogue_(engine.chat_template(), engine.tokenizer()), session_(session) {}

  // Goes on with what was saved.
  void load(SavedSequence& saved) {
    saved.load(session_);
    dialogue_.begin(session_.tokens().size());
    write_note("loaded " + std::to_string(saved.n_loaded) + " tokens; the conversation goes on behind them");
    if (!dialogue_.empty() && !options_.system_prompt.empty()) {
      write_note("the loaded conversation keeps its own system message; --system-prompt counts after /clear");
    }
  }
  const AnySession& session() const { return session_; }

  // One message and its answer.
  void take_turn(const std::string& message) {
    std::optional<Dialogue::Turn> turn = prepare(message);
    if (!turn || !has_room(*turn)) return;
    try {
      session_.crop(turn->n_keep);
      prefilled_ = session_.prefill(turn->tokens, {{}, &interrupt_flag()});
    } catch (const DeviceError&) {
      throw;
    } catch (const Error& error) {
      if (session_.is_lost()) throw;  // no conversation can go on with it
      write_note(std::string(error.what()) + kAnew);
      return;
    }
    if (prefilled_.interrupted) {
      write_note("interrupted; the message was not taken");
      return;
    }
    dialogue_.accept(std::move(*turn));
    answer();
  }

  void clear() {
    session_.crop(0);
    dialogue_.begin(0);
    write_note("the conversation is forgotten");
  }

 private:
  std::vector<ChatMessage> next_messages(const std::string& message) const {
    std::vector<ChatMessage> messages;
    if (dialogue_.empty() && !options_.system_prompt.empty()) {
      messages.push_back({"system", options_.system_prompt, {}});
    }
    messages.push_back({"user", message, {}});
    return messages;
  }

  // What the message adds; none if the template refuses it.
  std::optional<Dialogue::Turn> prepare(const std::string& message) const {
    try {
      return dialogue_.prepare(next_messages(message), session_.tokens());
    } catch (const Error& error) {
      if (dialogue_.empty()) throw;  // the next message would fare no better
      write_note(std::string(error.what()) + kAnew);
      return std::nullopt;
    }
  }

  bool has_room(const Dialogue::Turn& turn) const {
    const size_t needed = turn.n_keep + turn.tokens.size();
    if (needed <= session_.context_tokens()) return true;
    write_note("this message would need " + std::to_string(needed) + " tokens, but the context holds only " +
               std::to_string(session_.context_tokens()) + kAnew);
    return false;
  }

  void answer() {
    const GenerateOptions generate{options_.sampling.token_limit(), options_.sampling.stops,
                                   &interrupt_flag()};
    std::string text;
    try {
      const Generation answer = session_.generate(generate, [&](std::string_view piece) {
        text += piece;
        write_out(piece);
      });
      // A stop string is no part of the answer, but its tokens are part of the sequence.
      const bool holds_more = answer.finish == FinishReason::kStopString;
      dialogue_.answered(answer.text, holds_more ? 0 : session_.tokens().size());
      write_out("\n");
      write_figures(answer);
    } catch (const Error&) {  // what is said of it begins on a line of its own
      if (!text.empty()) write_out("\n");
      throw;
    }
  }

  void write_figures(const Generation& answer) const {
    std::string note = "[" + std::to_string(prefilled_.n_computed) + " new tokens, " +
                       std::to_string(prefilled_.n_reused) + " reused · answer " +
                       std::to_string(answer.tokens.size()) + " tokens " +
                       fixed(answer.tokens_per_second(), 1) + " tokens/s · context " +
                       std::to_string(session_.tokens().size());
    if (!session_.is_endless()) note += " of " + std::to_string(session_.context_tokens());
    if (answer.finish != FinishReason::kEnd)
      note += std::string(" · ended by ") + finish_reason_name(answer.finish);
    write_note(note + "]");
    if (answer.finish == FinishReason::kContext) {
      write_note("the context of " + std::to_string(session_.context_tokens()) + " tokens is full" + kAnew);
    }
  }

  const ChatOptions& options_;
  Dialogue dialogue_;
  AnySession& session_;
  PrefillResult prefilled_;  // of the last message
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

// Saves the conversation, also one that ended in trouble, to which it adds whether it could.
void save(SavedSequence& saved, const AnySession& session, std::string& trouble) {
  if (!trouble.empty() && session.tokens().empty()) return;
  try {
    saved.save(session);
    if (!trouble.empty()) trouble += "; what was there before is saved";
  } catch (const Error& error) {
    if (trouble.empty()) throw;
    trouble += trouble == error.what() ? "; so the conversation is not saved"
                                       : std::string("; the conversation is not saved: ") + error.what();
  }
}

int hold(Engine& engine, const ChatOptions& options, AnySession& session, SavedSequence& saved) {
  Conversation conversation(engine, options, session);
  if (saved.loads()) conversation.load(saved);
  if (isatty(STDIN_FILENO)) write_note("/help lists what can be done here; /exit leaves");
  int code = kOk;
  bool of_device = false;
  std::string trouble;
  try {
    code = converse(conversation, options);
  } catch (const Error& error) {  // which must not cost what was said before
    trouble = error.what();
    of_device = dynamic_cast<const DeviceError*>(&error) != nullptr;
  }
  if (saved.saves()) save(saved, conversation.session(), trouble);
  if (of_device) throw DeviceError(trouble);
  if (!trouble.empty()) throw Error(trouble);
  return code;
}

int chat_on_device(const ChatOptions& options, const SessionOptions& session_options, SavedSequence& saved) {
  OnDevice device(options.device, options.model);
  saved.check_model(device.engine());
  DeviceHeldSession session(device.begin(options.sampling, session_options, saved.n_room_tokens(), SIZE_MAX,
                                         saved.loads() || saved.saves()));
  return hold(device.engine(), options, session, saved);
}

int run(ChatOptions& options) {
  options.sampling.settle();
  const EngineOptions engine_options = options.model.engine_options();
  SessionOptions session_options = options.model.session_options();
  const bool on_device = gpu::device_number(options.device) >= 0;
  if (on_device) check_device_flags(options.model);
  SavedSequence saved(options.kv_files, options.model, session_options);
  if (options.first.file == "-")
    throw Error("chat reads its turns from stdin, so -f - cannot be the first message");
  catch_interrupts();
  if (on_device) return chat_on_device(options, session_options, saved);
  Engine engine(options.model.path, engine_options);
  saved.check_model(engine);
  if (options.sampling.ignore_end) options.sampling.options.banned = end_tokens(engine.tokenizer());
  Session session(engine, session_options);
  Sampler sampler(options.sampling.options);
  HostSession held(session, sampler);
  return hold(engine, options, held, saved);
}

}  // namespace

Command add_chat(CLI::App& root) {
  CLI::App* app = root.add_subcommand("chat", "Hold a conversation; each turn computes only what is new.");
  auto options = std::make_shared<ChatOptions>();
  add_text_options(*app, options->first, "the first message");
  app->add_option("--system-prompt", options->system_prompt, "system message (-sys; default: the model's)")
      ->type_name("TEXT");
  add_kv_files(*app, options->kv_files);
  app->add_option("--device", options->device, "cpu, or cuda[:N]: on a GPU, with room for the whole context")
      ->type_name("DEVICE")
      ->capture_default_str();
  add_sampling_options(*app, options->sampling, -1);
  add_chat_template_options(*app, options->model);
  add_model_options(*app, options->model);
  app->footer(kChatExamples);
  return {app, [options] { return run(*options); }};
}

}  // namespace quire::cli

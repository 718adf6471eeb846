// quire run: continues a text, or answers it as one message of a chat.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory.h"
#include "commands.h"
#include "engine/joining.h"
#include "engine/session.h"
#include "engine/vocabulary_reader.h"
#include "key_bias_figures.h"
#include "options.h"
#include "run_on_device.h"
#include "saved_sequence.h"
#include "terminal.h"
#include "tier/tier.h"
#include "timing.h"

namespace quire::cli {
namespace {

constexpr const char* kRunExamples =
    "Examples:\n"
    "  quire run -m model.gguf -p \"The capital of France is\" -n 20\n"
    "  quire run -m model.gguf -f book.txt -n 200 --temp 0.8 --seed 7\n"
    "  quire run -m model.gguf --chat -p \"Who wrote Emma?\" --temp 0\n"
    "  cat notes.txt | quire run -m model.gguf -n 100 --stop \"###\"\n"
    "  quire run -m model.gguf -f book.txt -n 100 --kv k=bf16,v=bf16 --json\n"
    "  quire run -m model.gguf -f book.txt -n 0 --save-kv book.kv\n"
    "  quire run -m model.gguf --load-kv book.kv -p \"Who is the hero?\" -n 50\n"
    "\nA last newline of a file or of stdin does not belong to the prompt.\n"
    "\nWith --load-kv a prompt that begins like the saved text is the whole text, as with llama.cpp's\n"
    "--prompt-cache: what both have in common is not computed again, and the rest of what was saved\n"
    "is dropped. A prompt that begins differently, or any with --append, comes behind the saved text;\n"
    "with --chat, as the next message. Without a prompt generation goes on. A note says which it was.\n"
    "The file belongs to its model, recipe and calibration. It is not changed, unless --save-kv names\n"
    "it too.";

// A prefill of so many tokens takes long enough to show how far it is.
constexpr size_t kLongPrompt = 512;

struct RunOptions {
  ModelOptions model;
  SamplingFlags sampling;
  TextInput input;
  KvFiles kv_files;
  std::string system_prompt;
  std::string device = "cpu";
  bool chat = false;
  bool raw = false;
  bool json = false;
  bool display_prompt = false;
  bool no_display_prompt = false;
};

std::vector<ChatMessage> messages_of(const RunOptions& options, const std::string& text) {
  std::vector<ChatMessage> messages;
  if (!options.system_prompt.empty()) messages.push_back({"system", options.system_prompt, {}});
  messages.push_back({"user", text, {}});
  return messages;
}

// Of a text that begins a sequence.
std::vector<int32_t> encode(const Engine& engine, const RunOptions& options, const std::string& text) {
  if (!options.chat) {
    std::vector<int32_t> tokens = encode_prompt(engine.tokenizer(), text, ControlTokens::kParse);
    if (tokens.empty()) throw Error("the prompt is empty, and the model has no token to begin a text with");
    return tokens;
  }
  return engine.chat_template().encode(engine.tokenizer(), messages_of(options, text), true);
}

// Of a text that comes behind others, in a chat as the next message.
std::vector<int32_t> encode_behind(const Engine& engine, const RunOptions& options, const std::string& text) {
  if (!options.chat) return engine.tokenizer().encode(text, ControlTokens::kParse);
  return engine.chat_template().encode_behind(engine.tokenizer(), messages_of(options, text));
}

// The prompt on top of a sequence that was loaded, which it may begin like or come behind.
SavedSequence::Prompt both_forms(const Engine& engine, const RunOptions& options, const std::string& text) {
  SavedSequence::Prompt prompt;
  if (!text.empty()) {
    prompt.whole = encode(engine, options, text);
    if (options.chat) prompt.n_fixed = join(encode(engine, options, ""), prompt.whole).n_common;
    prompt.behind = [&engine, &options, &text] { return encode_behind(engine, options, text); };
  }
  return prompt;
}

// The tokens to be added to a session, which may hold a sequence that was loaded.
std::vector<int32_t> prompt_tokens(const Engine& engine, const RunOptions& options, const std::string& text,
                                   const SavedSequence& saved, AnySession& session) {
  if (!saved.loads()) return encode(engine, options, text);
  return saved.join(session, both_forms(engine, options, text));
}

// Members that only some runs have.
void add_saved_figures(const SavedSequence& saved, nlohmann::ordered_json& object) {
  if (saved.loads()) {
    object["loaded_tokens"] = saved.n_loaded;
    object["kv_load_seconds"] = saved.load_seconds;
  }
  if (saved.saves()) {
    object["kv_file_bytes"] = saved.file_bytes;
    object["kv_save_seconds"] = saved.save_seconds;
  }
}

nlohmann::ordered_json report(const RunOptions& options, const Engine& engine, const Session& session,
                              const PrefillResult& prefill, const Generation& generation) {
  return {
      {"model", options.model.path},
      {"recipe", session.cache().recipe().text()},
      {"threads", engine.n_threads()},
      {"isa", Engine::isa()},
      {"precise", options.model.precise},
      {"prefill_mode", session.prefill_mode()},
      {"seed", options.sampling.options.seed},
      {"context_tokens", session.is_endless() ? nlohmann::json() : nlohmann::json(session.context_tokens())},
      {"prompt_tokens", prefill.n_computed},
      {"reused_tokens", prefill.n_reused},
      {"generated_tokens", generation.tokens.size()},
      {"finish_reason", finish_reason_name(generation.finish)},
      {"load_seconds", engine.load_seconds()},
      {"prefill_seconds", prefill.seconds},
      {"decode_seconds", generation.seconds},
      {"prefill_tokens_per_s", per_second(prefill.n_computed, prefill.seconds)},
      {"decode_tokens_per_s", generation.tokens_per_second()},
      {"kv_bytes", session.cache().size_bytes()},
      {"kv_bytes_full_f16", session.full_f16_bytes()},
      {"bytes_read_per_token", generation.bytes_read_per_token()},
      {"peak_rss_bytes", peak_resident_bytes()},
      {"text", generation.text},
      {"tokens", generation.tokens}};
}

double per_step(uint64_t n, const Generation& generation) {
  return generation.n_steps > 0 ? static_cast<double>(n) / static_cast<double>(generation.n_steps) : 0;
}

std::string tier_text(const Tier& tier, const Generation& generation) {
  return " · outside " + megabytes(tier.outside_bytes()) + " (" + tier.device_name() + "), fetched " +
         fixed(per_step(generation.tier.fetched_bytes, generation) / 1e6, 2) + " MB/token, " +
         fixed(100 * generation.tier.hit_rate(), 1) + " % there";
}

// Of recipes whose rows lie in a tier.
void add_tier(const Session& session, const Generation& generation, nlohmann::ordered_json& object) {
  const Tier* tier = session.cache().store().tier();
  if (tier == nullptr) return;
  const TierCounts& counts = generation.tier;
  object["tier"] = {{"device", tier->device_name()},
                    {"outside_bytes", tier->outside_bytes()},
                    {"outside_tokens", session.cache().residency().outside_tokens},
                    {"memory_bytes", tier->memory_bytes()},
                    {"limit_bytes", session.cache().store().pool().budget_bytes()},
                    {"peak_bytes", session.cache().store().pool().account().peak_bytes()},
                    {"written_bytes", tier->counts().written_bytes},
                    {"fetched_bytes_per_token", per_step(counts.fetched_bytes, generation)},
                    {"pieces_per_token", per_step(counts.pieces, generation)},
                    {"hit_rate", counts.hit_rate()},
                    {"late_pieces_per_token", per_step(counts.late, generation)},
                    {"waited_seconds", static_cast<double>(counts.waited_ns) / 1e9}};
}

void write_figures(const RunOptions& options, const Engine& engine, const Session& session,
                   const PrefillResult& prefill, const Generation& generation) {
  if (generation.finish == FinishReason::kContext) {
    write_note("the context of " + std::to_string(session.context_tokens()) + " tokens is full");
  } else if (generation.finish == FinishReason::kBudget) {
    write_note("the KV budget of " + megabytes(session.cache().store().pool().budget_bytes()) +
               " is used up");
  }
  std::string line = "prompt " + std::to_string(prefill.n_computed) + " tokens " +
                     fixed(per_second(prefill.n_computed, prefill.seconds), 1) + " tokens/s · generated " +
                     std::to_string(generation.tokens.size()) + " tokens " +
                     fixed(generation.tokens_per_second(), 1) + " tokens/s · KV " +
                     megabytes(session.cache().size_bytes()) + " (" + session.cache().recipe().text() +
                     ") · peak memory " + megabytes(peak_resident_bytes()) + " · load " +
                     fixed(engine.load_seconds(), 2) + " s";
  if (const Tier* tier = session.cache().store().tier()) line += tier_text(*tier, generation);
  line += key_bias_note(engine.model(), session.cache().recipe());
  if (options.sampling.options.temperature > 0)
    line += " · seed " + std::to_string(options.sampling.options.seed);
  write_note(line);
}

// Of recipes that promote pages.
void add_residency(const Cache& cache, nlohmann::ordered_json& object) {
  if (!cache.recipe().promote.given()) return;
  const Residency residency = cache.residency();
  object["residency"] = {{"total_tokens", residency.total_tokens}, {"hot_tokens", residency.hot_tokens},
                         {"cold_tokens", residency.cold_tokens},   {"sticky_tokens", residency.sticky_tokens},
                         {"promotions", residency.promotions},     {"page_ins", residency.page_ins},
                         {"page_outs", residency.page_outs}};
}

PrefillResult prefill_prompt(AnySession& session, std::span<const int32_t> tokens) {
  ProgressLine line("reading " + std::to_string(tokens.size()) + " tokens", tokens.size() >= kLongPrompt);
  return session.prefill(tokens, {[&](double share) { line.show(share); }, &interrupt_flag()});
}

Generation generate(AnySession& session, const RunOptions& options) {
  const GenerateOptions generate{options.sampling.token_limit(), options.sampling.stops, &interrupt_flag()};
  OnText on_text;
  if (!options.json) on_text = [](std::string_view piece) { write_out(piece); };
  return session.generate(generate, on_text);
}

struct RunResult {
  PrefillResult prefill;
  Generation generation;
  std::exception_ptr trouble;  // with saving
};

// Why it cannot be saved, which must not cost what was generated; nullptr: it was, or need not be.
std::exception_ptr try_save(SavedSequence& saved, const AnySession& session) {
  try {
    if (saved.saves()) saved.save(session);
    return nullptr;
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

// What follows when the model is loaded, on either side. False: interrupted.
bool continue_text(const Engine& engine, const RunOptions& options, const std::string& text,
                   SavedSequence& saved, AnySession& session, RunResult& result) {
  if (saved.loads()) saved.load(session);
  const std::vector<int32_t> tokens = prompt_tokens(engine, options, text, saved, session);
  if (options.display_prompt && !options.json) write_out(text);
  result.prefill = prefill_prompt(session, tokens);
  if (result.prefill.interrupted) return false;
  result.generation = generate(session, options);
  if (!options.json && !result.generation.text.ends_with('\n')) write_out("\n");
  result.trouble = try_save(saved, session);
  return true;
}

int finish_run(const RunResult& result) {
  if (result.trouble != nullptr) std::rethrow_exception(result.trouble);
  return result.generation.finish == FinishReason::kInterrupted ? kInterrupted : kOk;
}

int run_here(RunOptions& options, SessionOptions& session_options, const std::string& text,
             SavedSequence& saved) {
  Engine engine(options.model.path, options.model.engine_options());
  saved.check_model(engine);
  if (options.sampling.ignore_end) options.sampling.options.banned = end_tokens(engine.tokenizer());
  Session session(engine, session_options);
  Sampler sampler(options.sampling.options);
  HostSession held(session, sampler);
  RunResult result;
  if (!continue_text(engine, options, text, saved, held, result)) return kInterrupted;
  if (options.json) {
    nlohmann::ordered_json object = report(options, engine, session, result.prefill, result.generation);
    add_residency(session.cache(), object);
    add_key_bias(engine.model(), session.cache().recipe(), object);
    add_tier(session, result.generation, object);
    add_saved_figures(saved, object);
    write_json(object);
  } else {
    write_figures(options, engine, session, result.prefill, result.generation);
  }
  return finish_run(result);
}

int run_there(RunOptions& options, const SessionOptions& session_options, const std::string& text,
              SavedSequence& saved) {
  OnDevice device(options.device, options.model);
  saved.check_model(device.engine());
  const size_t n_wanted = saved.loads() ? saved.n_joined_tokens(both_forms(device.engine(), options, text))
                                        : encode(device.engine(), options, text).size();
  const size_t n_most = n_wanted + std::min(options.sampling.token_limit(), SIZE_MAX - n_wanted);
  DeviceHeldSession held(device.begin(options.sampling, session_options, saved.n_room_tokens(), n_most,
                                      saved.loads() || saved.saves()));
  RunResult result;
  if (!continue_text(device.engine(), options, text, saved, held, result)) return kInterrupted;
  if (options.json) {
    nlohmann::ordered_json object = device.report(options.sampling, result.prefill, result.generation);
    add_saved_figures(saved, object);
    write_json(object);
  } else {
    device.write_figures(options.sampling, result.prefill, result.generation);
  }
  return finish_run(result);
}

int run(RunOptions& options) {
  options.sampling.settle();
  options.model.engine_options();  // refuses what cannot be meant
  SessionOptions session_options = options.model.session_options();
  if (!options.system_prompt.empty() && !options.chat) throw Error("a system prompt needs --chat");
  if (options.model.chat_template_given() && !options.chat) throw Error("a chat template needs --chat");
  if (options.kv_files.append && options.kv_files.load.empty()) throw Error("--append needs --load-kv");
  const bool on_device = gpu::device_number(options.device) >= 0;
  if (on_device) check_device_flags(options.model);
  SavedSequence saved(options.kv_files, options.model, session_options);
  const bool may_lack = saved.loads() && !options.input.given() && isatty(STDIN_FILENO) != 0;
  const std::string text = may_lack ? "" : read_text(options.input, LastNewline::kDrop);
  catch_interrupts();
  return on_device ? run_there(options, session_options, text, saved)
                   : run_here(options, session_options, text, saved);
}

}  // namespace

Command add_run(CLI::App& root) {
  CLI::App* app = root.add_subcommand("run", "Continue a text, or answer it with --chat.");
  auto options = std::make_shared<RunOptions>();
  add_text_options(*app, options->input, "the prompt; without -p and -f it is read from stdin");
  add_sampling_options(*app, options->sampling, 128);
  add_model_options(*app, options->model);
  add_kv_files(*app, options->kv_files);
  app->add_flag("--append", options->kv_files.append,
                "with --load-kv: the prompt comes behind what was saved");
  CLI::Option* chat = app->add_flag("--chat", options->chat, "wrap the prompt as one message of a user");
  app->add_flag("--raw", options->raw, "continue the prompt as it is (default)")->excludes(chat);
  app->add_option("--system-prompt", options->system_prompt, "system message of --chat (-sys)")
      ->type_name("TEXT");
  add_chat_template_options(*app, options->model);
  app->add_flag("-e,--escape", options->input.escape, "read \\n, \\t, \\xHH ... in -p and --stop as escapes");
  CLI::Option* display =
      app->add_flag("--display-prompt", options->display_prompt, "print the prompt before its continuation");
  app->add_flag("--no-display-prompt", options->no_display_prompt, "do not (default)")->excludes(display);
  app->add_flag("--json", options->json, "print one JSON object: the text and its figures");
  app->add_option("--device", options->device, "cpu, or cuda[:N]: compute on a GPU, see docs/gpu.md")
      ->type_name("DEVICE")
      ->capture_default_str();
  app->footer(kRunExamples);
  return {app, [options] {
            if (options->input.escape) {
              for (std::string& stop : options->sampling.stops) stop = unescape(stop);
            }
            return run(*options);
          }};
}

}  // namespace quire::cli

// quire: long-context generation from GGUF models. Parses the command line, runs one command, and turns
// trouble into one sentence and an exit code.
#include <signal.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/device_error.h"
#include "commands.h"
#include "suggest.h"
#include "terminal.h"

namespace quire::cli {
namespace {

constexpr const char* kProgramExamples =
    "Examples:\n"
    "  quire run -m model.gguf -p \"The capital of France is\" -n 20\n"
    "  quire run -m model.gguf -f book.txt -n 200 --json\n"
    "  cat notes.txt | quire run -m model.gguf --chat\n"
    "  quire chat -m model.gguf\n"
    "  quire inspect model.gguf -c 8192\n"
    "  quire tokenize -m model.gguf -p \"Hello, world\"\n"
    "  quire convert Llama-3.2-1B/ llama.gguf --type q8_0\n"
    "  quire eval ppl -m model.gguf -f book.txt\n"
    "  quire eval kl -m model.gguf -f book.txt --kv turbo4,kivi4\n"
    "  quire eval recall -m model.gguf -f book.txt --kv turbo4,quire\n"
    "  quire eval ruler -m model.gguf -f book.txt --kv full,quire\n"
    "  quire bench -m model.gguf -f book.txt --mode both --max-new-tokens 100\n"
    "  quire calibrate -m model.gguf\n"
    "  quire train-butler -m model.gguf -f book.txt -o butler.safetensors\n"
    "\n`quire COMMAND --help` says more about each.";

// llama.cpp has names of several letters after one dash, which the parser does not know.
void rename_llama_flags(std::vector<std::string>& arguments) {
  for (std::string& argument : arguments) {
    if (argument == "-sys") argument = "--system-prompt";
    if (argument == "-ub") argument = "--ubatch-size";
  }
}

void check_command_word(const std::vector<std::string>& arguments, const std::vector<Command>& commands) {
  std::vector<std::string> names = {"eval"};
  for (const Command& command : commands) {
    if (command.app->get_parent()->get_name() != "eval") names.push_back(command.app->get_name());
  }
  std::sort(names.begin(), names.end());
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  if (arguments.empty()) throw Error("give a command, one of " + list + "; `quire --help` shows how");
  const std::string& word = arguments.front();
  if (word.starts_with('-') || std::find(names.begin(), names.end(), word) != names.end()) return;
  throw Error("there is no command '" + word + "'" + did_you_mean(word, names, "; there are " + list));
}

// The innermost command that was given.
const CLI::App& parsed_app(const CLI::App& app) {
  for (const CLI::App* sub : app.get_subcommands()) return parsed_app(*sub);
  return app;
}

std::string describe_extras(const CLI::App& root) {
  const CLI::App& app = parsed_app(root);
  std::vector<std::string> extras = root.remaining(true);
  const auto flag =
      std::find_if(extras.begin(), extras.end(), [](const auto& s) { return s.starts_with('-'); });
  if (flag == extras.end()) {
    return extras.empty() ? "there is an argument too many" : "unexpected argument '" + extras.front() + "'";
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  const std::string word = flag->substr(0, flag->find('='));
  const std::string command = &app == &root ? "quire" : "quire " + app.get_name();
  return "unknown option '" + word + "'" + did_you_mean(word, names, "; see `" + command + " --help`");
}

// The parser's own sentence, on one line; its sentence about numbers is no sentence ("Could not convert: -t =
// x").
std::string describe_parse_error(const CLI::ParseError& error, const CLI::App& root) {
  constexpr std::string_view kNoNumber = "Could not convert: ";
  std::string sentence = error.what();
  sentence = sentence.substr(0, sentence.find('\n'));
  if (sentence.starts_with(kNoNumber)) {
    const size_t equals = sentence.find(" = ");
    return sentence.substr(kNoNumber.size(), equals - kNoNumber.size()) + " needs a number in range, not '" +
           (equals == std::string::npos ? "" : sentence.substr(equals + 3)) + "'";
  }
  if (sentence == "A subcommand is required") {
    const CLI::App& app = parsed_app(root);
    return "a command is missing; see `" + (&app == &root ? "quire" : "quire " + app.get_name()) + " --help`";
  }
  return sentence;
}

int run_program(std::vector<std::string> arguments) {
  CLI::App root("Quire runs language models on long texts.", "quire");
  root.set_version_flag("--version", std::string("quire ") + QUIRE_VERSION);
  root.require_subcommand(1);
  root.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  root.footer(kProgramExamples);
  root.get_formatter()->column_width(34);
  const std::vector<Command> commands = {add_run(root),         add_chat(root),
                                         add_inspect(root),     add_tokenize(root),
                                         add_eval_ppl(root),    add_eval_kl(root),
                                         add_eval_recall(root), add_eval_ruler(root),
                                         add_eval_coref(root),  add_eval_degeneration(root),
                                         add_bench(root),       add_recipes(root),
                                         add_calibrate(root),   add_train_butler(root),
                                         add_convert(root)};
  check_command_word(arguments, commands);
  rename_llama_flags(arguments);
  std::reverse(arguments.begin(), arguments.end());  // the parser takes them from the back
  try {
    root.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    write_out(root.help() + "\n");
    return kOk;
  } catch (const CLI::CallForVersion& version) {
    write_out(std::string(version.what()) + "\n");
    return kOk;
  } catch (const CLI::ExtrasError&) {
    throw Error(describe_extras(root));
  } catch (const CLI::ParseError& error) {
    throw Error(describe_parse_error(error, root));
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return kInternal;
}

int fail(const std::string& sentence, ExitCode code) {
  write_error(sentence);
  return code;
}

}  // namespace
}  // namespace quire::cli

int main(int argc, char** argv) {
  using namespace quire::cli;
  signal(SIGPIPE, SIG_IGN);  // write_out notices
  signal(SIGXFSZ, SIG_IGN);  // a file over the user's limit is one that cannot be written
  try {
    return run_program({argv + std::min(argc, 1), argv + argc});
  } catch (const OutputClosed&) {
    return kInternal;
  } catch (const quire::DeviceError& error) {
    return fail(error.what(), kNoDevice);
  } catch (const quire::Error& error) {
    return fail(error.what(), kBadInput);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", kOutOfMemory);
  } catch (const std::exception& error) {
    return fail(std::string("internal error: ") + error.what(), kInternal);
  }
}

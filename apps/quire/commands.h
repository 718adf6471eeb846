// The commands of the program, one file each (cmd_NAME.cpp).
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace quire::cli {

enum ExitCode : int {
  kOk = 0,
  kInternal = 1,  // a bug, or stdout was closed
  kBadInput = 2,  // what the user gave cannot be used
  kOutOfMemory = 3,
  kNoDevice = 3,  // no GPU, or none of its memory
  kInterrupted = 130,
};

// A command that was added to the parser: what to do when it is the one that was given.
struct Command {
  CLI::App* app;
  std::function<int()> run;
};

Command add_run(CLI::App& root);
Command add_chat(CLI::App& root);
Command add_inspect(CLI::App& root);
Command add_tokenize(CLI::App& root);
Command add_convert(CLI::App& root);
// The first of these makes the command `eval`.
Command add_eval_ppl(CLI::App& root);
Command add_eval_kl(CLI::App& root);
Command add_eval_recall(CLI::App& root);
Command add_eval_ruler(CLI::App& root);
Command add_eval_coref(CLI::App& root);
Command add_eval_degeneration(CLI::App& root);
Command add_bench(CLI::App& root);
Command add_recipes(CLI::App& root);
Command add_calibrate(CLI::App& root);
Command add_train_butler(CLI::App& root);

}  // namespace quire::cli

// The text that `quire eval` measures on: from -p, -f, stdin, or token ids from a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "engine/engine.h"
#include "options.h"

namespace quire::cli {

// Read before the model is loaded, so that what is wrong with it is said at once. Throws Error.
class EvalText {
 public:
  EvalText(const TextInput& input, const std::string& tokens_file);

  std::vector<int32_t> tokens(const Engine& engine) const;
  // Of token ids what they say.
  std::string text(const Engine& engine) const;

 private:
  bool is_text_ = false;
  std::string text_;
  std::vector<int32_t> ids_;
};

void add_eval_text_options(CLI::App& app, TextInput& input, std::string& tokens_file);

}  // namespace quire::cli

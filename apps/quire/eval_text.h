// The text that `quire eval` measures on: from -p, -f, stdin, or token ids from a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "engine/engine.h"
#include "options.h"

namespace quire::cli {

struct EvalTextOptions {
  TextInput input;
  std::string tokens_file;
  bool no_bos = false;
};

// Read before the model is loaded, so that what is wrong with it is said at once. Throws Error.
class EvalText {
 public:
  explicit EvalText(const EvalTextOptions& options);

  // Without a begin token.
  std::vector<int32_t> tokens(const Engine& engine) const;
  // What the model wants before a text; token ids of a file are taken as they are.
  std::optional<int32_t> begin_token(const Engine& engine) const;
  // Of token ids what they say.
  std::string text(const Engine& engine) const;

 private:
  bool is_text_ = false;
  bool no_bos_ = false;
  std::string text_;
  std::vector<int32_t> ids_;
};

void add_eval_text_options(CLI::App& app, EvalTextOptions& options);
// Of commands that put the begin token before the text as it is.
void add_begin_option(CLI::App& app, EvalTextOptions& options);

}  // namespace quire::cli

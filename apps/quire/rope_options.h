// Options of positions: what of a model's RoPE is to be otherwise than its file says. Named as in llama.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "model/rope.h"

namespace quire::cli {

struct RopeFlags {
  std::string scaling;
  std::optional<double> scale;       // a context so many times longer
  std::optional<double> freq_scale;  // the inverse of that
  std::optional<double> freq_base;
  std::optional<int64_t> original_tokens;
  std::optional<double> ext_factor;
  std::optional<double> attn_factor;
  std::optional<double> beta_fast;
  std::optional<double> beta_slow;

  // Throws Error for what cannot be meant.
  RopeOverrides overrides() const;
};

void add_rope_options(CLI::App& app, RopeFlags& flags);

}  // namespace quire::cli

#include "rope_options.h"

#include <cmath>

#include "base/error.h"

namespace quire::cli {
namespace {

void check_positive(const char* name, std::optional<double> value) {
  if (!value || (*value > 0 && std::isfinite(*value))) return;
  throw Error(std::string(name) + " must be a number above 0, not " + std::to_string(*value));
}

}  // namespace

RopeOverrides RopeFlags::overrides() const {
  RopeOverrides rope;
  if (!scaling.empty()) {
    rope.scaling = find_rope_scaling(scaling);
    if (!rope.scaling) {
      throw Error("--rope-scaling is one of " + std::string(rope_scaling_names()) + ", not '" + scaling +
                  "'");
    }
  }
  if (scale && freq_scale) throw Error("give --rope-scale or --rope-freq-scale, not both");
  check_positive("--rope-scale", scale);
  check_positive("--rope-freq-scale", freq_scale);
  check_positive("--rope-freq-base", freq_base);
  check_positive("--yarn-attn-factor", attn_factor);
  check_positive("--yarn-beta-fast", beta_fast);
  check_positive("--yarn-beta-slow", beta_slow);
  if (ext_factor && !(*ext_factor >= 0 && std::isfinite(*ext_factor))) {
    throw Error("--yarn-ext-factor must be 0 or more, not " + std::to_string(*ext_factor));
  }
  if (original_tokens && *original_tokens < 1) {
    throw Error("--yarn-orig-ctx must be at least 1, not " + std::to_string(*original_tokens));
  }
  rope.factor = freq_scale ? 1 / *freq_scale : scale;
  rope.base = freq_base;
  if (original_tokens) rope.original_tokens = static_cast<size_t>(*original_tokens);
  rope.yarn_ext_factor = ext_factor;
  rope.yarn_attn_factor = attn_factor;
  rope.yarn_beta_fast = beta_fast;
  rope.yarn_beta_slow = beta_slow;
  return rope;
}

void add_rope_options(CLI::App& app, RopeFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* type, const char* text) {
    app.add_option(name, value, text)->type_name(type)->group("Positions");
  };
  add("--rope-scaling", flags.scaling, "TYPE",
      "how positions beyond the trained context are made: none, linear, dynamic, yarn or longrope (default: "
      "as "
      "the model has it)");
  add("--rope-scale", flags.scale, "N", "factor of the scaling: a context N times longer");
  add("--rope-freq-scale", flags.freq_scale, "N", "the same as --rope-scale 1/N");
  add("--rope-freq-base", flags.freq_base, "N", "base of the frequencies");
  add("--yarn-orig-ctx", flags.original_tokens, "N", "context before scaling, of yarn and longrope");
  add("--yarn-ext-factor", flags.ext_factor, "N",
      "how much fast pairs stay as trained; 0: plain interpolation");
  add("--yarn-attn-factor", flags.attn_factor, "N", "further factor of the attention's magnitude");
  add("--yarn-beta-fast", flags.beta_fast, "N", "turns within the context from which pairs stay as trained");
  add("--yarn-beta-slow", flags.beta_slow, "N", "turns up to which pairs are scaled whole");
}

}  // namespace quire::cli

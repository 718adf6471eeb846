// The positions of a model: what the file says of RoPE, with what a command line says instead.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "model/config_parts.h"
#include "model/tensors.h"

namespace quire {

namespace {

constexpr uint64_t kMostTokens = uint64_t{1} << 32;
constexpr const char* kFactor = "rope.scaling.factor";

bool has_longrope_factors(const GgufFile& file) {
  return file.find_tensor(kLongFactorsTensor) != nullptr || file.find_tensor(kShortFactorsTensor) != nullptr;
}

// Without a type a factor means linear scaling, as in llama.cpp, and tensors of factors mean LongRoPE: older
// files of Phi 3 have no more than these.
RopeScaling file_scaling(ModelKeys& keys, double factor) {
  const char* name = "rope.scaling.type";
  RopeScaling scaling = factor != 0 ? RopeScaling::kLinear : RopeScaling::kNone;
  if (keys.has(name)) {
    const std::string_view text = keys.file().get_string(keys.full(name));
    const std::optional<RopeScaling> found = find_rope_scaling(text);
    if (!found) {
      keys.refuse("RoPE scaling of type '" + std::string(text.substr(0, 40)) + "' is not supported (" +
                  rope_scaling_names() + " are)");
    }
    scaling = *found;
  }
  const bool longrope = has_longrope_factors(keys.file());
  if (longrope && keys.file().find_tensor(kRopeFactorsTensor) != nullptr) {
    keys.refuse(std::string("tensors '") + kRopeFactorsTensor + "' and '" + kLongFactorsTensor +
                "' do not go together");
  }
  if (!longrope || scaling == RopeScaling::kLongRope) return scaling;
  if (scaling == RopeScaling::kNone) return RopeScaling::kLongRope;
  keys.refuse(std::string("tensor '") + kLongFactorsTensor + "' and RoPE scaling of type '" +
              rope_scaling_name(scaling) + "' do not go together");
}

std::vector<float> read_divisors(const GgufFile& file, const char* name, size_t n) {
  std::vector<float> divisors = read_vector(file, file.tensor(name), n);
  for (const float divisor : divisors) {
    if (divisor > 0 && std::isfinite(divisor)) continue;
    throw Error(file.path() + ": tensor '" + name + "' holds " + std::to_string(divisor) +
                ", not a positive number");
  }
  return divisors;
}

// All that the file says, whatever of it will count.
struct FileRope {
  RopeSettings settings;
  double attention_multiplier = 0;   // 0: not given
  double yarn_attention_factor = 0;  // 0: not given
};

FileRope read_file(ModelKeys& keys, const ModelConfig& config) {
  FileRope file;
  RopeSettings& s = file.settings;
  s.n_dims = config.rope_dims;
  s.trained_tokens = config.trained_tokens;
  s.base = keys.positive_or("rope.freq_base", 10000);
  const double older_factor = keys.positive_or_zero("rope.scale_linear", 0);  // its name in older files
  s.factor = keys.positive_or_zero(kFactor, older_factor);
  s.scaling = file_scaling(keys, s.factor);
  s.original_tokens = keys.count_or("rope.scaling.original_context_length", s.trained_tokens, kMostTokens);
  s.yarn_ext_factor = keys.positive_or_zero("rope.scaling.yarn_ext_factor", s.yarn_ext_factor);
  s.yarn_beta_fast = keys.positive_or("rope.scaling.yarn_beta_fast", s.yarn_beta_fast);
  s.yarn_beta_slow = keys.positive_or("rope.scaling.yarn_beta_slow", s.yarn_beta_slow);
  s.yarn_log_multiplier = keys.positive_or_zero("rope.scaling.yarn_log_multiplier", 0);
  file.attention_multiplier = keys.positive_or_zero("rope.scaling.attn_factor", 0);
  file.yarn_attention_factor = keys.positive_or_zero("rope.scaling.yarn_attn_factor", 0);
  return file;
}

void check_override(const ModelKeys& keys, const char* what, std::optional<double> value, bool zero = false) {
  if (!value || (std::isfinite(*value) && (*value > 0 || (zero && *value == 0)))) return;
  keys.refuse(std::string("the ") + what + " asked for is " + std::to_string(*value) +
              ", not a positive number");
}

void check_overrides(const ModelKeys& keys, const RopeOverrides& o) {
  check_override(keys, "factor of RoPE scaling", o.factor);
  check_override(keys, "base of RoPE", o.base);
  check_override(keys, "ext factor of YaRN", o.yarn_ext_factor, true);
  check_override(keys, "attention factor of YaRN", o.yarn_attn_factor);
  check_override(keys, "beta_fast of YaRN", o.yarn_beta_fast);
  check_override(keys, "beta_slow of YaRN", o.yarn_beta_slow);
}

// A factor alone means linear scaling where the file has none.
RopeScaling chosen_scaling(RopeScaling file, const RopeOverrides& o) {
  if (o.scaling) return *o.scaling;
  return o.factor && file == RopeScaling::kNone ? RopeScaling::kLinear : file;
}

void apply_factor(const ModelKeys& keys, RopeSettings& s) {
  if (s.scaling == RopeScaling::kNone) {
    s.factor = 1;
  } else if (s.factor == 0 && s.scaling == RopeScaling::kLongRope) {
    s.factor = static_cast<double>(s.trained_tokens) / static_cast<double>(s.original_tokens);
  } else if (s.factor == 0) {
    keys.refuse(std::string("RoPE scaling of type '") + rope_scaling_name(s.scaling) +
                "' needs a factor, and there is no " + keys.full(kFactor));
  }
}

// Numbers that the formulas cannot take.
void check_settings(const ModelKeys& keys, const RopeSettings& s) {
  if (s.scaling == RopeScaling::kDynamic && s.n_dims <= 2) {
    keys.refuse("RoPE scaling of type 'dynamic' needs more than one rotated pair");
  }
  if (s.scaling == RopeScaling::kYarn && s.base <= 1) {
    keys.refuse("RoPE scaling of type 'yarn' needs a base above 1, not " + std::to_string(s.base));
  }
  if (s.scaling == RopeScaling::kLongRope && s.original_tokens < 2) {
    keys.refuse(keys.full("rope.scaling.original_context_length") + " is 1, too short for LongRoPE");
  }
}

// LongRoPE has divisors for contexts up to the original length, and others beyond.
bool is_long(const RopeSettings& s) { return s.context_tokens > s.original_tokens; }

void choose_divisors(const ModelKeys& keys, RopeSettings& s) {
  const GgufFile& file = keys.file();
  if (s.scaling == RopeScaling::kLongRope) {
    // Both, so that a file which lacks one is refused for any context.
    std::vector<float> longer = read_divisors(file, kLongFactorsTensor, s.n_dims / 2);
    std::vector<float> shorter = read_divisors(file, kShortFactorsTensor, s.n_dims / 2);
    s.divisors = is_long(s) ? std::move(longer) : std::move(shorter);
  } else if (file.find_tensor(kRopeFactorsTensor) != nullptr) {
    s.divisors = read_divisors(file, kRopeFactorsTensor, s.n_dims / 2);
  }
}

void choose_attention_factor(const FileRope& file, const RopeOverrides& o, RopeSettings& s) {
  // The file's belong to the file's scaling and factor.
  const bool as_in_file =
      s.scaling == file.settings.scaling &&
      (!o.factor || (s.scaling != RopeScaling::kYarn && s.scaling != RopeScaling::kLongRope));
  const double given = as_in_file ? file.attention_multiplier : 0;
  s.attention_multiplier = given == 0 ? 1 : given;
  if (s.scaling == RopeScaling::kLongRope && given != 0) {  // in place of the formula
    s.attention_factor = given;
    s.attention_multiplier = 1;
  }
  if (s.scaling == RopeScaling::kYarn && as_in_file) {
    s.attention_factor = file.yarn_attention_factor;
  }
  s.attention_multiplier *= o.yarn_attn_factor.value_or(1);
}

// What is asked for must count.
void refuse_unread_overrides(const ModelKeys& keys, const RopeOverrides& o, RopeScaling scaling) {
  const auto refuse_if = [&](bool given, const char* what) {
    if (!given) return;
    keys.refuse(std::string(what) + " is asked for, which RoPE scaling of type '" +
                rope_scaling_name(scaling) + "' has not");
  };
  const bool is_none = scaling == RopeScaling::kNone;
  const bool is_yarn = scaling == RopeScaling::kYarn;
  refuse_if(is_none && o.factor, "a factor");
  refuse_if((is_none || scaling == RopeScaling::kLinear) && o.original_tokens, "an original context");
  refuse_if(!is_yarn && o.yarn_ext_factor, "an ext factor");
  refuse_if(!is_yarn && o.yarn_beta_fast, "a beta_fast");
  refuse_if(!is_yarn && o.yarn_beta_slow, "a beta_slow");
}

RopeSettings settle(const ModelKeys& keys, const FileRope& file, const RopeOverrides& o) {
  RopeSettings s = file.settings;
  s.scaling = chosen_scaling(s.scaling, o);
  refuse_unread_overrides(keys, o, s.scaling);
  s.factor = o.factor.value_or(s.factor);
  s.base = o.base.value_or(s.base);
  s.original_tokens = o.original_tokens.value_or(s.original_tokens);
  s.context_tokens = o.context_tokens == 0 ? s.trained_tokens : o.context_tokens;
  s.yarn_ext_factor = o.yarn_ext_factor.value_or(s.yarn_ext_factor);
  s.yarn_beta_fast = o.yarn_beta_fast.value_or(s.yarn_beta_fast);
  s.yarn_beta_slow = o.yarn_beta_slow.value_or(s.yarn_beta_slow);
  apply_factor(keys, s);
  check_settings(keys, s);
  choose_divisors(keys, s);
  choose_attention_factor(file, o, s);
  return s;
}

// Layers with a window never look farther than they were trained to, so scaling that is asked for is not
// theirs, unless all layers have one.
std::optional<Rope> read_window_rope(ModelKeys& keys, const FileRope& file, const RopeOverrides& overrides,
                                     const ModelConfig& config) {
  const double base = keys.positive_or("rope.freq_base_swa", config.family->window_rope_base);
  const auto& windows = config.window_tokens;
  if (windows.empty()) return std::nullopt;
  if (base != 0) return make_rope({.n_dims = config.rope_dims, .base = base});
  if (std::find(windows.begin(), windows.end(), size_t{0}) == windows.end()) return std::nullopt;
  Rope own = make_rope(settle(keys, file, {.context_tokens = overrides.context_tokens}));
  return own == config.rope ? std::nullopt : std::optional<Rope>(std::move(own));
}

std::string describe(const RopeSettings& s) {
  const bool has_factors = s.scaling != RopeScaling::kLongRope && !s.divisors.empty();
  if (s.scaling == RopeScaling::kNone) return has_factors ? "the file's frequency factors" : "no scaling";
  char factor[32];
  std::snprintf(factor, sizeof factor, "%.6g", s.factor);
  const std::string text = std::string(rope_scaling_name(s.scaling)) + " by " + factor;
  if (s.scaling != RopeScaling::kLongRope)
    return has_factors ? text + " and the file's frequency factors" : text;
  return text + (is_long(s) ? ", long" : ", short");
}

}  // namespace

void read_rope(ModelKeys& keys, const RopeOverrides& overrides, ModelConfig& config) {
  config.rope_dims = keys.count_or("rope.dimension_count", config.head_dim, config.head_dim);
  if (config.rope_dims % 2 != 0) keys.refuse(keys.full("rope.dimension_count") + " is odd");
  config.neighbouring_pairs =
      config.family->neighbouring_pairs && !keys.file().get_bool_or("quire.rope.half_split", false);
  check_overrides(keys, overrides);
  const FileRope file = read_file(keys, config);
  const RopeSettings settings = settle(keys, file, overrides);
  config.rope = make_rope(settings);
  config.rope_text = describe(settings);
  config.window_rope = read_window_rope(keys, file, overrides, config);
  config.context_tokens = std::max(config.trained_tokens, overrides.context_tokens);
  if (settings.scaling == RopeScaling::kLongRope && !is_long(settings)) {
    config.context_tokens = std::min(config.context_tokens, settings.original_tokens);
  }
}

}  // namespace quire

#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "base/error.h"

namespace quire {

namespace {

constexpr const char* kNames[] = {"none", "linear", "dynamic", "yarn", "longrope"};

// NTK-aware scaling of the base: positions within `trained_tokens` turn as trained while the context is no
// longer.
double base_for_context(const RopeSettings& s) {
  const auto trained = static_cast<double>(s.trained_tokens);
  const double length = std::max(trained, static_cast<double>(s.context_tokens));
  const auto dims = static_cast<double>(s.n_dims);
  return s.base * std::pow(s.factor * length / trained - (s.factor - 1), dims / (dims - 2));
}

// The pair, as a real number, that turns n_turns times in the original length.
double pair_of_turns(const RopeSettings& s, double n_turns) {
  return static_cast<double>(s.n_dims) *
         std::log(static_cast<double>(s.original_tokens) / (n_turns * 2 * std::numbers::pi)) /
         (2 * std::log(s.base));
}

// How much of pair i is left as trained, 0 to 1: a ramp between the pairs of the two betas.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeSettings& s)
      : low_(std::max(0.0, std::floor(pair_of_turns(s, s.yarn_beta_fast)))),
        high_(std::min(static_cast<double>(s.n_dims) - 1, std::ceil(pair_of_turns(s, s.yarn_beta_slow)))),
        share_(s.yarn_ext_factor) {}

  double operator()(size_t pair) const {
    const double along = (static_cast<double>(pair) - low_) / std::max(kLeastWidth, high_ - low_);
    return (1 - std::clamp(along, 0.0, 1.0)) * share_;
  }

 private:
  static constexpr double kLeastWidth = 0.001;  // of both implementations: a ramp of no width is a step

  double low_;
  double high_;
  double share_;
};

double yarn_attention_factor(const RopeSettings& s) {
  if (s.yarn_ext_factor == 0 || s.factor <= 1) return 1;
  const auto magnitude = [&](double multiplier) { return 0.1 * multiplier * std::log(s.factor) + 1; };
  return s.yarn_log_multiplier == 0 ? magnitude(1) : magnitude(1) / magnitude(s.yarn_log_multiplier);
}

double longrope_attention_factor(const RopeSettings& s) {
  if (s.factor <= 1) return 1;
  return std::sqrt(1 + std::log(s.factor) / std::log(static_cast<double>(s.original_tokens)));
}

double attention_factor(const RopeSettings& s) {
  if (s.attention_factor != 0) return s.attention_factor;
  if (s.scaling == RopeScaling::kYarn) return yarn_attention_factor(s);
  return s.scaling == RopeScaling::kLongRope ? longrope_attention_factor(s) : 1;
}

}  // namespace

const char* rope_scaling_name(RopeScaling scaling) { return kNames[static_cast<size_t>(scaling)]; }

const char* rope_scaling_names() { return "none, linear, dynamic, yarn, longrope"; }

std::optional<RopeScaling> find_rope_scaling(std::string_view name) {
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<RopeScaling>(found - std::begin(kNames));
}

bool RopeOverrides::given() const {
  return context_tokens != 0 || scaling || factor || base || original_tokens || yarn_ext_factor ||
         yarn_attn_factor || yarn_beta_fast || yarn_beta_slow;
}

void Rope::turn(uint64_t position, float* cosine, float* sine) const noexcept {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double angle = static_cast<double>(position) * frequencies[i];
    cosine[i] = static_cast<float>(std::cos(angle) * attention_factor);
    sine[i] = static_cast<float>(std::sin(angle) * attention_factor);
  }
}

Rope make_rope(const RopeSettings& s) {
  QUIRE_CHECK(s.divisors.empty() || s.divisors.size() == s.n_dims / 2);
  const double base = s.scaling == RopeScaling::kDynamic ? base_for_context(s) : s.base;
  const bool yarn = s.scaling == RopeScaling::kYarn;
  const std::optional<YarnRamp> ramp = yarn ? std::optional<YarnRamp>(s) : std::nullopt;
  Rope rope;
  for (size_t i = 0; i < s.n_dims / 2; ++i) {
    double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(s.n_dims));
    if (!s.divisors.empty()) frequency /= static_cast<double>(s.divisors[i]);
    if (s.scaling == RopeScaling::kLinear) frequency /= s.factor;
    if (ramp) {
      const double as_trained = (*ramp)(i);
      frequency *= as_trained + (1 - as_trained) / s.factor;
    }
    rope.frequencies.push_back(frequency);
  }
  rope.attention_factor = attention_factor(s) * s.attention_multiplier;
  return rope;
}

}  // namespace quire

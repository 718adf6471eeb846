// Rotary position embedding (RoPE, arXiv 2104.09864): by what angles pairs of channels turn with the
// position, and how these are stretched for contexts longer than the model was trained for.
//
// Pair i of d channels turns by p f_i at position p, f_i = base^(-2i / d). Each way of scaling changes the
// f_i, once, when a model is loaded: every key and query of a sequence is turned by the same f_i, so keys in
// a cache stay right for all that follows. transformers instead makes `dynamic` and `longrope` anew for the
// length that a sequence has reached, and leaves keys that are cached as an earlier length turned them; its
// answers are ours where it sees a whole sequence at once that is as long as the context we were loaded for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace quire {

// By their names in GGUF (rope.scaling.type) and on the command line.
enum class RopeScaling : uint8_t {
  kNone,
  kLinear,    // f_i / factor (arXiv 2306.15595)
  kDynamic,   // NTK-aware: the base grows with the context beyond the trained length
  kYarn,      // fast pairs turn as they were trained, slow ones by f_i / factor (arXiv 2309.00071)
  kLongRope,  // each pair has a divisor of its own, one for short contexts and one for long (arXiv
              // 2402.13753)
};

const char* rope_scaling_name(RopeScaling scaling);
// "none, linear, dynamic, yarn, longrope"
const char* rope_scaling_names();
std::optional<RopeScaling> find_rope_scaling(std::string_view name);

// What a command line says instead of the file, and the context that is asked for.
struct RopeOverrides {
  size_t context_tokens = 0;  // tokens that sequences are to have; 0: what the model was trained for
  std::optional<RopeScaling> scaling = {};
  std::optional<double> factor = {};
  std::optional<double> base = {};
  std::optional<size_t> original_tokens = {};  // the length before scaling, of YaRN and LongRoPE
  std::optional<double> yarn_ext_factor = {};
  std::optional<double> yarn_attn_factor = {};  // times what the file and the formula give
  std::optional<double> yarn_beta_fast = {};
  std::optional<double> yarn_beta_slow = {};

  bool given() const;
};

// The numbers of one way of turning; all are positive but for those of which something else is said.
struct RopeSettings {
  size_t n_dims = 0;  // rotated channels of a head, even
  double base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  size_t trained_tokens = 0;   // the context that the file states
  size_t original_tokens = 0;  // of kYarn and kLongRope: the length before scaling
  size_t context_tokens = 0;   // of kDynamic and kLongRope: the length that is asked for
  // Each f_i is divided by its own, [n_dims / 2]; empty: none. Llama 3.1's, or those of kLongRope for the
  // context.
  std::vector<float> divisors = {};

  // How much of the pairs between the two betas is left as trained; 0: none of any pair, not negative.
  double yarn_ext_factor = 1;
  // Pairs that turn more often than beta_fast times in original_tokens are left as trained, those that turn
  // less often than beta_slow times are divided by the factor.
  double yarn_beta_fast = 32;
  double yarn_beta_slow = 1;
  // transformers' mscale_all_dim, with an mscale of 1; 0: neither is given. Not negative.
  double yarn_log_multiplier = 0;
  // What cosines and sines are multiplied by, in place of the formula for it; 0: the formula.
  double attention_factor = 0;
  // And times this.
  double attention_multiplier = 1;
};

// Angles as attention uses them.
struct Rope {
  std::vector<double> frequencies;  // radians per position, [n_dims / 2]
  // Cosines and sines are multiplied by it, so that queries and keys grow in their rotated channels.
  double attention_factor = 1;

  bool operator==(const Rope&) const = default;

  size_t half() const { return frequencies.size(); }
  // Of one position: cosine and sine [n_dims / 2] of each pair. In double precision until the end: at
  // position 8,000 an angle in f32 would be off by 5e-4.
  void turn(uint64_t position, float* cosine, float* sine) const noexcept;
};

// The formulas of transformers 5.24 (modeling_rope_utils.py) and llama.cpp (ggml's rope_yarn), which agree
// but in this:
//   - YaRN's attention factor: both have 1 + ln(factor) / 10. transformers puts a given attention_factor in
//   its
//     place, and so do we with rope.scaling.yarn_attn_factor, which is where converters put it; llama.cpp
//     reads that key and overwrites it. rope.scaling.attn_factor multiplies, as in llama.cpp.
//   - YaRN's ext_factor is llama.cpp's alone; with 0 it has neither ramp nor attention factor, and so have
//   we.
//   - Where the betas' pairs fall in the wrong order, transformers has a ramp that falls; we have llama.cpp's
//   step.
//   - LongRoPE's attention factor sqrt(1 + ln(factor) / ln(original)) is worked out by transformers;
//   llama.cpp
//     takes it from rope.scaling.attn_factor, which takes its place here too.
Rope make_rope(const RopeSettings& settings);

}  // namespace quire

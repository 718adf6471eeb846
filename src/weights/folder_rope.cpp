#include "weights/folder_rope.h"

#include <cmath>
#include <numbers>

#include <nlohmann/json.hpp>

namespace quire {
namespace {

constexpr const char* kOriginal = "original_max_position_embeddings";
constexpr uint64_t kPhi3OriginalContext = 4096;  // of its files that do not say

// What yarn multiplies cosine and sine with (https://arxiv.org/abs/2309.00071, equation 22, where it is the
// root of the temperature).
double yarn_magnitude(double factor, double weight = 1) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

class RopeReader {
 public:
  // `json`: the whole configuration; `scaling`: its object about RoPE, which may be the same for none.
  RopeReader(const JsonReader& json, const JsonReader& scaling, const FolderConfig& config)
      : json_(json), scaling_(scaling), config_(config) {}

  FolderRope read(double default_base) {
    const char* theta = "rope_theta";
    rope_.base = scaling_.has(theta) ? scaling_.positive(theta) : json_.positive_or(theta, default_base);
    read_dims();
    const char* type_key = scaling_.has("rope_type") ? "rope_type" : "type";
    std::string type =
        scaling_.has("rope_type") || scaling_.has("type") ? scaling_.text(type_key) : "default";
    // Phi-3 has one kind of scaling only, which was called otherwise at first.
    if (config_.family == Family::kPhi3 && (type == "su" || type == "yarn")) type = "longrope";
    if (type == "linear") {
      rope_.scaling = type;
      rope_.factor = scaling_.positive("factor");
    } else if (type == "dynamic") {
      read_dynamic();
    } else if (type == "yarn") {
      read_yarn();
    } else if (type == "llama3") {
      read_llama3();
    } else if (type == "longrope") {
      read_longrope();
    } else if (type != "default") {
      scaling_.fail(type_key, "is " + shown_json(type) +
                                  "; known are default, linear, dynamic, yarn, llama3 and longrope");
    }
    return rope_;
  }

 private:
  void read_dims() {
    const char* key = "partial_rotary_factor";
    const double share = scaling_.has(key) ? scaling_.positive(key) : json_.positive_or(key, 1);
    if (share > 1) scaling_.fail(key, "is more than 1");
    rope_.n_dims = static_cast<uint64_t>(static_cast<double>(config_.head_dim) * share);
    if (rope_.n_dims == 0 || rope_.n_dims % 2 != 0) {
      scaling_.fail(
          key, "leaves " + std::to_string(rope_.n_dims) + " dims of a head to rotate, not an even number");
    }
  }

  // Where Phi-3 says it, beside the object, it goes before.
  uint64_t original_context() const {
    if (json_.has(kOriginal)) return json_.count(kOriginal, kMostFolderTokens);
    const uint64_t unsaid = config_.family == Family::kPhi3 ? kPhi3OriginalContext : config_.context_tokens;
    return scaling_.count_or(kOriginal, unsaid, kMostFolderTokens);
  }

  // The base grows with the length beyond the trained one, max_position_embeddings.
  void read_dynamic() {
    rope_.scaling = "dynamic";
    rope_.factor = scaling_.positive("factor");
    rope_.original_context = config_.context_tokens;
    if (scaling_.has(kOriginal) && scaling_.count(kOriginal, kMostFolderTokens) != rope_.original_context) {
      scaling_.fail(kOriginal, "differs from max_position_embeddings, which dynamic scaling goes by");
    }
  }

  // Without one it is the ratio of the lengths.
  double factor_or_ratio() const {
    return scaling_.positive_or(
        "factor", static_cast<double>(config_.context_tokens) / static_cast<double>(rope_.original_context));
  }

  void read_yarn() {
    rope_.scaling = "yarn";
    rope_.original_context = original_context();
    rope_.factor = factor_or_ratio();
    double magnitude = yarn_magnitude(rope_.factor);
    if (scaling_.has("attention_factor")) {
      magnitude = scaling_.positive("attention_factor");
    } else if (scaling_.has("mscale") && scaling_.has("mscale_all_dim")) {
      magnitude = yarn_magnitude(rope_.factor, scaling_.positive("mscale")) /
                  yarn_magnitude(rope_.factor, scaling_.positive("mscale_all_dim"));
    }
    rope_.attention_factor = magnitude / yarn_magnitude(rope_.factor);
    if (scaling_.has("beta_fast")) rope_.beta_fast = scaling_.positive("beta_fast");
    if (scaling_.has("beta_slow")) rope_.beta_slow = scaling_.positive("beta_slow");
    if (!scaling_.flag_or("truncate", true)) scaling_.fail("truncate", "is false, which is not supported");
  }

  // Llama 3.1: long waves are slowed down by the factor, short ones not, and those between by what lies
  // between.
  void read_llama3() {
    const double factor = scaling_.positive("factor");
    const double low = scaling_.positive("low_freq_factor");
    const double high = scaling_.positive("high_freq_factor");
    const auto original = static_cast<double>(original_context());
    if (high <= low) scaling_.fail("high_freq_factor", "is not above low_freq_factor");
    for (uint64_t i = 0; i < rope_.n_dims / 2; ++i) {
      const double turns = 2.0 * static_cast<double>(i) / static_cast<double>(rope_.n_dims);
      const double wave = 2 * std::numbers::pi * std::pow(rope_.base, turns);
      double divisor = 1;
      if (wave > original / low) {
        divisor = factor;
      } else if (wave >= original / high) {
        const double smooth = (original / wave - low) / (high - low);
        divisor = 1 / ((1 - smooth) / factor + smooth);
      }
      rope_.factors.push_back(static_cast<float>(divisor));
    }
  }

  void read_longrope() {
    rope_.scaling = "longrope";
    rope_.original_context = original_context();
    for (const char* key : {"short_mscale", "long_mscale"}) {
      if (scaling_.has(key)) scaling_.fail(key, "is not supported");
    }
    rope_.long_factors = factors("long_factor");
    rope_.short_factors = factors("short_factor");
    const double factor = factor_or_ratio();
    const double original_log = std::log(static_cast<double>(rope_.original_context));
    const double magnitude = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / original_log);
    if (!std::isfinite(magnitude)) scaling_.fail(kOriginal, "is 1");
    rope_.attention_factor = scaling_.positive_or("attention_factor", magnitude);
  }

  std::vector<float> factors(const char* key) const {
    std::vector<float> values = scaling_.positives(key);
    if (values.size() != rope_.n_dims / 2) {
      scaling_.fail(key, "has " + std::to_string(values.size()) + " numbers, where " +
                             std::to_string(rope_.n_dims / 2) + " are wanted");
    }
    return values;
  }

  const JsonReader& json_;
  const JsonReader& scaling_;
  const FolderConfig& config_;
  FolderRope rope_;
};

// The object about RoPE; the configuration itself when there is none, as that has rope_theta.
JsonReader rope_object(const JsonReader& json) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (json.has(key) && !json.find(key)->empty()) return json.object(key);
  }
  return json;
}

bool by_layer_type(const JsonReader& rope) {
  return rope.has("full_attention") || rope.has("sliding_attention");
}

// Gemma 3: full layers scale, windowed ones have a base of their own and do not.
FolderRope read_gemma3_rope(const JsonReader& json, const FolderConfig& config) {
  const JsonReader rope = rope_object(json);
  const char* local_key = "rope_local_base_freq";
  if (!by_layer_type(rope)) {
    FolderRope read = RopeReader(json, rope, config).read(1e6);
    read.local_base = json.positive_or(local_key, 10000);
    return read;
  }
  const JsonReader full = rope.has("full_attention") ? rope.object("full_attention") : json;
  FolderRope read = RopeReader(json, full, config).read(1e6);
  read.local_base = json.positive_or(local_key, 10000);
  if (rope.has("sliding_attention")) {
    const JsonReader sliding = rope.object("sliding_attention");
    read.local_base = sliding.positive_or("rope_theta", read.local_base);
    for (const char* key : {"rope_type", "type"}) {
      if (sliding.text_or(key, "default") != "default") {
        sliding.fail(key, "is " + shown_json(*sliding.find(key)) + "; windowed layers scale nothing");
      }
    }
  }
  return read;
}

}  // namespace

FolderRope read_folder_rope(const JsonReader& json, const FolderConfig& config) {
  if (config.family == Family::kGemma3) return read_gemma3_rope(json, config);
  JsonReader rope = rope_object(json);
  if (by_layer_type(rope)) {
    const char* type = rope.has("full_attention") ? "full_attention" : "sliding_attention";
    if (rope.has("full_attention") && rope.has("sliding_attention") &&
        *rope.find("full_attention") != *rope.find("sliding_attention")) {
      rope.fail(type, "differs from sliding_attention, which only Gemma 3 may have");
    }
    rope = rope.object(type);
  }
  return RopeReader(json, rope, config).read(10000);
}

}  // namespace quire

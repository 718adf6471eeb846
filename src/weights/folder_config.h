// config.json of a model folder in Hugging Face form, as numbers and as GGUF metadata. Internal to the room.
//
// Whatever in it changes the result and is not done is refused by name; keys that change nothing (dropout,
// initializer_range, torch_dtype, ...) are passed over. Defaults are those of the model classes of
// transformers 5, which checkpoints of earlier releases agree with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weights/gguf_header.h"

namespace quire {

enum class Family : uint8_t { kLlama, kMistral, kQwen2, kQwen3, kPhi3, kGemma2, kGemma3 };

// How positions rotate, in the terms of GGUF.
struct FolderRope {
  double base = 10000;
  double local_base = 0;  // of windowed layers; 0: as all
  uint64_t n_dims = 0;    // rotated dims of a head
  std::string scaling = "none";
  double factor = 1;
  uint64_t original_context = 0;  // 0: not said
  // Times what cosine and sine get by GGUF's own rule for the scaling type (yarn: 1 + 0.1 ln factor).
  double attention_factor = 1;
  double beta_fast = 0, beta_slow = 0;  // of yarn; 0: 32 and 1
  // Divisors of the n_dims / 2 frequencies.
  std::vector<float> factors, long_factors, short_factors;
};

struct FolderConfig {
  Family family = Family::kLlama;
  uint64_t n_layers = 0, width = 0, ffn_width = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  uint64_t vocabulary = 0, context_tokens = 0;
  double norm_epsilon = 0;
  bool tied = false;      // the embedding is the output matrix too
  bool qkv_bias = false;  // q, k, v
  bool output_bias = false;
  bool has_vision = false;  // the text model of a larger one
  FolderRope rope;
  uint64_t window_tokens = 0;  // 0: no layer has a window
  std::vector<bool> windowed;  // one a layer
  double attention_scale = 0;  // of queries; 0: 1 / sqrt(head_dim), but always given for Gemma
  double score_softcap = 0, logit_softcap = 0;  // 0: none

  bool is_gemma() const { return family == Family::kGemma2 || family == Family::kGemma3; }
  const char* architecture() const;  // GGUF's
  // Q and K lie otherwise than in the architecture's GGUF files.
  bool half_split_differs() const { return family == Family::kLlama || family == Family::kMistral; }
};

// Throws Error "PATH: ...".
FolderConfig read_folder_config(std::string_view json, const std::string& path);

// general.architecture and the keys ARCH.*, as llama.cpp writes and reads them.
void add_config_metadata(const FolderConfig& config, MetadataBuilder& metadata);

}  // namespace quire

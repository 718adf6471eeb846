#include "model/families.h"

namespace quire {

namespace {

// What files of llama.cpp leave out is as its own loader has it (src/models/ARCHITECTURE.cpp); the rest is as
// in transformers (models/ARCHITECTURE/modeling_*.py).
constexpr ModelFamily kFamilies[] = {
    {
        .architecture = "llama",
        .models = "Llama 1 to 3.3, TinyLlama, SmolLM 1 and 2, Mistral",
        .neighbouring_pairs = true,
        .biases = Biases::kOptional,
    },
    {
        .architecture = "qwen2",
        .models = "Qwen 1.5, 2 and 2.5",
        .biases = Biases::kRequired,
    },
    {
        .architecture = "qwen3",
        .models = "Qwen 3, dense",
        .head_norms = true,
    },
    {
        .architecture = "phi3",
        .models = "Phi 3, 3.5 and 4",
        .fused = true,
    },
    {
        .architecture = "gemma2",
        .models = "Gemma 2",
        .post_norms = true,
        .activation = Activation::kGelu,
        .scales_embedding = true,
        .window_tokens = 4096,
        .window_period = 2,
        .score_softcap = 50,
        .logit_softcap = 30,
        .wide_query_layers = 46,  // 27B
    },
    {
        .architecture = "gemma3",
        .models = "Gemma 3, text",
        .head_norms = true,
        .post_norms = true,
        .activation = Activation::kGelu,
        .scales_embedding = true,
        .window_period = 6,
        .window_rope_base = 10000,
        .wide_query_layers = 62,  // 27B
    },
};

}  // namespace

std::span<const ModelFamily> families() { return kFamilies; }

const ModelFamily* find_family(std::string_view architecture) {
  for (const ModelFamily& family : kFamilies) {
    if (architecture == family.architecture) return &family;
  }
  return nullptr;
}

std::string family_names() {
  std::string names;
  for (const ModelFamily& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.architecture;
  }
  return names;
}

}  // namespace quire

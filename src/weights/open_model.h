// Opens a model in whatever form people have it.
#pragma once

#include <string>

#include "weights/gguf.h"

namespace quire {

// `path` names a GGUF file, any part of a split one (all of its parts are joined), or a folder in Hugging
// Face form: config.json beside model.safetensors, or shards with model.safetensors.index.json.
//
// Of a folder the metadata keys and tensor names are made that GGUF has for such a model (llama.cpp's names);
// the data stay where they are mapped. Computed into memory are norm weights of Gemma (its files store them
// less 1), and what RoPE divides its frequencies by ("rope_freqs.weight", "rope_factors_long.weight",
// "rope_factors_short.weight"). Q and K keep their half-split rows: where GGUF has them interleaved
// (architecture llama), the key kHalfSplitKey is true. The tokenizer is not read; only its chat template is.
//
// Throws Error of one sentence for everything that is missing, doubled, unexpected or not understood, by
// name.
GgufFile open_model(const std::string& path);

// bool: Q and K are in half-split order although the architecture's GGUF files have them interleaved.
inline constexpr const char* kHalfSplitKey = "quire.rope.half_split";

}  // namespace quire

// A vocabulary as GGUF metadata: the inverse of vocabulary_reader.h.
#pragma once

#include <cstdint>

#include "text/vocabulary.h"
#include "weights/gguf_header.h"

namespace quire {

// Adds the keys tokenizer.ggml.*. llama.cpp wants a token for every row of the embedding, of which models may
// have more than their tokenizer has tokens: what lacks up to n_rows are unused ones, [PAD0] and so on.
// Merges over characters are written as scores. Throws Error when the tokenizer has more tokens than that,
// and when GGUF's keys cannot say what it does.
void add_vocabulary(const Vocabulary& vocabulary, uint64_t n_rows, MetadataBuilder& metadata);

}  // namespace quire

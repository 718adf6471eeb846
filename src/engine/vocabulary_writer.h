// A vocabulary as GGUF metadata: the inverse of vocabulary_reader.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"
#include "weights/gguf_header.h"

namespace quire {

// Adds the keys tokenizer.ggml.*. llama.cpp wants a token for every row of the embedding, of which models may
// have more than their tokenizer has tokens: what lacks up to n_rows are unused ones, [PAD0] and so on.
// Merges over characters are written as scores. `architecture` is the model's, as GGUF names it. Throws Error
// when the tokenizer has more tokens than n_rows, and when GGUF's keys cannot say what it does. What they
// cannot say, but those who write such files leave out all the same, is returned in a sentence each.
std::vector<std::string> add_vocabulary(const Vocabulary& vocabulary, std::string_view architecture,
                                        uint64_t n_rows, MetadataBuilder& metadata);

}  // namespace quire

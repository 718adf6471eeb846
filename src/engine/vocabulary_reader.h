// What a model says about its tokenizer, read for the room `text`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/vocabulary.h"
#include "weights/gguf.h"

namespace quire {

// The vocabulary: of a GGUF file, with views into it, or, where the model is a folder, of its tokenizer.json.
// Throws Error of one sentence when something needed is missing or has the wrong type.
OwnedVocabulary read_vocabulary(const GgufFile& file);

// The tokenizer of that vocabulary. An Error names the file.
Tokenizer load_tokenizer(const GgufFile& file);

// The tokens of a text that begins a sequence: as the vocabulary wants it, with its begin token first (once,
// also when the text spells it out). `control`: whether control tokens spelled out in the text become tokens.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text, ControlTokens control);

// The tokens that end a text or a turn: a sampler that bans them goes on for ever.
std::vector<int32_t> end_tokens(const Tokenizer& tokenizer);

}  // namespace quire

// Reads Hugging Face's tokenizer.json and the small files beside it. What a file asks for and this does not
// know is refused by name, never passed over.
#pragma once

#include <string>
#include <string_view>

#include "text/vocabulary.h"

namespace quire {

// The vocabulary that the text of a tokenizer.json describes. `name` stands before every message. bos and eos
// are those that its template adds to a text; it may say no more of them.
OwnedVocabulary read_tokenizer_json(std::string_view json, const std::string& name);

// The vocabulary of a model's folder: tokenizer.json, with bos and eos from tokenizer_config.json,
// generation_config.json and config.json, as far as they are there.
OwnedVocabulary read_tokenizer_folder(const std::string& folder);

// Reads a whole file of at most `max_bytes`.
std::string read_small_file(const std::string& path, size_t max_bytes);

}  // namespace quire

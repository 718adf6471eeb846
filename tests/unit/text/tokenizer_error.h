// What a vocabulary is refused with.
#pragma once

#include <string>

#include "base/error.h"
#include "text/tokenizer.h"

namespace quire {

inline std::string tokenizer_error(const Vocabulary& vocabulary) {
  try {
    Tokenizer tokenizer(vocabulary);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace quire

// The texts that a predictor is trained and validated on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "study/haystack.h"

namespace quire::cli {

struct ButlerTexts {
  std::vector<Tokens> training;
  Tokens validation;

  size_t n_tokens() const;  // to train on
};

// `validation` is a file, or empty: then validation takes the end of the longest text away from training, as
// much as n_sequences of `seq` tokens need and at least a twentieth, at most a quarter. Throws Error where
// that is less than one sequence, where a text is given twice, and where more than a hundredth of what is
// validated on stands in what is trained on too (of the text that it is the end of: what repeats itself there
// does not count); of less there is a note.
ButlerTexts read_butler_texts(const std::vector<std::string>& files, const std::string& validation,
                              size_t n_sequences, size_t seq, const Engine& engine);

}  // namespace quire::cli

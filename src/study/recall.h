// How much of what stands in a prompt a recipe still finds: planted facts, asked for one by one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "cache/recipe.h"
#include "engine/engine.h"
#include "study/facts.h"

namespace quire {

struct RecallOptions {
  std::vector<Recipe> recipes = {};
  std::vector<size_t> prompt_tokens = {2000, 4000};
  size_t n_facts = 16;
  size_t n_seeds = 8;
  uint64_t seed = 0;  // of the first; the others follow it
  std::function<void(double share)> progress = {};
};

// Of some answers: mean negative log-likelihood of their tokens, in nats.
struct RecallScore {
  size_t n_answers = 0;
  size_t n_tokens = 0;
  double nll = 0;
  double nll_full = 0;     // by `full`
  double nll_without = 0;  // by `full` without the facts in the prompt
  double exact = 0;        // share of the answers that greedy decoding would say

  // What of the facts' use to `full` is left: 1 like `full`, 0 as if they were not there. Not a number where
  // `full` has no use of them.
  double score() const;
};

struct Recall {
  Recipe recipe;
  RecallScore all;
  std::vector<RecallScore> by_length;  // [options.prompt_tokens]
  std::array<RecallScore, kFactKinds.size()> by_kind;
  double bits_per_value = 0;       // of keys and values behind the answers, every byte of the cache counted
  double rows_read_per_token = 0;  // of questions and answers: key rows, summed over layers and KV heads
  double bytes_read_per_token = 0;
};

// For each seed and length a haystack of the text's own sentences, from a place in it that the seed chooses,
// with n_facts facts spread over it; together with the longest question it has exactly that length. The
// haystack is computed in one step and its cache forked for every question. The question's tokens, then the
// answer's are given one by one, so both read the stored rows. Then the same for the same stretch of the text
// without facts, with `full`. A begin token comes first where the model wants one. Rows are in the order of
// options.recipes; the same options give the same rows on any number of threads.
//
// Throws Error when the text is too short, a length too large for the model or too small for the facts, and
// when there is no recipe or nothing to ask.
std::vector<Recall> measure_recall(Engine& engine, std::string_view text, const RecallOptions& options);

}  // namespace quire

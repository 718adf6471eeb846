// Whether a recipe reads what a question ties back to: the synthetic co-reference task (study/coref_text.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "cache/recipe.h"
#include "engine/engine.h"

namespace quire {

// Tokens of text, question and name together are fewer.
constexpr size_t kCorefTokens = 512;
// The name stands in none of so many first rows, which recipes read as sinks or in their first page.
constexpr size_t kCorefNameRow = 64;

struct CorefOptions {
  std::vector<Recipe> recipes = {};
  size_t n_items = 100;
  size_t first_item = 0;  // so many items of the seed are left out before
  uint64_t seed = 0;
  size_t most_tokens = kCorefTokens - 1;
  std::function<void(double share)> progress = {};
};

// Means over the items. The answer step is that of the question's last token, behind which the name is to
// come; the location's rows are those of the tokens of the name where the text brings it in. A pair is a
// layer and a KV head.
struct Coref {
  Recipe recipe;
  // Over the pairs that leave rows out, 1 where none does:
  double accuracy = 0;  // share of the pairs that read all of the location's rows in the answer step
  double coverage = 0;  // share of the location's rows that were read, mean over the pairs
  double read = 0;      // share of all rows that were read in that step, by all pairs
  // Of the name's first token among all tokens after the answer step, 1: the most likely; geometric mean.
  double rank = 0;
  double rank_full = 0;  // by `full`
  double nll = 0;        // of a token of the name, in nats
  double nll_full = 0;
  double tokens = 0;           // of an item's text and question
  double location_tokens = 0;  // of these, of the name
};

// For each item, text in one step, then the question's tokens one by one through the stored cache, so that a
// recipe that chooses rows by the text alone has not seen the question; then the name's. Rows are in the
// order of options.recipes; the same options give the same rows on any number of threads. Throws Error when
// there is no recipe, no item or too little room.
std::vector<Coref> measure_coref(Engine& engine, const CorefOptions& options);

}  // namespace quire

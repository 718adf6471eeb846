// How far a recipe's predictions lie from those of the exact cache, and what it reads and keeps for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/recipe.h"
#include "engine/engine.h"

namespace quire {

struct DivergenceOptions {
  std::vector<Recipe> recipes = {};
  size_t prompt_tokens = 1500;
  size_t eval_tokens = 200;
  std::function<void(double share)> progress = {};  // share of the tokens done, now and then
};

// One recipe against `full`, over the evaluated tokens; q is what the recipe predicts, p what `full` does.
struct Divergence {
  Recipe recipe;
  double kl_mean = 0;    // KL(p || q) in nats
  double kl_p99 = 0;     // its 99th percentile, between two tokens by linear interpolation
  double same_top1 = 0;  // share of tokens whose most likely next token is the same
  double ppl = 0;        // of the tokens that follow, by q
  double ppl_full = 0;   // by p
  // Share of the attention mass that lies on the rows read, by the cache's own codes, averaged over tokens,
  // heads and the layers in which rows were left out; 1 where none was. Not a number where rows were dropped:
  // what they would have had is not known.
  double mass = 1;
  double bits_per_value = 0;       // of keys and values in the end, every byte of the cache counted
  double rows_read_per_token = 0;  // key rows, summed over layers and KV heads
  double bytes_read_per_token = 0;
  double predictor_calls_per_token = 0;  // of recipes whose rows a predictor names
  double neighbour_rows_per_token = 0;   // rows that it adds as neighbours, of rows_read_per_token at most

  // What perplexity gains, as a share of that of `full`.
  double ppl_change() const { return ppl / ppl_full - 1; }
};

// KL divergence in nats of the softmax of logits `other` from that of `reference`, in double precision.
double kl_divergence(std::span<const float> reference, std::span<const float> other);

// Linear interpolation between the two nearest of the sorted values; share in [0, 1], at least one value.
double percentile(std::vector<double> values, double share);

// The prompt is computed in one step, the tokens after it one by one through the cache, so that coded rows
// are read as they are stored. Each of the eval_tokens gives a prediction of the token behind it; the last
// one is left out of the perplexities where the text ends with it. All recipes step together: the memory is
// the sum of the caches, and of logits a row each. Rows are in the order of options.recipes.
//
// Throws Error when the text is too short, the model's context too small, a token not of the vocabulary, or
// when there is no recipe.
std::vector<Divergence> measure_divergence(Engine& engine, std::span<const int32_t> tokens,
                                           const DivergenceOptions& options);

}  // namespace quire

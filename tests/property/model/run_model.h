// Puts tokens through a Model in steps and collects the logits of every position.
#pragma once

#include <numeric>
#include <vector>

#include "model/model.h"
#include "property/random.h"

namespace quire::test {

inline std::vector<int32_t> random_tokens(size_t n, size_t vocabulary, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(vocabulary));
  return tokens;
}

// From what the cache holds on, in steps of `step`; logits [token][vocabulary] of all new tokens.
inline std::vector<float> run_tokens(const Model& model, std::span<const int32_t> tokens, size_t step,
                                     Cache& cache, Workspace& workspace, Team& team) {
  const size_t vocabulary = model.config().vocabulary;
  std::vector<float> out(tokens.size() * vocabulary);
  for (size_t first = 0; first < tokens.size(); first += step) {
    const size_t n = std::min(step, tokens.size() - first);
    model.forward(tokens.subspan(first, n), cache, workspace, team);
    std::vector<size_t> rows(n);
    std::iota(rows.begin(), rows.end(), size_t{0});
    model.logits(rows, workspace, team, out.data() + first * vocabulary);
  }
  return out;
}

inline std::vector<float> run_model(const Model& model, std::span<const int32_t> tokens, size_t step,
                                    int n_threads = 1, const char* recipe = "f32") {
  PagePool pool;
  Cache cache(Recipe::parse(recipe), model.config().geometry(), pool);
  Workspace workspace;
  Team team(n_threads);
  return run_tokens(model, tokens, step, cache, workspace, team);
}

inline Model load(const GgufFile& file, Precision precision) {
  Team team(1);
  return Model::load(file, team, precision);
}

}  // namespace quire::test

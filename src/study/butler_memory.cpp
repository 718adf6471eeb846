#include "study/butler_memory.h"

namespace quire {
namespace {

// Parameters, two moments, the gradient; the first three once more.
constexpr uint64_t kOptimizerCopies = 7;

uint64_t square(uint64_t n) { return n * n; }

}  // namespace

uint64_t butler_example_bytes(const ButlerGeometry& g, size_t n_tokens, size_t n_rows) {
  const uint64_t inputs = uint64_t{g.n_producers()} * n_rows * g.width;
  const uint64_t queries = uint64_t{g.n_layers - 1} * g.n_heads * n_rows * g.head_dim;
  const uint64_t keys = uint64_t{g.n_layers - 1} * g.n_kv_heads * n_tokens * g.head_dim;
  return (inputs + queries + keys) * sizeof(float) + n_rows * sizeof(size_t);
}

uint64_t butler_teacher_bytes(const ButlerGeometry& g, size_t n_tokens) {
  return 2 * uint64_t{g.n_layers} * g.n_kv_heads * n_tokens * g.head_dim * sizeof(float);
}

uint64_t butler_optimizer_bytes(const ButlerGeometry& g) {
  return kOptimizerCopies * g.n_parameters() * sizeof(float);
}

uint64_t butler_gradient_bytes(const ButlerGeometry& g, size_t n_rows) {
  uint64_t values = 0;
  for (size_t p = 0; p < g.n_producers(); ++p) values += 2 * (g.width + g.hidden + g.query_values(p));
  return values * n_rows * sizeof(float);
}

uint64_t butler_fit_bytes(const ButlerGeometry& g) {
  uint64_t first = 0, second = 0;
  for (size_t p = 0; p < g.n_producers(); ++p) {
    const uint64_t n_queries = uint64_t{g.n_slots(p)} * g.n_heads * g.head_dim;
    const uint64_t n_out = g.query_values(p);
    first += 2 * square(g.width) + 3 * g.width * n_queries + 2 * g.width * n_out + 3 * square(n_out);
    second += 2 * square(g.hidden) + 2 * g.hidden * n_out;
  }
  return (first + second) * sizeof(double);
}

}  // namespace quire

// The gradient of the predictor's loss against differences of the loss, in double precision.
#include "study/butler_gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/random.h"

namespace quire {
namespace {

double normal(Random& random) {
  return std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
}

template <typename T>
std::vector<T> normals(Random& random, size_t n, double scale) {
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(scale * normal(random));
  return values;
}

void run_items(size_t n, const std::function<void(size_t)>& f) {
  for (size_t i = 0; i < n; ++i) f(i);
}

ButlerGeometry geometry_of(size_t n_heads, size_t n_kv_heads, size_t n_layers) {
  ButlerGeometry g;
  g.n_layers = n_layers;
  g.n_heads = n_heads;
  g.n_kv_heads = n_kv_heads;
  g.head_dim = 6;
  g.width = 10;
  g.stride = 3;
  g.dim = 4;
  g.hidden = 7;
  return g;
}

ButlerExample<double> example_of(const ButlerGeometry& g, size_t n_tokens, std::vector<size_t> rows,
                                 Random& random) {
  ButlerExample<double> example;
  example.n_tokens = n_tokens;
  example.rows = std::move(rows);
  const size_t n_rows = example.rows.size();
  for (size_t p = 0; p < g.n_producers(); ++p) {
    example.inputs.push_back(normals<double>(random, n_rows * g.width, 2));
  }
  for (size_t layer = 1; layer < g.n_layers; ++layer) {
    example.queries.push_back(normals<double>(random, g.n_heads * n_rows * g.head_dim, 0.6));
    example.keys.push_back(normals<double>(random, g.n_kv_heads * n_tokens * g.head_dim, 1));
  }
  return example;
}

ButlerExample<float> narrowed(const ButlerExample<double>& from) {
  ButlerExample<float> to;
  to.n_tokens = from.n_tokens;
  to.rows = from.rows;
  for (const auto& [source, target] :
       {std::pair{&from.inputs, &to.inputs}, {&from.queries, &to.queries}, {&from.keys, &to.keys}}) {
    for (const auto& values : *source) target->emplace_back(values.begin(), values.end());
  }
  return to;
}

// The loss straight from its definition.
double loss_of(const ButlerLayout& layout, const ButlerMask& mask, const ButlerExample<double>& example,
               const double* w) {
  const ButlerGeometry& g = layout.geometry();
  const size_t n_rows = example.rows.size();
  double loss = 0;
  for (size_t layer = 1; layer < g.n_layers; ++layer) {
    const size_t p = g.producer_of(layer);
    for (size_t r = 0; r < n_rows; ++r) {
      const double* input = example.inputs[p].data() + r * g.width;
      double mean = 0, variance = 0;
      for (size_t i = 0; i < g.width; ++i) mean += input[i] / static_cast<double>(g.width);
      for (size_t i = 0; i < g.width; ++i) {
        variance += (input[i] - mean) * (input[i] - mean) / static_cast<double>(g.width);
      }
      std::vector<double> y(g.hidden);
      for (size_t m = 0; m < g.hidden; ++m) {
        double pre = 0;
        for (size_t i = 0; i < g.width; ++i) {
          const double normed = (input[i] - mean) / std::sqrt(variance + double{kButlerNormEpsilon});
          pre += w[layout.in(p) + m * g.width + i] *
                 (normed * w[layout.norm_weight(p) + i] + w[layout.norm_bias(p) + i]);
        }
        y[m] = pre / (1 + std::exp(-pre));
      }
      for (size_t head = 0; head < g.n_heads; ++head) {
        const size_t kv = head / (g.n_heads / g.n_kv_heads);
        const size_t position = example.rows[r];
        std::vector<double> teacher, student;
        double total = 0;
        for (size_t token = 0; token <= position; ++token) {
          const double* k = example.keys[layer - 1].data() + (kv * example.n_tokens + token) * g.head_dim;
          double score = 0, own = 0;
          for (size_t d = 0; d < g.head_dim; ++d) {
            score += k[d] * example.queries[layer - 1][(head * n_rows + r) * g.head_dim + d];
          }
          for (size_t j = 0; j < g.dim; ++j) {
            double query = 0, key = 0;
            const size_t out = ((g.slot_of(layer) * g.n_heads + head) * g.dim + j) * g.hidden;
            for (size_t m = 0; m < g.hidden; ++m) query += w[layout.out(p) + out + m] * y[m];
            for (size_t d = 0; d < g.head_dim; ++d) {
              key += k[d] * w[layout.projection(layer) + (kv * g.head_dim + d) * g.dim + j];
            }
            own += query * key / std::sqrt(static_cast<double>(g.dim));
          }
          total += std::exp(score);
          if (token < mask.sink || token + mask.local > position) continue;
          teacher.push_back(score);
          student.push_back(own);
        }
        double sum_p = 0, sum_r = 0;
        for (const double score : teacher) sum_p += std::exp(score);
        for (const double score : student) sum_r += std::exp(score);
        double divergence = 0;
        for (size_t i = 0; i < teacher.size(); ++i) {
          const double probability = std::exp(teacher[i]) / sum_p;
          divergence += probability * (std::log(probability) - std::log(std::exp(student[i]) / sum_r));
        }
        loss += divergence * (mask.weighted ? sum_p / total : 1);
      }
    }
  }
  return loss / static_cast<double>(n_rows * g.n_heads * (g.n_layers - 1));
}

struct Case {
  size_t n_heads, n_kv_heads, n_layers;
  ButlerMask mask;
};

class ButlerGradientTest : public testing::TestWithParam<Case> {};

TEST_P(ButlerGradientTest, EqualsDifferencesOfTheLoss) {
  const Case& given = GetParam();
  const ButlerLayout layout(geometry_of(given.n_heads, given.n_kv_heads, given.n_layers));
  Random random(given.n_heads * 100 + given.n_layers);
  const ButlerExample<double> example = example_of(layout.geometry(), 70, {1, 5, 30, 63, 64, 69}, random);
  std::vector<double> w = normals<double>(random, layout.size(), 0.5);
  ButlerGradient<double> gradient(layout, given.mask, run_items);
  std::vector<double> d(layout.size(), 0.0);
  const double loss = gradient.add(example, w.data(), 1.0, d.data());
  EXPECT_NEAR(loss, loss_of(layout, given.mask, example, w.data()), 1e-12);
  double largest = 0;
  for (size_t i = 0; i < w.size(); i += 3) {  // every third: the loss is slow, and 3 divides no row
    const double step = 1e-5, before = w[i];
    w[i] = before + step;
    const double above = loss_of(layout, given.mask, example, w.data());
    w[i] = before - step;
    const double below = loss_of(layout, given.mask, example, w.data());
    w[i] = before;
    ASSERT_NEAR(d[i], (above - below) / (2 * step), 1e-9) << "parameter " << i;
    largest = std::max(largest, std::fabs(d[i]));
  }
  EXPECT_GT(largest, 1e-3);
}

TEST_P(ButlerGradientTest, FloatIsCloseToDouble) {
  const Case& given = GetParam();
  const ButlerLayout layout(geometry_of(given.n_heads, given.n_kv_heads, given.n_layers));
  Random random(7);
  const ButlerExample<double> example = example_of(layout.geometry(), 200, {40, 100, 120, 199}, random);
  const std::vector<double> w = normals<double>(random, layout.size(), 0.5);
  const std::vector<float> narrow(w.begin(), w.end());
  std::vector<double> d(layout.size(), 0.0);
  std::vector<float> f(layout.size(), 0.0f);
  const double exact =
      ButlerGradient<double>(layout, given.mask, run_items).add(example, w.data(), 2, d.data());
  const double close =
      ButlerGradient<float>(layout, given.mask, run_items).add(narrowed(example), narrow.data(), 2, f.data());
  EXPECT_NEAR(exact, close, 1e-5 * exact);
  double largest = 0;
  for (const double value : d) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < d.size(); ++i) ASSERT_NEAR(d[i], double{f[i]}, 1e-4 * largest) << i;
}

// Groups of one and of three query heads; a last producer with all slots, with one, and with two.
INSTANTIATE_TEST_SUITE_P(Geometries, ButlerGradientTest,
                         testing::Values(Case{2, 2, 4, {2, 3, true}}, Case{3, 1, 5, {4, 8, true}},
                                         Case{6, 2, 6, {0, 0, false}}, Case{3, 3, 2, {4, 1, false}}));

TEST(ButlerGradient, AddsToWhatIsThere) {
  const ButlerLayout layout(geometry_of(3, 1, 5));
  Random random(3);
  const ButlerExample<double> example = example_of(layout.geometry(), 70, {30, 69}, random);
  const std::vector<double> w = normals<double>(random, layout.size(), 0.5);
  ButlerGradient<double> gradient(layout, {2, 3, true}, run_items);
  std::vector<double> once(layout.size(), 0.0), twice(layout.size(), 1.0);
  gradient.add(example, w.data(), 1, once.data());
  gradient.add(example, w.data(), 0.5, twice.data());
  gradient.add(example, w.data(), 0.5, twice.data());
  for (size_t i = 0; i < once.size(); ++i) ASSERT_NEAR(once[i] + 1, twice[i], 1e-12);
}

TEST(ButlerLayout, KeepsWeights) {
  const ButlerLayout layout(geometry_of(3, 1, 5));
  std::vector<float> flat(layout.size());
  for (size_t i = 0; i < flat.size(); ++i) flat[i] = static_cast<float>(i);
  const ButlerWeights weights = layout.weights(flat);
  EXPECT_EQ(layout.flat(weights), flat);
  EXPECT_EQ(weights.producers[1].out[0], static_cast<float>(layout.out(1)));
  EXPECT_EQ(weights.projections[2][0], static_cast<float>(layout.projection(3)));
  EXPECT_TRUE(layout.is_norm(0));
  EXPECT_TRUE(layout.is_norm(layout.norm_bias(1) + 9));
  EXPECT_FALSE(layout.is_norm(layout.in(1)));
  EXPECT_FALSE(layout.is_norm(layout.norm_weight(1) - 1));
  EXPECT_FALSE(layout.is_norm(layout.size() - 1));
}

}  // namespace
}  // namespace quire

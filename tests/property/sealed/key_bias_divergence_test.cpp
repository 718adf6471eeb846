// What a large key bias does to attention over coded keys: the divergence of the attention weights of the
// cache from exact ones, with the bias taken off the keys and without that. Made-up keys of norm 15, 2,000
// tokens, a bias of norm 600 in the slowest four pairs of RoPE's channels, in the fastest four, or in all.
#include <gtest/gtest.h>

#include <algorithm>

#include "property/sealed/biased.h"
#include "property/sealed/scene.h"

namespace quire::test {
namespace {

constexpr size_t kTokens = 2000;
constexpr size_t kQueryHeads = 4;
constexpr double kKeyNorm = 15;
constexpr double kBiasNorm = 600;
constexpr double kScoreSpread = 2;  // nats, of the scores without their share of the bias
constexpr double kRopeBase = 1e6;
constexpr double kLargestDivergence = 0.05;

enum class Place { kNowhere, kSlow, kFast, kSpread };
// Loud queries are as large in the biased channels as elsewhere, which makes scores of hundreds and weights
// near 0 and 1; calm ones are smaller there by the ratio of bias to key, so that content counts.
enum class Queries { kLoud, kCalm };

std::string label(Place place, Queries queries) {
  constexpr const char* kPlaces[] = {"nowhere", "slow", "fast", "spread"};
  return std::string(kPlaces[static_cast<size_t>(place)]) + (queries == Queries::kCalm ? "_calm" : "");
}

struct Scene {
  size_t dim;
  Geometry shape;
  std::vector<double> frequencies;
  std::vector<float> bias;
  std::vector<float> k;  // [kTokens][dim]
  std::vector<float> q;  // [n_queries][kQueryHeads * dim], of the last tokens

  Scene(size_t head_dim, Place place, Queries queries, size_t n_queries)
      : dim(head_dim),
        shape(geometry(kQueryHeads, head_dim, {1})),
        frequencies(rope_frequencies(head_dim, kRopeBase)),
        bias(head_dim) {
    Random random(head_dim);
    const size_t half = dim / 2;
    const auto biased = [&](size_t channel) {
      const size_t pair = channel % half;
      return place == Place::kSpread || (place == Place::kSlow && pair >= half - 4) ||
             (place == Place::kFast && pair < 4);
    };
    const double size = kBiasNorm / std::sqrt(place == Place::kSpread ? static_cast<double>(dim) : 8.0);
    for (size_t d = 0; d < dim; ++d)
      bias[d] = biased(d) ? static_cast<float>(random.below(2) == 0 ? size : -size) : 0;
    k = random.normals(kTokens * dim, kKeyNorm / std::sqrt(static_cast<double>(dim)));
    for (size_t t = 0; t < kTokens; ++t) {
      const std::vector<double> b = turned_bias(bias, frequencies, t);
      for (size_t d = 0; d < dim; ++d) k[t * dim + d] = static_cast<float>(k[t * dim + d] + b[d]);
    }
    q = random.normals(n_queries * kQueryHeads * dim, kScoreSpread / kKeyNorm);
    for (size_t i = 0; queries == Queries::kCalm && i < q.size(); ++i) {
      if (biased(i % dim)) q[i] *= static_cast<float>(kKeyNorm / kBiasNorm);
    }
  }

  size_t n_queries() const { return q.size() / (kQueryHeads * dim); }
  bool has_bias() const {
    return std::any_of(bias.begin(), bias.end(), [](float b) { return b != 0; });
  }

  std::shared_ptr<const KeyBiases> key_biases() const {
    KeyBiases all;
    all.heads.emplace_back(std::in_place, std::make_shared<const RopeTurns>(frequencies), bias);
    return std::make_shared<const KeyBiases>(std::move(all));
  }

  // Row r is of query r / kQueryHeads.
  std::vector<double> exact_weights(size_t row) const {
    const size_t n_visible = kTokens - n_queries() + row / kQueryHeads + 1;
    std::vector<double> weights(kTokens, 0.0);
    double top = -INFINITY;
    for (size_t t = 0; t < n_visible; ++t) {
      for (size_t d = 0; d < dim; ++d) weights[t] += static_cast<double>(q[row * dim + d]) * k[t * dim + d];
      top = std::max(top, weights[t]);
    }
    double sum = 0;
    for (size_t t = 0; t < n_visible; ++t) sum += weights[t] = std::exp(weights[t] - top);
    for (double& weight : weights) weight /= sum;
    return weights;
  }
};

// The weights that a cache gives the tokens from `first` on, one for each channel of a value: there the
// values are rows of the unit matrix. out [row][dim].
std::vector<float> weights_of(const Scene& scene, const Recipe& recipe,
                              std::shared_ptr<const KeyBiases> biases, size_t first) {
  std::vector<float> v(kTokens * scene.dim);
  for (size_t d = 0; d < scene.dim && first + d < kTokens; ++d) v[(first + d) * scene.dim + d] = 1;
  PagePool pool;
  Cache cache(recipe, scene.shape, pool, {.key_biases = std::move(biases)});
  Team team(1);
  std::vector<float> out(scene.q.size());
  const auto step = [&](size_t begin, size_t n, bool attends) {
    cache.begin_step(n, 1);
    team.run([&](Worker& worker) {
      cache.begin_layer(worker, 0);
      cache.append(worker, 0, 0, n, scene.k.data() + begin * scene.dim, v.data() + begin * scene.dim,
                   scene.dim);
      const size_t width = kQueryHeads * scene.dim;
      if (attends) cache.attend(worker, 0, 0, n, scene.q.data(), width, out.data(), width);
      cache.end_layer(worker, 0);
    });
    cache.end_step();
  };
  step(0, kTokens - scene.n_queries(), false);
  step(kTokens - scene.n_queries(), scene.n_queries(), true);
  return out;
}

// Mean over the queries of the divergence of the cache's weights from the exact ones.
double divergence(const Scene& scene, const std::string& keys, bool framed) {
  const bool rotated = info(side_format_by_name(keys)->code).wants_rotation;
  const Recipe recipe = Recipe::parse("k=" + keys + ",v=f16,frame=" + (rotated ? "rotated" : "plain"));
  const auto biases = framed && scene.has_bias() ? scene.key_biases() : nullptr;
  const size_t n_rows = scene.q.size() / scene.dim;
  std::vector<std::vector<double>> exact;
  for (size_t row = 0; row < n_rows; ++row) exact.push_back(scene.exact_weights(row));
  double sum = 0;
  for (size_t first = 0; first < kTokens; first += scene.dim) {
    const std::vector<float> got = weights_of(scene, recipe, biases, first);
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t token = first + i % scene.dim;
      const double p = token < kTokens ? exact[i / scene.dim][token] : 0;
      if (p > 0) sum += p * std::log(p / std::max<double>(got[i], 1e-30));
    }
  }
  return sum / static_cast<double>(n_rows);
}

struct Case {
  Place place;
  Queries queries;
};
// In all channels at once no query is calm.
constexpr Case kCases[] = {{Place::kNowhere, Queries::kLoud}, {Place::kSlow, Queries::kLoud},
                           {Place::kSlow, Queries::kCalm},    {Place::kFast, Queries::kLoud},
                           {Place::kFast, Queries::kCalm},    {Place::kSpread, Queries::kLoud}};

class KeyBiasDivergence : public testing::TestWithParam<const char*> {};

TEST_P(KeyBiasDivergence, IsSmallInTheBiasFrame) {
  for (const size_t dim : {64, 128}) {
    for (const size_t n_queries : {1, 8}) {  // 4 rows from the codes, 32 from opened pages
      for (const auto& [place, queries] : kCases) {
        const double framed = divergence(Scene(dim, place, queries, n_queries), GetParam(), true);
        EXPECT_LE(framed, kLargestDivergence) << dim << " " << n_queries << " " << label(place, queries);
        RecordProperty(label(place, queries) + std::to_string(dim), std::to_string(framed));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FourBits, KeyBiasDivergence, testing::Values("turbo4", "nested4", "q4", "kivi4"));

// What is not the codes' doing: f16 rows, and sums of scores of hundreds in f32.
TEST(KeyBias, DivergenceIsThatOfTheCodesAlone) {
  for (const auto& [place, queries] : kCases) {
    const double framed = divergence(Scene(64, place, queries, 1), "q8", true);
    EXPECT_LE(framed, kLargestDivergence / 50) << label(place, queries);
    RecordProperty(label(place, queries), std::to_string(framed));
  }
}

// So the frame is needed.
TEST(KeyBias, DivergenceIsLargeWithoutTheFrame) {
  for (const auto& [place, queries] : kCases) {
    if (place == Place::kNowhere) continue;
    const double plain = divergence(Scene(128, place, queries, 1), "turbo4", false);
    EXPECT_GT(plain, 10 * kLargestDivergence) << label(place, queries);
    RecordProperty(label(place, queries), std::to_string(plain));
  }
}

}  // namespace
}  // namespace quire::test

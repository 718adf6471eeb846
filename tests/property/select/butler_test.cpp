// TokenButler's parts against double precision: projected keys and their scores, the rows named, neighbours.
#include "policy/select_butler.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/half.h"
#include "policy/butler_predictor.h"
#include "policy/projected_keys.h"
#include "property/select/butler_scene.h"

namespace quire::test {
namespace {

PolicyChoice choice(const std::string& settings) { return Recipe::parse("butler(" + settings + ")").select; }

TEST(ProjectedKeys, BytesOfADigest) {
  EXPECT_EQ(ProjectedLayout(choice("")).digest_bytes(), 64u * 16 * 2);
  EXPECT_EQ(ProjectedLayout(choice("keys=int8,dim=8")).digest_bytes(), 64u * (8 + 2));
  EXPECT_EQ(ProjectedLayout(choice("keys=int8")).row_bytes(), 18u);
}

// Rows are projected in two pieces; what has not come stays as it was.
TEST(ProjectedKeys, ScoresAreThoseOfTheProjectedRows) {
  for (const HeadShape& shape : kHeadShapes) {
    for (const size_t dim : {1, 7, 16, 40}) {
      for (const Format format : {Format::kF32, Format::kF16, Format::kBF16}) {
        for (const char* kind : {"bf16", "int8"}) {
          const ProjectedLayout layout(choice(std::string("keys=") + kind + ",dim=" + std::to_string(dim)));
          const size_t d = shape.head_dim;
          const size_t group = shape.n_heads / shape.n_kv_heads;
          Random random(d * dim);
          const std::vector<float> rows = random.normals(64 * d);
          const std::vector<float> projection = random.normals(dim * d, 0.3);
          const std::vector<float> q = random.normals(group * dim);
          std::vector<std::byte> page(row_bytes(format, 64 * d) + kSpareBytes);
          ops().store_keys[static_cast<size_t>(format)](page.data(), 0, 64, static_cast<int>(d), rows.data(),
                                                        d);
          std::vector<float> stored(64 * d);
          ops().unpack[static_cast<size_t>(format)](page.data(), 64 * d, stored.data());
          std::vector<std::byte> digest(layout.digest_bytes() + kSpareBytes);
          std::vector<float> room;
          project_keys(layout, projection.data(), d, format, page.data(), 0, 24, room, digest.data());
          project_keys(layout, projection.data(), d, format, page.data(), 24, 37, room, digest.data());
          std::vector<float> scores(group * 64);
          score_projected(layout, q.data(), group, digest.data(), nullptr, room, scores.data());
          for (size_t t = 0; t < 64; ++t) {
            std::vector<double> values(dim, 0.0);
            double most = 0;
            for (size_t j = 0; j < dim; ++j) {
              for (size_t i = 0; i < d; ++i) {
                values[j] += static_cast<double>(projection[i * dim + j]) * stored[i * 64 + t];
              }
              most = std::max(most, std::fabs(values[j]));
            }
            for (size_t h = 0; h < group; ++h) {
              double wanted = 0;
              double error = 1e-5;
              for (size_t j = 0; j < dim; ++j) {
                wanted += q[h * dim + j] * values[j];
                const double step =
                    layout.is_int8 ? 0.502 * most / 127 + most / 1024 : std::fabs(values[j]) * 0x1.02p-8;
                error += std::fabs(q[h * dim + j]) * step;
              }
              if (t >= 61) wanted = 0;
              ASSERT_NEAR(scores[h * 64 + t], wanted, error) << kind << " d " << d << " dim " << dim;
            }
          }
        }
      }
    }
  }
}

TEST(ProjectedKeys, ZeroAndHugeRows) {
  const ProjectedLayout layout(choice("keys=int8,dim=2"));
  std::vector<float> page(64 * 2 + 16, 0.0f);
  page[1] = 1e9f;  // channel 0 of token 1
  page[2] = 1e-9f;
  const float identity[] = {1, 0, 0, 1};
  std::vector<std::byte> digest(layout.digest_bytes() + kSpareBytes);
  std::vector<float> room;
  project_keys(layout, identity, 2, Format::kF32, reinterpret_cast<const std::byte*>(page.data()), 0, 64,
               room, digest.data());
  std::vector<float> scores(64);
  const float q[] = {1, 1};
  score_projected(layout, q, 1, digest.data(), nullptr, room, scores.data());
  EXPECT_EQ(scores[0], 0);
  EXPECT_EQ(scores[1], 127 * 65504.0f);  // the largest there is
  EXPECT_EQ(scores[2], 0);
}

TEST(ProjectedKeys, BF16RowsStayFinite) {
  const ProjectedLayout layout(choice("dim=2"));
  std::vector<float> page(64 * 2 + 16, 0.0f);
  page[1] = std::numeric_limits<float>::max();
  page[2] = -std::numeric_limits<float>::max();
  page[3] = std::numeric_limits<float>::quiet_NaN();
  const float identity[] = {1, 0, 0, 1};
  std::vector<std::byte> digest(layout.digest_bytes() + kSpareBytes);
  std::vector<float> room;
  project_keys(layout, identity, 2, Format::kF32, reinterpret_cast<const std::byte*>(page.data()), 0, 64,
               room, digest.data());
  std::vector<float> scores(64);
  const float q[] = {1, 0};
  score_projected(layout, q, 1, digest.data(), nullptr, room, scores.data());
  EXPECT_EQ(scores[1], 0x1.fep127f);
  EXPECT_EQ(scores[2], -0x1.fep127f);
  EXPECT_TRUE(std::isnan(scores[3]));
}

// A digest as it is described: one product and one sum after the other, in the channels' order.
std::vector<std::byte> plain_digest(const ProjectedLayout& layout, const std::vector<float>& projection,
                                    size_t d, const std::vector<float>& keys) {
  std::vector<std::byte> digest(layout.digest_bytes());
  for (size_t t = 0; t < 64; ++t) {
    std::vector<float> values(layout.dim, 0.0f);
    float most = 0;
    for (size_t j = 0; j < layout.dim; ++j) {
      for (size_t i = 0; i < d; ++i) {
        volatile const float product = keys[i * 64 + t] * projection[i * layout.dim + j];
        values[j] += product;
      }
      most = std::max(most, std::fabs(values[j]));
    }
    const uint16_t scale = f32_to_f16(most / 127);
    if (layout.is_int8) std::memcpy(digest.data() + 2 * t, &scale, 2);
    for (size_t j = 0; j < layout.dim; ++j) {
      const size_t i = j * 64 + t;
      const uint16_t half = f32_to_bf16(values[j]);
      const float code = std::nearbyint(values[j] / f16_to_f32(scale));
      const auto byte = static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f));
      if (layout.is_int8) {
        std::memcpy(digest.data() + layout.keys_offset() + i, &byte, 1);
      } else {
        std::memcpy(digest.data() + 2 * i, &half, 2);
      }
    }
  }
  return digest;
}

// Whatever instruction set this runs on: they lie in files.
TEST(ProjectedKeys, BytesAreThoseOfThePlainSum) {
  for (const size_t d : {40, 64, 100, 256}) {
    for (const size_t dim : {1, 7, 16, 40}) {
      for (const char* kind : {"bf16", "int8"}) {
        const ProjectedLayout layout(choice(std::string("keys=") + kind + ",dim=" + std::to_string(dim)));
        Random random(d + dim);
        std::vector<float> keys = random.normals(64 * d);
        const std::vector<float> projection = random.normals(d * dim, 0.3);
        const std::vector<std::byte> wanted = plain_digest(layout, projection, d, keys);
        keys.resize(64 * d + 16);
        std::vector<std::byte> digest(layout.digest_bytes());
        std::vector<float> room;
        project_keys(layout, projection.data(), d, Format::kF32,
                     reinterpret_cast<const std::byte*>(keys.data()), 0, 64, room, digest.data());
        ASSERT_TRUE(digest == wanted) << kind << " d " << d << " dim " << dim;
      }
    }
  }
}

TEST(ButlerPredictor, QueriesAreThoseOfTheReference) {
  uint64_t seed = 0;
  for (const HeadShape& shape : kHeadShapes) {
    for (const size_t stride : {1, 3, 4}) {
      ++seed;
      const ButlerPrompt prompt(shape, 6, 3, seed, stride, 5 + seed, 17 + seed, 30 + seed);
      const ButlerGeometry& g = prompt.g();
      const ButlerPredictor predictor(prompt.weights);
      for (size_t p = 0; p < g.n_producers(); ++p) {
        std::vector<float> x(g.width);
        std::vector<float> hidden(g.hidden);
        std::vector<float> queries(g.query_values(p));
        predictor.normalise(p, prompt.x[g.producer_layer(p)].data() + 2 * g.width, x.data());
        const auto pieces = [](size_t n, const auto& make) {
          for (size_t i = 0; i < n; i += ButlerPredictor::kRows)
            make(i, std::min(n, i + ButlerPredictor::kRows));
        };
        pieces(g.hidden, [&](size_t a, size_t b) { predictor.hidden(p, x.data(), a, b, hidden.data()); });
        pieces(queries.size(),
               [&](size_t a, size_t b) { predictor.queries(p, hidden.data(), a, b, queries.data()); });
        for (size_t slot = 0; slot < g.n_slots(p); ++slot) {
          const auto wanted = importance(prompt, g.producer_layer(p) + 1 + slot, 2);
          for (size_t i = 0; i < g.n_heads * g.dim; ++i) {
            ASSERT_NEAR(queries[slot * g.n_heads * g.dim + i],
                        wanted[i / g.dim][i % g.dim] / std::sqrt(static_cast<double>(g.dim)), 2e-4)
                << "producer " << p;
          }
        }
      }
    }
  }
}

std::set<size_t> range(size_t first, size_t last) {
  std::set<size_t> all;
  for (size_t t = first; t < last; ++t) all.insert(t);
  return all;
}

// The logarithm of the sum over heads of the probabilities, of scores [head][i].
std::vector<double> log_sum_of(const std::vector<std::vector<double>>& scores) {
  std::vector<double> sums(scores[0].size(), 0.0);
  for (const std::vector<double>& own : scores) {
    const std::vector<double> logs = best_of({own});
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += std::exp(logs[i]);
  }
  for (double& sum : sums) sum = std::log(sum);
  return sums;
}

// Every layer, KV head and way to compare heads: sinks and local rows, and of the others the highest.
TEST(Butler, ReadsTheRowsOfTheReference) {
  uint64_t seed = 10;
  for (const HeadShape& shape : kHeadShapes) {
    for (const char* settings : {"", "heads=probability,", "heads=score,", "heads=probability,keys=int8,"}) {
      const size_t n = 300 + 7 * ++seed;
      const ButlerPrompt prompt(shape, 5, n, seed, 2);
      Butler run(std::string("k=f32,v=f32,select=butler(") + settings + "budget=90,sink=3,local=37)", prompt);
      run.grow(n - 50, 100);
      run.step(48);
      run.step(1);  // the first one reads everything
      for (size_t layer = 0; layer < 5; ++layer) {
        for (size_t head = 0; head < shape.n_kv_heads; ++head) {
          ASSERT_EQ((run.reads.rows.at({layer, head})), range(0, n - 1));
        }
      }
      run.step(1);
      for (size_t layer = 0; layer < 5; ++layer) {
        for (size_t head = 0; head < shape.n_kv_heads; ++head) {
          const std::set<size_t>& rows = run.reads.rows.at({layer, head});
          if (layer == 0) {
            ASSERT_EQ(rows, range(0, n));
            continue;
          }
          ASSERT_EQ(rows.size(), 90u);
          // Of the candidates alone, as in training: what is read in any case has no share.
          auto scores = butler_scores(prompt, layer, head, n - 1, n - 37);
          for (std::vector<double>& own : scores) own.erase(own.begin(), own.begin() + 3);
          std::vector<double> best(scores[0].size(), -INFINITY);
          for (const auto& own : scores) {
            for (size_t t = 0; t < own.size(); ++t) best[t] = std::max(best[t], own[t]);
          }
          if (std::string(settings).starts_with("heads=probability")) best = best_of(scores);
          if (*settings == 0) best = log_sum_of(scores);
          std::set<size_t> named;
          for (const size_t t : rows) {
            if (t >= 3 && t < n - 37) named.insert(t - 3);
          }
          for (size_t t = 0; t < 3; ++t) ASSERT_TRUE(rows.contains(t));
          for (size_t t = n - 37; t < n; ++t) ASSERT_TRUE(rows.contains(t));
          ASSERT_TRUE(are_highest(named, best, 50, 0.2)) << settings << layer << " d " << shape.head_dim;
        }
      }
    }
  }
}

// Derived by hand from the description (algorithms 5.3): a run of length c adds the c tokens behind it.
TEST(ButlerNeighbours, OfRunsByHand) {
  using Tokens = std::vector<size_t>;
  const auto found = [](const Tokens& chosen, size_t last, size_t n_most) {
    return with_neighbours(chosen, last, n_most);
  };
  EXPECT_EQ(found({5}, 100, 2), (Tokens{5, 6}));
  EXPECT_EQ(found({5, 6, 7}, 100, 6), (Tokens{5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(found({2, 10, 11}, 100, 6), (Tokens{2, 3, 10, 11, 12, 13}));
  // Two runs whose neighbours meet: 5 6 7 add 8 9 10, and 9 adds 10; two places are left, behind the last.
  EXPECT_EQ(found({5, 6, 7, 9}, 100, 8), (Tokens{5, 6, 7, 8, 9, 10, 11, 12}));
  // The neighbour of 3 is 4, a run of its own is 5.
  EXPECT_EQ(found({3, 5}, 100, 4), (Tokens{3, 4, 5, 6}));
  // At the end neighbours are the last candidate, and nothing is behind it.
  EXPECT_EQ(found({97, 98, 99}, 100, 6), (Tokens{97, 98, 99}));
  EXPECT_EQ(found({95, 96, 97}, 100, 6), (Tokens{95, 96, 97, 98, 99}));
  EXPECT_EQ(found({1, 99}, 100, 4), (Tokens{1, 2, 99}));
  // Without room for more than was chosen, neighbours come all the same: they are of the members.
  EXPECT_EQ(found({}, 100, 4), Tokens{});
}

TEST(ButlerNeighbours, AreBetweenOnceAndTwiceAsMany) {
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    const size_t last = 20 + random.below(300);
    std::set<size_t> chosen;
    const size_t n = 1 + random.below(20);
    while (chosen.size() < std::min(n, last)) chosen.insert(random.below(last));
    const std::vector<size_t> all =
        with_neighbours(std::vector<size_t>(chosen.begin(), chosen.end()), last, 2 * chosen.size());
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
    EXPECT_EQ(std::set<size_t>(all.begin(), all.end()).size(), all.size());
    EXPECT_LE(all.size(), 2 * chosen.size());
    EXPECT_LT(all.back(), last);
    for (const size_t t : chosen) EXPECT_TRUE(std::binary_search(all.begin(), all.end(), t));
    EXPECT_TRUE(all.size() == 2 * chosen.size() || all.back() == last - 1);
  }
}

}  // namespace
}  // namespace quire::test

// Statistics of the prompt against plain sums in double precision.
#include <gtest/gtest.h>

#include "property/statistics/scene.h"

namespace quire::test {
namespace {

const char* const kStatisticsRecipes[] = {"turbo4(stats=prompt)",
                                          "quire(stats=prompt,frame=centred,full_rows=20)",
                                          "k=turbo4,v=f16,stats=prompt,tail=200,sink=0",
                                          "signvq",
                                          "k=signvq,v=f16,sink=3,tail=64",
                                          "selfindex",
                                          "selfindex(full_rows=10,sink=16)"};

Prompt uneven_prompt(size_t n, size_t dim = 40) {
  Prompt prompt(geometry(4, dim, {2, 1}), n, n + dim);
  Random random(n);
  for (size_t layer = 0; layer < 2; ++layer) {
    const std::vector<float> mean = random.normals(prompt.kv_width(layer), 2);
    const std::vector<float> size = random.normals(prompt.kv_width(layer));
    for (size_t i = 0; i < prompt.k[layer].size(); ++i) {
      const size_t column = i % prompt.kv_width(layer);
      prompt.k[layer][i] = prompt.k[layer][i] * std::exp(0.5f * size[column]) + mean[column];
      prompt.v[layer][i] += mean[column];
    }
  }
  return prompt;
}

TEST(PromptStatistics, NothingIsCodedBefore512Tokens) {
  const Prompt prompt = uneven_prompt(700);
  for (const char* text : kStatisticsRecipes) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t step : {1, 100, 511}) {
      Grown grown(prompt, recipe, kFirstSeal - 1, step);
      EXPECT_EQ(grown.cache.coded_tokens(), 0u) << text;
      EXPECT_EQ(grown.cache.layer_statistics(0), nullptr) << text;
      grown.grow(prompt, kFirstSeal, 1);
      EXPECT_EQ(grown.cache.coded_tokens(), (kFirstSeal - recipe.tail_tokens) / 64 * 64) << text;
      const LayerStatistics* made = grown.cache.layer_statistics(1);
      ASSERT_NE(made, nullptr) << text;
      grown.grow(prompt, 700, 50);
      EXPECT_EQ(grown.cache.layer_statistics(1), made) << "made once";
      EXPECT_EQ(grown.cache.coded_tokens(), (700 - recipe.tail_tokens) / 64 * 64) << text;
    }
  }
}

// As the model's calibration would say of these tokens.
void check_balance(const Prompt& prompt, const Grown& grown, size_t layer, size_t n) {
  const size_t dim = prompt.shape.head_dim;
  const size_t sinks = grown.cache.recipe().sink_tokens;
  const size_t n_kv = prompt.shape.n_kv_heads[layer];
  const size_t group = prompt.shape.n_heads / n_kv;
  const LayerStatistics& made = *grown.cache.layer_statistics(layer);
  for (size_t head = 0; head < n_kv; ++head) {
    const std::vector<double> k = exact_rows(prompt, prompt.k[layer], layer, n, head);
    const std::vector<double> mean = mean_of(k, dim, sinks);
    std::vector<double> rms_k(dim), rms_q(dim);
    double mean_k = 0;
    double mean_q = 0;
    for (size_t d = 0; d < dim; ++d) {
      for (size_t t = sinks; t < n; ++t) rms_k[d] += std::pow(k[t * dim + d] - mean[d], 2);
      for (size_t t = 0; t < n; ++t) {
        for (size_t h = head * group; h < (head + 1) * group; ++h) {
          rms_q[d] += std::pow(prompt.q[layer][t * prompt.q_width() + h * dim + d], 2);
        }
      }
      rms_k[d] = std::sqrt(rms_k[d] / static_cast<double>(n - sinks));
      rms_q[d] = std::sqrt(rms_q[d] / static_cast<double>(n * group));
      mean_k += rms_k[d] / static_cast<double>(dim);
      mean_q += rms_q[d] / static_cast<double>(dim);
    }
    for (size_t d = 0; d < dim; ++d) {
      ASSERT_NEAR(made.key_mean[head * dim + d], mean[d], 1e-5 * (1 + std::fabs(mean[d])));
      const double wanted = std::sqrt((rms_k[d] + 0.01 * mean_k) / (rms_q[d] + 0.01 * mean_q));
      ASSERT_NEAR(made.key_balance[head * dim + d], wanted, 1e-5 * wanted);
    }
  }
}

TEST(PromptStatistics, MeansAndBalanceOfRotatedCodes) {
  for (const size_t n : {512, 700}) {
    const Prompt prompt = uneven_prompt(n);
    for (const size_t step : {n, size_t{512}}) {
      for (const char* text : {"turbo4(stats=prompt)", "nested3(stats=prompt,sink=0)",
                               "quire(stats=prompt,frame=centred,full_rows=20)"}) {
        Grown grown(prompt, Recipe::parse(text), n, step);
        const size_t n_seen = std::min(n, step);  // of the first step that codes
        check_balance(prompt, grown, 0, n_seen);
        check_balance(prompt, grown, 1, n_seen);
        if (HasFatalFailure()) FAIL() << text << " " << n << " " << step;
        const bool centred = grown.cache.recipe().frame == FrameKind::kCentred;
        const LayerStatistics& made = *grown.cache.layer_statistics(0);
        ASSERT_EQ(made.value_mean.size(), centred ? 80u : 0u);
        ASSERT_TRUE(made.codebook.empty());
        if (!centred) continue;
        const std::vector<double> v = exact_rows(prompt, prompt.v[0], 0, n_seen, 1);
        const std::vector<double> mean = mean_of(v, 40, grown.cache.recipe().sink_tokens);
        for (size_t d = 0; d < 40; ++d) ASSERT_NEAR(made.value_mean[40 + d], mean[d], 1e-5);
      }
    }
  }
}

// The prompt's queries in several steps are those of one.
TEST(PromptStatistics, QueriesOfAllStepsCount) {
  const Prompt prompt = uneven_prompt(512);
  for (const size_t step : {1, 64, 65, 300}) {
    Grown grown(prompt, Recipe::parse("turbo4(stats=prompt)"), 512, step, 0, 2);
    check_balance(prompt, grown, 0, 512);
    check_balance(prompt, grown, 1, 512);
    if (HasFatalFailure()) FAIL() << step;
  }
}

// Largest sizes and code words of the rows that are not kept.
void check_signs(const Prompt& prompt, const Grown& grown, size_t layer, size_t n) {
  const size_t dim = prompt.shape.head_dim;
  const size_t sinks = grown.cache.recipe().sink_tokens;
  const LayerStatistics& made = *grown.cache.layer_statistics(layer);
  const size_t n_groups = 2 * ((dim + 7) / 8);
  for (size_t head = 0; head < prompt.shape.n_kv_heads[layer]; ++head) {
    const std::vector<double> k = exact_rows(prompt, prompt.k[layer], layer, n, head);
    const std::vector<double> mean = mean_of(k, dim, sinks);
    const std::vector<uint32_t> kept = grown.kept(layer, head);
    std::vector<size_t> rows;
    for (size_t t = sinks; t < n; ++t) {
      if (std::find(kept.begin(), kept.end(), t) == kept.end()) rows.push_back(t);
    }
    std::vector<double> largest(dim, 0.0), size(dim, 0.0);
    double mean_largest = 0;
    for (size_t d = 0; d < dim; ++d) {
      for (const size_t t : rows) {
        largest[d] = std::max(largest[d], std::fabs(k[t * dim + d] - mean[d]));
        size[d] += std::fabs(k[t * dim + d] - mean[d]) / static_cast<double>(rows.size());
      }
      mean_largest += largest[d] / static_cast<double>(dim);
    }
    for (size_t d = 0; d < dim; ++d) {
      largest[d] = std::max(largest[d], 0.01 * mean_largest);
      ASSERT_NEAR(made.key_mean[head * dim + d], mean[d], 1e-5 * (1 + std::fabs(mean[d])));
      ASSERT_NEAR(made.key_balance[head * dim + d], largest[d], 2e-5 * (largest[d] + std::fabs(mean[d])));
    }
    for (size_t g = 0; g < n_groups; ++g) {
      for (size_t word = 0; word < 16; ++word) {
        std::vector<double> sum(4, 0.0);
        size_t count = 0;
        bool sure = true;  // no sign hangs on the rounding of the mean
        for (const size_t t : rows) {
          size_t pattern = 0;
          for (size_t j = 0; j < 4 && 4 * g + j < dim; ++j) {
            const double x = k[t * dim + 4 * g + j] - mean[4 * g + j];
            sure = sure && (x == 0 || std::fabs(x) > 1e-5);
            pattern |= size_t{x >= 0} << j;
          }
          if (pattern != word) continue;
          ++count;
          for (size_t j = 0; j < 4 && 4 * g + j < dim; ++j) {
            sum[j] += (k[t * dim + 4 * g + j] - mean[4 * g + j]) / largest[4 * g + j];
          }
        }
        for (size_t j = 0; j < 4; ++j) {
          const size_t d = 4 * g + j;
          const float got = made.codebook[((head * n_groups + g) * 16 + word) * 4 + j];
          if (d >= dim) {
            ASSERT_EQ(got, 0.0f);
            continue;
          }
          const double wanted = count > 0 ? sum[j] / static_cast<double>(count)
                                          : (word >> j & 1 ? 1 : -1) * size[d] / largest[d];
          ASSERT_NEAR(got, wanted, sure ? 1e-4 : 0.1) << head << " group " << g << " word " << word;
        }
      }
    }
  }
}

TEST(PromptStatistics, SizesAndCodeWordsOfSignVq) {
  for (const size_t dim : {40, 64, 100}) {
    for (const char* text : {"signvq", "selfindex", "k=signvq,v=f16,sink=3,tail=64,full_rows=5"}) {
      const Prompt prompt = uneven_prompt(600, dim);
      Grown grown(prompt, Recipe::parse(text), 600, 600);
      check_signs(prompt, grown, 0, 600);
      check_signs(prompt, grown, 1, 600);
      if (HasFatalFailure()) FAIL() << text << " " << dim;
    }
  }
}

// Dims that go together: of the sixteen patterns of four signs most never occur. And a channel without any
// size.
TEST(PromptStatistics, OfPatternsThatNeverOccurAndDeadChannels) {
  for (const char* text : {"signvq", "selfindex", "turbo4(stats=prompt)"}) {
    Prompt prompt = uneven_prompt(600);
    for (size_t layer = 0; layer < 2; ++layer) {
      for (size_t row = 0; row < prompt.k[layer].size() / 40; ++row) {
        float* k = prompt.k[layer].data() + row * 40;
        for (size_t d = 8; d < 16; ++d) k[d] = 0.5f * k[8];
        k[20] = 0;
        k[21] = 3;
      }
      for (size_t row = 0; row < prompt.q[layer].size() / 40; ++row) prompt.q[layer][row * 40 + 30] = 0;
    }
    Grown grown(prompt, Recipe::parse(text), 600, 600);
    for (size_t layer = 0; layer < 2; ++layer) {
      const LayerStatistics& made = *grown.cache.layer_statistics(layer);
      for (const std::vector<float>* part : {&made.key_mean, &made.key_balance, &made.codebook}) {
        for (const float x : *part) ASSERT_TRUE(std::isfinite(x)) << text;
      }
      for (const float x : made.key_balance) ASSERT_GT(x, 0) << text;
      if (!made.codebook.empty()) check_signs(prompt, grown, layer, 600);
      if (HasFatalFailure()) FAIL() << text;
    }
    Prompt more = uneven_prompt(610);
    grown.out = empty_outputs(more);
    grown.grow(more, 610, 1);
    for (size_t i = 600 * more.q_width(); i < grown.out[0].size(); ++i)
      ASSERT_TRUE(std::isfinite(grown.out[0][i]));
  }
}

// Nothing but zeros.
TEST(PromptStatistics, OfNothingAreFinite) {
  for (const char* text : kStatisticsRecipes) {
    Prompt prompt = uneven_prompt(600);
    for (auto* rows : {&prompt.q, &prompt.k, &prompt.v}) {
      for (auto& layer : *rows) std::fill(layer.begin(), layer.end(), 0.0f);
    }
    Grown grown(prompt, Recipe::parse(text), 600, 512);
    for (const float x : grown.out[0]) ASSERT_EQ(x, 0.0f) << text;
  }
}

}  // namespace
}  // namespace quire::test

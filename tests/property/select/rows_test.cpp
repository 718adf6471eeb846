// Selectors that choose row by row: labels of DoubleSparse, the oracle, random rows.
#include <gtest/gtest.h>

#include <map>

#include "base/half.h"
#include "policy/key_labels.h"
#include "property/select/scene.h"
#include "property/sparse/scene.h"

namespace quire::test {
namespace {

PolicyChoice doublesparse(size_t channels, size_t bits, bool from_prompt = false) {
  return Recipe::parse("doublesparse(channels=" + std::to_string(channels) + ",bits=" + std::to_string(bits) +
                       ",from=" + (from_prompt ? "prompt)" : "model)"))
      .select;
}

// A row's channels as its label has them.
std::vector<double> labelled(const std::vector<double>& row, size_t bits) {
  const auto [least, largest] = std::minmax_element(row.begin(), row.end());
  const double most = static_cast<double>((1 << bits) - 1);
  const auto half = [](double x) { return f16_to_f32(f32_to_f16(static_cast<float>(x))); };
  const float zero = half(*least);
  const float step =
      half((static_cast<float>(*largest) - static_cast<float>(*least)) / static_cast<float>(most));
  std::vector<double> all;
  for (const double x : row) {
    const double code = step > 0 ? std::nearbyint((static_cast<float>(x) - zero) / step) : 0;
    all.push_back(zero + step * std::clamp(code, 0.0, most));
  }
  return all;
}

std::vector<std::vector<double>> estimates(const SelectScene& scene, size_t head,
                                           const std::vector<uint16_t>& channels, size_t bits) {
  std::vector<std::vector<double>> all(scene.group(), std::vector<double>(scene.prompt.n_tokens));
  for (size_t t = 0; t < scene.prompt.n_tokens; ++t) {
    std::vector<double> row;
    for (const size_t channel : channels) row.push_back(scene.key(head, t, channel));
    row = labelled(row, bits);
    for (size_t h = 0; h < scene.group(); ++h) {
      const float* q = scene.query(head * scene.group() + h);
      for (size_t j = 0; j < row.size(); ++j) all[h][t] += static_cast<double>(q[channels[j]]) * row[j];
    }
  }
  return all;
}

std::vector<uint16_t> model_channels(const SelectScene& scene, size_t head, size_t n) {
  const float* own = scene.calibration->query_key.data() + head * scene.dim();
  const std::vector<double> weights(own, own + scene.dim());
  const std::set<size_t> chosen = highest(weights, n);
  return {chosen.begin(), chosen.end()};
}

TEST(KeyLabels, ScoresAreThoseOfTheQuantizedChannels) {
  for (const size_t bits : {2, 3, 4, 5, 8}) {
    for (const size_t n_channels : {1, 7, 16, 64}) {
      for (const char* keys : {"f16", "f32", "bf16"}) {
        const Prompt prompt(geometry(6, 64, {2}), 150, bits * n_channels);
        const std::string settings =
            "(channels=" + std::to_string(n_channels) + ",bits=" + std::to_string(bits) + ")";
        const SelectScene scene(std::string("k=") + keys + ",v=f16,select=doublesparse" + settings, prompt,
                                37);
        const LabelLayout layout(scene.recipe.select, 64);
        const std::vector<uint16_t> channels = model_channels(scene, 1, n_channels);
        const auto wanted = estimates(scene, 1, channels, bits);
        std::vector<float> q;
        for (size_t h = 0; h < 3; ++h) {
          for (const size_t channel : channels) q.push_back(scene.query(3 + h)[channel]);
        }
        std::vector<float> room;
        std::vector<float> scores(3 * 64);
        for (size_t t = 0; t < 150; ++t) {
          if (t % 64 == 0)
            score_labels(layout, q.data(), 3, scene.view().digest(1, t / 64), room, scores.data());
          for (size_t h = 0; h < 3; ++h) ASSERT_NEAR(scores[h * 64 + t % 64], wanted[h][t], 2e-5) << bits;
        }
      }
    }
  }
}

TEST(KeyLabels, BytesOfALabel) {
  EXPECT_EQ(LabelLayout(doublesparse(16, 4), 64).digest_bytes(), 64u * (8 + 4));
  EXPECT_EQ(LabelLayout(doublesparse(16, 2), 64).digest_bytes(), 64u * (4 + 4));
  EXPECT_EQ(LabelLayout(doublesparse(256, 8, true), 64).digest_bytes(), 64u * (64 + 4) + 128);
  EXPECT_EQ(LabelLayout(doublesparse(16, 4), 64).row_label_bytes(), 12u);
}

TEST(KeyLabels, NoChannelIsBeyondTheHead) {
  const LabelLayout layout(doublesparse(3, 4, true), 40);
  std::vector<std::byte> digest(layout.digest_bytes());
  layout.put_channels(std::vector<uint16_t>{1, 39, 65535}, digest.data());
  EXPECT_EQ(layout.take_channels(digest.data()), (std::vector<uint16_t>{1, 39, 39}));
}

TEST(KeyLabels, StrongestChannels) {
  EXPECT_EQ(strongest_channels(std::vector<double>{1, 5, 3, 5, 0}, 3), (std::vector<uint16_t>{1, 2, 3}));
  EXPECT_EQ(strongest_channels(std::vector<double>{1, 1, 1}, 2), (std::vector<uint16_t>{0, 1}));
  EXPECT_EQ(strongest_channels(std::vector<double>{1, 2}, 9).size(), 2u);
}

TEST(DoubleSparse, ReadsTheRowsOfTheHighestEstimates) {
  for (const HeadShape& shape : kHeadShapes) {
    const Prompt prompt(geometry(shape.n_heads, shape.head_dim, {shape.n_kv_heads}), 400, shape.head_dim);
    const SelectScene scene("doublesparse(budget=77)", prompt);
    for (size_t head = 0; head < shape.n_kv_heads; ++head) {
      const auto wanted = estimates(scene, head, model_channels(scene, head, 16), 4);
      EXPECT_TRUE(are_highest(scene.rows(head), best_of(wanted), 77, 1e-4)) << shape.head_dim;
    }
  }
}

// from=prompt: the channels of the first step's tokens, whatever comes behind.
TEST(DoubleSparse, ChannelsOfThePrompt) {
  const Prompt prompt(geometry(6, 64, {2}), 400, 8);
  const SelectScene scene("doublesparse(budget=77,from=prompt)", prompt, 300);
  const LabelLayout layout(scene.recipe.select, 64);
  for (size_t head = 0; head < 2; ++head) {
    std::vector<double> weights(64, 0.0);
    for (size_t t = 0; t < 300; ++t) {
      for (size_t i = 0; i < 3 * 64; ++i) {
        const double q = prompt.q[0][t * prompt.q_width() + head * 3 * 64 + i];
        weights[i % 64] += std::fabs(q * scene.key(head, t, i % 64));
      }
    }
    const std::set<size_t> wanted = highest(weights, 16);
    for (const size_t page : {0, 4, 6}) {
      const auto channels = layout.take_channels(scene.view().digest(head, page));
      EXPECT_EQ(std::set<size_t>(channels.begin(), channels.end()), wanted) << page;
    }
    const std::vector<uint16_t> channels(wanted.begin(), wanted.end());
    EXPECT_TRUE(are_highest(scene.rows(head), best_of(estimates(scene, head, channels, 4)), 77, 1e-4));
  }
}

TEST(Oracle, ReadsTheTrueTopRows) {
  for (const HeadShape& shape : kHeadShapes) {
    const Prompt prompt(geometry(shape.n_heads, shape.head_dim, {shape.n_kv_heads}), 390, shape.head_dim);
    const SelectScene scene("k=f32,v=f16,select=oracle(budget=50)", prompt);
    for (size_t head = 0; head < shape.n_kv_heads; ++head) {
      std::vector<std::vector<double>> scores;
      for (size_t h = head * scene.group(); h < (head + 1) * scene.group(); ++h) {
        std::vector<double>& own = scores.emplace_back();
        for (size_t t = 0; t < 390; ++t) own.push_back(scene.score(h, t));
      }
      EXPECT_TRUE(are_highest(scene.rows(head), best_of(scores), 50, 1e-4)) << shape.head_dim;
    }
  }
}

// Of coded pages with sinks: the rows that the codes say are the highest.
TEST(Oracle, ReadsTheTopRowsOfCodes) {
  for (const char* keys : {"nested4", "q8", "kivi4", "turbo2"}) {
    const WeightsPrompt prompt(6, 2, 64, 500, 3, 9);
    const Recipe recipe =
        Recipe::parse(std::string("k=") + keys + ",v=q8,frame=plain,sink=4,tail=64,select=oracle(budget=60)");
    const Decoded decoded = decode_last(prompt, recipe);
    const Scores scores(prompt, recipe);
    for (size_t head = 0; head < 2; ++head) {
      const std::vector<std::vector<double>> own(
          scores.of_head.begin() + static_cast<ptrdiff_t>(3 * head),
          scores.of_head.begin() + static_cast<ptrdiff_t>(3 * head + 3));
      EXPECT_TRUE(are_highest(tokens_read(prompt, decoded, head), best_of(own), 60, 0.25)) << keys;
    }
  }
}

TEST(RandomRows, AreTheSameForTheSameSeedAlone) {
  const Prompt prompt(geometry(4, 64, {2, 2}), 500, 1);
  const SelectScene scene("random(budget=100)", prompt);
  const SelectScene again("random(budget=100)", prompt, 17);
  const SelectScene other("random(budget=100,seed=2)", prompt);
  EXPECT_EQ(scene.rows(0), again.rows(0));
  EXPECT_NE(scene.rows(0), other.rows(0));
  EXPECT_NE(scene.rows(0), scene.rows(1));
  EXPECT_NE(scene.rows(0), scene.rows(0, 1));
}

TEST(RandomRows, CoverAllTokensEvenlyAndTheNewestAlways) {
  const Prompt prompt(geometry(2, 64, {2}), 720, 1);
  SelectScene scene("random(budget=132)", prompt, 300);
  std::map<size_t, size_t> times;
  for (size_t n = 700; n >= 300; n -= 2) {
    scene.store.crop(n);
    for (size_t head = 0; head < 2; ++head) {
      const std::set<size_t> rows = scene.rows(head);
      ASSERT_EQ(rows.size(), 132u);
      for (size_t t = n - 32; t < n; ++t) ASSERT_TRUE(rows.contains(t));
      for (const size_t t : rows) ++times[t];
    }
  }
  // 402 selections of 100 of n - 32 rows, n from 300 to 700: 88 times each, with a deviation of 8.
  for (size_t t = 0; t < 268; ++t) {
    EXPECT_GT(times[t], 45u) << t;
    EXPECT_LT(times[t], 131u) << t;
  }
}

TEST(RandomRows, RecentRowsFillASmallBudget) {
  const Prompt prompt(geometry(1, 64, {1}), 300, 1);
  std::set<size_t> newest;
  for (size_t t = 290; t < 300; ++t) newest.insert(t);
  EXPECT_EQ(SelectScene("random(budget=10)", prompt).rows(0), newest);
  EXPECT_EQ(SelectScene("random(budget=10,recent=0)", prompt).rows(0).size(), 10u);
}

// A row that every query likes is found by all but random rows.
TEST(Needle, IsFoundByAllButRandom) {
  for (const size_t needle : {3, 100, 317}) {
    Prompt prompt(geometry(6, 64, {2}), 500, needle);
    for (size_t h = 0; h < 6; ++h) {
      for (size_t d = 0; d < 64; ++d) {
        float& q = prompt.q[0][499 * prompt.q_width() + h * 64 + d];
        q = prompt.q[0][499 * prompt.q_width() + h / 3 * 192 + d] + 0.02f * q;  // the group agrees
        prompt.k[0][needle * 128 + h / 3 * 64 + d] = 20 * q;
      }
    }
    for (const char* text : {"quest(budget=48,dense=0)", "doublesparse(budget=20)",
                             "doublesparse(budget=20,from=prompt)", "oracle(budget=20)"}) {
      const SelectScene scene(text, prompt, 499);
      for (size_t head = 0; head < 2; ++head) EXPECT_TRUE(scene.rows(head).contains(needle)) << text;
    }
  }
}

}  // namespace
}  // namespace quire::test

// Keys with a bias that RoPE turns: the index knows nothing of it, so the layers that have one are read
// whole; and statistics of the prompt are of keys without it.
#include <gtest/gtest.h>

#include "property/sealed/biased.h"
#include "property/sparse/scene.h"

namespace quire::test {
namespace {

TEST(SparseKeyBias, LayersWithOneAreReadWhole) {
  // Layer 0 has biases, layer 1 has none: every third head is without.
  const BiasedPrompt prompt(geometry(4, 64, {2, 1, 2}), 900, 4, 64, 200);
  const DecodeOptions biased{.key_biases = prompt.key_biases};
  const Decoded dense = decode_last(prompt, Recipe::parse("k=nested4,v=nested3,frame=rotated"), biased);
  const Decoded sparse = decode_last(prompt, Recipe::parse("quire(frame=rotated,budget=200)"), biased);
  EXPECT_EQ(sparse.out[0], dense.out[0]);
  EXPECT_EQ(sparse.out[2], dense.out[2]);
  EXPECT_NE(sparse.out[1], dense.out[1]);
  EXPECT_EQ(sparse.stats.rows_read, 4u * 900 + 200);
}

// Of keys without the bias: those of the same keys that never had one.
TEST(SparseKeyBias, StatisticsAreOfKeysWithoutIt) {
  for (const char* text : {"selfindex(full_rows=0)", "turbo4(stats=prompt)"}) {
    const Recipe recipe = Recipe::parse(text);
    const Geometry shape = geometry(2, 64, {2});
    const Prompt plain(shape, 600, 4);
    const BiasedPrompt biased(shape, 600, 4, 64, 20);  // the same keys plus the bias
    ASSERT_NE(plain.k[0], biased.k[0]);
    PagePool pool;
    Team team(1);
    Outputs out = empty_outputs(plain);
    Cache first(recipe, shape, pool);
    Cache second(recipe, shape, pool, {.key_biases = biased.key_biases});
    run_rest(first, plain, 600, team, out);
    run_rest(second, biased, 600, team, out);
    const LayerStatistics& wanted = *first.layer_statistics(0);
    const LayerStatistics& got = *second.layer_statistics(0);
    for (size_t i = 0; i < wanted.key_mean.size(); ++i) {
      ASSERT_NEAR(got.key_mean[i], wanted.key_mean[i], 0.01) << text;
      ASSERT_NEAR(got.key_balance[i], wanted.key_balance[i], 0.02 * wanted.key_balance[i]) << text;
    }
    ASSERT_EQ(got.codebook.size(), wanted.codebook.size());
    for (size_t i = 0; i < wanted.codebook.size(); ++i)
      ASSERT_NEAR(got.codebook[i], wanted.codebook[i], 0.05) << text;
  }
}

}  // namespace
}  // namespace quire::test

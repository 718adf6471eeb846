// The file of a sequence that was cut is that of one that never was longer: what selectors note of keys
// beside the rows leaves no trace either.
#include <gtest/gtest.h>

#include "property/cache/saved.h"
#include "property/select/butler_scene.h"

namespace quire::test {
namespace {

constexpr HeadShape kCroppedShape{4, 2, 64};
constexpr size_t kPromptTokens = 70;

class SavedCropped : public testing::TestWithParam<const char*> {
 protected:
  Cache make(const ButlerPrompt& prompt, PagePool& pool) const {
    return Cache(Recipe::parse(GetParam()), prompt.shape, pool,
                 {.calibration = channel_calibration(prompt.shape, 5), .butler = prompt.weights});
  }
};

TEST_P(SavedCropped, HasTheBytesOfOneThatNeverWasLonger) {
  const PolicyChoice select = Recipe::parse(GetParam()).select;
  const size_t dim = select.policy == Policy::kButler ? select.number("dim") : 16;
  const ButlerPrompt prompt(kCroppedShape, 3, 250, 21, 2, dim);
  PagePool pool;
  PagePool other;
  // Within a batch, a short page and a page, and where one ends.
  for (const size_t n : {72, 79, 80, 95, 96, 100, 126, 127, 128, 129, 180}) {
    for (const size_t longest : {n + 1, n + 20, size_t{191}, size_t{250}}) {
      Butler run(make(prompt, pool), prompt);
      run.grow(kPromptTokens, kPromptTokens);
      run.grow(longest, 31);
      run.cache.crop(n);
      Butler fresh(make(prompt, other), prompt);
      fresh.grow(kPromptTokens, kPromptTokens);
      fresh.grow(n, 200);
      const Bytes bytes = save(fresh.cache);
      ASSERT_TRUE(save(run.cache) == bytes) << "cut to " << n << " of " << longest;
      // And from there on.
      run.grow(200, 200 - n);
      fresh.grow(200, 200 - n);
      ASSERT_TRUE(save(run.cache) == save(fresh.cache)) << "cut to " << n << " of " << longest;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Digests, SavedCropped,
                         testing::Values("butler(budget=30,local=64)", "butler(budget=30,local=9)",
                                         "butler(budget=30,local=1,dim=7)",
                                         "butler(budget=30,local=40,keys=int8)",
                                         "butler(k=f32,v=bf16,budget=30,local=5,keys=int8,dim=9)",
                                         "quest(budget=48)", "quest(k=f32,budget=48,page=32)",
                                         "quest(budget=48,page=4)", "doublesparse(budget=30,from=prompt)",
                                         "doublesparse(budget=30,from=prompt,bits=2,channels=3)",
                                         "doublesparse(budget=30,bits=8)"));

}  // namespace
}  // namespace quire::test

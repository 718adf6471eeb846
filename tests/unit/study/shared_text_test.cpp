#include "study/shared_text.h"

#include <gtest/gtest.h>

#include <random>

namespace quire {
namespace {

Tokens random_text(size_t n, unsigned seed) {
  std::minstd_rand random(seed);
  Tokens text;
  while (text.size() < n) text.push_back(static_cast<int32_t>(random() % 300));
  return text;
}

Tokens part(const Tokens& text, size_t first, size_t n) {
  return Tokens(text.begin() + static_cast<ptrdiff_t>(first),
                text.begin() + static_cast<ptrdiff_t>(first + n));
}

TEST(SharedText, FindsAPartAtAnyPlaceWhateverStandsAroundIt) {
  const std::vector<Tokens> others = {random_text(900, 1), random_text(1000, 2), random_text(30, 3)};
  Tokens prefix = part(others[1], 0, 400);
  EXPECT_EQ(shared_text(prefix, others).share(), 1.0);
  EXPECT_EQ(shared_text(prefix, others).text, 1u);
  prefix.push_back(7);  // one more newline at its end, or another beginning
  prefix.insert(prefix.begin(), 9);
  const SharedText shared = shared_text(prefix, others);
  EXPECT_EQ(shared.n_windows, 402u - 63);
  EXPECT_EQ(shared.n_shared, 400u - 63);
}

TEST(SharedText, CountsWholeWindowsAlone) {
  const std::vector<Tokens> others = {random_text(1000, 2)};
  Tokens text = random_text(500, 4);
  EXPECT_EQ(shared_text(text, others).n_shared, 0u);
  std::copy_n(others[0].begin() + 321, kSharedTokens - 1, text.begin() + 100);
  EXPECT_EQ(shared_text(text, others).n_shared, 0u) << "one token less than a window";
  std::copy_n(others[0].begin() + 321, kSharedTokens + 2, text.begin() + 100);
  EXPECT_EQ(shared_text(text, others).n_shared, 3u);
}

TEST(SharedText, AllWindowsThatAreAlikeCount) {
  const std::vector<Tokens> others = {Tokens(80, 5)};
  EXPECT_EQ(shared_text(Tokens(200, 5), others).n_shared, 200u - 63);
  EXPECT_EQ(shared_text(Tokens(20, 5), others).n_shared, 1u) << "a short text is one window";
  EXPECT_EQ(shared_text(Tokens(20, 6), others).n_shared, 0u);
  EXPECT_EQ(shared_text({}, others).n_windows, 0u);
  EXPECT_EQ(shared_text(Tokens(20, 5), {}).n_shared, 0u);
}

}  // namespace
}  // namespace quire

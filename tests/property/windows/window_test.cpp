// Layers whose queries see a window (case U14): exactly its rows, in decode and in prompts of any length,
// whatever the steps, pieces and threads; and they hold no more than its pages.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "cache/read_observer.h"
#include "property/windows/scene.h"

namespace quire::test {
namespace {

constexpr double kTolerance = 1e-5;  // f32 rows
constexpr size_t kWindows[] = {1, 15, 16, 63, 64, 65, 1000};

// What decode steps have read, of the last step.
struct LastReads : ReadObserver {
  void read(size_t layer, size_t, std::span<const uint32_t> positions) override {
    rows[layer] = {positions.begin(), positions.end()};
    std::ranges::sort(rows[layer]);
  }
  std::map<size_t, std::vector<uint32_t>> rows;
};

std::vector<uint32_t> last_positions(size_t n_tokens, size_t window) {
  std::vector<uint32_t> positions;
  for (size_t t = n_tokens - std::min(n_tokens, window); t < n_tokens; ++t)
    positions.push_back(static_cast<uint32_t>(t));
  return positions;
}

// U14: window 16; the rows that are seen are exactly the last 16, whether the prompt came at once, token by
// token or in chunks, and the newest token alone sees them.
TEST(Window, KeepsExactlyTheLastSixteen) {
  for (const size_t n : {15, 16, 17, 33, 64, 79, 80, 81, 200}) {
    const Prompt prompt(windowed(geometry(4, 40, {2, 2}), {16, 0}), n, n);
    for (const size_t step : {n, size_t{1}, size_t{7}, size_t{16}}) {
      PagePool pool;
      Cache cache(Recipe::parse("f32"), prompt.shape, pool);
      Team team(1);
      Outputs out = empty_outputs(prompt);
      LastReads reads;
      while (cache.n_tokens() + 1 < n) {
        const size_t begin = cache.n_tokens();
        const size_t n_new = std::min(step, n - 1 - begin);
        run_step(cache, prompt, begin, begin + n_new, n_new, team, out);
      }
      cache.observe_reads(&reads);
      run_step(cache, prompt, n - 1, n, 1, team, out);
      EXPECT_EQ(reads.rows[0], last_positions(n, 16)) << n << " tokens in steps of " << step;
      EXPECT_EQ(reads.rows[1], last_positions(n, n)) << n << " tokens in steps of " << step;
      EXPECT_EQ(cache.last_step().rows_read, 2 * (std::min<size_t>(n, 16) + n));
      for (size_t layer = 0; layer < 2; ++layer) {
        ASSERT_LE(largest_error(prompt, out, layer), kTolerance) << n << " tokens in steps of " << step;
      }
    }
  }
}

// Random steps, pieces and threads; 5 layers with a window for one without.
TEST(Window, EqualsDoublePrecisionHoweverTheTokensCome) {
  uint64_t seed = 1;
  for (const size_t window : kWindows) {
    for (const size_t head_dim : {40, 256}) {
      if (head_dim == 256 && window != 65 && window != 16) continue;
      const size_t n = window == 1000 ? 1200 : 330;
      const Prompt prompt(windowed(geometry(4, head_dim, {2, 1, 4}), {window, 0, 2 * window}), n, ++seed);
      const Outputs whole = run_prompt(prompt, Recipe::parse("f32"), n);
      for (size_t layer = 0; layer < 3; ++layer) {
        ASSERT_LE(largest_error(prompt, whole, layer, 31), kTolerance) << window << " layer " << layer;
      }
      for (const int n_threads : {1, 2}) {
        if (n_threads > 1 && (window % 64 != 0 || head_dim > 40)) continue;
        PagePool pool;
        Cache cache(Recipe::parse("f32"), prompt.shape, pool);
        Team team(n_threads);
        Random random(seed);
        Outputs out = empty_outputs(prompt);
        grow(cache, prompt, n, random, team, out);
        ASSERT_EQ(out, whole) << window << " head size " << head_dim << ", " << n_threads << " threads";
      }
    }
  }
}

TEST(Window, DoesNotDependOnTheThreads) {
  const Prompt prompt(windowed(geometry(6, 64, {2, 1}), {100, 300}), 330, 3);
  for (const size_t step : {8, 330}) {
    const Outputs alone = run_prompt(prompt, Recipe{}, step, 1);
    for (const int n_threads : {2, 3})
      ASSERT_EQ(run_prompt(prompt, Recipe{}, step, n_threads), alone) << step;
  }
}

// A window that nothing has left is no window.
TEST(Window, OfTheWholeTextIsNone) {
  const Prompt prompt(windowed(geometry(4, 72, {2}), {400}), 400, 4);
  Prompt plain = prompt;
  plain.shape.window_tokens.clear();
  for (const size_t step : {1, 33, 400}) {
    ASSERT_EQ(run_prompt(prompt, Recipe{}, step), run_prompt(plain, Recipe{}, step));
  }
}

// Bytes are those of the window's pages however long the text is, and follow from the shape.
TEST(Window, TakesTheBytesOfItsPages) {
  for (const size_t window : kWindows) {
    const Prompt prompt(windowed(geometry(4, 64, {2, 1}), {window, 0}), 1500, 5);
    const uint64_t page_bytes = 64 * 64 * 2 * 2;  // of a KV head
    for (const size_t step : {1, 100, 1500}) {
      PagePool pool;
      Cache cache(Recipe{}, prompt.shape, pool);
      Team team(1);
      Outputs out = empty_outputs(prompt);
      while (cache.n_tokens() < 1500) {
        const size_t begin = cache.n_tokens();
        run_step(cache, prompt, begin, std::min<size_t>(1500, begin + step), step, team, out);
        const size_t n = cache.n_tokens();
        const size_t first_page = n > window ? (n - window) / 64 : 0;
        const size_t n_pages = (n + 63) / 64;
        ASSERT_EQ(cache.size_bytes(), page_bytes * (2 * (n_pages - first_page) + n_pages))
            << window << " " << n;
        ASSERT_EQ(cache.size_bytes(), prompt.shape.cache_bytes(Recipe{}, n));
        ASSERT_EQ(pool.used_bytes(), cache.size_bytes());
      }
      EXPECT_EQ(pool.account().peak_bytes(), prompt.shape.peak_bytes(Recipe{}, 0, 1500, step))
          << window << " " << step;
    }
    EXPECT_EQ(prompt.shape.token_bytes(Recipe{}), page_bytes / 64);
  }
}

// What peak_bytes() says is enough, a byte less is refused before anything has changed.
TEST(WindowBudget, IsRefusedBeforeTheStep) {
  const Prompt prompt(windowed(geometry(4, 64, {2, 1, 2}), {50, 0, 130}), 400, 6);
  for (const size_t step : {1, 30, 150}) {
    for (const uint64_t lacking : {0, 1}) {
      PagePool pool(prompt.shape.peak_bytes(Recipe{}, 0, 400, step) - lacking);
      Cache cache(Recipe{}, prompt.shape, pool);
      Team team(1);
      Outputs out = empty_outputs(prompt);
      bool refused = false;
      while (cache.n_tokens() < 400 && !refused) {
        const size_t begin = cache.n_tokens();
        const uint64_t before = cache.size_bytes();
        try {
          run_step(cache, prompt, begin, std::min<size_t>(400, begin + step), step, team, out);
        } catch (const Error&) {
          refused = true;
          EXPECT_EQ(cache.n_tokens(), begin);
          EXPECT_EQ(cache.size_bytes(), before);
        }
      }
      EXPECT_EQ(refused, lacking == 1) << step;
    }
  }
}

// A cut that the window survives is as if the text had never gone on; any other is refused with a sentence
// that says how far one can go.
TEST(WindowCrop, GoesBackAsFarAsTheRowsAreThere) {
  const Prompt prompt(windowed(geometry(4, 40, {2, 1}), {70, 0}), 330, 7);
  const Prompt other(prompt.shape, 330, 8);
  const Outputs whole = run_prompt(prompt, Recipe{}, 330);
  for (const size_t n : {60, 70, 134, 200, 300}) {
    size_t n_refused = 0;
    for (size_t left = 0; left <= n; ++left) {
      PagePool pool;
      Cache cache(Recipe{}, prompt.shape, pool);
      Team team(1);
      Outputs out = empty_outputs(prompt);
      Prompt both = prompt;  // the same up to `left`, then another text
      for (size_t layer = 0; layer < 2; ++layer) {
        const auto at = static_cast<ptrdiff_t>(left * prompt.kv_width(layer));
        std::copy(other.k[layer].begin() + at, other.k[layer].end(), both.k[layer].begin() + at);
        std::copy(other.v[layer].begin() + at, other.v[layer].end(), both.v[layer].begin() + at);
      }
      run_step(cache, both, 0, n, n, team, out);
      const size_t first_row = n > 70 ? (n - 70) / 64 * 64 : 0;
      const bool possible = left == 0 || first_row == 0 || left + 1 >= first_row + 70;
      EXPECT_EQ(left == 0 || left >= cache.fixed_tokens(), possible);
      if (!possible) {
        ++n_refused;
        try {
          cache.crop(left);
          ADD_FAILURE() << "cut from " << n << " to " << left;
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("layer 0 sees a window of 70"), std::string::npos)
              << error.what();
        }
        EXPECT_EQ(cache.n_tokens(), n);
        continue;
      }
      if (left % 7 != 0 && left + 2 < n) continue;
      cache.crop(left);
      run_rest(cache, prompt, 100, team, out);
      for (size_t layer = 0; layer < 2; ++layer) {
        const auto at = static_cast<ptrdiff_t>(left * prompt.q_width());
        ASSERT_TRUE(std::equal(whole[layer].begin() + at, whole[layer].end(), out[layer].begin() + at))
            << "cut from " << n << " to " << left;
      }
    }
    EXPECT_EQ(n_refused > 0, n >= 134) << n;
  }
}

// The newest token can always be computed once more: sessions do so for its logits.
TEST(WindowCrop, ByOneTokenIsAlwaysPossible) {
  for (const size_t window : kWindows) {
    const Prompt prompt(windowed(geometry(2, 40, {1}), {window}), 300, 9);
    PagePool pool;
    Cache cache(Recipe{}, prompt.shape, pool);
    Team team(1);
    Outputs out = empty_outputs(prompt);
    while (cache.n_tokens() < 300) {
      run_step(cache, prompt, cache.n_tokens(), cache.n_tokens() + 1, 1, team, out);
      ASSERT_LT(cache.fixed_tokens(), std::max<size_t>(2, cache.n_tokens())) << window;
    }
  }
}

TEST(WindowFork, BothSidesGoOnAlone) {
  const Prompt prompt(windowed(geometry(4, 64, {2, 1}), {40, 0}), 260, 10);
  const Outputs whole = run_prompt(prompt, Recipe{}, 260);
  for (const size_t shared : {1, 63, 64, 104, 105, 170}) {
    PagePool pool;
    Team team(1);
    Outputs out = empty_outputs(prompt);
    Outputs other = empty_outputs(prompt);
    Cache first(Recipe{}, prompt.shape, pool);
    run_step(first, prompt, 0, shared, shared, team, out);
    const uint64_t used = pool.used_bytes();
    Cache second = first.fork();
    EXPECT_EQ(pool.used_bytes(), used);
    const uint64_t growth = first.store().peak_growth(90, false);
    const uint64_t before = pool.used_bytes();
    run_step(first, prompt, shared, shared + 90, 90, team, out);
    EXPECT_LE(pool.used_bytes(), before + growth);
    run_rest(first, prompt, 1, team, out);
    run_rest(second, prompt, 33, team, other);
    for (size_t layer = 0; layer < 2; ++layer) {
      const auto at = static_cast<ptrdiff_t>(shared * prompt.q_width());
      ASSERT_EQ(out[layer], whole[layer]) << shared;
      ASSERT_TRUE(std::equal(whole[layer].begin() + at, whole[layer].end(), other[layer].begin() + at))
          << shared;
    }
  }
}

}  // namespace
}  // namespace quire::test

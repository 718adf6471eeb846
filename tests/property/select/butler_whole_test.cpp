// Whole caches whose rows a predictor names: when it runs, what is read in between, histories, files, bytes.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "cache/cache_file.h"
#include "cache/predicted_file.h"
#include "property/select/butler_scene.h"

namespace quire::test {
namespace {

constexpr HeadShape kShape{6, 2, 64};

bool equal_from(const Outputs& a, const Outputs& b, size_t first, size_t width) {
  for (size_t layer = 0; layer < a.size(); ++layer) {
    const size_t at = first * width;
    if (std::memcmp(a[layer].data() + at, b[layer].data() + at, (a[layer].size() - at) * sizeof(float)) != 0)
      return false;
  }
  return true;
}

// Whatever the formats, a budget that covers all rows reads them as the cache without it does.
TEST(ButlerAll, IsBitEqualToReadingEverything) {
  const ButlerPrompt prompt(kShape, 4, 260, 1, 2);
  for (const char* formats : {"k=f16,v=f16", "k=turbo4,v=turbo4,frame=rotated", "k=kivi4,v=kivi4,tail=32",
                              "k=f32,v=q8,frame=plain"}) {
    Butler full(formats, prompt);
    full.grow(240, 97);
    full.grow(260, 1);
    for (const char* settings : {"budget=100%", "budget=260", "budget=7.5%,local=3,interval=5"}) {
      Butler run(std::string(formats) + ",select=butler(" + settings + ")", prompt);
      run.grow(240, 97);
      run.grow(260, 1);
      const bool covers = settings[7] != '7';
      EXPECT_EQ(equal_from(run.out, full.out, 0, prompt.q_width()), covers) << formats << settings;
    }
  }
}

// Rows are those of the reference also where pages are coded: keys are projected before.
TEST(ButlerCoded, NamesTheSameRowsAsExactPages) {
  const ButlerPrompt prompt(kShape, 3, 420, 2, 2);
  Butler exact("k=f16,v=f16,select=butler(budget=150,local=100)", prompt);
  exact.grow(400, 130);
  exact.grow(420, 1);
  for (const char* formats : {"k=turbo4,v=turbo4,frame=rotated", "k=kivi4,v=kivi4,tail=0", "k=q8,v=f16"}) {
    for (const size_t step : {400, 64, 7}) {
      Butler run(std::string(formats) + ",select=butler(budget=150,local=100)", prompt);
      run.grow(400, step);
      run.grow(420, 1);
      for (const auto& [place, rows] : exact.reads.rows) EXPECT_EQ(run.reads.rows.at(place), rows) << formats;
    }
  }
}

// Sinks and local rows may overlap and may be more than there is: each row counts once, and none is read that
// is not there.
TEST(ButlerShort, RowsAreReadOnceAndOnlyWhereTheyAre) {
  for (const size_t n : {2, 5, 17, 65, 130}) {
    const ButlerPrompt prompt({4, 2, 40}, 3, n + 3, n);
    for (const char* settings :
         {"sink=4,local=8,budget=16", "sink=100,local=1,budget=3", "sink=0,local=64,budget=9",
          "sink=8,local=200,budget=40", "sink=3,local=5,budget=1"}) {
      Butler run(std::string("butler(neighbours=on,") + settings + ")", prompt);
      run.grow(n, n);
      run.grow(n + 3, 1);
      const size_t budget = Recipe::parse(std::string("butler(") + settings + ")").select.budget.rows;
      uint64_t n_rows = 0;
      for (const auto& [place, rows] : run.reads.rows) {
        n_rows += rows.size();
        EXPECT_LT(*rows.rbegin(), n + 3);
        EXPECT_TRUE(rows.contains(n + 2)) << "its own row";
        if (place.first == 0) continue;
        EXPECT_LE(rows.size(), std::min(n + 3, 2 * budget)) << settings;
        EXPECT_GE(rows.size(), std::min(n + 3, budget)) << settings;
      }
      EXPECT_EQ(run.cache.last_step().rows_read, n_rows) << settings << n;
      for (const std::vector<float>& layer : run.out) {
        for (const float x : layer) ASSERT_TRUE(std::isfinite(x)) << settings;
      }
    }
  }
}

// What is named is read until it is named anew, and the newest rows as they are by then.
TEST(ButlerInterval, NamesEverySoManySteps) {
  const ButlerPrompt prompt(kShape, 6, 400, 3, 2);
  Butler every("butler(budget=60,sink=2,local=10)", prompt);
  Butler fourth("butler(budget=60,sink=2,local=10,interval=4)", prompt);
  for (Butler* run : {&every, &fourth}) run->grow(300, 300);
  uint64_t n_calls[2] = {0, 0};
  std::map<std::pair<size_t, size_t>, std::set<size_t>> named;
  for (size_t i = 0; i < 81; ++i) {
    every.step(1);
    fourth.step(1);
    n_calls[0] += every.cache.last_step().predictions.predictor_calls;
    n_calls[1] += fourth.cache.last_step().predictions.predictor_calls;
    const size_t n = 301 + i;
    const bool due = i > 0 && (i - 1) % 4 == 0;
    EXPECT_EQ(fourth.reads.n_named, due ? 3u : 0u) << i;
    for (size_t head = 0; head < 2 && i > 0; ++head) {
      for (size_t layer = 1; layer < 6; ++layer) {
        std::set<size_t> rows = fourth.reads.rows.at({layer, head});
        if (due) {
          EXPECT_EQ(rows, every.reads.rows.at({layer, head}));
        }
        for (size_t t = n - 10; t < n; ++t) EXPECT_EQ(rows.erase(t), 1u);
        if (due) named[{layer, head}] = rows;
        std::set<size_t> old = named[{layer, head}];
        for (size_t t = n - 10; t < n; ++t) old.erase(t);
        EXPECT_EQ(rows, old) << i;
      }
    }
  }
  EXPECT_EQ(n_calls[0], 80u * 3);
  EXPECT_EQ(n_calls[1], 20u * 3);
}

// A tier can begin with what is named before the layers run: it is what they read beside sinks and local
// rows.
TEST(ButlerAhead, IsWhatTheLayersRead) {
  const ButlerPrompt prompt(kShape, 6, 330, 4, 4);
  Butler run("butler(budget=60,sink=2,local=10,neighbours=on)", prompt);
  run.grow(328, 328);
  run.grow(330, 1);
  ASSERT_EQ(run.reads.named_rows.size(), 5u);
  uint64_t n_neighbours = 0;
  for (size_t layer = 1; layer < 6; ++layer) {
    for (size_t head = 0; head < 2; ++head) {
      std::set<size_t> rows = {0, 1};
      for (size_t t = 0; t < 330; ++t) {
        const Selection& named = run.reads.named_rows.at(layer);
        if (t >= 320 || (t < 64 * named.n_pages() && named.word(head, t / 64) >> (t % 64) & 1))
          rows.insert(t);
      }
      EXPECT_EQ(run.reads.rows.at({layer, head}), rows);
      EXPECT_LE(rows.size(), 60u + 48);
      n_neighbours += rows.size() - 60;
    }
  }
  EXPECT_EQ(run.cache.last_step().predictions.neighbour_rows, n_neighbours);
  EXPECT_GT(n_neighbours, 300u);
}

TEST(ButlerThreads, ParallelOutputsAreEqual) {
  for (const HeadShape& shape : {kHeadShapes[1], kHeadShapes[4]}) {
    const ButlerPrompt prompt(shape, 6, 140, 5);
    for (const char* text : {"butler(budget=40,local=8,interval=3,neighbours=on)",
                             "butler(k=turbo4,v=turbo4,frame=rotated,tail=8,budget=40,local=8,keys=int8)"}) {
      Butler one(text, prompt);
      one.grow(134, 134);
      one.grow(140, 1);
      for (const int n_threads : {2, 3, 4}) {
        Butler many(text, prompt, n_threads);
        many.grow(134, 134);
        many.grow(140, 1);
        EXPECT_TRUE(equal_from(many.out, one.out, 0, prompt.q_width())) << text << n_threads;
      }
    }
  }
}

// A fork goes on in the middle of an interval as the first would; a cut makes the next step read everything.
TEST(ButlerHistory, ForksAndCuts) {
  const ButlerPrompt prompt(kShape, 5, 360, 6, 2);
  const std::string text = "butler(budget=70,interval=6,neighbours=on,local=20)";
  Butler plain(text, prompt);
  plain.grow(300, 300);
  plain.grow(360, 1);
  Butler run(text, prompt);
  run.grow(300, 300);
  run.grow(309, 1);
  Butler fork(run.cache.fork(), prompt);
  run.grow(360, 1);
  fork.grow(360, 1);
  EXPECT_TRUE(equal_from(run.out, plain.out, 0, prompt.q_width()));
  EXPECT_TRUE(equal_from(fork.out, plain.out, 309, prompt.q_width()));

  run.cache.crop(305);
  Butler anew(text, prompt);
  anew.grow(305, 305);
  Outputs& out = run.out;
  run.step(1);
  EXPECT_EQ(run.reads.rows.at({3, 1}).size(), 306u);
  run.grow(360, 1);
  anew.grow(360, 1);
  EXPECT_TRUE(equal_from(out, anew.out, 305, prompt.q_width()));
}

TEST(ButlerHistory, AStepOfSeveralTokensBeginsAnew) {
  const ButlerPrompt prompt(kShape, 3, 340, 7, 2);
  Butler run("butler(budget=70,local=20,interval=100)", prompt);
  run.grow(300, 300);
  run.grow(305, 1);
  EXPECT_LT(run.reads.rows.at({1, 0}).size(), 305u);
  run.step(9);
  EXPECT_EQ(run.cache.last_step().rows_read, 6u * (9 * 305 + 45));
  run.step(1);
  EXPECT_EQ(run.reads.rows.at({1, 0}).size(), 315u);
  run.step(1);
  EXPECT_EQ(run.cache.last_step().predictions.predictor_calls, 1u);
}

std::vector<std::byte> saved(const Cache& cache, const SectionFileKind& kind) {
  std::vector<std::byte> bytes;
  write_sections(kind, cache_sections(cache), [&](std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  });
  return bytes;
}

constexpr SectionFileKind kKind{"TESTFILE", 1, "test file"};

// From a file it goes on in the middle of an interval as if it had never been there, and behind a cut.
TEST(ButlerSaved, GoesOnAsItWould) {
  const ButlerPrompt prompt(kShape, 5, 340, 8, 2);
  for (const char* text :
       {"butler(budget=70,local=20,interval=6,neighbours=on)",
        "butler(k=turbo4,v=turbo4,frame=rotated,budget=70,local=20,interval=4,keys=int8)",
        "turbo4(frame=rotated,keep=log(reserve=96),select=butler(budget=70,local=20,interval=6))"}) {
    for (const size_t n : {0, 250, 300, 301, 304, 309}) {
      for (const bool cut : {false, true}) {
        Butler run(text, prompt);
        run.grow(std::min<size_t>(n, 300), 300);
        run.grow(n, 1);
        if (cut && run.cache.fixed_tokens() > 300) continue;  // rows have moved
        if (cut && n > 300) run.cache.crop(300);
        const std::vector<std::byte> bytes = saved(run.cache, kKind);
        const SectionFile file(bytes, "x", kKind);
        const SavedCache read = SavedCache::read(file);
        Butler other(text, prompt);
        ASSERT_EQ(read.mismatch(other.cache), "");
        read.restore(other.cache);
        EXPECT_EQ(saved(other.cache, kKind), bytes);
        const size_t first = run.cache.n_tokens();
        run.grow(340, 1);
        other.grow(340, 1);
        EXPECT_TRUE(equal_from(run.out, other.out, first, prompt.q_width())) << text << n << cut;
      }
    }
  }
}

TEST(ButlerSaved, RefusesAnotherPredictorAndWhatDoesNotFit) {
  const ButlerPrompt prompt(kShape, 3, 320, 9, 2);
  const ButlerPrompt other(kShape, 3, 320, 10, 2);
  Butler run("butler(budget=70)", prompt);
  run.grow(300, 300);
  run.grow(303, 1);
  const std::vector<std::byte> bytes = saved(run.cache, kKind);
  const SectionFile file(bytes, "x", kKind);
  Butler strange("butler(budget=70)", other);
  EXPECT_NE(SavedCache::read(file).mismatch(strange.cache).find("another predictor"), std::string::npos);
  // The same numbers in another order of things.
  ButlerWeights turned = *prompt.weights;
  turned.geometry.stride = 4;
  EXPECT_NE(butler_hash(turned), butler_hash(*prompt.weights));
  turned.geometry.stride = 2;
  EXPECT_EQ(butler_hash(turned), butler_hash(*prompt.weights));
  turned.geometry.dim = 8;
  EXPECT_NE(butler_hash(turned), butler_hash(*prompt.weights));

  const auto refused = [&](std::vector<uint64_t> values) {
    std::vector<Section> sections = cache_sections(run.cache);
    for (Section& section : sections) {
      if (section.name == "predicted") section = value_section<uint64_t>("predicted", values);
    }
    std::vector<std::byte> made;
    write_sections(kKind, sections, [&](std::span<const std::byte> more) {
      made.insert(made.end(), more.begin(), more.end());
    });
    try {
      SavedCache::read(SectionFile(made, "x", kKind));
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  std::vector<uint64_t> good = file.get_values<uint64_t>("predicted");
  EXPECT_FALSE(refused(good));
  for (const size_t i : {1, 2}) {
    std::vector<uint64_t> bad = good;
    bad[i] = ~uint64_t{0};
    EXPECT_TRUE(refused(bad)) << i;
  }
  std::vector<uint64_t> longer = good;
  longer.push_back(0);
  EXPECT_TRUE(refused(longer));
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({good[0], 0, 5}));
}

TEST(ButlerBytes, AreThoseAllocatedAndPredicted) {
  const Geometry shape = geometry(6, 64, {2, 2, 2});
  const auto token_bytes = [&](const char* text) { return shape.token_bytes(Recipe::parse(text)); };
  EXPECT_EQ(token_bytes("butler"), token_bytes("full") + 4 * 32);  // of two layers
  EXPECT_EQ(token_bytes("butler(keys=int8,dim=8)"), token_bytes("full") + 4 * 10);
  EXPECT_EQ(token_bytes("turbo4(select=butler)"), token_bytes("turbo4") + 4 * 32);
  for (const char* text :
       {"butler(budget=40)", "butler(k=turbo4,v=turbo4,frame=rotated,keys=int8,budget=40)"}) {
    for (const size_t n : {1, 64, 65, 330}) {
      const ButlerPrompt prompt(kShape, 3, n, n);
      const Recipe recipe = Recipe::parse(text);
      PagePool any;
      const Cache same(recipe, prompt.shape, any, {.butler = prompt.weights});
      PagePool pool(prompt.shape.peak_bytes(recipe, 0, n, 100) + same.selector().step_bytes(n, 1));
      Butler run(Cache(recipe, prompt.shape, pool, {.butler = prompt.weights}), prompt);
      run.grow(n, 100);
      EXPECT_EQ(run.cache.size_bytes(), prompt.shape.cache_bytes(recipe, n)) << text << n;
      EXPECT_EQ(pool.used_bytes(), prompt.shape.cache_bytes(recipe, n)) << text << n;
    }
  }
}

// What is named counts as long as it is held.
TEST(ButlerBytes, NamedRowsAreCounted) {
  const ButlerPrompt prompt(kShape, 3, 330, 14);
  PagePool pool;
  Butler run(Cache(Recipe::parse("butler(budget=40)"), prompt.shape, pool, {.butler = prompt.weights}),
             prompt);
  run.grow(328, 328);
  run.grow(330, 1);
  EXPECT_EQ(run.cache.size_bytes(), pool.used_bytes() + 2 * 2 * 6 * 8);
  EXPECT_EQ(run.cache.fork().size_bytes(), run.cache.size_bytes());
  run.cache.crop(320);
  run.step(2);
  EXPECT_EQ(run.cache.size_bytes(), pool.used_bytes());
}

// Of the weights of the only producer.
uint64_t producer_bytes(const ButlerPrompt& prompt) {
  const ButlerProducer& own = prompt.weights->producers.at(0);
  return 4 * (own.norm_weight.size() + own.norm_bias.size() + own.in.size() + own.out.size());
}

// Projected keys and the predictor's weights are read when rows are named, and only then.
TEST(ButlerReads, AreCountedAsTheyAre) {
  const ButlerPrompt prompt(kShape, 3, 391, 11, 2);
  Butler run("butler(budget=48,local=8,interval=2)", prompt);
  run.cache.measure_mass(true);
  run.grow(388, 388);
  run.step(1);
  EXPECT_EQ(run.cache.last_step().mass_count, 0u);
  for (const bool due : {true, false}) {
    run.step(1);
    const size_t n = run.cache.n_tokens();
    uint64_t n_bytes = 0;
    uint64_t n_rows = 0;
    for (const auto& [place, rows] : run.reads.rows) {
      std::set<size_t> pages;
      for (const size_t t : rows) pages.insert(t / 64);
      n_rows += rows.size();
      if (place.first == 0) {
        n_bytes += n * 256;
      } else {
        const size_t n_scored = std::min((n - 1) / 8 * 8, (n - 8 + 63) / 64 * 64);
        n_bytes += pages.size() * 64 * 128 + rows.size() * 128 + (due ? n_scored * 32 : 0);
      }
    }
    if (due) n_bytes += producer_bytes(prompt);
    EXPECT_EQ(run.cache.last_step().rows_read, n_rows);
    EXPECT_EQ(run.cache.last_step().bytes_read, n_bytes);
    EXPECT_EQ(run.cache.last_step().mass_count, 12u);
  }
}

// Pages of which all rows are read in any case are not scored.
TEST(ButlerReads, OnlyPagesWithCandidatesAreScored) {
  const ButlerPrompt prompt(kShape, 3, 502, 15, 2);
  Butler run("butler(budget=330,sink=130,local=150)", prompt);
  run.grow(500, 500);
  run.grow(502, 1);
  uint64_t n_bytes = producer_bytes(prompt) + 4 * 4 * 64 * 32;  // candidates are 130..351
  for (const auto& [place, rows] : run.reads.rows) {
    if (place.first > 0) {
      EXPECT_EQ(rows.size(), 330u);
    }
    std::set<size_t> pages;
    for (const size_t t : rows) pages.insert(t / 64);
    n_bytes += place.first == 0 ? rows.size() * 256 : pages.size() * 64 * 128 + rows.size() * 128;
  }
  EXPECT_EQ(run.cache.last_step().bytes_read, n_bytes);
}

// Where sinks and local rows are the whole budget nothing is scored.
TEST(ButlerReads, NothingIsScoredForNothing) {
  const ButlerPrompt prompt(kShape, 3, 303, 13, 2);
  Butler run("butler(budget=60)", prompt);
  run.grow(301, 301);
  run.grow(303, 1);
  EXPECT_EQ(run.reads.rows.at({2, 1}).size(), 60u);
  EXPECT_EQ(run.cache.last_step().bytes_read,
            2u * 303 * 256 + 4 * (2 * 64 * 128 + 60 * 128) + producer_bytes(prompt));
}

TEST(ButlerRefusals, NameWhatIsMissing) {
  const ButlerPrompt prompt(kShape, 3, 10, 12);
  PagePool pool;
  const auto why = [&](const char* text, const Geometry& shape,
                       std::shared_ptr<const ButlerWeights> weights) {
    try {
      Cache(Recipe::parse(text), shape, pool, {.butler = std::move(weights)});
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(why("butler", prompt.shape, prompt.weights), "");
  EXPECT_NE(why("butler", prompt.shape, nullptr).find("quire train-butler"), std::string::npos);
  EXPECT_NE(why("butler", geometry(6, 64, {2, 2}), prompt.weights).find("another shape"), std::string::npos);
  EXPECT_NE(why("butler(dim=8)", prompt.shape, prompt.weights).find("16 values, not dim=8"),
            std::string::npos);
}

// Weights that are not what their geometry says, or not as wide as the model.
TEST(ButlerRefusals, OfWeightsThatDoNotFit) {
  const ButlerPrompt prompt(kShape, 6, 10, 12);
  PagePool pool;
  const auto why = [&](const ButlerWeights& weights, size_t width) {
    try {
      Cache(Recipe::parse("butler"), prompt.shape, pool,
            {.butler = std::make_shared<ButlerWeights>(weights), .width = width});
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const ButlerWeights good = *prompt.weights;
  EXPECT_EQ(why(good, 40), "");
  EXPECT_EQ(why(good, 0), "");
  EXPECT_NE(why(good, 41).find("reads 40 values"), std::string::npos) << why(good, 41);
  const auto refused = [&](const std::function<void(ButlerWeights&)>& change) {
    ButlerWeights bad = good;
    change(bad);
    return why(bad, 0).find("other lengths") != std::string::npos;
  };
  EXPECT_TRUE(refused([](ButlerWeights& w) { w.producers.pop_back(); }));
  EXPECT_TRUE(refused([](ButlerWeights& w) { w.producers[1].norm_weight.pop_back(); }));
  EXPECT_TRUE(refused([](ButlerWeights& w) { w.producers[0].norm_bias.pop_back(); }));
  EXPECT_TRUE(refused([](ButlerWeights& w) { w.producers[0].in.pop_back(); }));
  EXPECT_TRUE(refused([](ButlerWeights& w) { w.producers[1].out.pop_back(); }));
  EXPECT_TRUE(refused([](ButlerWeights& w) { w.projections.pop_back(); }));
  EXPECT_TRUE(refused([](ButlerWeights& w) { w.projections[4].pop_back(); }));
  EXPECT_TRUE(refused([](ButlerWeights& w) { w.geometry.width = 39; }));
  EXPECT_TRUE(refused([](ButlerWeights& w) { w.geometry.stride = 0; }));
}

}  // namespace
}  // namespace quire::test

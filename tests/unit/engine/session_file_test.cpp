#include "engine/session_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "checksummed.h"
#include "engine/calibration_file.h"
#include "engine/vocabulary_reader.h"
#include "unit/engine/tiny_model.h"
#include "unit/temporary_folder.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using test::Bytes;
using test::TinyEngine;

std::vector<int32_t> generate(Session& session, size_t n) {
  SamplingOptions options;
  options.temperature = 0;
  options.banned = end_tokens(session.engine().tokenizer());
  Sampler sampler(options);
  return session.generate(sampler, {.max_tokens = n}).tokens;
}

Bytes encode(const Session& session) {
  Bytes bytes;
  write_session(
      session, [&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); });
  return bytes;
}

// A session after a prompt and a few tokens.
Session made(Engine& engine, const char* recipe, size_t n_prompt, size_t n_more = 0) {
  Session session(engine, {.recipe = Recipe::parse(recipe)});
  session.prefill(test::tiny_prompt(n_prompt));
  generate(session, n_more);
  return session;
}

void load(const Bytes& bytes, Session& session) { session.restore(SavedSession::from_memory(bytes, "x.kv")); }

std::string refusal(const Bytes& bytes, Engine& engine, const SessionOptions& options = {}) {
  Session session(engine, options);
  const uint64_t used = engine.pool().used_bytes();
  try {
    load(bytes, session);
  } catch (const Error& error) {
    EXPECT_TRUE(session.tokens().empty());
    EXPECT_EQ(session.cache().n_tokens(), 0u);
    EXPECT_EQ(engine.pool().used_bytes(), used);
    return error.what();
  }
  return "";
}

// Where a section's bytes begin.
size_t place(const Bytes& bytes, const char* section) {
  char name[16] = {};
  std::memcpy(name, section, std::strlen(section));
  for (size_t at = 24; at + 32 <= bytes.size(); at += 8) {
    if (std::memcmp(bytes.data() + at, name, 16) == 0) return at + 32;
  }
  ADD_FAILURE() << section;
  return 0;
}

template <typename T>
Bytes changed_session(Bytes bytes, size_t at, T value) {
  return test::with_value(std::move(bytes), at, value, checksum_of);
}

const char* const kRecipes[] = {"full",
                                "k=bf16,v=bf16",
                                "k=fp8,v=fp8",
                                "f32",
                                "turbo4(frame=rotated)",
                                "k=turbo4,v=turbo3,sink=16,tail=0,frame=rotated",
                                "kivi4",
                                "k=f16,v=q4,tail=1",
                                "streaming(window=50)",
                                "h2o(budget=40)",
                                "keyformer(budget=50,steps=10)",
                                "snapkv(budget=60,window=8)",
                                "k=f16,v=f16,keep=log(reserve=48)",
                                "logquant(reserve=30)",
                                "k=kivi4,v=kivi4,keep=log(reserve=32,rule=strided)",
                                "logquant(reserve=30,partial=on)"};

// Save in the middle and go on: as if nothing had been; and what is loaded is saved as the same file.
TEST(SessionFile, GoesOnAsIfUnbroken) {
  TinyEngine tiny;
  for (const char* recipe : kRecipes) {
    for (const size_t n_prompt : {1, 37, 64, 128, 129, 200}) {
      for (const size_t n_more : {0, 1, 20}) {
        Session unbroken = made(tiny.engine, recipe, n_prompt, n_more);
        const Bytes bytes = encode(unbroken);
        Session loaded(tiny.engine, {.recipe = Recipe::parse(recipe)});
        load(bytes, loaded);
        EXPECT_EQ(loaded.tokens(), unbroken.tokens());
        EXPECT_EQ(loaded.cache().size_bytes(), unbroken.cache().size_bytes());
        EXPECT_EQ(loaded.cache().residency().dropped_tokens, unbroken.cache().residency().dropped_tokens);
        EXPECT_EQ(loaded.cache().coded_tokens(), unbroken.cache().coded_tokens());
        EXPECT_TRUE(encode(loaded) == bytes) << recipe << " " << n_prompt;
        EXPECT_EQ(generate(loaded, 20), generate(unbroken, 20)) << recipe << " " << n_prompt << " " << n_more;
        const std::vector<int32_t> more = test::tiny_prompt(9);
        loaded.prefill(more);
        unbroken.prefill(more);
        EXPECT_TRUE(std::ranges::equal(loaded.logits(), unbroken.logits())) << recipe << " " << n_prompt;
      }
    }
  }
}

TEST(SessionFile, AnEmptySessionAndACutOne) {
  TinyEngine tiny;
  Session empty(tiny.engine, {});
  Session loaded(tiny.engine, {});
  load(encode(empty), loaded);
  EXPECT_TRUE(loaded.tokens().empty());
  for (const char* recipe : kRecipes) {
    for (const size_t left : {199, 195, 130, 64, 1}) {
      Session cut = made(tiny.engine, recipe, 200);
      cut.crop(left);
      Session again(tiny.engine, {.recipe = Recipe::parse(recipe)});
      load(encode(cut), again);
      EXPECT_EQ(generate(again, 10), generate(cut, 10)) << recipe << " " << left;
    }
  }
}

// A cut among rows that have moved begins anew, in the steps that an endless recipe takes: the text is that
// of a session which never had the tokens that are cut off.
TEST(SessionFile, ALoadedSessionIsCutWhereRowsHaveMoved) {
  TinyEngine tiny;
  for (const char* recipe : {"streaming(window=50)", "h2o(budget=40)", "snapkv(budget=60,window=8)",
                             "logquant(reserve=30)", "logquant(reserve=30,partial=on)"}) {
    const bool endless = Recipe::parse(recipe).endless();
    const size_t n = endless ? 700 : 200;
    Session loaded(tiny.engine, {.recipe = Recipe::parse(recipe)});
    load(encode(made(tiny.engine, recipe, n, 12)), loaded);
    loaded.crop(n - 10);
    EXPECT_EQ(loaded.cache().n_tokens(), 0u) << recipe;
    Session fresh = made(tiny.engine, recipe, n - 10);
    EXPECT_EQ(generate(loaded, 20), generate(fresh, 20)) << recipe;
    EXPECT_TRUE(encode(loaded) == encode(fresh)) << recipe;
  }
}

// Pages that are taken over are the session's own: its budget counts them, and they go back.
TEST(SessionFile, PagesAreItsOwn) {
  TinyEngine tiny;
  {
    Session first = made(tiny.engine, "full", 100);
    Session second(tiny.engine, {});
    load(encode(first), second);
    EXPECT_EQ(tiny.engine.pool().used_bytes(), 2 * first.cache().size_bytes());
    generate(second, 5);
    EXPECT_EQ(first.tokens().size(), 100u);
    EXPECT_THROW(load(encode(first), second), Error) << "it is not empty";
  }
  EXPECT_EQ(tiny.engine.pool().used_bytes(), 0u);
}

// Rows behind the last token belong to no sequence, and to no file.
TEST(SessionFile, HoldsNothingOfEarlierSequences) {
  TinyEngine tiny;
  const Bytes fresh = encode(made(tiny.engine, "full", 70));
  made(tiny.engine, "full", 250);  // leaves its rows in the pool's pages
  EXPECT_TRUE(encode(made(tiny.engine, "full", 70)) == fresh);
}

TEST(SessionFile, EveryFlippedByteAndManyCutsAreRefused) {
  TinyEngine tiny;
  const Bytes whole = encode(made(tiny.engine, "turbo4(frame=rotated,tail=0,sink=1)", 66));
  Session session(tiny.engine, {.recipe = Recipe::parse("turbo4(frame=rotated,tail=0,sink=1)")});
  const auto refused = [&](const Bytes& bytes) {
    try {
      load(bytes, session);
    } catch (const Error&) {
      return session.tokens().empty();
    }
    return false;
  };
  for (size_t at = 0; at < whole.size(); ++at) {
    Bytes flipped = whole;
    flipped[at] ^= std::byte{static_cast<uint8_t>(1 << at % 8)};
    ASSERT_TRUE(refused(flipped)) << at;
  }
  for (size_t n = 0; n < whole.size(); n += 1 + n / 16) {
    ASSERT_TRUE(refused({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n)})) << n;
  }
  EXPECT_EQ(tiny.engine.pool().used_bytes(), 0u);
}

TEST(SessionFile, SaysWhatDoesNotFit) {
  TinyEngine tiny;
  Engine& engine = tiny.engine;
  const Bytes whole = encode(made(engine, "full", 70));
  const auto refused = [&](const Bytes& bytes, const char* words, const SessionOptions& options = {}) {
    const std::string got = refusal(bytes, engine, options);
    EXPECT_NE(got.find(words), std::string::npos) << got;
    EXPECT_TRUE(got.starts_with("x.kv: ")) << got;
  };
  refused(changed_session(whole, place(whole, "model"), 'x'), "another model");
  refused(whole, "the recipe full, not q8", {.recipe = Recipe::parse("q8")});
  refused(whole, "70 tokens, but the context holds only 69", {.context_tokens = 69});
  EXPECT_EQ(refusal(whole, engine, {.context_tokens = 70}), "");
  refused(changed_session(whole, place(whole, "tokens"), int32_t{259}), "vocabulary");
  refused(changed_session(whole, place(whole, "tokens"), int32_t{-1}), "vocabulary");
  refused(changed_session(whole, place(whole, "logits"), std::numeric_limits<float>::quiet_NaN()), "logits");
  refused(changed_session(whole, place(whole, "recipe"), 'g'), "recipe");
  refused(changed_session(whole, place(whole, "tokens") - 32, 'u'), "'uokens'");
  refused(changed_session(whole, place(whole, "pages") - 32, 'P'), "section");
  // A section of logits may be unknown, and the last token is then computed once more.
  const Bytes without = changed_session(whole, place(whole, "logits") - 32, 'x');
  Session session(engine, {});
  load(without, session);
  EXPECT_TRUE(session.logits().empty());
  Session unbroken = made(engine, "full", 70);
  EXPECT_EQ(generate(session, 10), generate(unbroken, 10));
}

TEST(SessionFile, BudgetIsLookedAtFirst) {
  TinyEngine tiny;
  const Bytes whole = encode(made(tiny.engine, "full", 70));
  const uint64_t n_bytes = 128 * test::kTinyTokenBytes;
  TinyEngine enough({.n_threads = 1, .kv_budget_bytes = n_bytes});
  EXPECT_EQ(refusal(whole, enough.engine), "");
  TinyEngine small({.n_threads = 1, .kv_budget_bytes = n_bytes - 1});
  const std::string got = refusal(whole, small.engine);
  EXPECT_NE(got.find(std::to_string(n_bytes)), std::string::npos) << got;
  EXPECT_NE(got.find(std::to_string(n_bytes - 1)), std::string::npos) << got;
}

// With the right checksum, but counts that claim more than there is: nothing of that size is asked for.
TEST(SessionFile, AbsurdCountsAreRefused) {
  TinyEngine tiny;
  const Bytes whole = encode(made(tiny.engine, "turbo4(frame=rotated,tail=0)", 70));
  const SessionOptions options{.recipe = Recipe::parse("turbo4(frame=rotated,tail=0)")};
  EXPECT_EQ(refusal(whole, tiny.engine, options), "");
  const size_t rows = place(whole, "rows");
  for (const size_t at : {rows, rows + 8, rows + 16}) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{2}, uint64_t{64}, uint64_t{71}, uint64_t{128},
                                 uint64_t{1} << 32, uint64_t{1} << 58, UINT64_MAX}) {
      EXPECT_NE(refusal(changed_session(whole, at, value), tiny.engine, options), "") << at << " " << value;
    }
  }
  const size_t geometry = place(whole, "geometry");
  for (size_t at = geometry; at < geometry + 20; at += 4) {
    for (const uint32_t value : {0u, 3u, 64u, 0x7fffffffu, 0xffffffffu}) {
      EXPECT_NE(refusal(changed_session(whole, at, value), tiny.engine, options), "")
          << at - geometry << " " << value;
    }
  }
}

using SavedFiles = test::TemporaryFolder;

TEST_F(SavedFiles, GoThroughTheDisk) {
  TinyEngine tiny;
  Session session = made(tiny.engine, "kivi4", 200, 3);
  const std::string path = folder / "a.kv";
  const uint64_t n_bytes = save_session(session, path);
  EXPECT_EQ(n_bytes, fs::file_size(path));
  Session loaded(tiny.engine, {.recipe = Recipe::parse("kivi4")});
  loaded.restore(SavedSession::open(path));
  EXPECT_EQ(generate(loaded, 10), generate(session, 10));
  EXPECT_THROW(SavedSession::open(folder), Error);
  EXPECT_THROW(SavedSession::open(folder / "none"), Error);
}

TEST_F(SavedFiles, AFileThatDoesNotFitTheDiskLeavesTheOldOne) {
  TinyEngine tiny;
  const std::string path = folder / "a.kv";
  const uint64_t n_bytes = save_session(made(tiny.engine, "full", 10), path);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit low{10000, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &low);
  EXPECT_THROW(save_session(made(tiny.engine, "full", 200), path), Error);
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(fs::file_size(path), n_bytes);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(SavedFiles, BelongToTheCalibrationTheyWereCodedWith) {
  Calibration calibration;
  calibration.geometry = {test::kTinyLayers, test::kTinyHeads, test::kTinyHeadDim, {1, 1}};
  calibration.key_mean.assign(2 * test::kTinyHeadDim, 0.5f);
  calibration.value_mean.assign(2 * test::kTinyHeadDim, 0.0f);
  calibration.key_balance.assign(2 * test::kTinyHeadDim, 1.0f);
  calibration.query_key.assign(2 * test::kTinyHeadDim, 1.0f);
  const std::string fingerprint = TinyEngine().engine.fingerprint();
  save_calibration(calibration, fingerprint, folder / "one");
  calibration.key_mean[3] = 0.25f;
  save_calibration(calibration, fingerprint, folder / "two");
  TinyEngine one({.n_threads = 1, .calibration_path = folder / "one"});
  TinyEngine two({.n_threads = 1, .calibration_path = folder / "two"});
  const SessionOptions turbo{.recipe = Recipe::parse("turbo4")};
  const Bytes bytes = encode(made(one.engine, "turbo4", 200));
  EXPECT_EQ(refusal(bytes, one.engine, turbo), "");
  EXPECT_NE(refusal(bytes, two.engine, turbo).find("another calibration"), std::string::npos);
  // Where no calibration is needed, none is asked for.
  const Bytes full = encode(made(one.engine, "full", 200));
  EXPECT_EQ(refusal(full, two.engine), "");
}

}  // namespace
}  // namespace quire

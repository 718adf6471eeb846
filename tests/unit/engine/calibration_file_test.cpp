#include "engine/calibration_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "base/atomic_file.h"
#include "base/error.h"
#include "checksummed.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "unit/engine/tiny_model.h"
#include "unit/temporary_folder.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

constexpr std::string_view kFingerprint = "0123456789abcdef";

Calibration small_calibration() {
  Calibration calibration;
  calibration.geometry = {3, 4, 2, {2, 0, 1}};
  calibration.key_mean = {1, 2, 3, 4, 5, 6};
  calibration.key_balance = {0.5, 2, 1, 1, 4, 0.25};
  calibration.value_mean = {-1, 0, 1, -2, 0, 2};
  calibration.query_key = {3, 0, 1, 2, 0.5, 2};
  return calibration;
}

void expect_equal(const Calibration& a, const Calibration& b) {
  EXPECT_EQ(a.geometry.n_layers, b.geometry.n_layers);
  EXPECT_EQ(a.geometry.n_heads, b.geometry.n_heads);
  EXPECT_EQ(a.geometry.head_dim, b.geometry.head_dim);
  EXPECT_EQ(a.geometry.n_kv_heads, b.geometry.n_kv_heads);
  EXPECT_EQ(a.key_mean, b.key_mean);
  EXPECT_EQ(a.key_balance, b.key_balance);
  EXPECT_EQ(a.value_mean, b.value_mean);
  EXPECT_EQ(a.query_key, b.query_key);
}

std::string refusal(const Bytes& bytes) {
  try {
    decode_calibration(bytes, kFingerprint, "x.calibration");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <typename T>
Bytes changed_calibration(Bytes bytes, size_t at, T value) {
  return test::with_value(std::move(bytes), at, value, calibration_checksum);
}

TEST(CalibrationFile, GoesThereAndBack) {
  expect_equal(decode_calibration(encode_calibration(small_calibration(), kFingerprint), kFingerprint, "x"),
               small_calibration());
}

TEST(CalibrationFile, EveryCutAndEveryFlippedByteIsRefused) {
  const Bytes whole = encode_calibration(small_calibration(), kFingerprint);
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_NE(refusal({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n)}), "") << n;
    Bytes flipped = whole;
    flipped[n] ^= std::byte{0x10};
    EXPECT_NE(refusal(flipped), "") << n;
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_NE(refusal(longer), "");
}

TEST(CalibrationFile, SaysWhatIsWrong) {
  const Bytes whole = encode_calibration(small_calibration(), kFingerprint);
  const auto refused = [](const Bytes& bytes, const char* words) {
    EXPECT_NE(refusal(bytes).find(words), std::string::npos) << refusal(bytes);
    EXPECT_TRUE(refusal(bytes).starts_with("x.calibration: "));
  };
  refused({}, "no calibration file");
  refused(Bytes(1000), "no calibration file");
  refused(changed_calibration(whole, 8, uint32_t{1}), "version 1");
  refused(encode_calibration(small_calibration(), "0123456789abcdee"), "another model");
  refused({whole.begin(), whole.end() - 9}, "cut short");
  // Values follow the header of 40 bytes and three counts.
  refused(changed_calibration(whole, 52, std::numeric_limits<float>::quiet_NaN()), "mean");
  refused(changed_calibration(whole, 52 + 24, 0.0f), "balance");
  refused(changed_calibration(whole, 52 + 24, -1.0f), "balance");
  refused(changed_calibration(whole, 52 + 24, std::numeric_limits<float>::infinity()), "balance");
  refused(changed_calibration(whole, 52 + 48, -std::numeric_limits<float>::infinity()), "mean");
  refused(changed_calibration(whole, 52 + 72, -1.0f), "product");
  refused(changed_calibration(whole, 52 + 72, std::numeric_limits<float>::infinity()), "product");
}

TEST(CalibrationFile, AbsurdCountsAreRefused) {
  const Bytes whole = encode_calibration(small_calibration(), kFingerprint);
  for (const size_t at : {12, 16, 20, 40, 44, 48}) {
    for (const uint32_t value : {0u, 3u, 0x7fffffffu, 0xffffffffu}) {
      const Bytes changed = changed_calibration(whole, at, value);
      if (changed != whole && !(at == 44 && value == 0)) {
        EXPECT_NE(refusal(changed), "") << at << " " << value;
      }
    }
  }
}

class Kept : public test::TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    if (const char* old = std::getenv("XDG_CACHE_HOME")) old_home = old;
    setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  }
  void TearDown() override {
    if (old_home.empty()) {
      unsetenv("XDG_CACHE_HOME");
    } else {
      setenv("XDG_CACHE_HOME", old_home.c_str(), 1);
    }
    TemporaryFolder::TearDown();
  }

  EngineOptions options() {
    EngineOptions options;
    options.n_threads = 2;
    options.on_note = [this](const std::string& sentence) { notes.push_back(sentence); };
    return options;
  }

  std::string old_home;
  std::vector<std::string> notes;
};

TEST_F(Kept, MadeOnceAndFoundAgain) {
  test::TinyEngine first(options());
  const auto made = first.engine.calibration();
  ASSERT_EQ(notes.size(), 1u);
  const std::string path = kept_calibration_path(first.engine.fingerprint());
  EXPECT_TRUE(path.starts_with(folder.string()));
  EXPECT_TRUE(notes[0].starts_with("calibrated the model in ") && notes[0].ends_with("kept in " + path))
      << notes[0];
  EXPECT_EQ(first.engine.calibration(), made);
  test::TinyEngine second(options());
  expect_equal(*second.engine.calibration(), *made);
  EXPECT_EQ(notes.size(), 1u);
}

TEST_F(Kept, OnlyRecipesThatNeedItAskForIt) {
  test::TinyEngine tiny(options());
  for (const char* recipe : {"full", "kivi4", "turbo4(frame=rotated)"}) {
    Session(tiny.engine, {.recipe = Recipe::parse(recipe)});
  }
  EXPECT_TRUE(notes.empty());
  Session(tiny.engine, {.recipe = Recipe::parse("turbo4")});
  EXPECT_EQ(notes.size(), 1u);
}

TEST_F(Kept, ADamagedOneIsMadeAgain) {
  test::TinyEngine first(options());
  const auto made = first.engine.calibration();
  const std::string path = kept_calibration_path(first.engine.fingerprint());
  fs::resize_file(path, 100);
  test::TinyEngine second(options());
  expect_equal(*second.engine.calibration(), *made);
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_NE(notes[1].find("cannot be used"), std::string::npos);
  expect_equal(load_calibration(path, first.engine.fingerprint()), *made);
}

TEST_F(Kept, NoPlaceToKeepItIsNoFailure) {
  std::ofstream(folder / "quire") << "a file where the folder would be";
  test::TinyEngine tiny(options());
  EXPECT_NE(tiny.engine.calibration(), nullptr);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("not kept"), std::string::npos) << notes[0];
}

TEST_F(Kept, ANamedFileIsReadAtOnceOrRefused) {
  test::TinyEngine first(options());
  const std::string path = folder / "named";
  save_calibration(*first.engine.calibration(), first.engine.fingerprint(), path);
  EngineOptions named = options();
  named.calibration_path = path;
  notes.clear();
  test::TinyEngine second(named);
  expect_equal(*second.engine.calibration(), *first.engine.calibration());
  EXPECT_TRUE(notes.empty());
  named.calibration_path = folder / "missing";
  EXPECT_THROW(test::TinyEngine{named}, Error);
  save_calibration(small_calibration(), kFingerprint, path);
  named.calibration_path = path;
  EXPECT_THROW(test::TinyEngine{named}, Error);
}

TEST_F(Kept, ThePlaceFollowsTheEnvironment) {
  EXPECT_EQ(kept_calibration_path("f"), folder.string() + "/quire/f.calibration");
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  setenv("HOME", "/somewhere", 1);
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(kept_calibration_path("f"), "/somewhere/.cache/quire/f.calibration");
  unsetenv("HOME");
  EXPECT_EQ(kept_calibration_path("f"), "");
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace quire

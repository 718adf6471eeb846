// Cosines and sines of every way of scaling, from a file's keys and tensors, against a frozen table
// (tests/golden/rope/README.md, cases U13), and what overrides do to them.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "golden/model_text.h"
#include "model/config.h"
#include "property/model/tiny_model.h"

namespace quire::test {
namespace {

struct Turn {
  uint64_t position;
  std::vector<double> cosine;
  std::vector<double> sine;
};

struct Case {
  std::string name;
  std::vector<std::string> lines;  // keys and tensors
  size_t context_tokens = 0;
  double attention_factor = 0;
  std::vector<Turn> turns;
};

std::vector<Case> frozen_cases() {
  std::vector<Case> cases;
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/golden/rope/table.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "case") {
      cases.push_back({line.substr(5), {}, 0, 0, {}});
    } else if (what == "key" || what == "values") {
      cases.back().lines.push_back(line);
    } else if (what == "context") {
      words >> cases.back().context_tokens;
    } else if (what == "attention") {
      words >> cases.back().attention_factor;
    } else if (what == "position") {
      cases.back().turns.push_back({golden::ModelText::rest<uint64_t>(words).at(0), {}, {}});
    } else {
      std::vector<double>& values =
          what == "cosine" ? cases.back().turns.back().cosine : cases.back().turns.back().sine;
      values = golden::ModelText::rest<double>(words);
    }
  }
  return cases;
}

// A model of one head whose other keys and tensors are those of a tiny one.
ModelConfig config_of(const std::vector<std::string>& lines, const RopeOverrides& overrides = {}) {
  golden::ModelText text;
  text.add("key string general.architecture llama");
  for (const char* key :
       {"block_count 1", "embedding_length 32", "feed_forward_length 32", "attention.head_count 1"}) {
    text.add(std::string("key u32 llama.").append(key));
  }
  text.add("key f32 llama.attention.layer_norm_rms_epsilon 1e-5");
  for (int i = 0; i < 8; ++i) text.add("tensor padding" + std::to_string(i) + " 0 1 1");
  text.add("tensor token_embd.weight 0 1 32 4");
  for (const std::string& line : lines) text.add(line);
  const Bytes bytes = text.build();
  return ModelConfig::read(GgufFile::from_memory(bytes, "tiny.gguf"), overrides);
}

TEST(Rope, EqualsTheFrozenTable) {
  const std::vector<Case> cases = frozen_cases();
  ASSERT_GE(cases.size(), 18u);
  for (const Case& one : cases) {
    const ModelConfig config = config_of(one.lines, {.context_tokens = one.context_tokens});
    const Rope& rope = config.rope;
    EXPECT_NEAR(rope.attention_factor, one.attention_factor, 1e-7) << one.name;
    ASSERT_EQ(one.turns.size(), 5u) << one.name;
    for (const Turn& turn : one.turns) {
      std::vector<float> cosine(rope.half()), sine(rope.half());
      ASSERT_EQ(turn.cosine.size(), rope.half()) << one.name;
      rope.turn(turn.position, cosine.data(), sine.data());
      for (size_t i = 0; i < rope.half(); ++i) {
        // Keys are in f32: a factor of 1.19 in it turns position 100,000 by a little less or more.
        ASSERT_NEAR(cosine[i], turn.cosine[i], 3e-7) << one.name << " at " << turn.position << ", pair " << i;
        ASSERT_NEAR(sine[i], turn.sine[i], 3e-7) << one.name << " at " << turn.position << ", pair " << i;
      }
    }
  }
}

const std::vector<std::string> kPlain = {"key u32 llama.attention.key_length 64",
                                         "key u32 llama.context_length 2048"};

std::vector<std::string> plain_and(std::vector<std::string> more) {
  more.insert(more.begin(), kPlain.begin(), kPlain.end());
  return more;
}

// What is asked for gives the same as a file that says it.
TEST(RopeOverrides, StandForTheKeys) {
  const auto file = [](std::vector<std::string> lines) {
    return config_of(plain_and(std::move(lines))).rope;
  };
  const auto asked = [](const RopeOverrides& overrides) { return config_of(kPlain, overrides).rope; };
  const std::string type = "key string llama.rope.scaling.type ";
  const std::string factor = "key f32 llama.rope.scaling.factor ";
  EXPECT_EQ(asked({.factor = 4}), file({factor + "4"}));
  EXPECT_EQ(asked({.scaling = RopeScaling::kLinear, .factor = 4}), file({type + "linear", factor + "4"}));
  EXPECT_EQ(asked({.base = 500000}), file({"key f32 llama.rope.freq_base 500000"}));
  EXPECT_EQ(asked({.scaling = RopeScaling::kYarn, .factor = 4, .original_tokens = 512}),
            file({type + "yarn", factor + "4", "key u32 llama.rope.scaling.original_context_length 512"}));
  EXPECT_EQ(
      asked({.scaling = RopeScaling::kYarn,
             .factor = 4,
             .yarn_ext_factor = 0.5,
             .yarn_beta_fast = 16,
             .yarn_beta_slow = 2}),
      file({type + "yarn", factor + "4", "key f32 llama.rope.scaling.yarn_ext_factor 0.5",
            "key f32 llama.rope.scaling.yarn_beta_fast 16", "key f32 llama.rope.scaling.yarn_beta_slow 2"}));
  EXPECT_EQ(asked({.context_tokens = 8192, .scaling = RopeScaling::kDynamic, .factor = 2}),
            config_of(plain_and({type + "dynamic", factor + "2"}), {.context_tokens = 8192}).rope);
}

TEST(RopeOverrides, TakeTheFilesPlace) {
  const std::vector<std::string> yarn =
      plain_and({"key string llama.rope.scaling.type yarn", "key f32 llama.rope.scaling.factor 4",
                 "key f32 llama.rope.scaling.yarn_attn_factor 0.5"});
  const Rope plain = config_of(kPlain).rope;
  EXPECT_EQ(config_of(yarn, {.scaling = RopeScaling::kNone}).rope, plain);
  EXPECT_EQ(config_of(yarn).rope.attention_factor, 0.5);
  EXPECT_EQ(config_of(yarn, {.yarn_attn_factor = 3}).rope.attention_factor, 1.5);
  // The file's attention factor is that of the file's scaling.
  EXPECT_NEAR(config_of(yarn, {.factor = 8}).rope.attention_factor, 1 + 0.1 * std::log(8.0), 1e-12);
  EXPECT_EQ(config_of(yarn, {.scaling = RopeScaling::kLinear}).rope.frequencies[3], plain.frequencies[3] / 4);
  const std::vector<std::string> multiplied =
      plain_and({"key string llama.rope.scaling.type yarn", "key f32 llama.rope.scaling.factor 4",
                 "key f32 llama.rope.scaling.attn_factor 0.5"});
  EXPECT_NEAR(config_of(multiplied).rope.attention_factor, 0.5 * (1 + 0.1 * std::log(4.0)), 1e-12);
  EXPECT_EQ(config_of(multiplied, {.scaling = RopeScaling::kNone}).rope, plain);
  EXPECT_NEAR(config_of(multiplied, {.factor = 8}).rope.attention_factor, 1 + 0.1 * std::log(8.0), 1e-12);
  EXPECT_FALSE(RopeOverrides{}.given());
  EXPECT_TRUE(RopeOverrides{.yarn_beta_slow = 1}.given());
}

std::string refusal(const std::vector<std::string>& lines, const RopeOverrides& overrides = {}) {
  try {
    config_of(lines, overrides);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(RopeOverrides, WhatCannotBeIsRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {0.0, -1.0, nan, std::numeric_limits<double>::infinity()}) {
    EXPECT_NE(refusal(kPlain, {.factor = bad}), "");
    EXPECT_NE(refusal(kPlain, {.base = bad}), "");
    EXPECT_NE(refusal(kPlain, {.yarn_attn_factor = bad}), "");
    EXPECT_NE(refusal(kPlain, {.yarn_beta_fast = bad}), "");
    EXPECT_NE(refusal(kPlain, {.yarn_beta_slow = bad}), "");
    EXPECT_EQ(refusal(kPlain, {.scaling = RopeScaling::kYarn, .factor = 2, .yarn_ext_factor = bad}) == "",
              bad == 0.0);
  }
  for (const RopeScaling scaling : {RopeScaling::kLinear, RopeScaling::kDynamic, RopeScaling::kYarn}) {
    EXPECT_NE(refusal(kPlain, {.scaling = scaling}).find("llama.rope.scaling.factor"), std::string::npos);
  }
  // What the scaling does not read.
  const RopeScaling none = RopeScaling::kNone, linear = RopeScaling::kLinear;
  EXPECT_NE(refusal(kPlain, {.scaling = none, .factor = 4}).find("a factor is asked for"), std::string::npos);
  EXPECT_NE(refusal(kPlain, {.factor = 4, .original_tokens = 512}).find("an original context"),
            std::string::npos);
  EXPECT_NE(refusal(kPlain, {.scaling = linear, .factor = 4, .yarn_beta_fast = 16}).find("a beta_fast"),
            std::string::npos);
  EXPECT_NE(refusal(kPlain, {.yarn_beta_slow = 2}).find("a beta_slow"), std::string::npos);
  EXPECT_NE(refusal(kPlain, {.scaling = RopeScaling::kLongRope}).find("rope_factors_long.weight"),
            std::string::npos);
  EXPECT_NE(refusal(kPlain, {.scaling = RopeScaling::kYarn, .factor = 2, .base = 1}).find("base"),
            std::string::npos);
}

TEST(RopeFiles, TensorsOfFactorsAreNeverIgnored) {
  const std::string ones = [] {
    std::string text;
    for (int i = 0; i < 32; ++i) text += " 2";
    return text;
  }();
  const std::string longer = "values rope_factors_long.weight" + ones;
  const std::string shorter = "values rope_factors_short.weight" + ones;
  const std::string plain = "values rope_freqs.weight" + ones;
  const std::string type = "key string llama.rope.scaling.type ";
  EXPECT_EQ(config_of(plain_and({longer, shorter})).rope.frequencies[0],
            0.5);  // without a type, as older files
  EXPECT_NE(refusal(plain_and({longer})).find("rope_factors_short.weight"), std::string::npos);
  EXPECT_NE(refusal(plain_and({shorter})).find("rope_factors_long.weight"), std::string::npos);
  EXPECT_NE(refusal(plain_and({longer, shorter, plain})).find("rope_freqs.weight"), std::string::npos);
  EXPECT_NE(refusal(plain_and({longer, shorter, type + "yarn", "key f32 llama.rope.scaling.factor 2"}))
                .find("yarn"),
            std::string::npos);
  EXPECT_NE(refusal(plain_and({"values rope_freqs.weight 1 1 1"})).find("rope_freqs.weight"),
            std::string::npos);
}

TEST(Context, IsWhatPositionsHoldFor) {
  EXPECT_EQ(config_of(kPlain).context_tokens, 2048u);
  EXPECT_EQ(config_of(kPlain, {.context_tokens = 100}).context_tokens, 2048u);
  EXPECT_EQ(config_of(kPlain, {.context_tokens = 9000}).context_tokens, 9000u);
  EXPECT_EQ(config_of(kPlain, {.context_tokens = 9000}).trained_tokens, 2048u);
  for (const Case& one : frozen_cases()) {
    if (one.name != "longrope, short") continue;
    const ModelConfig config = config_of(one.lines, {.context_tokens = 1000});
    EXPECT_EQ(config.context_tokens, 4096u);  // longer ones would need the other factors
    EXPECT_EQ(config.rope_text, "longrope by 32, short");
    EXPECT_EQ(config_of(one.lines, {.context_tokens = 4097}).context_tokens, 131072u);
    EXPECT_EQ(config_of(one.lines, {.context_tokens = 200000}).context_tokens, 200000u);
    return;
  }
  FAIL() << "no case of LongRoPE";
}

}  // namespace
}  // namespace quire::test

// Attention over coded pages against double precision over what the formats themselves decode, for every
// code, head size and group; few queries (straight from the codes, where there is a kernel for that) and
// many.
#include <gtest/gtest.h>

#include <map>

#include "property/isa.h"
#include "property/sealed/scene.h"

namespace quire::test {
namespace {

constexpr size_t kHeadSizes[] = {40, 41, 64, 72, 80, 96, 100, 128, 256};
constexpr size_t kGroups[] = {1, 3, 4, 7};
constexpr size_t kLengths[] = {1, 2, 16, 63, 64, 65, 127, 128, 129, 130, 191, 192, 193, 256, 257};

Prompt prompt_of(size_t head_dim, size_t group, size_t n_tokens, uint64_t seed) {
  return Prompt(geometry(2 * group, head_dim, {2}), n_tokens, seed);
}

TEST(SealedOutput, EveryCodeHeadSizeAndGroup) {
  std::map<std::string, double> worst;
  size_t n_sizes = 0;
  for (const std::string& code : code_names()) {
    for (const size_t head_dim : kHeadSizes) {
      for (const size_t group : kGroups) {
        if (is_forced_plainer() && group != kGroups[n_sizes % std::size(kGroups)]) continue;
        const Recipe recipe = coded_recipe(code, "sink=4,tail=10");
        const Prompt prompt = prompt_of(head_dim, group, 150, head_dim + group);
        const double error = last_step_error(prompt, recipe, 1);
        worst[code] = std::max(worst[code], error);
        ASSERT_LE(error, allowed_error(recipe)) << recipe.text() << " " << head_dim << " group " << group;
      }
      ++n_sizes;
    }
  }
  for (const auto& [code, error] : worst) RecordProperty(code, std::to_string(error));
}

// From 12 rows on; 44 are tiles of 32 and 12.
TEST(SealedOutput, OfManyQueriesIsThatOfTheOpenedPages) {
  for (const std::string& code : code_names()) {
    for (const size_t head_dim : kHeadSizes) {
      const Recipe recipe = coded_recipe(code, "tail=10");
      for (const size_t n_last : {13, 44}) {
        const Prompt prompt = prompt_of(head_dim, 1, 150 + n_last, head_dim);
        ASSERT_LE(last_step_error(prompt, recipe, n_last), kExactError)
            << recipe.text() << " " << head_dim << " " << n_last << " queries";
      }
    }
  }
}

// The formats of keys and values are apart; either side may be exact.
TEST(SealedOutput, EveryPairOfFormats) {
  std::vector<std::string> formats = code_names();
  formats.insert(formats.end(), {"f32", "f16", "bf16", "fp8"});
  const std::vector<std::string> key_formats = formats;
  formats.emplace_back("signvq");
  for (const std::string& k : key_formats) {
    for (const std::string& v : formats) {
      if (!side_format_by_name(k)->coded && !side_format_by_name(v)->coded) continue;
      const Recipe recipe = Recipe::parse("k=" + k + ",v=" + v + ",frame=rotated,sink=3,tail=30");
      for (const size_t n_last : {1, 20}) {
        ASSERT_LE(last_step_error(prompt_of(64, 2, 180, 7), recipe, n_last), allowed_error(recipe))
            << recipe.text() << " " << n_last;
      }
    }
  }
}

TEST(SealedOutput, EveryLengthSinkAndTail) {
  for (const char* code : {"turbo4", "kivi2", "q4"}) {
    for (const size_t n_tokens : kLengths) {
      for (const char* settings :
           {"sink=0,tail=0", "sink=4,tail=64", "sink=16,tail=0", "sink=16,tail=65", "sink=1,tail=128"}) {
        const Recipe recipe = coded_recipe(code, settings);
        const Prompt prompt = prompt_of(72, 3, n_tokens, n_tokens);
        ASSERT_LE(last_step_error(prompt, recipe, 1), allowed_error(recipe))
            << recipe.text() << " " << n_tokens;
      }
    }
  }
}

// Lengths around 64 + tail, where the first page becomes coded.
TEST(SealedOutput, AroundTheFirstSeal) {
  for (const size_t tail : {1, 63, 64, 65, 100}) {
    for (size_t n_tokens = 64 + tail - 1; n_tokens <= 64 + tail + 2; ++n_tokens) {
      const Recipe recipe = coded_recipe("turbo3", "tail=" + std::to_string(tail));
      ASSERT_LE(last_step_error(prompt_of(64, 2, n_tokens, tail), recipe, 1), allowed_error(recipe))
          << tail << " " << n_tokens;
    }
  }
}

// Several layers of different head counts, each with frames of its own.
TEST(SealedOutput, LayersHaveTheirOwnFrames) {
  for (const char* code : {"turbo4", "turbo3q", "polar4r"}) {
    const Recipe recipe = coded_recipe(code);
    const Prompt prompt(geometry(6, 80, {2, 6, 1, 3}), 230, 3);
    ASSERT_LE(last_step_error(prompt, recipe, 1), allowed_error(recipe)) << code;
  }
}

// ---- rows that are not like normal ones
// ----------------------------------------------------------------------------

constexpr double kTableOutlierError = 0.1;
constexpr double kTableSteepError = 0.6;
constexpr double kWholeOutlierError = 5 * kWholeError;

enum class Extreme { kZeros, kDenormals, kHuge, kOutlier, kZeroRows };

void make_extreme(Extreme kind, size_t head_dim, std::vector<float>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    switch (kind) {
      case Extreme::kZeros: rows[i] = 0; break;
      case Extreme::kDenormals: rows[i] *= 1e-40f; break;
      case Extreme::kHuge: rows[i] *= 1e30f; break;
      case Extreme::kOutlier: rows[i] *= i % head_dim == head_dim - 1 ? 100.0f : 1.0f; break;
      case Extreme::kZeroRows: rows[i] *= i / head_dim % 3 == 0 ? 0.0f : 1.0f; break;
    }
  }
}

TEST(SealedOutput, OfExtremeRowsIsFinite) {
  for (const std::string& code : code_names()) {
    for (const Extreme kind :
         {Extreme::kZeros, Extreme::kDenormals, Extreme::kHuge, Extreme::kOutlier, Extreme::kZeroRows}) {
      for (const bool of_keys : {false, true}) {
        Prompt prompt = prompt_of(96, 3, 150, 17);
        make_extreme(kind, 96, of_keys ? prompt.k[0] : prompt.v[0]);
        const Recipe recipe = coded_recipe(code, "tail=10");
        for (const size_t n_last : {1, 20}) {
          const std::vector<float> out = last_step_output(prompt, recipe, n_last);
          for (const float x : out)
            ASSERT_TRUE(std::isfinite(x)) << code << " " << static_cast<int>(kind) << of_keys;
        }
        // Saturated keys leave one token all the weight, and which one the least rounding decides.
        if (kind == Extreme::kHuge && of_keys) continue;
        // One channel is all of the output, and may cancel; of the scores, and every error is multiplied.
        double allowed = allowed_error(recipe);
        if (kind == Extreme::kOutlier) {
          const bool table = read_by_table(recipe.keys);
          allowed = !table ? kWholeOutlierError : of_keys ? kTableSteepError : kTableOutlierError;
        }
        ASSERT_LE(last_step_error(prompt, recipe, 1), allowed)
            << code << " " << static_cast<int>(kind) << (of_keys ? " keys" : " values");
      }
    }
  }
}

}  // namespace
}  // namespace quire::test

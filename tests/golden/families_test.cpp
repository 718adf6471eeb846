// Every family against logits that transformers computed of tiny random models (families/README.md): precise
// with f32 rows, fast with f16 rows, in one step and in several.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "golden/forward/golden_file.h"
#include "golden/model_text.h"
#include "model/model.h"

namespace quire {
namespace {

constexpr size_t kVocabulary = 256;

// What data/NAME.txt and data/NAME.logits hold.
struct Frozen {
  // `swap`, if given, takes the place of the line that begins like it up to its last word.
  explicit Frozen(const std::string& name, const std::string& swap = "") {
    const std::string path = std::string(QUIRE_SOURCE_DIR "/tests/golden/families/data/") + name;
    std::ifstream text(path + ".txt");
    const std::string begin = swap.substr(0, swap.rfind(' ') + 1);
    bool swapped = swap.empty();
    for (std::string line; std::getline(text, line);) {
      const bool same = !swap.empty() && line.starts_with(begin);
      swapped |= same;
      read(same ? swap : line);
    }
    if (!swapped) throw std::runtime_error(path + " has no line like " + swap);
    std::ifstream file(path + ".logits", std::ios::binary);
    logits.resize(positions.size() * kVocabulary);
    file.read(reinterpret_cast<char*>(logits.data()),
              static_cast<std::streamsize>(logits.size() * sizeof(float)));
    if (logits.empty() || !file || file.peek() != EOF) throw std::runtime_error("no golden model " + path);
    bytes = model.build();
  }

  void read(const std::string& line) {
    if (model.add(line)) return;
    std::istringstream words(line);
    std::string what;
    words >> what;
    const std::vector<size_t> numbers = golden::ModelText::rest<size_t>(words);
    if (what == "context") {
      context_tokens = numbers.at(0);
    } else if (what == "positions") {
      positions = numbers;
    } else if (what == "tokens") {
      for (size_t i = 0; i < numbers.at(0); ++i) {
        tokens.push_back(static_cast<int32_t>((golden::hash_bits("tokens", i) >> 40) % kVocabulary));
      }
    } else {
      throw std::runtime_error("a line that says nothing: " + line);
    }
  }

  golden::ModelText model;
  test::Bytes bytes;
  size_t context_tokens = 0;
  std::vector<int32_t> tokens;
  std::vector<size_t> positions;
  std::vector<float> logits;  // [positions][kVocabulary]
};

Model load(const Frozen& frozen, Precision precision) {
  Team team(1);
  return Model::load(GgufFile::from_memory(frozen.bytes, "golden.gguf"), team, precision,
                     {.context_tokens = frozen.context_tokens});
}

// Logits of the frozen positions, the tokens taken in steps that begin where `steps` says.
std::vector<float> run(const Model& model, const Frozen& frozen, Format rows, std::vector<size_t> steps) {
  Team team(1);
  PagePool pool;
  Cache cache(Recipe{rows, rows}, model.config().geometry(), pool);
  Workspace workspace;
  std::vector<float> out;
  steps.push_back(frozen.tokens.size());
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    model.forward(std::span(frozen.tokens).subspan(steps[i], steps[i + 1] - steps[i]), cache, workspace,
                  team);
    std::vector<size_t> wanted;
    for (const size_t position : frozen.positions) {
      if (position >= steps[i] && position < steps[i + 1]) wanted.push_back(position - steps[i]);
    }
    std::vector<float> logits(wanted.size() * kVocabulary);
    model.logits(wanted, workspace, team, logits.data());
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

double kl(const float* wanted, const float* got) {
  const double norm_p = golden::log_sum_exp(wanted, kVocabulary);
  const double norm_q = golden::log_sum_exp(got, kVocabulary);
  double sum = 0;
  for (size_t i = 0; i < kVocabulary; ++i) {
    const double log_p = wanted[i] - norm_p;
    sum += std::exp(log_p) * (log_p - (got[i] - norm_q));
  }
  return sum;
}

double largest_kl(const Frozen& frozen, const std::vector<float>& got) {
  EXPECT_EQ(got.size(), frozen.logits.size());
  double largest = 0;
  for (size_t i = 0; i < got.size(); i += kVocabulary) {
    const double divergence = kl(frozen.logits.data() + i, got.data() + i);
    largest = std::isnan(divergence) ? 1e9 : std::max(largest, divergence);
  }
  return largest;
}

// One token by one around the end of a window and of a page, pieces else.
const std::vector<size_t> kPieces = {0,  1,  8,  30,  31,  32,  33,  34,  60, 62,
                                     63, 64, 65, 100, 260, 500, 690, 698, 699};

class Families : public ::testing::TestWithParam<std::string> {};

TEST_P(Families, EqualTransformers) {
  const Frozen frozen(GetParam());
  const Model precise = load(frozen, Precision::kPrecise);
  const double whole = largest_kl(frozen, run(precise, frozen, Format::kF32, {0}));
  const double pieces = largest_kl(frozen, run(precise, frozen, Format::kF32, kPieces));
  const Model fast = load(frozen, Precision::kFast);
  const double f16 = largest_kl(frozen, run(fast, frozen, Format::kF16, {0}));
  std::printf("%-14s largest KL: %.2g, in pieces %.2g; f16 rows %.2g\n", GetParam().c_str(), whole, pieces,
              f16);
  EXPECT_LE(whole, 1e-8);
  EXPECT_LE(pieces, 1e-8);
  EXPECT_LE(f16, 1e-4);
}

// What the files say reaches the logits: with another number they are others.
TEST(FamilyNumbers, Matter) {
  const std::pair<const char*, const char*> swaps[] = {
      {"llama3", "key f32 llama.rope.freq_base 40000"},
      {"llama_linear", "key f32 llama.rope.scaling.factor 3"},
      {"llama_dynamic", "context 600"},
      {"mistral", "key u32 llama.attention.sliding_window 33"},
      {"qwen2", "key f32 qwen2.attention.layer_norm_rms_epsilon 2e-2"},
      {"qwen2_yarn", "key u32 qwen2.rope.scaling.original_context_length 256"},
      {"phi3_short", "context 4096"},
      {"phi3_long", "key u32 phi3.rope.dimension_count 12"},  // as it is: the measure of the others
      {"gemma2", "key u32 gemma2.attention.sliding_window 31"},
      {"gemma2", "key f32 gemma2.attn_logit_softcapping 6"},
      {"gemma2", "key f32 gemma2.final_logit_softcapping 7"},
      {"gemma2", "key f32 gemma2.attention.scale 0.125"},
      {"gemma3", "key u32 gemma3.attention.sliding_window 33"},
      {"gemma3", "key f32 gemma3.rope.freq_base 900000"},
      {"gemma3", "key f32 gemma3.rope.scaling.factor 7"},
  };
  for (const auto& [name, line] : swaps) {
    Frozen frozen(name, line);
    if (std::string(line).starts_with("context")) frozen.tokens.resize(600);
    frozen.positions.pop_back();
    frozen.logits.resize(frozen.positions.size() * kVocabulary);
    const double kl = largest_kl(frozen, run(load(frozen, Precision::kPrecise), frozen, Format::kF32, {0}));
    const bool same = std::string(line).ends_with("dimension_count 12");
    EXPECT_EQ(kl > 1e-7, !same) << name << ", " << line << ": " << kl;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         ::testing::Values("llama", "llama3", "llama_linear", "llama_dynamic", "mistral",
                                           "qwen2", "qwen2_yarn", "qwen3", "phi3_short", "phi3_long",
                                           "gemma2", "gemma3"),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace quire

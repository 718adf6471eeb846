// The engine against the frozen double-precision reference (forward/README.md): distributions after 64
// positions of prompts of 1 to 4,000 tokens, on every instruction set, fast and precise, in any chunking.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "golden/forward/golden_file.h"
#include "kernels/ops.h"
#include "model/model.h"

namespace quire {
namespace {

const std::string kModelPath = QUIRE_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr int kThreads = 2;
// Where the reference prefers its first token by less than this (in logits), another first token is no error.
constexpr double kDecidedMargin = 0.05;

golden::GoldenFile golden_prompt(size_t n_tokens) {
  char name[32];
  std::snprintf(name, sizeof name, "prompt_%04zu.bin", n_tokens);
  return golden::load(std::string(QUIRE_SOURCE_DIR "/tests/golden/forward/data/") + name);
}

// One model for all cases of a precision; loading takes a tenth of a second.
const Model& model(Precision precision) {
  static Team team(kThreads);
  static const GgufFile file = GgufFile::open(kModelPath);
  static const Model fast = Model::load(file, team, Precision::kFast);
  static const Model precise = Model::load(file, team, Precision::kPrecise);
  return precision == Precision::kFast ? fast : precise;
}

Recipe rows(Format format) { return {format, format}; }

// Logits [positions][vocabulary] after a prompt that is computed in steps of `chunk` tokens.
std::vector<float> logits(const golden::GoldenFile& golden, Precision precision, const Recipe& recipe,
                          size_t chunk, int n_threads = kThreads) {
  const Model& m = model(precision);
  Team team(n_threads);
  PagePool pool;
  Cache cache(recipe, m.config().geometry(), pool);
  Workspace workspace;
  const std::vector<int32_t> tokens(golden.tokens.begin(), golden.tokens.end());
  const size_t vocabulary = m.config().vocabulary;
  std::vector<float> out(golden.n_positions() * vocabulary);
  size_t next = 0;
  for (size_t first = 0; first < tokens.size(); first += chunk) {
    const size_t n = std::min(chunk, tokens.size() - first);
    m.forward(std::span(tokens).subspan(first, n), cache, workspace, team);
    std::vector<size_t> wanted;
    const size_t before = next;
    while (next < golden.n_positions() && golden.positions[next] < first + n) {
      wanted.push_back(golden.positions[next++] - first);
    }
    if (!wanted.empty()) m.logits(wanted, workspace, team, out.data() + before * vocabulary);
  }
  return out;
}

struct Agreement {
  double mean_kl = 0;
  double largest_kl = 0;
  size_t n_decided = 0;
  size_t n_wrong = 0;  // decided positions with another first token
};

Agreement compare(const golden::GoldenFile& golden, const std::vector<float>& out) {
  Agreement result;
  for (size_t i = 0; i < golden.n_positions(); ++i) {
    const float* row = out.data() + i * golden.n_vocab;
    const double kl = golden.kl(row, golden.n_vocab, i);
    result.mean_kl += kl / static_cast<double>(golden.n_positions());
    result.largest_kl = std::max(result.largest_kl, kl);
    if (golden.margin(i) <= kDecidedMargin) continue;
    ++result.n_decided;
    if (golden::argmax(row, golden.n_vocab) != golden.top1(i)) ++result.n_wrong;
  }
  return result;
}

void print(const char* what, size_t n_tokens, const Agreement& a) {
  std::printf(
      "%-28s %5zu tokens: KL mean %.3g, largest %.3g; first token differs at %zu of %zu decided positions\n",
      what, n_tokens, a.mean_kl, a.largest_kl, a.n_wrong, a.n_decided);
}

class Forward : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (!std::ifstream(kModelPath)) GTEST_SKIP() << "no model at " << kModelPath << " (scripts/fetch-model)";
  }
};

TEST_P(Forward, FastPathStaysWithinThousandthOfReference) {
  const auto golden = golden_prompt(GetParam());
  const Agreement a = compare(golden, logits(golden, Precision::kFast, rows(Format::kF16), GetParam()));
  print("fast, f16 rows", GetParam(), a);
  EXPECT_LE(a.mean_kl, 1e-3);
  EXPECT_EQ(a.n_wrong, 0u);
}

TEST_P(Forward, PrecisePathStaysWithinMillionthOfReference) {
  const auto golden = golden_prompt(GetParam());
  const Agreement a = compare(golden, logits(golden, Precision::kPrecise, rows(Format::kF32), GetParam()));
  print("precise, f32 rows", GetParam(), a);
  EXPECT_LE(a.largest_kl, 1e-6);
  EXPECT_EQ(a.n_wrong, 0u);
}

// Largest KL from each row of one set of logits to the same row of another.
double largest_kl(const std::vector<float>& a, const std::vector<float>& b, size_t vocabulary) {
  double largest = 0;
  for (size_t i = 0; i + vocabulary <= a.size(); i += vocabulary) {
    const double norm_a = golden::log_sum_exp(a.data() + i, vocabulary);
    const double norm_b = golden::log_sum_exp(b.data() + i, vocabulary);
    double kl = 0;
    for (size_t t = 0; t < vocabulary; ++t) {
      const double log_p = a[i + t] - norm_a;
      kl += std::exp(log_p) * (log_p - (b[i + t] - norm_b));
    }
    largest = std::max(largest, kl);
  }
  return largest;
}

TEST_P(Forward, AnyChunkingAndThreadCountGivesTheSameBits) {
  if (GetParam() > 700) GTEST_SKIP() << "700 tokens cross all the borders there are";
  const auto golden = golden_prompt(GetParam());
  for (const Precision precision : {Precision::kFast, Precision::kPrecise}) {
    const Recipe recipe = rows(precision == Precision::kFast ? Format::kF16 : Format::kF32);
    const std::vector<float> whole = logits(golden, precision, recipe, GetParam(), 1);
    for (const size_t chunk : {1, 7, 64, 100}) {
      // Tokens one by one cross their borders in 65, and the others' are crossed by 7 and 64.
      if ((chunk == 1 || chunk == 100) && GetParam() > 65) continue;
      const std::vector<float> pieces = logits(golden, precision, recipe, chunk, chunk == 7 ? 3 : 2);
      EXPECT_LE(largest_kl(whole, pieces, golden.n_vocab), precision == Precision::kFast ? 1e-4 : 1e-8);
      // The scalar path too takes every sum in one order, so more than the bound holds.
      EXPECT_EQ(whole, pieces) << "chunk " << chunk;
    }
  }
}

TEST_P(Forward, RowFormatsRankByError) {
  if (GetParam() != 700) GTEST_SKIP() << "one prompt is enough";
  const auto golden = golden_prompt(GetParam());
  const double f32 = compare(golden, logits(golden, Precision::kPrecise, rows(Format::kF32), 700)).mean_kl;
  const double f16 = compare(golden, logits(golden, Precision::kPrecise, rows(Format::kF16), 700)).mean_kl;
  const double bf16 = compare(golden, logits(golden, Precision::kPrecise, rows(Format::kBF16), 700)).mean_kl;
  std::printf("precise, KL mean: f32 rows %.3g, f16 %.3g, bf16 %.3g\n", f32, f16, bf16);
  EXPECT_LT(f32, f16);
  EXPECT_LT(f16, bf16);
  EXPECT_LT(bf16, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Prompts, Forward, ::testing::Values(1, 2, 63, 64, 65, 700, 4000));

// The next number after `key` in a flat JSON text.
double number_after(const std::string& json, const std::string& key) {
  const size_t at = json.find('"' + key + '"');
  if (at == std::string::npos) throw std::runtime_error("no " + key);
  return std::strtod(json.c_str() + json.find(':', at) + 1, nullptr);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Sum of the NLL of all tokens of a window but its first.
double window_nll(const Model& m, std::span<const int32_t> tokens, Team& team, Workspace& workspace) {
  PagePool pool;
  Cache cache(Recipe{}, m.config().geometry(), pool);
  m.forward(tokens, cache, workspace, team);
  constexpr size_t kBatch = 64;
  const size_t vocabulary = m.config().vocabulary;
  std::vector<float> out(kBatch * vocabulary);
  double nll = 0;
  for (size_t first = 0; first + 1 < tokens.size(); first += kBatch) {
    std::vector<size_t> batch;
    for (size_t i = first; i < std::min(first + kBatch, tokens.size() - 1); ++i) batch.push_back(i);
    m.logits(batch, workspace, team, out.data());
    for (size_t i = 0; i < batch.size(); ++i) {
      const float* row = out.data() + i * vocabulary;
      nll += golden::log_sum_exp(row, vocabulary) - row[tokens[batch[i] + 1]];
    }
  }
  return nll;
}

TEST(Perplexity, TwentyThousandTokensOfProseMatchTheReference) {
  if (!std::ifstream(kModelPath)) GTEST_SKIP() << "no model at " << kModelPath << " (scripts/fetch-model)";
  const std::string folder = QUIRE_SOURCE_DIR "/tests/golden/forward/data/";
  const double reference = number_after(read_file(folder + "perplexity.json"), "perplexity");
  const std::string bytes = read_file(folder + "perplexity_tokens.bin");
  std::vector<int32_t> tokens;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    tokens.push_back(static_cast<uint8_t>(bytes[i]) | static_cast<uint8_t>(bytes[i + 1]) << 8);
  }
  ASSERT_EQ(tokens.size(), 20000u);
  Team team(kThreads);
  Workspace workspace;
  double nll = 0;
  size_t n = 0;
  constexpr size_t kWindow = 2048;
  for (size_t first = 0; first < tokens.size(); first += kWindow) {
    const size_t count = std::min(kWindow, tokens.size() - first);
    nll += window_nll(model(Precision::kFast), std::span(tokens).subspan(first, count), team, workspace);
    n += count - 1;
  }
  const double ours = std::exp(nll / static_cast<double>(n));
  std::printf("perplexity of 20,000 tokens: ours %.5f, reference %.5f (%+.4f %%)\n", ours, reference,
              100 * (ours / reference - 1));
  EXPECT_NEAR(ours / reference, 1.0, 0.003);
}

// Under QUIRE_FORCE_ISA the whole program runs on the set named; ctest runs it once for each.
TEST(ForcedIsa, IsTheOneThatRan) {
  const char* forced = std::getenv("QUIRE_FORCE_ISA");
  if (forced == nullptr) GTEST_SKIP() << "nothing is forced";
  EXPECT_STREQ(ops().name, forced);
}

}  // namespace
}  // namespace quire

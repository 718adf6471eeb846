// Sequences that go on: prompts behind other tokens, answers in parts, caches that pass between device and
// CPU.
#include <cstdio>
#include <filesystem>

#include "base/device_error.h"
#include "engine/session_file.h"
#include "gpu/cache_bytes.h"
#include "gpu/device_model_test.h"
#include "gpu/device_session.h"
#include "study/divergence.h"

namespace quire::test {
namespace {

constexpr const char* kRecipes[] = {"full", "k=bf16,v=bf16", "k=fp8,v=fp8", "turbo4", "k=turbo4,v=turbo3",
                                    "q8",   "kivi4",         "quire"};

class DeviceSequences : public DeviceModelTest {
 protected:
  static constexpr size_t kContext = 1400;

  static bool is_coarse(const Recipe& recipe) { return recipe.coded || recipe.key_format == Format::kFP8; }

  // Forced along the text from token `first` on; behind each the CPU's logits against the device's.
  static double force(gpu::DeviceBatch& device, Cache& cache, size_t first, size_t n) {
    Workspace workspace;
    std::vector<float> logits(engine().config().vocabulary);
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      engine().forward(text(first + i, 1), cache, workspace);
      const size_t row = 0;
      engine().logits({&row, 1}, workspace, logits.data());
      device.set_token(0, text(first + i, 1)[0]);
      device.step();
      device.take_tokens();
      sum += kl_divergence(logits, device.logits(0));
    }
    return sum / static_cast<double>(n);
  }

  static std::filesystem::path file() {
    return std::filesystem::temp_directory_path() / "quire_device_sequences.kv";
  }
};

// Pieces of one token, short and long, over borders of pages and of what is coded.
TEST_F(DeviceSequences, PromptsBehindOthersAreAsOnTheCpu) {
  for (const char* recipe : kRecipes) {
    const gpu::BatchOptions with = options(recipe, 2, kContext);
    const auto device = batch(with);
    Cache cache = engine().make_cache(with.recipe);
    Workspace workspace;
    std::vector<float> logits(engine().config().vocabulary);
    device->prefill(1, text(500, 100));  // one that is not to be touched
    device->take_tokens();
    size_t first = 0;
    double most = 0;
    for (const size_t n : {3, 2, 60, 64, 200, 2, 700, 90}) {
      engine().forward(text(first, n), cache, workspace);
      const size_t row = n - 1;
      engine().logits({&row, 1}, workspace, logits.data());
      ASSERT_TRUE(device->prefill(0, text(first, n)));
      device->take_tokens();
      most = std::max(most, kl_divergence(logits, device->logits(0)));
      first += n;
    }
    ASSERT_EQ(device->n_tokens(0), first);
    // The other one goes on as one that was alone in such a batch.
    const auto alone = batch(with);
    alone->prefill(0, text(0, 3));
    alone->take_tokens();
    alone->prefill(1, text(500, 100));
    alone->take_tokens();
    for (gpu::DeviceBatch* b : {device.get(), alone.get()}) {
      for (int s = 0; s < 2; ++s) b->set_token(s, text(600, 1)[0]);
      b->step();
      b->take_tokens();
    }
    // How rows are shared out hangs on all lengths, and weights are rounded to bf16 beside bf16 rows.
    EXPECT_LE(kl_divergence(alone->logits(1), device->logits(1)), 1e-5) << recipe;
    std::printf("%-20s prompts behind others: KL at most %.2e\n", recipe, most);
    EXPECT_LE(most, is_coarse(with.recipe) ? 5e-3 : 2e-3) << recipe;
  }
}

// What was read off the device is, byte for byte, what was brought there; rows that the CPU computed go on on
// the device as on the CPU, and the device's on the CPU.
TEST_F(DeviceSequences, CachesPassBetweenDeviceAndCpu) {
  for (const char* recipe : kRecipes) {
    const gpu::BatchOptions with = options(recipe, 1, kContext);
    Cache cache = engine().make_cache(with.recipe);
    Workspace workspace;
    engine().forward(text(0, 1037), cache, workspace);
    const auto device = batch(with);
    device->load(0, cache, text(0, 1037));
    ASSERT_EQ(device->n_tokens(0), 1037u);
    Cache back = engine().make_cache(with.recipe);
    device->save(0, back);
    ASSERT_EQ(bytes_of(back), bytes_of(cache)) << recipe;
    const double there = force(*device, cache, 1037, 60);
    Cache from_device = engine().make_cache(with.recipe);
    device->save(0, from_device);
    ASSERT_EQ(from_device.n_tokens(), 1097u);
    const double and_back = force(*device, from_device, 1097, 40);
    std::printf("%-20s KL of going on on the device %.2e, on the CPU again %.2e\n", recipe, there, and_back);
    // Keys on the edge between two fp8 numbers fall to either side as activations are rounded.
    const double most = with.recipe.key_format == Format::kFP8 ? 3e-3 : 1e-3;
    EXPECT_LE(there, most) << recipe;
    EXPECT_LE(and_back, most) << recipe;
  }
}

// A session's file is one of the CPU's, and the other way round.
TEST_F(DeviceSequences, FilesAreThoseOfTheCpu) {
  for (const char* recipe : {"full", "fp8", "turbo4", "quire", "k=turbo4,v=turbo3,keep=log(reserve=96)",
                             "k=f16,v=f16,keep=log(reserve=150)", "streaming(window=200)", "quest"}) {
    SessionOptions host_options;
    host_options.recipe = Recipe::parse(recipe);
    host_options.context_tokens = kContext;
    gpu::DeviceSession device(engine(), model(), options(recipe, 1, kContext), kContext);
    device.prefill(text(0, 400));
    const Generation answer = device.generate({.max_tokens = 12});
    EXPECT_EQ(answer.tokens.size(), 12u);
    const size_t n_rows = device.batch().n_tokens(0);
    EXPECT_GE(n_rows + 1, device.tokens().size());
    device.save(file().string());
    Session host(engine(), host_options);
    host.restore(SavedSession::open(file().string()));
    EXPECT_EQ(host.tokens(), device.tokens());
    EXPECT_EQ(host.cache().n_tokens(), n_rows) << recipe;
    Sampler greedy({.temperature = 0});
    const Generation on_host = host.generate(greedy, {.max_tokens = 8});
    save_session(host, file().string());
    gpu::DeviceSession again(engine(), model(), options(recipe, 1, kContext), kContext);
    again.restore(SavedSession::open(file().string()));
    EXPECT_EQ(again.tokens(), host.tokens());
    EXPECT_EQ(again.batch().n_tokens(0), host.cache().n_tokens()) << recipe;
    const Generation on_device = again.generate({.max_tokens = 8});
    EXPECT_EQ(on_device.tokens.size(), 8u);
    // Unbroken, on the device: the same beginning, and where the logits' rounding lets it, the same answer.
    const Generation unbroken = device.generate({.max_tokens = 8});
    std::printf("%-8s unbroken and by a file: %zu of 8 tokens alike\n", recipe,
                static_cast<size_t>(std::mismatch(unbroken.tokens.begin(), unbroken.tokens.end(),
                                                  on_host.tokens.begin(), on_host.tokens.end())
                                        .first -
                                    unbroken.tokens.begin()));
    EXPECT_EQ(unbroken.tokens.front(), on_host.tokens.front()) << recipe;
    EXPECT_EQ(on_device.tokens.front(), host.generate(greedy, {.max_tokens = 1}).tokens.front()) << recipe;
    std::filesystem::remove(file());
  }
}

// An answer in two parts is the answer in one, draws included.
TEST_F(DeviceSequences, AnswersInPartsAreThoseInOne) {
  for (const char* recipe :
       {"full", "quire", "k=turbo4,v=turbo3,keep=log(reserve=96)", "streaming(window=150)"}) {
    gpu::BatchOptions with = options(recipe, 1, kContext);
    with.sampling = {.temperature = 1, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .seed = 5, .banned = {}};
    gpu::DeviceSession whole(engine(), model(), with, kContext);
    gpu::DeviceSession parts(engine(), model(), with, kContext);
    whole.prefill(text(0, 200));
    parts.prefill(text(0, 200));
    const std::vector<int32_t> expected = whole.generate({.max_tokens = 30}).tokens;
    std::vector<int32_t> tokens;
    for (const size_t n : {7, 1, 22}) {
      const Generation some = parts.generate({.max_tokens = n});
      tokens.insert(tokens.end(), some.tokens.begin(), some.tokens.end());
    }
    EXPECT_EQ(tokens, expected) << recipe;
    EXPECT_EQ(parts.tokens(), whole.tokens());
  }
}

// Nothing of an interrupted or refused prompt stays, and what was there goes on.
TEST_F(DeviceSequences, InterruptedAndRefusedPromptsLeaveTheSequence) {
  gpu::DeviceSession session(engine(), model(), options("full", 1, kContext), kContext);
  gpu::DeviceSession other(engine(), model(), options("full", 1, kContext), kContext);
  for (gpu::DeviceSession* s : {&session, &other}) s->prefill(text(0, 300));
  // Memory that is refused leaves the rows that are there, whichever allocation it is.
  int n_refused = 0;
  for (;; ++n_refused) {
    cuda::refuse_allocation(n_refused);
    try {
      session.prefill(text(300, 50));
      cuda::refuse_allocation(-1);
      break;
    } catch (const DeviceError&) {
      ASSERT_EQ(session.tokens().size(), 300u) << n_refused;
      ASSERT_EQ(session.batch().n_tokens(0), 300u) << n_refused;
    }
  }
  EXPECT_GT(n_refused, 8);
  other.prefill(text(300, 50));
  EXPECT_EQ(session.generate({.max_tokens = 5}).tokens, other.generate({.max_tokens = 5}).tokens);
  for (gpu::DeviceSession* s : {&session, &other}) s->crop(300);
  std::atomic<bool> stop = false;
  int n_layers = 0;
  const PrefillResult result =
      session.prefill(text(300, 500), {[&](double) { stop = ++n_layers == 3; }, &stop});
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(session.tokens().size(), 300u);
  EXPECT_THROW(session.prefill(text(0, kContext)), Error);
  EXPECT_EQ(session.tokens().size(), 300u);
  for (gpu::DeviceSession* s : {&session, &other}) s->prefill(text(300, 50));
  EXPECT_EQ(session.generate({.max_tokens = 5}).tokens, other.generate({.max_tokens = 5}).tokens);
}

}  // namespace
}  // namespace quire::test

// Caches with and without a tier that take the same steps.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/make_tier.h"
#include "faulty_device.h"
#include "property/select/butler_scene.h"
#include "tier/slab_file.h"

namespace quire::test {

constexpr HeadShape kTierShape{6, 2, 64};

// Every kind of recipe that keeps its rows. Budgets are small, so that a step leaves most rows out.
inline const std::vector<std::string>& tier_recipes() {
  static const std::vector<std::string> all = {
      "full",
      "k=f32,v=bf16",
      "turbo4(frame=rotated)",
      "k=turbo4,v=turbo3,frame=rotated,sink=0,tail=128",
      "k=f16,v=turbo4,frame=rotated",
      "k=q8,v=f32,frame=plain",
      "kivi2",
      "k=turbo4,v=turbo4,frame=rotated,keep=log(reserve=96)",
      "k=turbo4,v=turbo4,frame=rotated,keep=log(reserve=96,partial=on)",
      "quire(budget=10%,dense=1,frame=rotated)",
      "k=nested4,v=nested3,frame=rotated,select=sign(mass=0.7,dense=0)",
      "selfindex(budget=10%,full_rows=16)",
      "monarch(window=64,max_hot=128,frame=rotated)",
      "butler(budget=10%,sink=2,local=16,interval=3,neighbours=on)",
      "k=turbo4,v=turbo4,frame=rotated,select=butler(budget=10%,local=70,interval=2)",
      "k=turbo4,v=turbo4,frame=rotated,keep=log(reserve=96),select=butler(budget=20%,local=20,interval=3)",
      "k=turbo4,v=turbo4,frame=rotated,keep=log(reserve=96,partial=on),select=butler(budget=20%,local=20)",
      "quest(budget=20%)",
      "doublesparse(budget=15%)",
      "doublesparse(budget=15%,from=prompt)",
      "random(budget=30)",
      "oracle(budget=30)",
      "k=turbo4,v=f16,frame=rotated,select=oracle(budget=30)",
  };
  return all;
}

inline ModelFacts facts_of(const ButlerPrompt& prompt) {
  return {.calibration = channel_calibration(prompt.shape, 5), .butler = prompt.weights};
}

// A cache, the pool that it draws from, and what its steps give.
struct TierRun {
  TierRun(const std::string& recipe, const ButlerPrompt& prompt_in, int n_threads = 1, uint64_t budget = 0,
          std::shared_ptr<Faults> faults = nullptr)
      : prompt(prompt_in),
        pool(std::make_unique<PagePool>(budget)),
        team(n_threads),
        out(empty_outputs(prompt)) {
    const Recipe parsed = Recipe::parse(recipe);
    if (faults == nullptr) {
      cache = std::make_unique<Cache>(parsed, prompt.shape, *pool, facts_of(prompt));
      return;
    }
    std::unique_ptr<SlabDevice> device = make_memory_device();
    if (parsed.place.kind == PagePlace::Kind::kDisk) {
      SlabFile file(parsed.place.path);
      device = parsed.place.device == PagePlace::Device::kThreads ? nullptr : make_uring_device(file);
      if (device == nullptr) device = make_thread_device(std::move(file));
    }
    auto faulty = std::make_unique<FaultyDevice>(std::move(device), std::move(faults));
    cache = std::make_unique<Cache>(parsed, prompt.shape, *pool, facts_of(prompt),
                                    make_tier(parsed, prompt.shape, *pool, std::move(faulty)));
  }

  void step(size_t n) {
    const size_t begin = cache->n_tokens();
    cache->begin_step(n, team.size());
    team.run([&](Worker& worker) {
      for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
        const size_t kv = prompt.kv_width(layer);
        const size_t width = prompt.q_width();
        if (before_layer && worker.rank() == 0) before_layer(layer);
        cache->begin_layer(worker, layer);
        if (cache->predicts(layer)) {
          cache->predict(worker, layer, prompt.x[layer].data() + begin * prompt.g().width);
        }
        cache->append(worker, layer, 0, n, prompt.k[layer].data() + begin * kv,
                      prompt.v[layer].data() + begin * kv, kv);
        cache->attend(worker, layer, 0, n, prompt.q[layer].data() + begin * width, width,
                      out[layer].data() + begin * width, width);
        cache->end_layer(worker, layer);
      }
    });
    cache->end_step();
    counts.add(cache->last_step().tier);
  }
  // Long steps, chunks of both kinds, and single tokens.
  void run(size_t n_prompt) {
    step(n_prompt);
    step(70);
    step(20);
    while (cache->n_tokens() < prompt.n_tokens) step(1);
  }

  const ButlerPrompt& prompt;
  std::unique_ptr<PagePool> pool;
  std::unique_ptr<Cache> cache;
  Team team;
  Outputs out;
  TierCounts counts;
  std::function<void(size_t)> before_layer;
};

inline bool same(const Outputs& a, const Outputs& b) {
  for (size_t layer = 0; layer < a.size(); ++layer) {
    if (std::memcmp(a[layer].data(), b[layer].data(), a[layer].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

inline std::string temporary_folder() { return std::filesystem::temp_directory_path().string(); }

}  // namespace quire::test

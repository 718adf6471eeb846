// A model of random weights on the CPU and on the device, and the same text through both.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "gpu/device_batch.h"
#include "gpu/device_model.h"
#include "gpu/random_gguf.h"
#include "kernels/cuda/device_buffer.h"

namespace quire::test {

// On the CPU alone.
struct RandomHostModel {
  explicit RandomHostModel(const RandomGgufShape& shape_in)
      : shape(shape_in), bytes(RandomGguf(shape, 11).build()) {
    EngineOptions options;
    options.n_threads = 2;
    options.precision = Precision::kPrecise;
    engine = std::make_unique<Engine>(GgufFile::from_memory(bytes, "random.gguf"), options);
    Random random(3);
    for (int i = 0; i < 700; ++i) text.push_back(static_cast<int32_t>(random.below(shape.vocabulary)));
  }

  std::span<const int32_t> tokens(size_t first, size_t n) const { return std::span(text).subspan(first, n); }

  // Logits behind n tokens of the text from `first` on.
  std::vector<float> forward(Cache& cache, size_t first, size_t n) const {
    Workspace workspace;
    engine->forward(tokens(first, n), cache, workspace);
    const size_t row = n - 1;
    std::vector<float> logits(engine->config().vocabulary);
    engine->logits({&row, 1}, workspace, logits.data());
    return logits;
  }

  // Behind a prompt and behind each of n_steps tokens more.
  std::vector<std::vector<float>> cpu_logits(const Recipe& recipe, size_t n_prompt, size_t n_steps) const {
    Cache cache = engine->make_cache(recipe);
    std::vector<std::vector<float>> all = {forward(cache, 0, n_prompt)};
    for (size_t i = 0; i < n_steps; ++i) all.push_back(forward(cache, n_prompt + i, 1));
    return all;
  }

  RandomGgufShape shape;
  Bytes bytes;
  std::unique_ptr<Engine> engine;
  std::vector<int32_t> text;
};

struct RandomModel : RandomHostModel {
  explicit RandomModel(const RandomGgufShape& of)
      : RandomHostModel(of),
        model(gpu::DeviceModel::load(GgufFile::from_memory(bytes, "random.gguf"), {}, 0)) {}

  std::unique_ptr<gpu::DeviceBatch> batch(const Recipe& recipe, int n, uint64_t budget_bytes = 0) const {
    gpu::BatchOptions options;
    options.budget_bytes = budget_bytes;
    options.recipe = recipe;
    options.n_sequences = n;
    options.context_tokens = text.size();
    return std::make_unique<gpu::DeviceBatch>(model, options, engine->facts(recipe));
  }
  static void step(gpu::DeviceBatch& device, int sequence, int32_t token) {
    device.set_token(sequence, token);
    device.step();
    device.take_tokens();
  }

  gpu::DeviceModel model;
};

}  // namespace quire::test

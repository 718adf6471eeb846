// A real model on the device and on the CPU, loaded once for all tests.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/calibration_text.h"
#include "engine/engine.h"
#include "gpu/device_batch.h"
#include "gpu/device_model.h"
#include "kernels/cuda/device_buffer.h"
#include "weights/open_model.h"

namespace quire::test {

class DeviceModelTest : public testing::Test {
 protected:
  static constexpr const char* kModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

  struct Loaded {
    explicit Loaded(const std::string& path)
        : file(open_model(path)),
          engine(file, options()),
          model(gpu::DeviceModel::load(file, {}, 0)),
          text(engine.tokenizer().encode(calibration_text(), ControlTokens::kParse)) {}
    static EngineOptions options() {
      EngineOptions options;
      options.precision = Precision::kPrecise;
      return options;
    }
    GgufFile file;
    Engine engine;
    gpu::DeviceModel model;
    std::vector<int32_t> text;
  };

  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    std::string path(kModel);
    if (!std::filesystem::exists(path)) path.insert(0, QUIRE_SOURCE_DIR "/");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no model: " << path;
    if (!loaded()) loaded().emplace(path);
  }

  static std::optional<Loaded>& loaded() {
    static std::optional<Loaded> the;
    return the;
  }
  static Engine& engine() { return loaded()->engine; }
  static const gpu::DeviceModel& model() { return loaded()->model; }
  static std::span<const int32_t> text(size_t first, size_t n) {
    return std::span(loaded()->text).subspan(first, n);
  }

  static gpu::BatchOptions options(const std::string& recipe, int n_sequences, size_t context) {
    gpu::BatchOptions options;
    options.recipe = Recipe::parse(recipe);
    options.n_sequences = n_sequences;
    options.context_tokens = context;
    return options;
  }
  static std::unique_ptr<gpu::DeviceBatch> batch(const gpu::BatchOptions& options) {
    return std::make_unique<gpu::DeviceBatch>(model(), options, engine().facts(options.recipe));
  }
};

}  // namespace quire::test

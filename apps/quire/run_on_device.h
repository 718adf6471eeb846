// --device cuda of `quire run` and `quire chat`: a model on a GPU and a sequence of it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "engine/engine.h"
#include "gpu/device_model.h"
#include "gpu/device_session.h"
#include "options.h"

namespace quire::cli {

// Throws Error for what only the CPU does.
void check_device_flags(const ModelOptions& model);

class OnDevice {
 public:
  // Loads the model, onto the device first: where there is none that is said at once.
  OnDevice(const std::string& device, const ModelOptions& options);

  Engine& engine() { return *engine_; }
  const gpu::DeviceModel& model() const { return *model_; }
  const gpu::DeviceSession& session() const { return *session_; }
  // Reserves room for n_tokens, or for the whole context where that is less; at least for n_room, what a file
  // needs. has_file: a cache is loaded or saved; Error where the recipe's cannot be.
  gpu::DeviceSession& begin(const SamplingFlags& sampling, const SessionOptions& session, size_t n_room,
                            size_t n_tokens, bool has_file);

  // Figures of a run, without the members that are for saved sequences.
  nlohmann::ordered_json report(const SamplingFlags& sampling, const PrefillResult& prefill,
                                const Generation& generation) const;
  void write_figures(const SamplingFlags& sampling, const PrefillResult& prefill,
                     const Generation& generation) const;

 private:
  uint64_t device_bytes() const { return session_->batch().memory_bytes() + model_->weight_bytes(); }

  std::string device_;
  const ModelOptions& options_;
  Recipe recipe_;
  std::optional<gpu::DeviceModel> model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<gpu::DeviceSession> session_;
  double load_seconds_ = 0;
  size_t context_tokens_ = 0;
};

}  // namespace quire::cli

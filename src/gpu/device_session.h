// One sequence on a device that goes on from prompt to answer to prompt: what engine/session.h is for the
// CPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/session.h"
#include "gpu/device_batch.h"

namespace quire::gpu {

// Tokens and draws are those of a Session on the CPU with equal logits. Not to be used from two threads;
// engine and model outlive it.
class DeviceSession {
 public:
  // `options` of a batch of one sequence; context_tokens: most tokens of the sequence, at most those that the
  // batch has room for. Throws as DeviceBatch.
  DeviceSession(Engine& engine, const DeviceModel& model, const BatchOptions& options, size_t context_tokens);

  const std::vector<int32_t>& tokens() const { return tokens_; }
  size_t context_tokens() const { return context_tokens_; }
  const DeviceBatch& batch() const { return batch_; }
  DeviceBatch::Outside take_outside() { return batch_.take_outside(); }

  // As those of Session; where a prompt is interrupted its rows and those before are computed anew when
  // something follows.
  PrefillResult prefill(std::span<const int32_t> tokens, const PrefillOptions& options = {});
  Generation generate(const GenerateOptions& options, const OnText& on_text = {});
  void crop(size_t n_tokens);
  // The rows pass through memory of the host, as much as they take.
  void restore(const SavedSession& saved);
  // Returns the file's bytes.
  uint64_t save(const std::string& path);

 private:
  bool compute_pending(const PrefillOptions& options, PrefillResult& result);
  bool ensure_choice(const PrefillOptions& options, PrefillResult& result);
  void cut(size_t n_tokens);

  Engine& engine_;
  Recipe recipe_;
  bool draws_;
  bool changes_logits_;  // of what is never chosen, or penalised
  size_t context_tokens_;
  DeviceBatch batch_;
  std::vector<int32_t> tokens_;
  uint64_t n_draws_ = 0;     // from the seed, of tokens that were taken
  bool has_choice_ = false;  // the next token is chosen, and not taken
  bool has_logits_ = false;  // the device's are those behind the last token in the cache
};

}  // namespace quire::gpu

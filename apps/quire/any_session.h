// A sequence on the CPU or on a device: what `quire run` and `quire chat` do with either.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/session.h"
#include "gpu/device_session.h"

namespace quire::cli {

class AnySession {
 public:
  virtual ~AnySession() = default;
  virtual const std::vector<int32_t>& tokens() const = 0;
  virtual size_t n_cached() const = 0;  // of these, whose rows are there
  virtual size_t context_tokens() const = 0;
  virtual bool is_endless() const = 0;
  virtual PrefillResult prefill(std::span<const int32_t> tokens, const PrefillOptions& options) = 0;
  virtual Generation generate(const GenerateOptions& options, const OnText& on_text) = 0;
  virtual void crop(size_t n_tokens) = 0;
  virtual void restore(const SavedSession& saved) = 0;
  virtual uint64_t save(const std::string& path) const = 0;
  // No sequence can go on with where the rows lie.
  virtual bool is_lost() const = 0;
};

// Of a session and a sampler that outlive it.
class HostSession final : public AnySession {
 public:
  HostSession(Session& session, Sampler& sampler) : session_(session), sampler_(sampler) {}

  const std::vector<int32_t>& tokens() const override { return session_.tokens(); }
  size_t n_cached() const override { return session_.cache().n_tokens(); }
  size_t context_tokens() const override { return session_.context_tokens(); }
  bool is_endless() const override { return session_.is_endless(); }
  PrefillResult prefill(std::span<const int32_t> tokens, const PrefillOptions& options) override {
    return session_.prefill(tokens, options);
  }
  Generation generate(const GenerateOptions& options, const OnText& on_text) override {
    return session_.generate(sampler_, options, on_text);
  }
  void crop(size_t n_tokens) override { session_.crop(n_tokens); }
  void restore(const SavedSession& saved) override { session_.restore(saved); }
  uint64_t save(const std::string& path) const override;
  bool is_lost() const override;

 private:
  Session& session_;
  Sampler& sampler_;
};

class DeviceHeldSession final : public AnySession {
 public:
  explicit DeviceHeldSession(gpu::DeviceSession& session) : session_(session) {}

  const std::vector<int32_t>& tokens() const override { return session_.tokens(); }
  size_t n_cached() const override { return session_.batch().n_tokens(0); }
  size_t context_tokens() const override { return session_.context_tokens(); }
  bool is_endless() const override { return false; }
  PrefillResult prefill(std::span<const int32_t> tokens, const PrefillOptions& options) override {
    return session_.prefill(tokens, options);
  }
  Generation generate(const GenerateOptions& options, const OnText& on_text) override {
    return session_.generate(options, on_text);
  }
  void crop(size_t n_tokens) override { session_.crop(n_tokens); }
  void restore(const SavedSession& saved) override { session_.restore(saved); }
  uint64_t save(const std::string& path) const override { return session_.save(path); }
  bool is_lost() const override { return false; }

 private:
  gpu::DeviceSession& session_;
};

}  // namespace quire::cli

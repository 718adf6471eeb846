// A prompt's attention by cuDNN, where it is there; prompt_attention.h is what stands in for it.
#pragma once

#include <cstdint>
#include <memory>

#include "gpu/prompt_attention.h"

namespace quire::gpu {

class LibraryAttention {
 public:
  LibraryAttention();
  ~LibraryAttention();
  LibraryAttention(const LibraryAttention&) = delete;
  LibraryAttention& operator=(const LibraryAttention&) = delete;

  // By the library, or where it is not built in, not found or refuses the sizes, by our own kernel. `out` is
  // bf16 in any case. Windows and caps are for our own kernel. Plans of a shape are made at its first use,
  // and those used last are kept: as many as a prompt that fills `stride` has chunks, at least. Throws
  // DeviceError where memory is refused.
  void attend(const PromptAttention& attention, cuda::Stream stream);

  // Plans that were made so far, those that the library does not have among them.
  uint64_t n_plans_made() const;

  // Memory that plans share.
  uint64_t memory_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::gpu

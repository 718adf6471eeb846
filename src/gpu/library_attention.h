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
  // bf16 in any case. Plans of a shape are made at its first use, and those used last are kept. Throws
  // DeviceError where memory is refused.
  void attend(const PromptAttention& attention, cuda::Stream stream);

  // Memory that plans share.
  uint64_t memory_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::gpu

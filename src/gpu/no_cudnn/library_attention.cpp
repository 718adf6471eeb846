// Built without the headers of cuDNN's frontend: our own kernel does it all.
#include "gpu/library_attention.h"

namespace quire::gpu {

struct LibraryAttention::State {};

LibraryAttention::LibraryAttention() = default;
LibraryAttention::~LibraryAttention() = default;
uint64_t LibraryAttention::memory_bytes() const { return 0; }
uint64_t LibraryAttention::n_plans_made() const { return 0; }
void LibraryAttention::attend(const PromptAttention& attention, cuda::Stream stream) {
  attend_prompt(attention, stream);
}

}  // namespace quire::gpu

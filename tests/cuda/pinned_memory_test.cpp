#include "kernels/cuda/pinned_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "base/device_error.h"
#include "kernels/cuda/device_buffer.h"

namespace quire::test {
namespace {

TEST(PinnedMemoryTest, NothingNeedsNoDevice) {
  const cuda::PinnedMemory none(0);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.size_bytes(), 0u);
}

// Without a device the sentence says so; with one it says how much was asked for.
TEST(PinnedMemoryTest, RefusalsAreASentence) {
  cuda::refuse_allocation(0);
  try {
    const cuda::PinnedMemory memory(12345);
    ADD_FAILURE() << "was not refused";
  } catch (const DeviceError& error) {
    const char* wanted =
        cuda::device_count() > 0 ? "no room for 12345 bytes of pinned memory" : "no CUDA device";
    EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
  }
  cuda::refuse_allocation(-1);
}

// Known before the device is asked, and without one.
TEST(PinnedMemoryTest, MoreThanTheHostHasIsRefusedAtOnce) {
  EXPECT_NO_THROW(cuda::check_pinned_room(4096));
  try {
    cuda::check_pinned_room(size_t{1} << 60);
    ADD_FAILURE() << "was not refused";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find(" are available"), std::string::npos) << error.what();
  }
  EXPECT_EQ(cuda::pinned_bytes(), 0u);
}

}  // namespace
}  // namespace quire::test

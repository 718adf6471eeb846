#include "cuda/device_test.h"

#include "base/error.h"
#include "kernels/cuda/page_tables.h"

namespace quire::test {
namespace {

// What a user without a GPU reads.
TEST(CudaDevice, ThatIsMissingIsOneSentence) {
  if (cuda::device_count() > 0) GTEST_SKIP() << "there is a CUDA device";
  try {
    cuda::DeviceBuffer buffer(16);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no CUDA device was found: a GPU and its driver are needed");
  }
}

class CudaMemory : public DeviceTest {};

TEST_F(CudaMemory, ThatIsFullIsOneSentence) {
  try {
    cuda::DeviceBuffer buffer(size_t{1} << 50);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("has no room for 1125899906842624 bytes"), std::string::npos)
        << error.what();
  }
  EXPECT_NO_THROW(cuda::DeviceBuffer(1 << 20));  // the device is still usable
}

TEST_F(CudaMemory, PagesNeverExceedTheirBudget) {
  cuda::DevicePages pages(4096, 5 * 4096 + 4095);
  EXPECT_EQ(pages.reserved_bytes(), 5u * 4096);
  for (int i = 0; i < 5; ++i) pages.numbers().take();
  EXPECT_EQ(pages.used_bytes(), 5u * 4096);
  EXPECT_THROW(pages.numbers().take(), Error);
  EXPECT_THROW(cuda::DevicePages(4096, 4095), Error);
}

}  // namespace
}  // namespace quire::test

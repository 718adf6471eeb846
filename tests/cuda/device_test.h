// Tests that need a GPU skip where there is none.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/device_buffer.h"

namespace quire::test {

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

template <typename T>
cuda::DeviceBuffer on_device(const std::vector<T>& values) {
  cuda::DeviceBuffer buffer(values.size() * sizeof(T));
  buffer.write(values.data(), values.size() * sizeof(T));
  return buffer;
}

template <typename T>
std::vector<T> on_host(const cuda::DeviceBuffer& buffer) {
  std::vector<T> values(buffer.size_bytes() / sizeof(T));
  buffer.read(values.data(), buffer.size_bytes());
  return values;
}

}  // namespace quire::test

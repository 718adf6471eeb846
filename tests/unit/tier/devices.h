// All kinds of slab devices that this machine has.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tier/slab_device.h"
#include "tier/slab_file.h"

namespace quire {

// A folder that goes away with what is in it.
class OwnFolder {
 public:
  OwnFolder() : path_((std::filesystem::temp_directory_path() / "quire_test_XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~OwnFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

enum class DeviceKind { kMemory, kThreads, kUring };
constexpr DeviceKind kDeviceKinds[] = {DeviceKind::kMemory, DeviceKind::kThreads, DeviceKind::kUring};

// nullptr where the kernel has none of that kind.
inline std::unique_ptr<SlabDevice> make_device(DeviceKind kind, const std::string& folder) {
  if (kind == DeviceKind::kMemory) return make_memory_device();
  SlabFile file(folder);
  if (kind == DeviceKind::kUring) return make_uring_device(file);
  return make_thread_device(std::move(file));
}

}  // namespace quire

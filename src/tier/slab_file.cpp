#include "tier/slab_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"

namespace quire {

namespace {

constexpr const char* kPrefix = "quire-slab-";
constexpr size_t kUsualAlignment = 4096;  // no file system wants more

[[noreturn]] void fail(const std::string& folder, const char* what, int error) {
  throw Error("place=disk: " + std::string(what) + " in " + folder + ": " + std::strerror(error));
}

// A file without a name, or -1.
int open_unnamed(const std::string& folder) {
  return open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

int open_named(const std::string& folder) {
  std::random_device random;
  for (int attempt = 0; attempt < 16; ++attempt) {
    char name[64];
    std::snprintf(name, sizeof name, "/%s%ld-%08x%08x", kPrefix, static_cast<long>(getpid()), random(),
                  random());
    const std::string path = folder + name;
    const int descriptor = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor >= 0) unlink(path.c_str());
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
}

// Some file systems accept the flag and refuse the transfers.
bool takes_direct(int descriptor) {
  alignas(kUsualAlignment) static const char block[kUsualAlignment] = {};
  const bool refused = pwrite(descriptor, block, sizeof block, 0) < 0 && errno == EINVAL;
  return ftruncate(descriptor, 0) == 0 && !refused;
}

// What direct transfers are multiples of; 1 where the file takes none.
size_t turn_direct(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0) return 1;
  size_t alignment = kUsualAlignment;
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    alignment = info.stx_dio_offset_align;
    if (alignment < info.stx_dio_mem_align) alignment = info.stx_dio_mem_align;
    if (alignment == 0 || alignment > kUsualAlignment) {
      fcntl(descriptor, F_SETFL, flags);
      return 1;
    }
  }
#endif
  if (!takes_direct(descriptor)) {
    fcntl(descriptor, F_SETFL, flags);
    return 1;
  }
  return alignment;
}

// The process in the name of a slab, or 0 for other names.
long process_of(const char* name) {
  long process = 0;
  char rest[17] = {0};
  int length = 0;
  const std::string pattern = std::string(kPrefix) + "%10ld-%16[0-9a-f]%n";
  if (std::sscanf(name, pattern.c_str(), &process, rest, &length) != 2) return 0;
  return std::strlen(rest) == 16 && name[length] == 0 && process > 0 ? process : 0;
}

}  // namespace

size_t remove_dead_slabs(const std::string& folder) {
  DIR* listing = opendir(folder.c_str());
  if (listing == nullptr) return 0;
  size_t n_removed = 0;
  while (const dirent* entry = readdir(listing)) {
    const long process = process_of(entry->d_name);
    if (process == 0 || kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH) continue;
    struct stat info {};
    const bool own = fstatat(dirfd(listing), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                     S_ISREG(info.st_mode) && info.st_uid == geteuid();
    if (own && unlinkat(dirfd(listing), entry->d_name, 0) == 0) ++n_removed;
  }
  closedir(listing);
  return n_removed;
}

SlabFile::SlabFile(const std::string& folder, Naming naming) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) fail(folder, "no file can be made", errno);
  if (!S_ISDIR(info.st_mode)) fail(folder, "no file can be made", ENOTDIR);
  remove_dead_slabs(folder);
  if (naming == Naming::kBest) descriptor_ = open_unnamed(folder);
  if (descriptor_ < 0) descriptor_ = open_named(folder);
  if (descriptor_ < 0) fail(folder, "no file can be made", errno);
  alignment_ = turn_direct(descriptor_);
}

SlabFile::SlabFile(SlabFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), alignment_(other.alignment_) {}

SlabFile::~SlabFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace quire

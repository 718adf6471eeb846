#include "weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Not strerror: files are opened on several threads.
std::string error_text() { return std::generic_category().message(errno); }

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error("cannot open " + path + ": " + what);
}

}  // namespace

MappedFile MappedFile::open(const std::string& path) {
  // A NUL would silently open another path than the one in the message.
  if (path.find('\0') != std::string::npos) throw Error("cannot open a file whose path contains a NUL byte");
  // O_NONBLOCK: a pipe must be refused below, not waited for.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) fail(path, error_text());
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) fail(path, error_text());
  if (S_ISDIR(status.st_mode)) fail(path, "it is a directory");
  if (!S_ISREG(status.st_mode)) fail(path, "it is not a regular file");
  if (status.st_size == 0) return MappedFile({}, false);
  const auto size = static_cast<size_t>(status.st_size);
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (base == MAP_FAILED) fail(path, std::string("it cannot be mapped: ") + error_text());
  return MappedFile({static_cast<const std::byte*>(base), size}, true);
}

MappedFile MappedFile::view(std::span<const std::byte> bytes) { return MappedFile(bytes, false); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), is_mapping_(std::exchange(other.is_mapping_, false)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(is_mapping_, other.is_mapping_);
  return *this;
}

MappedFile::~MappedFile() {
  if (is_mapping_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::drop_pages(std::span<const std::byte> range) const {
  if (!is_mapping_) return;
  const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t first = (begin + page_bytes - 1) / page_bytes * page_bytes;
  const uintptr_t last = (begin + range.size()) / page_bytes * page_bytes;
  // Advice only: when it fails, memory stays resident and nothing else changes.
  if (first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace quire

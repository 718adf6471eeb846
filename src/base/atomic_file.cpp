#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

// Names in use that are passed over.
constexpr int kMostLeftOver = 1000;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error("cannot write " + path + ": " + what);
}

// Not strerror: files are written on several threads.
std::string error_text(int error) { return std::generic_category().message(error); }

// Makes the rename itself last. Some file systems cannot do this for folders; the file is complete either
// way.
void sync_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);
  ::close(fd);
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  // A NUL would silently write another path than the one in the message.
  if (path_.find('\0') != std::string::npos)
    throw Error("cannot write a file whose path contains a NUL byte");
  struct stat status;
  if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    fail(path_, S_ISDIR(status.st_mode) ? "it is a directory" : "it is not a regular file");
  }
  static std::atomic<uint64_t> counter{0};
  // A process that was killed may have left names of this one's number behind.
  for (int attempt = 0; fd_ < 0; ++attempt) {
    name_ = path_ + ".new-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    fd_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && (errno != EEXIST || attempt == kMostLeftOver)) fail(path_, error_text(errno));
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!renamed_) ::unlink(name_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, error_text(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) fail(path_, error_text(errno));
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) fail(path_, error_text(errno));
  if (std::rename(name_.c_str(), path_.c_str()) != 0) fail(path_, error_text(errno));
  renamed_ = true;
  sync_folder(path_);
}

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace quire

// Files on disk: what cannot be opened, and giving pages back.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "unit/weights/gguf_writer.h"
#include "weights/gguf.h"

namespace quire::test {
namespace {

class GgufOpen : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "quire_gguf_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const Bytes& bytes) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path;
  }

  // The Error of opening `path`, with the folder taken out.
  std::string error_of(const std::string& path) const {
    try {
      (void)GgufFile::open(path);
    } catch (const Error& error) {
      std::string text = error.what();
      for (size_t at = 0; (at = text.find(folder_)) != std::string::npos;)
        text.replace(at, folder_.size(), "DIR");
      return text;
    }
    return "no error";
  }

  static Bytes split_part(uint16_t part, uint16_t n_parts) {
    GgufWriter writer;
    writer.add<uint16_t>("split.no", part).add<uint16_t>("split.count", n_parts);
    return writer.add_tensor("w", {4}, TensorType::F32, pattern_bytes(16)).build();
  }

  std::string folder_;
};

TEST_F(GgufOpen, ReadsAFile) {
  const Bytes data = pattern_bytes(4 * 4096 * 8);
  const std::string path = write(
      "a.gguf",
      GgufWriter().add("general.name", "tiny").add_tensor("w", {4096, 8}, TensorType::F32, data).build());
  GgufFile file = GgufFile::open(path);
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.get_string("general.name"), "tiny");
  EXPECT_EQ(Bytes(file.tensor("w").data, file.tensor("w").data + data.size()), data);
  GgufFile other = std::move(file);
  file = GgufFile::open(path);  // over a moved-from one
  EXPECT_EQ(other.fingerprint(), file.fingerprint());
}

// Resident pages of [begin, end), by mincore's cousin for private maps: /proc/self/smaps is too coarse, so
// we ask for the page table through /proc/self/pagemap (bit 63: present).
size_t resident_pages(const std::byte* begin, size_t n_bytes) {
  const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const int fd = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SIZE_MAX;
  size_t n_resident = 0;
  const auto first = reinterpret_cast<uintptr_t>(begin) / page_bytes;
  const auto last = (reinterpret_cast<uintptr_t>(begin) + n_bytes - 1) / page_bytes;
  for (uintptr_t page = first; page <= last; ++page) {
    uint64_t entry = 0;
    if (::pread(fd, &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)) != sizeof entry) break;
    n_resident += entry >> 63;
  }
  ::close(fd);
  return n_resident;
}

TEST_F(GgufOpen, DropPagesGivesMemoryBackAndKeepsTheData) {
  const Bytes data = pattern_bytes(1 << 20);
  GgufWriter writer;
  writer.add_tensor("before", {10}, TensorType::F32, pattern_bytes(40));
  writer.add_tensor("w", {1 << 18}, TensorType::F32, data);
  writer.add_tensor("after", {10}, TensorType::F32, pattern_bytes(40));
  const GgufFile file = GgufFile::open(write("a.gguf", writer.build()));
  const TensorInfo& tensor = file.tensor("w");
  ASSERT_EQ(std::memcmp(tensor.data, data.data(), data.size()), 0);
  const size_t n_before = resident_pages(tensor.data, tensor.size_bytes);
  if (n_before == SIZE_MAX || n_before < 256) GTEST_SKIP() << "no usable /proc/self/pagemap";
  file.drop_pages(tensor);
  EXPECT_LE(resident_pages(tensor.data, tensor.size_bytes), 2u);  // those shared with the neighbours
  EXPECT_EQ(std::memcmp(tensor.data, data.data(), data.size()), 0);
  file.drop_pages(file.tensor("before"));  // smaller than a page: nothing to drop
}

TEST_F(GgufOpen, WhatIsNoFile) {
  EXPECT_EQ(error_of(folder_ + "/none.gguf"), "cannot open DIR/none.gguf: No such file or directory");
  EXPECT_EQ(error_of(folder_), "cannot open DIR: it is a directory");
  EXPECT_EQ(error_of(""), "cannot open : No such file or directory");
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of(folder_ + "/pipe"), "cannot open DIR/pipe: it is not a regular file");
  EXPECT_EQ(error_of(write("file", {}) + "/x.gguf"), "cannot open DIR/file/x.gguf: Not a directory");
  EXPECT_EQ(error_of(std::string("a\0b", 3)), "cannot open a file whose path contains a NUL byte");
}

TEST_F(GgufOpen, UnreadableFile) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const std::string path = write("a.gguf", GgufWriter().build());
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  EXPECT_EQ(error_of(path), "cannot open DIR/a.gguf: Permission denied");
}

TEST_F(GgufOpen, EmptyFile) { EXPECT_EQ(error_of(write("a.gguf", {})), "DIR/a.gguf: the file is empty"); }

// weights/open_model.h joins parts; here only whole files are.
TEST_F(GgufOpen, PartsOfASplitModelAreNotWhole) {
  EXPECT_EQ(error_of(write("a.gguf", split_part(1, 3))),
            "DIR/a.gguf: this is part 2 of 3 of a split model, not a whole one");
  EXPECT_EQ(error_of(write("b.gguf", split_part(9, 3))),
            "DIR/b.gguf: this is one of 3 parts of a split model, not a whole one");
}

TEST_F(GgufOpen, OnePartOfOneIsWhole) {
  EXPECT_EQ(error_of(write("a-00001-of-00001.gguf", split_part(0, 1))), "no error");
}

}  // namespace
}  // namespace quire::test

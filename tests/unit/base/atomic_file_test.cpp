#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "unit/temporary_folder.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

class AtomicFiles : public test::TemporaryFolder {
 protected:
  void write(const fs::path& path, std::string_view text) {
    write_file_atomically(path.string(), std::as_bytes(std::span(text)));
  }
  static std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  size_t n_entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
};

TEST_F(AtomicFiles, WritesAndReplaces) {
  write(folder / "a", "one");
  EXPECT_EQ(read(folder / "a"), "one");
  write(folder / "a", "");
  EXPECT_EQ(read(folder / "a"), "");
  EXPECT_EQ(n_entries(), 1u);
}

TEST_F(AtomicFiles, RefusalsLeaveEverythingAsItWas) {
  EXPECT_THROW(write(folder / "missing" / "a", "x"), Error);
  EXPECT_THROW(write(folder, "x"), Error);
  EXPECT_THROW(write("/dev/null", "x"), Error);
  EXPECT_FALSE(fs::is_regular_file("/dev/null"));
  EXPECT_THROW(write(folder / std::string("a\0b", 3), "x"), Error);
  EXPECT_EQ(n_entries(), 0u);
}

TEST_F(AtomicFiles, InPiecesAndOnlyWhenCommitted) {
  write(folder / "a", "old");
  {
    AtomicFile file((folder / "a").string());
    for (const std::string_view piece : {"new ", "", "text"}) file.write(std::as_bytes(std::span(piece)));
    EXPECT_EQ(read(folder / "a"), "old");
    file.commit();
    EXPECT_EQ(read(folder / "a"), "new text");
  }
  {
    AtomicFile file((folder / "a").string());
    file.write(std::as_bytes(std::span(std::string_view("given up"))));
  }
  EXPECT_EQ(read(folder / "a"), "new text");
  EXPECT_EQ(n_entries(), 1u);
}

// What a killed process with the same number left behind is neither in the way nor touched.
TEST_F(AtomicFiles, LeftOversOfTheSameNumberArePassedOver) {
  const std::string prefix = (folder / "a").string() + ".new-" + std::to_string(::getpid()) + "-";
  std::string first;
  {
    const AtomicFile probe((folder / "a").string());
    first = fs::directory_iterator(folder)->path().string();
  }
  ASSERT_EQ(first.substr(0, prefix.size()), prefix);
  const uint64_t next = std::stoull(first.substr(prefix.size())) + 1;
  for (uint64_t i = next; i < next + 3; ++i) std::ofstream(prefix + std::to_string(i)) << "left over";
  write(folder / "a", "new");
  EXPECT_EQ(read(folder / "a"), "new");
  for (uint64_t i = next; i < next + 3; ++i) EXPECT_EQ(read(prefix + std::to_string(i)), "left over");
  EXPECT_EQ(n_entries(), 4u);
}

}  // namespace
}  // namespace quire

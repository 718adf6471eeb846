#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "tier/mapped_bytes.h"
#include "tier/slab_space.h"
#include "unit/tier/devices.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

size_t n_files(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(SlabSpace, TakesWhatWasGivenBackAgain) {
  SlabSpace space(4096 * 3, 512);
  const auto a = space.take(4000), b = space.take(4096), c = space.take(4096);
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(*a % 512, 0u);
  EXPECT_FALSE(space.take(1));
  space.give_back(*b, 4096);
  EXPECT_EQ(space.take(4000), b);
  EXPECT_EQ(space.used_bytes(), 3u * 4096);
  for (const auto at : {a, b, c}) space.give_back(*at, 4096);
  EXPECT_EQ(space.used_bytes(), 0u);
  EXPECT_EQ(space.take(12288), 0u) << "an empty slab begins anew";
}

TEST(SlabDevice, GivesBackWhatWasWrittenByManyTransfersAtATime) {
  const OwnFolder folder;
  for (const DeviceKind kind : kDeviceKinds) {
    const auto device = make_device(kind, folder.path());
    if (device == nullptr) continue;
    const size_t unit = std::max<size_t>(device->alignment(), 512);
    const size_t n = device->depth();
    const MappedBytes written(n * unit * 4), read(n * unit * 4);
    std::minstd_rand random(3);
    for (size_t i = 0; i < written.size_bytes(); ++i) written.data()[i] = static_cast<std::byte>(random());
    for (const bool writes : {true, false}) {
      std::vector<Transfer> transfers;
      for (size_t i = 0; i < n; ++i) {
        const size_t at = (i * 7 % n) * unit * 4;
        transfers.push_back({writes, at, (writes ? written : read).data() + at, unit * 4, i});
      }
      device->start(transfers);
      std::vector<FinishedTransfer> finished(5);
      std::vector<bool> seen(n);
      for (size_t n_seen = 0; n_seen < n;) {
        const size_t n_now = device->finish(finished);
        ASSERT_GT(n_now, 0u);
        for (size_t i = 0; i < n_now; ++i, ++n_seen) {
          EXPECT_EQ(finished[i].result, static_cast<int64_t>(unit * 4)) << device->name();
          EXPECT_FALSE(seen[finished[i].tag]);
          seen[finished[i].tag] = true;
        }
      }
      EXPECT_EQ(device->finish(finished), 0u) << "nothing is under way";
    }
    EXPECT_EQ(std::memcmp(written.data(), read.data(), read.size_bytes()), 0) << device->name();
    // Behind the end there is nothing.
    const Transfer beyond{false, uint64_t{1} << 40, read.data(), unit, 9};
    device->start({&beyond, 1});
    FinishedTransfer end{};
    ASSERT_EQ(device->finish({&end, 1}), 1u);
    EXPECT_EQ(end.result, 0) << device->name();
  }
}

TEST(SlabDevice, FinishesWhatIsUnderWayBeforeItGoes) {
  const OwnFolder folder;
  for (const DeviceKind kind : kDeviceKinds) {
    const MappedBytes bytes(size_t{1} << 20);
    const auto device = make_device(kind, folder.path());
    if (device == nullptr) continue;
    const Transfer transfer{true, 0, bytes.data(), bytes.size_bytes(), 0};
    device->start({&transfer, 1});
  }
}

TEST(SlabFile, HasNoNameFromTheStart) {
  const OwnFolder folder;
  for (const auto naming : {SlabFile::Naming::kBest, SlabFile::Naming::kNamed}) {
    const SlabFile file(folder.path(), naming);
    EXPECT_GE(file.descriptor(), 0);
    EXPECT_EQ(n_files(folder.path()), 0u);
    EXPECT_EQ(pwrite(file.descriptor(), MappedBytes(4096).data(), 4096, 0), 4096);
  }
}

TEST(SlabFile, RemovesWhatDeadProcessesOfThisUserLeftAndNothingElse) {
  const OwnFolder folder;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);  // a process that is gone
  const std::string dead = std::to_string(child), own = std::to_string(getpid());
  const std::vector<std::string> stay = {
      "quire-slab-" + own + "-0123456789abcdef", "quire-slab-" + dead + "-0123456789abcde",
      "quire-slab-" + dead + "-0123456789abcdef.txt", "my-quire-slab-" + dead + "-0123456789abcdef",
      "quire-slab--0123456789abcdef"};
  for (const std::string& name : stay) std::ofstream(folder.path() + "/" + name) << "x";
  fs::create_directory(folder.path() + "/quire-slab-" + dead + "-aaaaaaaaaaaaaaaa");
  fs::create_symlink(stay[0], folder.path() + "/quire-slab-" + dead + "-bbbbbbbbbbbbbbbb");
  std::ofstream(folder.path() + "/quire-slab-" + dead + "-cccccccccccccccc") << "x";
  const SlabFile file(folder.path());
  EXPECT_EQ(n_files(folder.path()), stay.size() + 2);
  EXPECT_FALSE(fs::exists(folder.path() + "/quire-slab-" + dead + "-cccccccccccccccc"));
}

TEST(SlabFile, SaysWhyThereIsNone) {
  const OwnFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  for (const std::string& path : {folder.path() + "/none", folder.path() + "/file"}) {
    try {
      const SlabFile file(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace quire

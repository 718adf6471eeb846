#include "tier/tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "base/error.h"
#include "faulty_device.h"
#include "unit/tier/devices.h"

namespace quire {
namespace {

constexpr size_t kHeads = 3;

PieceLayout layout_of(bool by_rows) { return {kHeads, 64 * 16 * 2, 64 * 16 * 2, by_rows, 16}; }

// A tier with pages of known bytes.
struct Scene {
  Scene(std::unique_ptr<SlabDevice> device, bool by_rows, uint64_t limit = 0, TierOptions options = {})
      : account(limit), layout(layout_of(by_rows)) {
    options.name = "the tier of the test";
    options.head_bytes = layout.head_bytes();
    options.row_bytes = by_rows ? layout.payload_bytes() : 0;
    options.buffer_bytes = 16 << 10;
    options.n_buffers = 4;
    options.plan_bytes = std::min<uint64_t>(options.plan_bytes, 16 << 10);
    tier = std::make_unique<Tier>(std::move(device), options, account);
  }

  void write(size_t n) {
    const size_t first = bytes.size();
    for (size_t i = 0; i < n; ++i) {
      bytes.emplace_back(kHeads * layout.head_bytes());
      for (std::byte& byte : bytes.back()) byte = static_cast<std::byte>(random());
    }
    write_bytes(first, n);
  }
  // Pages with these bytes.
  void write_bytes(size_t first, size_t n) {
    const size_t slab_bytes = tier->slab_bytes(layout);
    const MappedBytes window(n * slab_bytes);
    std::vector<std::shared_ptr<OutsidePage>> placed;
    std::vector<std::byte*> records;
    for (size_t i = 0; i < n; ++i) {
      placed.push_back(tier->place(layout));
      records.push_back(window.data() + i * slab_bytes);
      for (size_t head = 0; head < kHeads; ++head) {
        pack_head(layout, placed.back()->number, head, bytes[first + i].data() + head * layout.head_bytes(),
                  records.back());
      }
    }
    tier->write(placed, records);
    pages.insert(pages.end(), placed.begin(), placed.end());
  }

  // Reads a few heads of pages and compares; how many bytes are wrong.
  size_t read(size_t first, size_t n, size_t head, uint64_t rows, PieceUse use) {
    std::vector<std::vector<std::byte>> to(n, std::vector<std::byte>(layout.head_bytes()));
    std::vector<PieceRead> reads;
    for (size_t i = 0; i < n; ++i) reads.push_back({&pages[first + i], head, rows, to[i].data()});
    tier->load(reads, use);
    size_t n_wrong = 0;
    for (size_t i = 0; i < n; ++i) {
      const std::byte* wanted = bytes[first + i].data() + head * layout.head_bytes();
      for (size_t at = 0; at < layout.head_bytes(); ++at) {
        const size_t row = at < layout.key_bytes ? at / 2 % 64 : (at - layout.key_bytes) / 32;
        if (layout.by_rows && (rows >> row & 1) == 0) continue;
        n_wrong += to[i][at] != wanted[at];
      }
    }
    return n_wrong;
  }

  std::string fault() const {
    try {
      tier->check();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  MemoryAccount account;
  PieceLayout layout;
  std::unique_ptr<Tier> tier;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<OutsidePageRef> pages;
  std::minstd_rand random{11};
};

void want_some(Scene& scene, std::minstd_rand& random) {
  std::vector<WantedPieces> wanted;
  for (int i = 0; i < 10; ++i) {
    const OutsidePageRef& page = scene.pages[random() % scene.pages.size()];
    wanted.push_back(
        random() % 3 == 0
            ? WantedPieces::of_page(page)
            : WantedPieces::of_head(page, random() % kHeads, uint64_t{random()} << 13, PieceUse::kSelected));
  }
  scene.tier->want(std::move(wanted));
}

void read_at_random(Scene& scene, unsigned seed, int n_reads) {
  std::minstd_rand random(seed);
  for (int i = 0; i < n_reads; ++i) {
    if (random() % 4 == 0) want_some(scene, random);
    if (random() % 32 == 0) scene.tier->begin_round();
    const size_t first = random() % scene.pages.size();
    const size_t n = 1 + random() % std::min<size_t>(4, scene.pages.size() - first);
    const uint64_t rows = random() % 3 == 0 ? ~uint64_t{0} : uint64_t{random()} << (random() % 33);
    EXPECT_EQ(scene.read(first, n, random() % kHeads, rows,
                         random() % 2 == 0 ? PieceUse::kSelected : PieceUse::kSwept),
              0u);
  }
}

// Much less memory than there is outside, on every device, by pieces and by rows.
TEST(Tier, ThreadsGetWhatWasWrittenWhateverIsFetchedAhead) {
  const OwnFolder folder;
  for (const DeviceKind kind : kDeviceKinds) {
    for (const bool by_rows : {false, true}) {
      auto device = make_device(kind, folder.path());
      if (device == nullptr) continue;
      Scene scene(std::move(device), by_rows, 1 << 20);
      scene.write(100);
      std::vector<std::thread> threads;
      for (unsigned i = 0; i < 4; ++i) threads.emplace_back([&, i] { read_at_random(scene, i + 1, 150); });
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(scene.fault(), "");
      EXPECT_LE(scene.account.peak_bytes(), scene.account.limit_bytes());
      const TierCounts counts = scene.tier->counts();
      EXPECT_GT(counts.hits, 0u);
      EXPECT_LE(counts.hits + counts.late, counts.pieces);
      EXPECT_GE(counts.fetched_bytes, counts.fetched_pieces * scene.layout.payload_bytes());
    }
  }
}

TEST(Tier, ShortReadsAndDelaysChangeNothingForThreads) {
  const OwnFolder folder;
  for (const DeviceKind kind : kDeviceKinds) {
    auto device = make_device(kind, folder.path());
    if (device == nullptr) continue;
    auto faults = std::make_shared<Faults>();
    faults->short_every = 3;
    faults->put_off_every = 7;
    faults->delay_us = 200;
    Scene scene(std::make_unique<FaultyDevice>(std::move(device), faults), true, 900'000);
    scene.write(40);
    std::thread other([&] { read_at_random(scene, 21, 60); });
    read_at_random(scene, 22, 60);
    other.join();
    EXPECT_EQ(scene.fault(), "");
  }
}

// Each fault is told in one sentence that says where, and nobody waits for ever.
TEST(Tier, FaultsAreToldToAllThreads) {
  const OwnFolder folder;
  struct Case {
    void (*set)(Faults&);
    const char* says;
  };
  const Case cases[] = {
      {[](Faults& faults) { faults.read_error = EIO; }, "could not be read at offset"},
      {[](Faults& faults) { faults.flip = 50'000; }, "are not what was written there"},
      {[](Faults& faults) { faults.end = 40'960; }, "the slab has been cut short"},
      {[](Faults& faults) { faults.put_off_every = 1; }, "could not be read at offset"},
  };
  for (const DeviceKind kind : kDeviceKinds) {
    for (const Case& each : cases) {
      auto device = make_device(kind, folder.path());
      if (device == nullptr) continue;
      auto faults = std::make_shared<Faults>();
      Scene scene(std::make_unique<FaultyDevice>(std::move(device), faults), false);
      scene.write(20);
      ASSERT_EQ(scene.fault(), "");
      each.set(*faults);
      const auto read_all = [&] {
        for (size_t page = 0; page < 20; ++page)
          scene.read(page, 1, page % kHeads, ~uint64_t{0}, PieceUse::kSwept);
        for (size_t page = 0; page < 20; ++page)
          scene.read(page, 1, (page + 1) % kHeads, ~uint64_t{0}, PieceUse::kSwept);
        for (size_t page = 0; page < 20; ++page)
          scene.read(page, 1, (page + 2) % kHeads, ~uint64_t{0}, PieceUse::kSwept);
      };
      std::thread other(read_all);
      read_all();
      other.join();
      EXPECT_NE(scene.fault().find(each.says), std::string::npos) << scene.fault();
      EXPECT_NE(scene.fault().find("the tier of the test"), std::string::npos);
    }
  }
}

// A device that is busy for a moment is asked again later, not a hundred times at once.
TEST(Tier, WaitsWhereTheDeviceIsShortOfSomething) {
  auto faults = std::make_shared<Faults>();
  Scene scene(std::make_unique<FaultyDevice>(make_memory_device(), faults), false);
  scene.write(4);
  faults->put_off_every = 1;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    faults->put_off_every = 0;
  });
  EXPECT_EQ(scene.read(0, 4, 1, ~uint64_t{0}, PieceUse::kSwept), 0u);
  other.join();
  EXPECT_EQ(scene.fault(), "");
}

// A plan takes what fits; the rest is told when there is room again.
TEST(Tier, TakesAsMuchOfWhatIsWantedAsItCanRemember) {
  TierOptions options;
  options.plan_bytes = 100 * sizeof(WantedPieces);
  Scene scene(make_memory_device(), false, 0, options);
  scene.write(100);
  std::vector<WantedPieces> wanted;
  for (const OutsidePageRef& page : scene.pages) {
    for (size_t head = 0; head < kHeads; ++head) {
      wanted.push_back(WantedPieces::of_head(page, head, ~uint64_t{0}, PieceUse::kSwept));
    }
  }
  const auto rest = [&](size_t first) {
    return std::vector<WantedPieces>(wanted.begin() + static_cast<ptrdiff_t>(first), wanted.end());
  };
  size_t n_told = scene.tier->want(rest(0));
  EXPECT_EQ(n_told, 100u);
  while (n_told < wanted.size()) {
    n_told += scene.tier->want(rest(n_told));
    std::this_thread::yield();
  }
  EXPECT_EQ(scene.tier->counts().wanted, wanted.size());
  while (scene.tier->counts().fetched_pieces < wanted.size()) std::this_thread::yield();
  for (size_t head = 0; head < kHeads; ++head) {
    EXPECT_EQ(scene.read(0, 100, head, ~uint64_t{0}, PieceUse::kSwept), 0u);
  }
  EXPECT_EQ(scene.tier->counts().hits, wanted.size());
}

// Memory that goes over from heads to rows, kept by a piece on its way, goes in a later round.
TEST(Tier, WhatIsToBeGivenBackIsSoAtLast) {
  auto faults = std::make_shared<Faults>();
  Scene scene(std::make_unique<FaultyDevice>(make_memory_device(), faults), true, uint64_t{40} << 20);
  scene.write(20);
  for (int i = 0; i < 185; ++i) scene.write_bytes(0, 20);  // more heads than there is memory for
  std::vector<std::byte> room(scene.layout.head_bytes());
  const auto load = [&](size_t page, size_t head, uint64_t rows, PieceUse use) {
    const PieceRead read{&scene.pages[page], head, rows, room.data()};
    scene.tier->load({&read, 1}, use);
  };
  for (size_t page = 20; page < scene.pages.size(); ++page) {
    for (size_t head = 0; head < kHeads; ++head) load(page, head, ~uint64_t{0}, PieceUse::kSwept);
  }
  for (size_t page = 0; page < 120; ++page) load(page, 0, ~uint64_t{0}, PieceUse::kSelected);
  faults->holds = true;
  const int n_started = faults->n_started;
  std::vector<WantedPieces> wanted;
  for (size_t page = 0; page < 20; ++page) wanted.push_back(WantedPieces::of_page(scene.pages[page]));
  scene.tier->want(std::move(wanted));
  while (faults->n_started == n_started) std::this_thread::yield();
  const uint64_t before = scene.tier->memory_bytes();
  scene.tier->begin_round();
  EXPECT_EQ(scene.tier->memory_bytes(), before) << "something is on its way to it";
  faults->holds = false;
  for (int i = 0; i < 1000 && scene.tier->memory_bytes() == before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    scene.tier->begin_round();
  }
  EXPECT_LT(scene.tier->memory_bytes(), before);
  EXPECT_EQ(scene.fault(), "");
}

TEST(Tier, ADiskThatIsFullIsTold) {
  auto faults = std::make_shared<Faults>();
  faults->write_error = ENOSPC;
  Scene full(std::make_unique<FaultyDevice>(make_memory_device(), faults), false);
  full.write(2);
  EXPECT_NE(full.fault().find("could not be written at offset 0: No space left"), std::string::npos)
      << full.fault();
  TierOptions options;
  options.most_bytes = 100'000;
  Scene small(make_memory_device(), false, 0, options);
  small.write(7);
  EXPECT_EQ(small.fault(), "");
  small.write(10);
  EXPECT_NE(small.fault().find("is full: it may take 100000 bytes"), std::string::npos) << small.fault();
}

TEST(Tier, RoomOfPagesThatAreGoneIsUsedAgain) {
  TierOptions options;
  options.most_bytes = 100'000;
  Scene scene(make_memory_device(), true, 0, options);
  for (int round = 0; round < 20; ++round) {
    scene.write(5);
    EXPECT_EQ(scene.read(0, 4, 1, 0xf0f, PieceUse::kSelected), 0u);
    want_some(scene, scene.random);
    scene.pages.clear();
    scene.bytes.clear();
    scene.tier->begin_round();
    while (scene.tier->outside_bytes() > 0) std::this_thread::yield();  // what was on its way
  }
  EXPECT_EQ(scene.fault(), "");
}

TEST(Tier, GivesMemoryToThreadsThatNeedItMore) {
  Scene scene(make_memory_device(), false, 2 << 20);
  scene.write(200);
  std::thread reader([&] { read_at_random(scene, 5, 400); });
  for (int i = 0; i < 400; ++i) {
    ASSERT_TRUE(scene.account.take(1'500'000));
    scene.account.give_back(1'500'000);
  }
  reader.join();
  EXPECT_FALSE(scene.account.take(2'000'000)) << "it keeps what it cannot do without";
  EXPECT_LE(scene.account.peak_bytes(), scene.account.limit_bytes());
  EXPECT_EQ(scene.fault(), "");
}

TEST(Tier, RefusesAnAccountThatIsTooSmall) {
  MemoryAccount account(100'000);
  TierOptions options;
  options.head_bytes = 4096;
  EXPECT_THROW(Tier(make_memory_device(), options, account), Error);
  EXPECT_EQ(account.used_bytes(), 0u);
}

}  // namespace
}  // namespace quire

// Pages: sharing until written, budgets, reuse after fragmentation, and what is taken from the system.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kernels/ops.h"
#include "property/store/sequence_model.h"

namespace quire::test {
namespace {

void append(Store& store, size_t n, uint32_t tag) {
  store.extend(n);
  for (size_t i = 0; i < n; ++i) write_token(store, store.n_tokens() + i, tag + static_cast<uint32_t>(i));
  store.commit(n);
}

uint64_t page_bytes_of_all_layers() {
  uint64_t total = 0;
  for (const RowLayout& layout : two_layouts()) total += layout.page_bytes();
  return total;
}

TEST(RowLayout, BytesFollowFromTheFormats) {
  const RowLayout layout{3, 64, Format::kF16, Format::kF32};
  EXPECT_EQ(layout.token_bytes(), 3u * 64 * (2 + 4));
  EXPECT_EQ(layout.page_bytes(), 64u * layout.token_bytes());
  EXPECT_EQ(layout.key_offset(2), 2u * 64 * 64 * 6);
  EXPECT_EQ(layout.value_offset(2), layout.key_offset(2) + 64 * 64 * 2);
}

TEST(Fork, PagesAreSharedUntilWritten) {
  PagePool pool;
  Store first(two_layouts(), pool);
  append(first, 100, 1);
  const uint64_t one = pool.used_bytes();
  EXPECT_EQ(one, 2 * page_bytes_of_all_layers());
  Store second = first.fork();
  EXPECT_EQ(pool.used_bytes(), one);
  append(second, 1, 1000);
  EXPECT_EQ(pool.used_bytes(), one + page_bytes_of_all_layers()) << "only the last page is copied";
  EXPECT_EQ(first.view(0, 100).pages[0], second.view(0, 100).pages[0]);
  EXPECT_NE(first.view(0, 100).pages[1], second.view(0, 100).pages[1]);
  append(first, 1, 2000);
  EXPECT_EQ(pool.used_bytes(), one + page_bytes_of_all_layers()) << "the page is no longer shared";
  Sequence a{std::move(first), {}};
  Sequence b{std::move(second), {}};
  for (uint32_t tag = 1; tag <= 100; ++tag) a.tags.push_back(tag), b.tags.push_back(tag);
  a.tags.push_back(2000);
  b.tags.push_back(1000);
  EXPECT_EQ(first_difference(a), "");
  EXPECT_EQ(first_difference(b), "");
}

// The room that extend() made belongs to nobody's tokens yet; after a fork both sides may write it.
TEST(Fork, RoomMadeBeforeAForkIsNotSharedWhenWritten) {
  PagePool pool;
  Store first(two_layouts(), pool);
  first.extend(200);
  Store second = first.fork();
  append(first, 200, 1);
  append(second, 200, 5000);
  Sequence a{std::move(first), {}};
  Sequence b{std::move(second), {}};
  for (uint32_t i = 0; i < 200; ++i) a.tags.push_back(1 + i), b.tags.push_back(5000 + i);
  EXPECT_EQ(first_difference(a), "");
  EXPECT_EQ(first_difference(b), "");
}

TEST(Fork, CroppingOneLeavesTheOther) {
  PagePool pool;
  Store first(two_layouts(), pool);
  append(first, 130, 1);
  Sequence b{first.fork(), {}};
  for (uint32_t tag = 1; tag <= 130; ++tag) b.tags.push_back(tag);
  first.crop(70);
  append(first, 60, 9000);
  EXPECT_EQ(first_difference(b), "");
  first.crop(0);
  EXPECT_EQ(first.size_bytes(), 0u);
  EXPECT_EQ(first_difference(b), "");
}

TEST(Crop, EveryLengthDownToNothing) {
  PagePool pool;
  Sequence sequence{Store(two_layouts(), pool), {}};
  append(sequence.store, 200, 1);
  for (uint32_t tag = 1; tag <= 200; ++tag) sequence.tags.push_back(tag);
  for (size_t n = 200; n-- > 0;) {
    sequence.store.crop(n);
    sequence.tags.resize(n);
    ASSERT_EQ(sequence.store.n_tokens(), n);
    ASSERT_EQ(sequence.store.size_bytes(), (n + 63) / 64 * page_bytes_of_all_layers());
    ASSERT_EQ(pool.used_bytes(), sequence.store.size_bytes());
    if (n % 16 == 0) {
      ASSERT_EQ(first_difference(sequence), "") << n;
    }
  }
}

TEST(Budget, TheErrorNamesBothNumbersAndNothingChanges) {
  const uint64_t page = page_bytes_of_all_layers();
  PagePool pool(3 * page);
  Store store(two_layouts(), pool);
  append(store, 3 * 64, 1);
  try {
    store.extend(1);
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(3 * page)), std::string::npos) << error.what();
  }
  EXPECT_EQ(store.n_tokens(), 192u);
  EXPECT_EQ(pool.used_bytes(), 3 * page);
  store.crop(128);
  append(store, 64, 1);
  EXPECT_EQ(pool.used_bytes(), 3 * page);
}

// U17: eight sequences fill the budget, every second one goes, and one that needs all of their pages fits.
TEST(Fragmentation, FreedPagesServeALongSequence) {
  const uint64_t page = page_bytes_of_all_layers();
  constexpr size_t kPagesEach = 5;
  PagePool pool(8 * kPagesEach * page);
  std::vector<std::optional<Store>> sequences(8);
  // Pages are taken in turns, so that those of one sequence lie apart.
  for (auto& sequence : sequences) sequence.emplace(two_layouts(), pool);
  for (size_t i = 0; i < kPagesEach; ++i) {
    for (size_t s = 0; s < 8; ++s) append(*sequences[s], 64, static_cast<uint32_t>(s * 10000 + i * 64));
  }
  EXPECT_EQ(pool.used_bytes(), pool.budget_bytes());
  EXPECT_THROW(sequences[0]->extend(1), Error);
  const uint64_t reserved = pool.reserved_bytes();
  for (size_t s = 0; s < 8; s += 2) sequences[s].reset();
  EXPECT_EQ(pool.used_bytes(), pool.budget_bytes() / 2);
  Sequence long_one{Store(two_layouts(), pool), {}};
  append(long_one.store, 4 * kPagesEach * 64, 77);
  for (uint32_t i = 0; i < 4 * kPagesEach * 64; ++i) long_one.tags.push_back(77 + i);
  EXPECT_EQ(pool.used_bytes(), pool.budget_bytes());
  EXPECT_EQ(pool.reserved_bytes(), reserved) << "freed pages are used again";
  EXPECT_EQ(first_difference(long_one), "");
  for (size_t s = 1; s < 8; s += 2) {
    Sequence kept{std::move(*sequences[s]), {}};
    for (size_t i = 0; i < kPagesEach * 64; ++i) kept.tags.push_back(static_cast<uint32_t>(s * 10000 + i));
    EXPECT_EQ(first_difference(kept), "") << s;
  }
}

// What is taken from the system but not used stays below one slab, whatever the size of a page.
TEST(PagePool, SlabsAreNotWasted) {
  constexpr uint64_t kSlab = uint64_t{2} << 20;
  for (const size_t page : {size_t{64}, size_t{48} << 10, size_t{256} << 10, size_t{512} << 10,
                            size_t{768} << 10, size_t{1} << 20, size_t{2} << 20, size_t{5} << 20}) {
    PagePool pool;
    std::vector<PageRef> pages;
    const size_t n = page < 1024 ? 2000 : (size_t{24} << 20) / page;
    for (size_t i = 0; i < n; ++i) pages.push_back(pool.allocate(page));
    EXPECT_EQ(pool.used_bytes(), n * page);
    const uint64_t slack = kSlab + page + (n * page / kSlab + 1) * 2 * kSpareBytes;
    EXPECT_LE(pool.reserved_bytes(), n * page + slack) << page;
  }
}

TEST(PagePool, PagesAreAlignedDistinctAndReadableBeyondTheirEnd) {
  PagePool pool;
  std::vector<PageRef> pages;
  for (size_t i = 0; i < 300; ++i) {
    pages.push_back(pool.allocate(i % 3 == 0 ? 49152 : i % 3 == 1 ? 1000 : 64));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(pages.back()->data) % 64, 0u);
    std::memset(pages.back()->data, static_cast<int>(i), pages.back()->size_bytes);
  }
  unsigned sum = 0;
  for (size_t i = 0; i < pages.size(); ++i) {
    for (size_t at = 0; at < pages[i]->size_bytes; ++at) {
      ASSERT_EQ(pages[i]->data[at], static_cast<std::byte>(i)) << "page " << i;
    }
    // A sanitizer watches these reads; what they find does not matter.
    const volatile std::byte* end = pages[i]->data + pages[i]->size_bytes;
    for (int at = 0; at < kSpareBytes; ++at) sum += static_cast<unsigned>(end[at]);
  }
  EXPECT_GE(sum, 0u);
}

}  // namespace
}  // namespace quire::test

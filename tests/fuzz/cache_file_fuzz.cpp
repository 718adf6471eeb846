// Fuzz target of saved caches: any bytes either give a sequence that a cache can take over, attend to and
// save again, or an Error of one line. Each input is tried as it is and with its size and checksum put right,
// since no mutation gets past these by chance.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "checksummed.h"
#include "engine/session_file.h"

namespace {

constexpr char kName[] = "fuzz.kv";
const quire::Geometry kTiny{1, 2, 16, {1}};

void require(bool condition) {
  if (!condition) std::abort();
}

std::shared_ptr<const quire::Calibration> calibration() {
  quire::Calibration made;
  made.geometry = kTiny;
  made.key_mean.assign(kTiny.head_dim, 0.5f);
  made.value_mean.assign(kTiny.head_dim, 0.25f);
  made.key_balance.assign(kTiny.head_dim, 2.0f);
  return std::make_shared<const quire::Calibration>(made);
}

// What keep=window turns queries by.
std::shared_ptr<const quire::RopeFrequencies> frequencies() {
  return std::make_shared<const quire::RopeFrequencies>(kTiny.head_dim / 2, 0.5);
}

// So many more tokens, over whatever the pages hold.
void attend(quire::Cache& cache, size_t n) {
  const size_t width = kTiny.n_heads * kTiny.head_dim;
  const std::vector<float> rows(n * width, 0.125f);
  std::vector<float> out(rows.size());
  cache.begin_step(n, 1);
  quire::Team(1).run([&](quire::Worker& worker) {
    cache.begin_layer(worker, 0);
    cache.append(worker, 0, 0, n, rows.data(), rows.data(), kTiny.head_dim);
    cache.attend(worker, 0, 0, n, rows.data(), width, out.data(), width);
    cache.end_layer(worker, 0);
  });
  cache.end_step();
}

// The cache as a file again, which is read without complaint and holds as many bytes of pages.
void save_again(const quire::Cache& cache, const quire::SavedCache& saved) {
  constexpr quire::SectionFileKind kKind{"FUZZFILE", 1, "saved cache"};
  std::vector<std::byte> bytes;
  quire::write_sections(kKind, quire::cache_sections(cache), [&](std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  });
  try {
    const quire::SectionFile file(bytes, kName, kKind);
    require(quire::SavedCache::read(file).pages.size() == saved.pages.size());
  } catch (const quire::Error&) {
    require(false);
  }
}

void take_over(quire::SavedCache saved) {
  saved.calibration.reset();  // a hash, which no mutation meets
  quire::PagePool pool;
  quire::Cache cache(saved.recipe, kTiny, pool, calibration(), nullptr, frequencies());
  if (!saved.mismatch(cache).empty()) return;
  saved.restore(cache);
  require(cache.n_tokens() == saved.n_tokens);
  if (!saved.recipe.promote.given()) require(pool.used_bytes() == saved.pages.size());
  require(cache.store().size_bytes() == pool.used_bytes());
  save_again(cache, saved);
  attend(cache, 1);
  attend(cache, 70);  // rows leave, or are coded
}

void read(std::span<const std::byte> bytes) {
  try {
    const auto saved = quire::SavedSession::from_memory(bytes, kName);
    require(saved.cache().pages.size() <= bytes.size());
    require(saved.tokens().size() >= saved.cache().n_tokens);
    require(saved.cache().n_sealed.size() == saved.cache().geometry.n_layers);
    take_over(saved.cache());
  } catch (const quire::Error& error) {
    const std::string message = error.what();
    require(message.size() < 1000 && message.find('\n') == std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  const auto given = std::as_bytes(std::span(data, n_bytes));
  read(given);
  std::vector<std::byte> bytes(given.begin(), given.end());
  constexpr size_t kSizeAt = 16;
  if (bytes.size() < kSizeAt + 2 * sizeof(uint64_t)) return 0;
  const uint64_t size = bytes.size();
  std::memcpy(bytes.data() + kSizeAt, &size, sizeof size);
  quire::test::repair_checksum(bytes,
                               [](std::span<const std::byte> body) { return quire::checksum_of(body); });
  read(bytes);
  return 0;
}

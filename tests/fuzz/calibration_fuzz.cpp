// Fuzz target of the calibration reader: any bytes either give a calibration that a cache can be made of, or
// an Error of one line. Each input is tried as it is and with its checksum put right, since no mutation gets
// past that by chance.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "checksummed.h"
#include "engine/calibration_file.h"

namespace {

constexpr char kName[] = "fuzz.calibration";
constexpr char kFingerprint[] = "0123456789abcdef";

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const quire::Calibration& calibration) {
  size_t n_values = 0;
  require(calibration.geometry.n_kv_heads.size() == calibration.geometry.n_layers);
  for (const size_t n : calibration.geometry.n_kv_heads) n_values += n * calibration.geometry.head_dim;
  require(calibration.key_mean.size() == n_values);
  require(calibration.value_mean.size() == n_values);
  require(calibration.key_balance.size() == n_values);
  require(calibration.query_key.size() == n_values);
  for (const float product : calibration.query_key) require(std::isfinite(product) && product >= 0);
  for (const float balance : calibration.key_balance) require(std::isfinite(balance) && balance > 0);
  for (const float mean : calibration.key_mean) require(std::isfinite(mean));
}

void read(std::span<const std::byte> bytes) {
  try {
    const quire::Calibration calibration = quire::decode_calibration(bytes, kFingerprint, kName);
    check(calibration);
    // What was read is written as it was.
    require(std::ranges::equal(quire::encode_calibration(calibration, kFingerprint), bytes));
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
  if (bytes.size() < sizeof(uint64_t)) return 0;
  quire::test::repair_checksum(
      bytes, [](std::span<const std::byte> body) { return quire::calibration_checksum(body); });
  read(bytes);
  return 0;
}

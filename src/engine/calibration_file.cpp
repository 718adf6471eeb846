#include "engine/calibration_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/checked.h"
#include "base/error.h"
#include "format/frame.h"
#include "weights/mapped_file.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "values lie in the file as they lie in memory");

constexpr std::string_view kMagic = "QUIRECAL";
constexpr uint32_t kCalibrationVersion = 2;
constexpr size_t kFingerprintBytes = 16;
constexpr size_t kHeaderBytes = kMagic.size() + 4 * sizeof(uint32_t) + kFingerprintBytes;

template <typename T>
void put(std::vector<std::byte>& bytes, const T* values, size_t n) {
  const size_t at = bytes.size();
  bytes.resize(at + n * sizeof(T));
  if (n > 0) std::memcpy(bytes.data() + at, values, n * sizeof(T));
}

void put_u32(std::vector<std::byte>& bytes, size_t value) {
  const auto narrow = static_cast<uint32_t>(value);
  put(bytes, &narrow, 1);
}

// Takes values off the front of the bytes; throws Error when they end before.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  [[noreturn]] void fail(const std::string& what) const { throw Error(name_ + ": " + what); }

  size_t remaining() const { return bytes_.size(); }

  template <typename T>
  std::vector<T> take(uint64_t n) {
    if (n > bytes_.size() / sizeof(T)) fail("the calibration is cut short");
    std::vector<T> values(n);
    if (n > 0) std::memcpy(values.data(), bytes_.data(), n * sizeof(T));
    bytes_ = bytes_.subspan(n * sizeof(T));
    return values;
  }

  size_t take_u32() { return take<uint32_t>(1)[0]; }

  std::string take_text(size_t n) {
    const std::vector<char> text = take<char>(n);
    return {text.begin(), text.end()};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
};

Geometry take_geometry(Reader& reader, size_t n_layers, size_t n_heads, size_t head_dim) {
  Geometry geometry{n_layers, n_heads, head_dim, {}};
  for (const uint32_t n_kv_heads : reader.take<uint32_t>(n_layers)) {
    const bool divides = n_heads > 0 && (n_kv_heads == 0 || n_heads % n_kv_heads == 0);
    if (!divides) {
      reader.fail("the calibration is damaged: " + std::to_string(n_kv_heads) + " KV heads for " +
                  std::to_string(n_heads) + " query heads");
    }
    geometry.n_kv_heads.push_back(n_kv_heads);
  }
  return geometry;
}

void check_values(const Reader& reader, const Calibration& calibration) {
  for (const std::vector<float>* means : {&calibration.key_mean, &calibration.value_mean}) {
    for (const float mean : *means) {
      if (!std::isfinite(mean)) reader.fail("the calibration is damaged: a mean is not a finite number");
    }
  }
  for (const float balance : calibration.key_balance) {
    if (!std::isfinite(balance) || balance <= 0) {
      reader.fail("the calibration is damaged: a balance is not a positive number");
    }
  }
  for (const float product : calibration.query_key) {
    if (!std::isfinite(product) || product < 0) {
      reader.fail("the calibration is damaged: a mean product is negative or not a finite number");
    }
  }
}

// Damage is told from a foreign file by the checksum, once the magic and the version have been seen.
void check_whole(std::span<const std::byte> bytes, const std::string& name) {
  Reader reader(bytes, name);
  if (bytes.size() < kMagic.size() || reader.take_text(kMagic.size()) != kMagic) {
    reader.fail("this is no calibration file");
  }
  const size_t version = reader.take_u32();
  if (version != kCalibrationVersion) {
    reader.fail("calibration files of version " + std::to_string(version) +
                " are not known; this Quire reads " + std::to_string(kCalibrationVersion) +
                ", which `quire calibrate` makes");
  }
  if (bytes.size() < kHeaderBytes + sizeof(uint64_t)) reader.fail("the calibration is cut short");
  const auto body = bytes.first(bytes.size() - sizeof(uint64_t));
  uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + body.size(), sizeof checksum);
  if (checksum != calibration_checksum(body)) {
    reader.fail("the calibration is cut short or damaged: its checksum is wrong");
  }
}

}  // namespace

uint64_t calibration_checksum(std::span<const std::byte> bytes) {
  uint64_t hash = splitmix64(bytes.size());
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    hash = splitmix64(hash ^ word);
  }
  return hash;
}

std::vector<std::byte> encode_calibration(const Calibration& calibration, std::string_view fingerprint) {
  QUIRE_CHECK(fingerprint.size() == kFingerprintBytes);
  const Geometry& geometry = calibration.geometry;
  std::vector<std::byte> bytes;
  put(bytes, kMagic.data(), kMagic.size());
  put_u32(bytes, kCalibrationVersion);
  put_u32(bytes, geometry.n_layers);
  put_u32(bytes, geometry.n_heads);
  put_u32(bytes, geometry.head_dim);
  put(bytes, fingerprint.data(), fingerprint.size());
  for (const size_t n_kv_heads : geometry.n_kv_heads) put_u32(bytes, n_kv_heads);
  for (const std::vector<float>* values :
       {&calibration.key_mean, &calibration.key_balance, &calibration.value_mean, &calibration.query_key}) {
    put(bytes, values->data(), values->size());
  }
  const uint64_t checksum = calibration_checksum(bytes);
  put(bytes, &checksum, 1);
  return bytes;
}

Calibration decode_calibration(std::span<const std::byte> bytes, std::string_view fingerprint,
                               const std::string& name) {
  check_whole(bytes, name);
  Reader reader(bytes.first(bytes.size() - sizeof(uint64_t)), name);
  (void)reader.take_text(kMagic.size());
  (void)reader.take_u32();
  const size_t n_layers = reader.take_u32();
  const size_t n_heads = reader.take_u32();
  const size_t head_dim = reader.take_u32();
  if (reader.take_text(kFingerprintBytes) != fingerprint) {
    reader.fail("the calibration belongs to another model; `quire calibrate` makes one for this");
  }
  Calibration calibration;
  calibration.geometry = take_geometry(reader, n_layers, n_heads, head_dim);
  uint64_t n_values = 0;
  for (const size_t n_kv_heads : calibration.geometry.n_kv_heads) {
    n_values = checked_add(n_values, checked_mul(n_kv_heads, head_dim, "a layer"), "the calibration");
  }
  calibration.key_mean = reader.take<float>(n_values);
  calibration.key_balance = reader.take<float>(n_values);
  calibration.value_mean = reader.take<float>(n_values);
  calibration.query_key = reader.take<float>(n_values);
  if (reader.remaining() > 0) reader.fail("the calibration is damaged: there is something behind its end");
  check_values(reader, calibration);
  return calibration;
}

void save_calibration(const Calibration& calibration, std::string_view fingerprint, const std::string& path) {
  write_file_atomically(path, encode_calibration(calibration, fingerprint));
}

Calibration load_calibration(const std::string& path, std::string_view fingerprint) {
  return decode_calibration(MappedFile::open(path).bytes(), fingerprint, path);
}

std::string kept_calibration_path(std::string_view fingerprint) {
  std::string folder;
  // Relative paths are to be ignored (XDG Base Directory Specification).
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    folder = cache;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') {
    folder = std::string(home) + "/.cache";
  } else {
    return {};
  }
  return folder + "/quire/" + std::string(fingerprint) + ".calibration";
}

void keep_calibration(const Calibration& calibration, std::string_view fingerprint, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error("cannot make the folder " + folder.string() + ": " + error.message());
  save_calibration(calibration, fingerprint, path);
}

}  // namespace quire

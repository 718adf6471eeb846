// Fuzz target of the safetensors reader: any bytes either give tensors that lie within them, one behind the
// other, or an Error of one line; and as the file of a predictor they give one of the geometry asked for, or
// an Error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/butler_file.h"
#include "weights/safetensors.h"

namespace {

constexpr char kFingerprint[] = "0123456789abcdef";

void require(bool condition) {
  if (!condition) std::abort();
}

void check_error(const quire::Error& error) {
  const std::string message = error.what();
  require(message.size() < 1000 && message.find('\n') == std::string::npos);
}

void check(const quire::SafetensorsFile& file, std::span<const std::byte> bytes) {
  size_t n_data = 0;
  for (const quire::Safetensor& tensor : file.tensors()) {
    require(tensor.data.data() >= bytes.data());
    require(tensor.data.data() + tensor.data.size() <= bytes.data() + bytes.size());
    n_data += tensor.data.size();
    require(file.find(tensor.name) == &tensor);
    try {
      require(file.read(tensor.name, tensor.shape).size() == tensor.n_values);
    } catch (const quire::Error& error) {
      check_error(error);
    }
  }
  require(n_data <= bytes.size());
}

quire::ButlerGeometry geometry() {
  quire::ButlerGeometry g;
  g.n_layers = 3;
  g.n_heads = 2;
  g.n_kv_heads = 1;
  g.head_dim = 4;
  g.width = 6;
  return g;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  const auto bytes = std::as_bytes(std::span(data, n_bytes));
  try {
    const auto file = quire::SafetensorsFile::from_memory(bytes, "fuzz.safetensors");
    check(file, bytes);
    const quire::ButlerWeights weights = quire::decode_butler(file, kFingerprint, geometry());
    require(weights.producers.size() == weights.geometry.n_producers());
    const auto again = quire::encode_butler(weights, kFingerprint, quire::SafetensorsType::kF32);
    (void)quire::decode_butler(quire::SafetensorsFile::from_memory(again, "again"), kFingerprint, geometry());
  } catch (const quire::Error& error) {
    check_error(error);
  }
  return 0;
}

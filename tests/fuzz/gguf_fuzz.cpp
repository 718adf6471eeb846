// Fuzz target of the GGUF reader: any bytes either give a file of which everything can be read, and whose
// header, written again, reads the same, or an Error of one line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "weights/gguf.h"
#include "weights/gguf_header.h"

namespace {

constexpr char kName[] = "fuzz.gguf";

void require(bool condition) {
  if (!condition) std::abort();
}

void check_message(const std::string& message) {
  require(message.starts_with(kName));
  require(message.size() < 1000);
  require(std::all_of(message.begin(), message.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
}

// The value, or nothing if it is refused with a proper message.
template <typename Call>
void try_get(const Call& call) {
  try {
    (void)call();
  } catch (const quire::Error& error) {
    check_message(error.what());
  }
}

void read_entry(const quire::GgufFile& file, std::string_view key) {
  try_get([&] { return file.get_uint(key); });
  try_get([&] { return file.get_float_or(key, 0); });
  try_get([&] { return file.get_bool_or(key, false); });
  try_get([&] { return std::string(file.get_string(key)); });
  try_get([&] { return file.get_int_array(key); });
  try_get([&] { return file.get_float_array(key); });
  try_get([&] { return file.get_bool_array(key); });
  try_get([&] {
    std::string all;
    for (const std::string_view text : file.get_string_array(key)) all += text;
    return all;
  });
}

// Every row, so that a sanitizer sees a view that leaves the bytes.
void read_tensor(const quire::GgufFile& file, const quire::TensorInfo& tensor) {
  require(&file.tensor(tensor.name) == &tensor);
  require(tensor.file_offset + tensor.size_bytes <= file.file_size());
  const uint64_t n_row_bytes = quire::row_bytes(tensor.type, tensor.row_length());
  require(n_row_bytes * tensor.n_rows() == tensor.size_bytes);
  std::vector<float> row(tensor.row_length());
  for (uint64_t i = 0; i < tensor.n_rows(); ++i) {
    quire::dequantize_row(tensor.type, tensor.data + i * n_row_bytes, row.data(), row.size());
  }
  file.drop_pages(tensor);
}

void write_again(const quire::GgufFile& file) {
  const auto header = quire::gguf_header(file.metadata(), {}, file.alignment_bytes());
  const auto again = quire::GgufFile::from_memory(header, kName);
  require(again.metadata().size() == file.metadata().size());
  require(quire::gguf_header(again.metadata(), {}, again.alignment_bytes()) == header);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  try {
    const auto file = quire::GgufFile::from_memory(std::as_bytes(std::span(data, n_bytes)), kName);
    for (const auto& entry : file.metadata()) {
      require(file.find(entry.key) == &entry.value);
      read_entry(file, entry.key);
    }
    for (const auto& tensor : file.tensors()) read_tensor(file, tensor);
    require(file.fingerprint().size() == 16);
    write_again(file);
  } catch (const quire::Error& error) {
    check_message(error.what());
  }
  return 0;
}

#include "weights/gguf_header.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace quire {
namespace {

class Bytes {
 public:
  void put(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const size_t at = bytes_.size();
    bytes_.resize(at + bytes.size());
    std::memcpy(bytes_.data() + at, bytes.data(), bytes.size());
  }

  template <typename T>
  void put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    put(std::as_bytes(std::span<const T>(&value, 1)));
  }

  void put_text(std::string_view text) {
    put<uint64_t>(text.size());
    put(std::as_bytes(std::span(text)));
  }

  void pad_to(uint64_t multiple_bytes) {
    bytes_.resize((bytes_.size() + multiple_bytes - 1) / multiple_bytes * multiple_bytes);
  }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

void put_value(Bytes& out, const MetadataValue& value) {
  out.put<uint32_t>(static_cast<uint32_t>(metadata_type(value)));
  std::visit(
      [&](const auto& held) {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string_view>) {
          out.put_text(held);
        } else if constexpr (std::is_same_v<T, MetadataArray>) {
          out.put<uint32_t>(static_cast<uint32_t>(held.element_type));
          out.put<uint64_t>(held.n_values);
          out.put(std::span(held.data, held.size_bytes));
        } else {
          out.put(held);
        }
      },
      value);
}

}  // namespace

std::span<const std::byte> MetadataBuilder::keep(std::span<const std::byte> bytes) {
  return memory.emplace_back(bytes.begin(), bytes.end());
}

std::string_view MetadataBuilder::keep(std::string_view text) {
  const std::span<const std::byte> kept = keep(std::as_bytes(std::span(text)));
  return {reinterpret_cast<const char*>(kept.data()), kept.size()};
}

void MetadataBuilder::add_text(std::string_view key, std::string_view text) {
  const std::string_view kept_key = keep(key);
  entries.push_back({kept_key, MetadataValue(keep(text))});
}

void MetadataBuilder::add_raw_array(std::string_view key, MetadataType type, uint64_t n_values,
                                    std::span<const std::byte> bytes) {
  const std::string_view kept_key = keep(key);
  const std::span<const std::byte> kept = keep(bytes);
  entries.push_back({kept_key, MetadataArray{type, n_values, kept.data(), kept.size()}});
}

void MetadataBuilder::add_texts(std::string_view key, std::span<const std::string_view> texts) {
  Bytes bytes;
  for (const std::string_view text : texts) bytes.put_text(text);
  add_raw_array(key, MetadataType::String, texts.size(), bytes.take());
}

void MetadataBuilder::add_bools(std::string_view key, const std::vector<bool>& values) {
  std::vector<std::byte> bytes;
  for (const bool value : values) bytes.push_back(std::byte{value});
  add_raw_array(key, MetadataType::Bool, values.size(), bytes);
}

bool MetadataBuilder::has(std::string_view key) const {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const MetadataEntry& entry) { return entry.key == key; });
}

std::vector<std::byte> gguf_header(std::span<const MetadataEntry> metadata,
                                   std::span<const TensorInfo> tensors, uint64_t alignment_bytes) {
  Bytes out;
  out.put(std::as_bytes(std::span("GGUF", 4)));
  out.put<uint32_t>(3);
  out.put<uint64_t>(tensors.size());
  out.put<uint64_t>(metadata.size());
  for (const MetadataEntry& entry : metadata) {
    out.put_text(entry.key);
    put_value(out, entry.value);
  }
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    out.put_text(tensor.name);
    out.put<uint32_t>(static_cast<uint32_t>(tensor.shape.size()));
    for (const uint64_t dim : tensor.shape) out.put<uint64_t>(dim);
    out.put<uint32_t>(static_cast<uint32_t>(tensor.type));
    out.put<uint64_t>(offset);
    offset += (tensor.size_bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  }
  out.pad_to(alignment_bytes);
  return out.take();
}

}  // namespace quire

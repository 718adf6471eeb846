// A GgufFile's parts: putting it together from several files, taking it apart, finding things in it.
#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "weights/byte_cursor.h"
#include "weights/gguf.h"

namespace quire {
namespace {

// "entries 3 and 7", counted from 1, of two neighbours in an order.
std::string numbers_of(const char* things, uint32_t a, uint32_t b) {
  const auto [first, second] = std::minmax(a, b);
  return std::string(things) + " " + std::to_string(first + 1) + " and " + std::to_string(second + 1);
}

}  // namespace

void GgufFile::index_metadata() {
  metadata_by_key_.resize(metadata_.size());
  std::iota(metadata_by_key_.begin(), metadata_by_key_.end(), 0u);
  const auto less = [&](uint32_t a, uint32_t b) { return metadata_[a].key < metadata_[b].key; };
  const auto same = [&](uint32_t a, uint32_t b) { return metadata_[a].key == metadata_[b].key; };
  std::sort(metadata_by_key_.begin(), metadata_by_key_.end(), less);
  const auto twin = std::adjacent_find(metadata_by_key_.begin(), metadata_by_key_.end(), same);
  if (twin == metadata_by_key_.end()) return;
  throw Error(path_ + ": the metadata key " + in_quotes(metadata_[twin[0]].key) + " is there twice (" +
              numbers_of("entries", twin[0], twin[1]) + ")");
}

void GgufFile::index_tensors() {
  tensors_by_name_.resize(tensors_.size());
  std::iota(tensors_by_name_.begin(), tensors_by_name_.end(), 0u);
  const auto less = [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; };
  const auto same = [&](uint32_t a, uint32_t b) { return tensors_[a].name == tensors_[b].name; };
  std::sort(tensors_by_name_.begin(), tensors_by_name_.end(), less);
  const auto twin = std::adjacent_find(tensors_by_name_.begin(), tensors_by_name_.end(), same);
  if (twin == tensors_by_name_.end()) return;
  throw Error(path_ + ": tensor " + in_quotes(tensors_[twin[0]].name) + " is there twice (" +
              numbers_of("tensors", twin[0], twin[1]) + ")");
}

GgufFile GgufFile::from_parts(ModelParts parts) {
  GgufFile file;
  file.path_ = std::move(parts.path);
  file.form_ = std::move(parts.form);
  file.version_ = parts.version;
  file.alignment_bytes_ = parts.alignment_bytes;
  file.metadata_ = std::move(parts.metadata);
  file.tensors_ = std::move(parts.tensors);
  file.files_ = std::move(parts.files);
  file.memory_ = std::move(parts.memory);
  file.notes_ = std::move(parts.notes);
  file.index_metadata();
  file.index_tensors();
  return file;
}

ModelParts GgufFile::into_parts() && {
  ModelParts parts;
  parts.path = std::move(path_);
  parts.form = std::move(form_);
  parts.version = version_;
  parts.alignment_bytes = alignment_bytes_;
  parts.metadata = std::move(metadata_);
  parts.tensors = std::move(tensors_);
  parts.files = std::move(files_);
  parts.memory = std::move(memory_);
  parts.notes = std::move(notes_);
  return parts;
}

uint64_t GgufFile::file_size() const {
  uint64_t n_bytes = 0;
  for (const MappedFile& file : files_) n_bytes += file.bytes().size();
  return n_bytes;
}

void GgufFile::drop_pages(const TensorInfo& tensor) const {
  for (const MappedFile& file : files_) {
    const std::span<const std::byte> bytes = file.bytes();
    // Pointers of different mappings have no order of their own; std::less gives them one.
    const std::less<const std::byte*> before;
    if (before(tensor.data, bytes.data()) || !before(tensor.data, bytes.data() + bytes.size())) continue;
    file.drop_pages({tensor.data, tensor.size_bytes});
    return;
  }
}

}  // namespace quire

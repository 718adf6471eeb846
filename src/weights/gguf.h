// Reader of GGUF model files: maps the file, checks all of its structure once, and hands out views.
//
// The file is hostile until checked: every length, count, offset and type is compared with the bytes that
// are there before it is used, so that open() either gives a file whose views all lie inside the mapping or
// throws an Error of one sentence. What the metadata mean for a model is checked by the room `model`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/mapped_file.h"
#include "weights/metadata.h"
#include "weights/tensor_type.h"

namespace quire {

// One tensor of the file. `data` points into the mapping and lives as long as the GgufFile.
struct TensorInfo {
  std::string name;
  TensorType type;
  std::vector<uint64_t> shape;  // 1 to 4 dims, none 0; shape[0] is the row length and moves fastest
  const std::byte* data;
  uint64_t size_bytes;
  uint64_t file_offset;

  uint64_t row_length() const { return shape[0]; }
  uint64_t n_rows() const;
};

// What a model that is no single GGUF file is put together from. The views of entries and tensors point into
// `files` and `memory`, which keep their bytes where they are when they are moved.
struct ModelParts {
  std::string path;  // what the user named
  std::string form;  // for people: "3 GGUF parts", "Hugging Face folder"
  uint32_t version = 3;
  uint64_t alignment_bytes = 32;
  std::vector<MetadataEntry> metadata;
  std::vector<TensorInfo> tensors;  // file_offset: in the file that holds the data, 0 in memory
  std::vector<MappedFile> files;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::string> notes;  // sentences for the user: what was left out by rule
};

// A model as GGUF describes one: metadata and tensors, of a file (version 2 or 3, little-endian) or of
// several (weights/open_model.h). Immutable, so any number of threads may read it; views (metadata strings
// and arrays, tensor data) live as long as the file or what it was moved to.
class GgufFile {
 public:
  // Maps and checks one whole file; throws Error, also for a part of a split model.
  static GgufFile open(const std::string& path);

  // The same, where the file may be one part of a split model.
  static GgufFile open_part(const std::string& path);

  // Reads bytes that the caller keeps alive; `name` stands for the path in messages.
  static GgufFile from_memory(std::span<const std::byte> bytes, std::string name);

  // Throws Error when a key or a tensor is there twice; that everything else is as in a checked file is for
  // whoever made the parts.
  static GgufFile from_parts(ModelParts parts);

  // All that this one holds, to be put together with more.
  ModelParts into_parts() &&;

  GgufFile(GgufFile&&) noexcept = default;
  GgufFile& operator=(GgufFile&&) noexcept = default;

  uint32_t version() const { return version_; }
  uint64_t file_size() const;  // of all its files
  const std::string& path() const { return path_; }
  const std::string& form() const { return form_; }  // "GGUF version 3", or as in ModelParts
  const std::vector<std::string>& notes() const { return notes_; }
  uint64_t alignment_bytes() const { return alignment_bytes_; }

  // All entries in the order of the file.
  std::span<const MetadataEntry> metadata() const { return metadata_; }

  // nullptr when there is no such key.
  const MetadataValue* find(std::string_view key) const;

  // Typed access. All throw an Error that names the key when the value has another type than wanted (both
  // are named); those without a default also when the key is missing.
  uint64_t get_uint(std::string_view key) const;  // any integer type, not negative
  uint64_t get_uint_or(std::string_view key, uint64_t otherwise) const;
  double get_float(std::string_view key) const;  // f32 or f64
  double get_float_or(std::string_view key, double otherwise) const;
  bool get_bool(std::string_view key) const;
  bool get_bool_or(std::string_view key, bool otherwise) const;
  std::string_view get_string(std::string_view key) const;
  std::string_view get_string_or(std::string_view key, std::string_view otherwise) const;
  std::vector<std::string_view> get_string_array(std::string_view key) const;
  std::vector<int64_t> get_int_array(std::string_view key) const;  // any integer type that fits
  std::vector<float> get_float_array(std::string_view key) const;  // f32 or f64
  std::vector<bool> get_bool_array(std::string_view key) const;

  // All tensors in the order of the file.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  const TensorInfo* find_tensor(std::string_view name) const;  // nullptr when there is none
  const TensorInfo& tensor(std::string_view name) const;       // throws Error naming it

  // Gives back the resident pages that lie wholly inside the tensor, once it has been repacked; its data
  // stay readable and would be read from the file again.
  void drop_pages(const TensorInfo& tensor) const;

  // 16 hex digits over all metadata and tensor infos and a sample of each tensor's bytes: stable between
  // runs and machines, cheap, and not a proof against an attacker. Of a split model it does not depend on
  // the part that was named, of a folder not on where it lies.
  std::string fingerprint() const;

 private:
  friend class GgufParser;

  enum class Split { kRefused, kAllowed };

  GgufFile() = default;
  GgufFile(MappedFile file, std::string path, Split split);

  void index_metadata();
  void index_tensors();

  const MetadataValue& require(std::string_view key) const;
  const MetadataArray& require_array(std::string_view key, const char* wanted) const;
  [[noreturn]] void fail_type(std::string_view key, const MetadataValue& found, const char* wanted) const;

  std::vector<MappedFile> files_;  // one, unless made from parts
  std::vector<std::vector<std::byte>> memory_;
  std::string path_;
  std::string form_;
  std::vector<std::string> notes_;
  uint32_t version_ = 0;
  uint64_t alignment_bytes_ = 32;
  uint64_t data_offset_ = 0;  // where tensor data begin: end of the tensor infos, aligned; 0: of parts
  std::vector<MetadataEntry> metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> metadata_by_key_;  // indices into metadata_, sorted by key
  std::vector<uint32_t> tensors_by_name_;  // indices into tensors_, sorted by name
};

}  // namespace quire

// The one pass that turns mapped bytes into a checked GgufFile. Internal to the room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weights/byte_cursor.h"
#include "weights/gguf.h"

namespace quire {

// Fills a GgufFile from its bytes; used once.
class GgufParser {
 public:
  explicit GgufParser(GgufFile& file) : file_(file), cursor_(file.files_[0].bytes(), file.path_) {}

  // Throws Error on the first thing that is wrong, and for a part of a split model unless that is wanted.
  void parse(bool may_be_part);

 private:
  struct Counts {
    uint64_t n_tensors;
    uint64_t n_entries;
  };

  void check_magic();
  void read_version();
  Counts read_counts();
  void check_count(uint64_t count, uint64_t min_bytes_each, const char* things) const;

  void read_metadata(uint64_t n_entries);
  MetadataValue read_value();
  MetadataArray read_array();
  bool read_bool();
  void check_split() const;
  void read_alignment();

  void read_tensor_infos(uint64_t n_tensors);
  TensorInfo read_tensor_info();
  void read_shape(TensorInfo& tensor);
  void read_type(TensorInfo& tensor);
  void set_size(TensorInfo& tensor) const;
  void place_tensor_data();

  [[noreturn]] void fail_tensor(const TensorInfo& tensor, const std::string& what) const;

  GgufFile& file_;
  ByteCursor cursor_;
};

}  // namespace quire

// Writing a model as one GGUF file, its matrices in another type if wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "weights/gguf.h"

namespace quire {

// What will be written of a model, decided before the first byte is. docs/convert.md tells the rules.
class Conversion {
 public:
  // `type`: of matrices; none: as they are. `more` are entries that the model's metadata lack (a folder's
  // tokenizer). Both the model and the memory of `more` must outlive this. Throws Error.
  Conversion(const GgufFile& model, std::optional<TensorType> type, std::span<const MetadataEntry> more = {});

  // Sentences for the user: tensors that keep another type than wanted, values that lose twice.
  const std::vector<std::string>& notes() const { return notes_; }
  std::map<std::string, size_t> tensors_by_type() const;
  uint64_t file_bytes() const;  // of the file to be

  // Called now and then with the share that is written; what it throws ends the writing and leaves no file.
  using Progress = std::function<void(double share)>;

  // Writes the file, which is there when it is complete. The same model gives the same bytes, with any number
  // of threads. Needs memory for a few megabytes of rows, and gives the pages of the model's files back as it
  // goes. Throws Error, also for a value that a type cannot hold.
  void write(const std::string& path, Team& team, const Progress& progress) const;

 private:
  friend class TensorWriter;

  // Row r of the output is row order(r) of the source: within a head, interleaved pairs from two halves.
  struct RowOrder {
    uint64_t head_rows = 0;  // 0: rows stay where they are
    uint64_t rotated_rows = 0;

    uint64_t source(uint64_t row) const;
  };

  // A tensor with its rows to be encoded; a vector whose values have to change places is rows of one value.
  struct Target {
    const TensorInfo* source;
    TensorInfo info;  // of the output
    uint64_t n_rows, row_length;
    RowOrder order;
  };

  TensorType type_of(const TensorInfo& tensor);
  RowOrder order_of(const TensorInfo& tensor, uint64_t n_rows) const;
  void add_target(const TensorInfo& tensor);
  void add_metadata(std::span<const MetadataEntry> more);
  void add_notes();

  const GgufFile& model_;
  std::optional<TensorType> type_;
  std::string architecture_;
  bool half_split_;
  std::vector<MetadataEntry> metadata_;
  std::vector<Target> targets_;
  std::vector<std::string> notes_;
  std::map<TensorType, std::vector<std::string>> undivided_;  // tensors by the type that they got instead
  size_t n_requantized_ = 0;
};

}  // namespace quire

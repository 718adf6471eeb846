// Tensor infos of a GGUF file: names, shapes, types, and where the data lie.
#include <algorithm>

#include "weights/gguf_parser.h"

namespace quire {
namespace {

constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxNameBytes = 65535;

// "[576, 1536]"
std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (const uint64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

}  // namespace

void GgufParser::fail_tensor(const TensorInfo& tensor, const std::string& what) const {
  cursor_.fail("tensor " + in_quotes(tensor.name) + " " + what);
}

void GgufParser::read_tensor_infos(uint64_t n_tensors) {
  for (uint64_t i = 0; i < n_tensors; ++i) {
    cursor_.place = {"tensor info", i, n_tensors};
    file_.tensors_.push_back(read_tensor_info());
  }
}

TensorInfo GgufParser::read_tensor_info() {
  TensorInfo tensor{};
  const uint64_t name_offset = cursor_.position();
  const std::string_view name = cursor_.read_string("name");
  if (name.empty() || name.size() > kMaxNameBytes) {
    cursor_.fail(cursor_.place.text() + " at byte " + std::to_string(name_offset) +
                 (name.empty() ? " has an empty name"
                               : " has a name of " + std::to_string(name.size()) + " bytes; the limit is " +
                                     std::to_string(kMaxNameBytes)));
  }
  cursor_.place.name = name;
  tensor.name = name;
  read_shape(tensor);
  read_type(tensor);
  tensor.file_offset = cursor_.read<uint64_t>("offset");  // in the data section until it is placed
  set_size(tensor);
  return tensor;
}

void GgufParser::read_shape(TensorInfo& tensor) {
  const uint64_t offset = cursor_.position();
  const auto n_dims = cursor_.read<uint32_t>("dimension count");
  if (n_dims == 0 || n_dims > kMaxDims) {
    fail_tensor(tensor, "has " + std::to_string(n_dims) + " dimensions at byte " + std::to_string(offset) +
                            "; it must have 1 to " + std::to_string(kMaxDims));
  }
  for (uint32_t i = 0; i < n_dims; ++i) tensor.shape.push_back(cursor_.read<uint64_t>("shape"));
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0u) != tensor.shape.end()) {
    fail_tensor(tensor, "has a dimension of 0 in its shape " + shape_text(tensor.shape) + " at byte " +
                            std::to_string(offset + 4));
  }
}

void GgufParser::read_type(TensorInfo& tensor) {
  const uint64_t offset = cursor_.position();
  const auto number = cursor_.read<uint32_t>("type");
  if (const auto type = tensor_type_from_number(number)) {
    tensor.type = *type;
    return;
  }
  const char* name = ggml_type_name(number);
  fail_tensor(tensor, "has the unsupported type " + std::to_string(number) +
                          (name == nullptr ? "" : " (" + std::string(name) + ")") + " at byte " +
                          std::to_string(offset) + "; supported are " + supported_tensor_types());
}

void GgufParser::set_size(TensorInfo& tensor) const {
  const uint32_t n_block = block_values(tensor.type);
  if (tensor.row_length() % n_block != 0) {
    fail_tensor(tensor, "has rows of " + std::to_string(tensor.row_length()) +
                            " values, which is not a "
                            "multiple of the " +
                            std::to_string(n_block) + " values in a block of its type " +
                            tensor_type_name(tensor.type));
  }
  // The number of values must fit too: others multiply the dims, and f32 copies need 4 bytes each.
  uint64_t n_values = 4;
  uint64_t n_bytes = block_bytes(tensor.type);
  bool overflows = false;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    overflows |= __builtin_mul_overflow(n_values, tensor.shape[i], &n_values);
    overflows |=
        __builtin_mul_overflow(n_bytes, i == 0 ? tensor.shape[0] / n_block : tensor.shape[i], &n_bytes);
  }
  if (overflows)
    fail_tensor(tensor, "is too large: its shape " + shape_text(tensor.shape) + " overflows 64 bits");
  tensor.size_bytes = n_bytes;
}

// Runs after all infos are read, because the data begin where the infos end.
void GgufParser::place_tensor_data() {
  const uint64_t alignment = file_.alignment_bytes_;
  const uint64_t file_bytes = file_.file_size();
  // Cannot overflow: a position in a file plus at most 1 MiB.
  const uint64_t data_offset = (cursor_.position() + alignment - 1) / alignment * alignment;
  file_.data_offset_ = std::min(data_offset, file_bytes);  // without tensors the padding may be missing
  for (TensorInfo& tensor : file_.tensors_) {
    const uint64_t offset = tensor.file_offset;
    if (offset % alignment != 0) {
      fail_tensor(tensor, "lies at offset " + std::to_string(offset) +
                              " of the data, which is not aligned to " + std::to_string(alignment) +
                              " bytes");
    }
    const uint64_t room = file_bytes - file_.data_offset_;
    if (offset > room || tensor.size_bytes > room - offset) {
      fail_tensor(tensor, "reaches past the end of the file: its " + std::to_string(tensor.size_bytes) +
                              " bytes begin at offset " + std::to_string(offset) +
                              " of the data, which begin at byte " + std::to_string(data_offset) +
                              ", but the file is cut short or damaged and ends at byte " +
                              std::to_string(file_bytes));
    }
    tensor.file_offset = file_.data_offset_ + offset;
    tensor.data = file_.files_[0].bytes().data() + tensor.file_offset;
  }
}

}  // namespace quire

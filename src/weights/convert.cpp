#include "weights/convert.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "weights/byte_cursor.h"
#include "weights/gguf_header.h"
#include "weights/open_model.h"
#include "weights/quantize.h"

namespace quire {
namespace {

// Source and encoded bytes that are in memory at a time, unless one row is larger.
constexpr uint64_t kBatchBytes = 8 << 20;
constexpr int64_t kPieceValues = 1 << 14;  // that a thread takes at a time

bool is_plain(TensorType type) {
  return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16;
}

// general.file_type, as llama.cpp numbers what most matrices are.
uint32_t file_type_number(TensorType type) {
  switch (type) {
    case TensorType::F32: return 0;
    case TensorType::F16: return 1;
    case TensorType::Q4_0: return 2;
    case TensorType::Q4_1: return 3;
    case TensorType::Q8_0: return 7;
    case TensorType::Q5_0: return 8;
    case TensorType::Q5_1: return 9;
    case TensorType::Q4_K: return 14;
    case TensorType::Q5_K: return 16;
    case TensorType::Q6_K: return 18;
    case TensorType::BF16: return 32;
  }
  QUIRE_CHECK(!"a TensorType");
}

// What rows get that blocks of 256 values do not divide, as with llama.cpp: the next larger type of blocks
// of 32.
TensorType smaller_blocks(TensorType wanted) {
  switch (wanted) {
    case TensorType::Q4_K: return TensorType::Q5_0;
    case TensorType::Q5_K: return TensorType::Q5_1;
    case TensorType::Q6_K: return TensorType::Q8_0;
    default: return TensorType::F16;
  }
}

bool divides(TensorType type, uint64_t row_length) { return row_length % block_values(type) == 0; }

// Few bits on the output matrix cost more than they save: every logit is a product with one of its rows.
TensorType output_type(TensorType wanted, uint64_t row_length) {
  if (is_plain(wanted) || wanted == TensorType::Q8_0) return wanted;
  return divides(TensorType::Q6_K, row_length) ? TensorType::Q6_K : TensorType::Q8_0;
}

}  // namespace

// GGUF has the two values of a rotated pair next to each other; the other order has all first ones before all
// second ones.
uint64_t Conversion::RowOrder::source(uint64_t row) const {
  if (head_rows == 0) return row;
  const uint64_t head = row / head_rows * head_rows;
  const uint64_t at = row % head_rows;
  if (at >= rotated_rows) return row;
  return head + at / 2 + at % 2 * (rotated_rows / 2);
}

Conversion::Conversion(const GgufFile& model, std::optional<TensorType> type,
                       std::span<const MetadataEntry> more)
    : model_(model),
      type_(type),
      architecture_(model.get_string("general.architecture")),
      half_split_(model.get_bool_or(kHalfSplitKey, false)) {
  for (const TensorInfo& tensor : model.tensors()) add_target(tensor);
  add_metadata(more);
  add_notes();
}

// Vectors (norms, biases, RoPE factors) are f32, which is the only type in which llama.cpp takes them.
TensorType Conversion::type_of(const TensorInfo& tensor) {
  if (tensor.shape.size() == 1) return is_plain(tensor.type) ? TensorType::F32 : tensor.type;
  if (!type_) return tensor.type;
  TensorType wanted = *type_;
  const bool is_output = tensor.name == "output.weight" || (tensor.name == "token_embd.weight" &&
                                                            model_.find_tensor("output.weight") == nullptr);
  if (is_output) wanted = output_type(wanted, tensor.row_length());
  if (divides(wanted, tensor.row_length())) return wanted;
  wanted = smaller_blocks(wanted);
  if (!divides(wanted, tensor.row_length())) wanted = TensorType::F16;
  undivided_[wanted].push_back(tensor.name);
  return wanted;
}

Conversion::RowOrder Conversion::order_of(const TensorInfo& tensor, uint64_t n_rows) const {
  const bool is_q = tensor.name.find(".attn_q.") != std::string::npos;
  const bool is_k = tensor.name.find(".attn_k.") != std::string::npos;
  if (!half_split_ || (!is_q && !is_k)) return {};
  const uint64_t n_heads =
      model_.get_uint(architecture_ + (is_q ? ".attention.head_count" : ".attention.head_count_kv"));
  const uint64_t head_rows = n_heads == 0 ? 0 : n_rows / n_heads;
  const uint64_t rotated = model_.get_uint_or(architecture_ + ".rope.dimension_count", head_rows);
  if (head_rows == 0 || n_rows % n_heads != 0 || rotated > head_rows || rotated % 2 != 0) {
    throw Error(model_.path() + ": the " + std::to_string(n_rows) + " rows of tensor " +
                in_quotes(tensor.name) + " are no " + std::to_string(n_heads) + " heads of which " +
                std::to_string(rotated) + " dims rotate");
  }
  return {head_rows, rotated};
}

void Conversion::add_target(const TensorInfo& tensor) {
  Target target{&tensor, tensor, tensor.n_rows(), tensor.row_length(), {}};
  target.info.type = type_of(tensor);
  if (tensor.shape.size() == 1) {
    target.order = order_of(tensor, tensor.row_length());
    if (target.order.head_rows > 0) {  // rows of one value
      if (!is_plain(tensor.type)) {
        throw Error(model_.path() + ": the vector " + in_quotes(tensor.name) + " is of type " +
                    tensor_type_name(tensor.type) + ", whose values cannot be brought into another order");
      }
      std::swap(target.n_rows, target.row_length);
    }
  } else {
    target.order = order_of(tensor, tensor.n_rows());
  }
  target.info.size_bytes = row_bytes(target.info.type, target.row_length) * target.n_rows;
  target.info.data = nullptr;
  if (!is_plain(tensor.type) && target.info.type != tensor.type && !is_plain(target.info.type))
    ++n_requantized_;
  targets_.push_back(std::move(target));
}

void Conversion::add_metadata(std::span<const MetadataEntry> more) {
  const bool quantized = std::any_of(targets_.begin(), targets_.end(),
                                     [](const Target& target) { return !is_plain(target.info.type); });
  constexpr std::string_view kFileType = "general.file_type", kVersion = "general.quantization_version";
  for (const MetadataEntry& entry : model_.metadata()) {
    if (entry.key.starts_with("split.") || entry.key.starts_with("quire.")) continue;
    if (type_ && (entry.key == kFileType || entry.key == kVersion)) continue;
    metadata_.push_back(entry);
  }
  if (type_) {
    metadata_.push_back({kFileType, MetadataValue(file_type_number(*type_))});
    if (quantized) metadata_.push_back({kVersion, MetadataValue(uint32_t{2})});
  }
  metadata_.insert(metadata_.end(), more.begin(), more.end());
}

void Conversion::add_notes() {
  for (const auto& [type, names] : undivided_) {
    std::string sentence = in_quotes(names.front());
    if (names.size() > 1)
      sentence.append(" and ").append(std::to_string(names.size() - 1)).append(" more tensors");
    sentence.append(names.size() > 1 ? " are written as " : " is written as ").append(tensor_type_name(type));
    notes_.push_back(sentence + ", as blocks of " + std::to_string(block_values(*type_)) +
                     " values do not divide the rows");
  }
  if (n_requantized_ > 0) {
    notes_.push_back(
        std::to_string(n_requantized_) +
        " tensors were quantized before and are so again; a conversion of the original loses less");
  }
  if (model_.get_string_or(architecture_ + ".rope.scaling.type", "") == "dynamic") {
    notes_.push_back("the model's dynamic RoPE scaling is known to Quire, but not to llama.cpp");
  }
}

std::map<std::string, size_t> Conversion::tensors_by_type() const {
  std::map<std::string, size_t> counts;
  for (const Target& target : targets_) ++counts[tensor_type_name(target.info.type)];
  return counts;
}

namespace {

uint64_t padded(uint64_t n_bytes, uint64_t alignment) {
  return (n_bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

// Writes tensors in batches of rows, which the team encodes together.
class TensorWriter {
 public:
  TensorWriter(const GgufFile& model, Team& team, AtomicFile& file)
      : model_(model), team_(team), file_(file), scratch_(static_cast<size_t>(team.size())) {}

  template <typename Done>  // Done(bytes written of this tensor)
  void write(const Conversion::Target& target, const Done& done) {
    const uint64_t in_bytes = row_bytes(target.source->type, target.row_length);
    const uint64_t out_bytes = row_bytes(target.info.type, target.row_length);
    const uint64_t batch_rows = std::max<uint64_t>(kBatchBytes / (in_bytes + out_bytes), 1);
    for (std::vector<float>& values : scratch_) values.resize(target.row_length);
    for (uint64_t first = 0; first < target.n_rows; first += batch_rows) {
      const uint64_t n_rows = std::min(batch_rows, target.n_rows - first);
      encoded_.resize(n_rows * out_bytes);
      encode(target, first, n_rows);
      file_.write(encoded_);
      model_.drop_pages(*target.source);
      done((first + n_rows) * out_bytes);
    }
    encoded_.assign(padded(target.info.size_bytes, model_.alignment_bytes()) - target.info.size_bytes,
                    std::byte{0});
    file_.write(encoded_);
  }

 private:
  void encode(const Conversion::Target& target, uint64_t first, uint64_t n_rows) {
    const uint64_t in_bytes = row_bytes(target.source->type, target.row_length);
    const uint64_t out_bytes = row_bytes(target.info.type, target.row_length);
    const bool copied = target.source->type == target.info.type;
    const auto row_length = static_cast<int64_t>(target.row_length);
    std::atomic<bool> fits = true;
    team_.run([&](Worker& worker) {
      std::vector<float>& values = scratch_[static_cast<size_t>(worker.rank())];
      const int64_t grain = std::max<int64_t>(kPieceValues / row_length, 1);
      worker.share(static_cast<int64_t>(n_rows), grain, [&](int64_t begin, int64_t end) {
        for (auto i = static_cast<uint64_t>(begin); i < static_cast<uint64_t>(end); ++i) {
          const std::byte* from = target.source->data + target.order.source(first + i) * in_bytes;
          std::byte* to = encoded_.data() + i * out_bytes;
          if (copied) {
            std::memcpy(to, from, out_bytes);
            continue;
          }
          dequantize_row(target.source->type, from, values.data(), target.row_length);
          if (!quantize_row(target.info.type, values.data(), to, target.row_length)) {
            fits.store(false, std::memory_order_relaxed);
          }
        }
      });
    });
    if (!fits) {
      throw Error(model_.path() + ": tensor " + in_quotes(target.source->name) + " has a value that " +
                  tensor_type_name(target.info.type) + " cannot hold (not finite, or beyond 65504)");
    }
  }

  const GgufFile& model_;
  Team& team_;
  AtomicFile& file_;
  std::vector<std::vector<float>> scratch_;  // a decoded row of each member
  std::vector<std::byte> encoded_;
};

uint64_t Conversion::file_bytes() const {
  std::vector<TensorInfo> infos;
  for (const Target& target : targets_) infos.push_back(target.info);
  uint64_t n_bytes = gguf_header(metadata_, infos, model_.alignment_bytes()).size();
  for (const TensorInfo& info : infos) n_bytes += padded(info.size_bytes, model_.alignment_bytes());
  return n_bytes;
}

void Conversion::write(const std::string& path, Team& team, const Progress& progress) const {
  std::vector<TensorInfo> infos;
  uint64_t n_total = 1;
  for (const Target& target : targets_) {
    infos.push_back(target.info);
    n_total += target.info.size_bytes;
  }
  AtomicFile file(path);
  file.write(gguf_header(metadata_, infos, model_.alignment_bytes()));
  TensorWriter writer(model_, team, file);
  uint64_t n_before = 0;
  for (const Target& target : targets_) {
    writer.write(target, [&](uint64_t n_done) {
      if (progress) progress(static_cast<double>(n_before + n_done) / static_cast<double>(n_total));
    });
    n_before += target.info.size_bytes;
  }
  file.commit();
}

}  // namespace quire

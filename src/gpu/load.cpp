// Loading: every tensor of the file is checked, decoded, rounded to bf16 and put in its place on the device.
#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "gpu/device_recipe.h"
#include "gpu/weights.h"
#include "model/tensors.h"

namespace quire::gpu {

namespace {

constexpr size_t kPieceBytes = size_t{16} << 20;  // decoded at a time

class Loader {
 public:
  Loader(const GgufFile& file, const ModelConfig& config, Weights& weights)
      : file_(file), config_(config), weights_(weights) {}

  void load() {
    for (size_t i = 0; i < config_.n_layers; ++i) load_layer(i);
    put_vector(weights_.output_norm, file_.tensor("output_norm.weight"), config_.width);
    put_rows(weights_.embedding.data, "token_embd.weight", config_.vocabulary, config_.width);
    if (weights_.head.data != weights_.embedding.data) {
      put_rows(weights_.head.data, "output.weight", config_.vocabulary, config_.width);
    }
    for (const char* name : {kRopeFactorsTensor, kLongFactorsTensor, kShortFactorsTensor})
      taken_.insert(name);
    refuse_rest();
  }

 private:
  void load_layer(size_t index) {
    const std::string prefix = "blk." + std::to_string(index) + ".";
    const LayerWeights& layer = weights_.layers[index];
    const size_t width = config_.width;
    const size_t n_q = config_.n_heads * config_.head_dim;
    const size_t n_kv = config_.n_kv_heads * config_.head_dim;
    const auto q = half_split_order(config_.n_heads, config_.head_dim, config_.neighbouring_dims());
    const auto k = half_split_order(config_.n_kv_heads, config_.head_dim, config_.neighbouring_dims());
    const auto v = half_split_order(config_.n_kv_heads, config_.head_dim, 0);
    const auto head = half_split_order(1, config_.head_dim, config_.neighbouring_dims());
    if (config_.family->fused) {
      put_rows(layer.qkv.data, prefix + "attn_qkv.weight", n_q + 2 * n_kv, width);
      put_rows(layer.gate_up.data, prefix + "ffn_up.weight", 2 * config_.ffn_width, width);
    } else {
      put_rows(layer.qkv.data, prefix + "attn_q.weight", n_q, width, q);
      put_rows(layer.qkv.data + n_q * width, prefix + "attn_k.weight", n_kv, width, k);
      put_rows(layer.qkv.data + (n_q + n_kv) * width, prefix + "attn_v.weight", n_kv, width);
      put_rows(layer.gate_up.data, prefix + "ffn_gate.weight", config_.ffn_width, width);
      put_rows(layer.gate_up.data + config_.ffn_width * width, prefix + "ffn_up.weight", config_.ffn_width,
               width);
    }
    if (layer.bias != nullptr) {
      put_ordered(layer.bias, prefix + "attn_q.bias", q);
      put_ordered(layer.bias + n_q, prefix + "attn_k.bias", k);
      put_ordered(layer.bias + n_q + n_kv, prefix + "attn_v.bias", v);
    }
    if (layer.query_norm != nullptr) {
      put_ordered(layer.query_norm, prefix + "attn_q_norm.weight", head);
      put_ordered(layer.key_norm, prefix + "attn_k_norm.weight", head);
    }
    put_rows(layer.output.data, prefix + "attn_output.weight", width, n_q);
    put_rows(layer.down.data, prefix + "ffn_down.weight", width, config_.ffn_width);
    put_vector(layer.attention_norm, file_.tensor(prefix + "attn_norm.weight"), width);
    put_vector(layer.ffn_norm, file_.tensor(prefix + "ffn_norm.weight"), width);
    if (layer.output_norm == nullptr) return;
    put_vector(layer.output_norm, file_.tensor(prefix + "post_attention_norm.weight"), width);
    put_vector(layer.down_norm, file_.tensor(prefix + "post_ffw_norm.weight"), width);
  }

  void put(const void* to, const void* from, size_t n_bytes) {
    const auto* base = weights_.memory.as<uint8_t>();
    weights_.memory.write(from, n_bytes, static_cast<size_t>(static_cast<const uint8_t*>(to) - base));
  }

  // Row r of the matrix is row order[r] of the tensor.
  void put_rows(const uint16_t* to, const std::string& name, size_t n_rows, size_t n_columns,
                std::span<const uint32_t> order = {}) {
    const TensorInfo& tensor = file_.tensor(name);
    taken_.insert(name);
    check_shape(file_, tensor, n_rows, n_columns);
    const size_t n_bytes = row_bytes(tensor.type, n_columns);
    const size_t piece = std::max<size_t>(1, kPieceBytes / (n_columns * sizeof(uint16_t)));
    row_.resize(n_columns);
    for (size_t first = 0; first < n_rows; first += piece) {
      const size_t n = std::min(piece, n_rows - first);
      rows_.resize(n * n_columns);
      for (size_t i = 0; i < n; ++i) {
        const size_t source = order.empty() ? first + i : order[first + i];
        dequantize_row(tensor.type, tensor.data + source * n_bytes, row_.data(), n_columns);
        for (size_t d = 0; d < n_columns; ++d) rows_[i * n_columns + d] = f32_to_bf16(row_[d]);
      }
      put(to + first * n_columns, rows_.data(), n * n_columns * sizeof(uint16_t));
    }
    file_.drop_pages(tensor);
  }

  void put_vector(const float* to, const TensorInfo& tensor, size_t n) {
    taken_.insert(tensor.name);
    const std::vector<float> values = read_vector(file_, tensor, n);
    put(to, values.data(), n * sizeof(float));
  }

  void put_ordered(const float* to, const std::string& name, std::span<const uint32_t> order) {
    taken_.insert(name);
    const std::vector<float> values = read_ordered(file_, file_.tensor(name), order);
    put(to, values.data(), values.size() * sizeof(float));
  }

  void refuse_rest() const {
    for (const TensorInfo& tensor : file_.tensors()) {
      if (taken_.contains(tensor.name)) continue;
      throw Error(file_.path() + ": tensor '" + tensor.name.substr(0, 80) +
                  "' is not part of a model that the " + "CUDA device runs");
    }
  }

  const GgufFile& file_;
  const ModelConfig& config_;
  Weights& weights_;
  std::set<std::string> taken_;
  std::vector<float> row_;
  std::vector<uint16_t> rows_;
};

// Of a fused tensor the heads' order cannot be chosen here.
void check_file(const ModelConfig& config) {
  if (config.family->fused && config.neighbouring_dims() != 0) {
    throw Error("models of the family '" + config.architecture +
                "' have fused tensors with neighbouring pairs, which the CUDA device does not do");
  }
}

}  // namespace

DeviceModel DeviceModel::load(const GgufFile& file, const RopeOverrides& overrides, int device) {
  auto parts = std::make_unique<Parts>();
  parts->device = device;
  parts->config = ModelConfig::read(file, overrides);
  check_model(parts->config);
  check_file(parts->config);
  parts->device_name = use_device(device);
  parts->label = parts->config.name;
  const WeightsShape shape = {file.find_tensor("output.weight") == nullptr,
                              file.find_tensor("blk.0.attn_q.bias") != nullptr};
  parts->weights = reserve_weights(parts->config, shape);
  Loader(file, parts->config, parts->weights).load();
  return DeviceModel(std::move(parts));
}

DeviceModel::DeviceModel(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
DeviceModel::DeviceModel(DeviceModel&&) noexcept = default;
DeviceModel& DeviceModel::operator=(DeviceModel&&) noexcept = default;
DeviceModel::~DeviceModel() = default;

const ModelConfig& DeviceModel::config() const { return parts_->config; }
const std::string& DeviceModel::label() const { return parts_->label; }
uint64_t DeviceModel::weight_bytes() const { return parts_->weights.memory.size_bytes(); }
uint64_t DeviceModel::step_bytes() const {
  const Weights& weights = parts_->weights;
  const DeviceMatrix& embedding = weights.embedding;
  const bool tied = weights.head.data == embedding.data;
  return weight_bytes() -
         (tied ? 0 : static_cast<uint64_t>(embedding.rows) * static_cast<uint64_t>(embedding.columns) * 2);
}
const std::string& DeviceModel::device_name() const { return parts_->device_name; }

}  // namespace quire::gpu

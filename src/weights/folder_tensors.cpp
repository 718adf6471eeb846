#include "weights/folder_tensors.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "weights/byte_cursor.h"

namespace quire {
namespace {

// One tensor of the model by its config.json.
struct Wanted {
  std::string name;  // behind the folder's prefix
  std::string gguf_name;
  std::vector<uint64_t> shape;  // as in safetensors: rows, columns; or one length
  bool plus_one = false;        // stored less 1
};

// The tensors of a layer, in GGUF's usual order.
class LayerTensors {
 public:
  LayerTensors(const FolderConfig& config, uint64_t layer, std::vector<Wanted>& wanted)
      : config_(config),
        prefix_("layers." + std::to_string(layer) + "."),
        gguf_prefix_("blk." + std::to_string(layer) + "."),
        wanted_(wanted) {}

  void add_all() {
    const uint64_t width = config_.width;
    norm("input_layernorm", "attn_norm", width);
    add_attention();
    if (config_.is_gemma()) {
      norm("post_attention_layernorm", "post_attention_norm", width);
      norm("pre_feedforward_layernorm", "ffn_norm", width);
    } else {
      norm("post_attention_layernorm", "ffn_norm", width);
    }
    if (config_.family == Family::kPhi3) {
      matrix("mlp.gate_up_proj", "ffn_up", 2 * config_.ffn_width, width, false);
    } else {
      matrix("mlp.gate_proj", "ffn_gate", config_.ffn_width, width, false);
      matrix("mlp.up_proj", "ffn_up", config_.ffn_width, width, false);
    }
    matrix("mlp.down_proj", "ffn_down", width, config_.ffn_width, false);
    if (config_.is_gemma()) norm("post_feedforward_layernorm", "post_ffw_norm", width);
  }

 private:
  void add_attention() {
    const uint64_t q_width = config_.n_heads * config_.head_dim;
    const uint64_t kv_width = config_.n_kv_heads * config_.head_dim;
    if (config_.family == Family::kPhi3) {
      matrix("self_attn.qkv_proj", "attn_qkv", q_width + 2 * kv_width, config_.width, false);
    } else {
      matrix("self_attn.q_proj", "attn_q", q_width, config_.width, config_.qkv_bias);
      matrix("self_attn.k_proj", "attn_k", kv_width, config_.width, config_.qkv_bias);
      matrix("self_attn.v_proj", "attn_v", kv_width, config_.width, config_.qkv_bias);
    }
    if (config_.family == Family::kQwen3 || config_.family == Family::kGemma3) {
      norm("self_attn.q_norm", "attn_q_norm", config_.head_dim);
      norm("self_attn.k_norm", "attn_k_norm", config_.head_dim);
    }
    matrix("self_attn.o_proj", "attn_output", config_.width, q_width, config_.output_bias);
  }

  void norm(const char* name, const char* gguf_name, uint64_t length) {
    wanted_.push_back(
        {prefix_ + name + ".weight", gguf_prefix_ + gguf_name + ".weight", {length}, config_.is_gemma()});
  }

  void matrix(const char* name, const char* gguf_name, uint64_t n_rows, uint64_t n_columns, bool biased) {
    wanted_.push_back(
        {prefix_ + name + ".weight", gguf_prefix_ + gguf_name + ".weight", {n_rows, n_columns}});
    if (biased) wanted_.push_back({prefix_ + name + ".bias", gguf_prefix_ + gguf_name + ".bias", {n_rows}});
  }

  const FolderConfig& config_;
  std::string prefix_;
  std::string gguf_prefix_;
  std::vector<Wanted>& wanted_;
};

// All of a model but the output matrix.
std::vector<Wanted> wanted_tensors(const FolderConfig& config) {
  std::vector<Wanted> wanted;
  wanted.push_back({"embed_tokens.weight", "token_embd.weight", {config.vocabulary, config.width}});
  for (uint64_t i = 0; i < config.n_layers; ++i) LayerTensors(config, i, wanted).add_all();
  wanted.push_back({"norm.weight", "output_norm.weight", {config.width}, config.is_gemma()});
  return wanted;
}

std::string shape_in_words(const std::vector<uint64_t>& shape) {
  if (shape.size() > 4) return "of " + std::to_string(shape.size()) + " dimensions";
  std::string text;
  for (const uint64_t n : shape) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return text.empty() ? "a single value" : text;
}

std::optional<TensorType> type_of(std::string_view dtype) {
  if (dtype == "F32") return TensorType::F32;
  if (dtype == "F16") return TensorType::F16;
  if (dtype == "BF16") return TensorType::BF16;
  return std::nullopt;
}

// What names begin with: of causal models, of the bare ones, and of text models in larger ones.
struct Prefixes {
  const char* body;
  const char* head;
};

constexpr Prefixes kPrefixes[] = {
    {"model.", ""}, {"model.language_model.", ""}, {"language_model.model.", "language_model."}, {"", ""}};

constexpr const char* kVision[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                   "model.multi_modal_projector."};

class Mapper {
 public:
  Mapper(const FolderConfig& config, std::vector<FolderTensor> tensors, const std::string& folder,
         ModelParts& parts)
      : config_(config), folder_(folder), parts_(parts) {
    for (FolderTensor& tensor : tensors) {
      const auto [at, is_new] = tensors_.try_emplace(tensor.tensor.name, std::move(tensor));
      if (!is_new) {  // try_emplace leaves what it does not take
        throw Error(folder_ + ": tensor " + in_quotes(tensor.tensor.name) + " is in two files, " +
                    in_quotes(*at->second.file) + " and " + in_quotes(*tensor.file));
      }
    }
    prefixes_ = find_prefixes();
  }

  void map_all() {
    for (const Wanted& wanted : wanted_tensors(config_)) add(prefixes_.body + wanted.name, wanted);
    map_output();
    leave_out();
  }

 private:
  Prefixes find_prefixes() const {
    for (const Prefixes& prefixes : kPrefixes) {
      if (tensors_.contains(std::string(prefixes.body) + "embed_tokens.weight")) return prefixes;
    }
    throw Error(folder_ + ": the tensor 'model.embed_tokens.weight' is missing");
  }

  FolderTensor take(const std::string& name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw Error(folder_ + ": the tensor " + in_quotes(name) + " is missing");
    FolderTensor taken = std::move(found->second);
    tensors_.erase(found);
    return taken;
  }

  void add(const std::string& name, const Wanted& wanted) {
    const FolderTensor source = take(name);
    const Safetensor& tensor = source.tensor;
    if (tensor.shape != wanted.shape) {
      throw Error(*source.file + ": tensor " + in_quotes(name) + " is " + shape_in_words(tensor.shape) +
                  ", where config.json wants " + shape_in_words(wanted.shape));
    }
    const std::optional<TensorType> type = type_of(tensor.dtype);
    if (!type) {
      throw Error(*source.file + ": tensor " + in_quotes(name) + " is of the type " + tensor.dtype +
                  "; F32, F16 and BF16 are read");
    }
    TensorInfo info{wanted.gguf_name,
                    *type,
                    {},
                    tensor.data.data(),
                    tensor.data.size(),
                    static_cast<uint64_t>(tensor.data.data() - source.begin)};
    info.shape.assign(wanted.shape.rbegin(), wanted.shape.rend());
    if (wanted.plus_one) add_one(info);
    parts_.tensors.push_back(std::move(info));
  }

  void add_one(TensorInfo& info) {
    std::vector<float> values(info.row_length());
    dequantize_row(info.type, info.data, values.data(), values.size());
    for (float& value : values) value += 1;
    const auto bytes = std::as_bytes(std::span(values));
    info.type = TensorType::F32;
    info.data = parts_.memory.emplace_back(bytes.begin(), bytes.end()).data();
    info.size_bytes = bytes.size();
    info.file_offset = 0;
  }

  // Checkpoints often have the output matrix also where it is tied to the embedding. Another one than the
  // embedding would be passed over by transformers in silence.
  void map_output() {
    const std::string name = std::string(prefixes_.head) + "lm_head.weight";
    if (!config_.tied) {
      add(name, {"", "output.weight", {config_.vocabulary, config_.width}});
      return;
    }
    if (!tensors_.contains(name)) return;
    const FolderTensor output = take(name);
    const TensorInfo& embedding = parts_.tensors.front();
    const std::span<const std::byte> data = output.tensor.data;
    if (type_of(output.tensor.dtype) != embedding.type || data.size() != embedding.size_bytes ||
        std::memcmp(data.data(), embedding.data, data.size()) != 0) {
      throw Error(*output.file + ": tensor " + in_quotes(name) +
                  " differs from the embedding, to which config.json ties it (tie_word_embeddings)");
    }
  }

  static bool is_rotary_buffer(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

  bool is_vision(std::string_view name) const {
    return config_.has_vision && std::any_of(std::begin(kVision), std::end(kVision),
                                             [&](const char* prefix) { return name.starts_with(prefix); });
  }

  // Accounts for what was not taken.
  void leave_out() {
    size_t n_vision = 0;
    for (const auto& [name, source] : tensors_) {
      if (is_vision(name)) {
        ++n_vision;
      } else if (!is_rotary_buffer(name)) {
        throw Error(*source.file + ": tensor " + in_quotes(name) + " is not part of a model of this type");
      }
    }
    if (n_vision > 0) {
      parts_.notes.push_back(folder_ + ": the vision tower (" + std::to_string(n_vision) +
                             " tensors) is left out; the model reads text only");
    }
  }

  const FolderConfig& config_;
  const std::string& folder_;
  ModelParts& parts_;
  std::map<std::string, FolderTensor, std::less<>> tensors_;
  Prefixes prefixes_{};
};

void add_factors(const char* name, const std::vector<float>& factors, ModelParts& parts) {
  if (factors.empty()) return;
  const auto bytes = std::as_bytes(std::span(factors));
  const std::vector<std::byte>& kept = parts.memory.emplace_back(bytes.begin(), bytes.end());
  parts.tensors.push_back({name, TensorType::F32, {factors.size()}, kept.data(), kept.size(), 0});
}

}  // namespace

void add_folder_tensors(const FolderConfig& config, std::vector<FolderTensor> tensors,
                        const std::string& folder, ModelParts& parts) {
  Mapper(config, std::move(tensors), folder, parts).map_all();
  add_factors("rope_freqs.weight", config.rope.factors, parts);
  add_factors("rope_factors_long.weight", config.rope.long_factors, parts);
  add_factors("rope_factors_short.weight", config.rope.short_factors, parts);
}

}  // namespace quire

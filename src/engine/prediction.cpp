#include "engine/prediction.h"

#include <algorithm>

#include "base/checked.h"
#include "format/row_format.h"
#include "kernels/ops.h"
#include "kernels/pack.h"
#include "model/config.h"
#include "policy/digest.h"
#include "store/store.h"

namespace quire {
namespace {

// What the program takes with a model of no size: code, stacks, standard library.
constexpr uint64_t kProgramBytes = 8 << 20;
// Beyond what the text of the vocabulary takes itself: tables of pieces and merges, a few words per token.
constexpr uint64_t kTokenizerBytesPerToken = 80;
// Tokens that the forward pass takes through a layer at a time (model/forward.cpp).
constexpr uint64_t kChunkTokens = 256;
constexpr uint64_t kMaxLayers = 65536;

std::string prefix_of(const GgufFile& file) {
  return std::string(file.get_string("general.architecture")) + ".";
}

bool is_array(const GgufFile& file, const std::string& key) {
  const MetadataValue* value = file.find(key);
  return value != nullptr && metadata_type(*value) == MetadataType::Array;
}

uint64_t positive(const GgufFile& file, const std::string& key) {
  const uint64_t value = file.get_uint(key);
  if (value == 0) throw Error(file.path() + ": " + key + " is 0");
  return value;
}

// One number for every layer, or an array with one for each.
std::vector<uint64_t> per_layer(const GgufFile& file, const std::string& key, uint64_t n_layers) {
  if (!is_array(file, key)) return std::vector<uint64_t>(n_layers, file.get_uint(key));
  std::vector<uint64_t> values;
  for (const int64_t value : file.get_int_array(key)) {
    if (value < 0) throw Error(file.path() + ": " + key + " holds a negative number");
    values.push_back(static_cast<uint64_t>(value));
  }
  if (values.size() != n_layers) {
    throw Error(file.path() + ": " + key + " has " + std::to_string(values.size()) + " entries for " +
                std::to_string(n_layers) + " layers");
  }
  return values;
}

// Where the file does not give the length of a key, it is the width divided by the query heads.
uint64_t default_head_length(const GgufFile& file, const std::string& prefix, uint64_t n_layers) {
  const std::vector<uint64_t> heads = per_layer(file, prefix + "attention.head_count", n_layers);
  const uint64_t most = *std::max_element(heads.begin(), heads.end());
  if (most == 0) throw Error(file.path() + ": " + prefix + "attention.head_count is 0");
  return positive(file, prefix + "embedding_length") / most;
}

uint64_t loaded_bytes(const TensorInfo& tensor) {
  uint64_t n_rows = 1;
  for (size_t i = 1; i < tensor.shape.size(); ++i) n_rows = checked_mul(n_rows, tensor.shape[i], "a tensor");
  // Vectors (norms) are kept as f32, matrices in panels.
  if (tensor.shape.size() == 1) return checked_mul(tensor.row_length(), sizeof(float), "a tensor");
  const uint64_t n_panels = n_rows / kPanelRows + (n_rows % kPanelRows != 0 ? 1 : 0);
  const size_t row_panel_bytes = panel_bytes(panel_kind(tensor.type), tensor.row_length());
  return checked_add(checked_mul(n_panels, row_panel_bytes, "a tensor"), kSpareBytes, "a tensor");
}

// A folder's tokenizer is not in its metadata; the embedding has a row for every token.
uint64_t n_tokens_of(const GgufFile& file) {
  const MetadataValue* value = file.find("tokenizer.ggml.tokens");
  const auto* array = value == nullptr ? nullptr : std::get_if<MetadataArray>(value);
  if (array != nullptr) return array->n_values;
  const TensorInfo* embedding = file.find_tensor("token_embd.weight");
  return embedding == nullptr ? 0 : embedding->n_rows();
}

// Everything that is neither weights nor cache. Only the residual stream and the rotation angles span the
// whole prompt; the rest is the size of a chunk.
uint64_t estimate_workspace(const GgufFile& file, const std::string& prefix, const KvShape& shape,
                            uint64_t n_tokens) {
  const uint64_t width = positive(file, prefix + "embedding_length");
  const uint64_t hidden = is_array(file, prefix + "feed_forward_length")
                              ? 4 * width
                              : file.get_uint_or(prefix + "feed_forward_length", 4 * width);
  const uint64_t n_vocabulary = n_tokens_of(file);
  // The hidden state and the angles of a token, which layers with a window may have of their own.
  const uint64_t n_tables = shape.window_tokens.empty() ? 1 : 2;
  const uint64_t token_floats =
      checked_add(width, checked_mul(n_tables, shape.key_length, "the workspace"), "the workspace");
  const uint64_t chunk_floats = checked_add(checked_mul(8, width, "the workspace"),
                                            checked_mul(2, hidden, "the workspace"), "the workspace");
  uint64_t bytes =
      checked_mul(checked_mul(n_tokens, token_floats, "the workspace"), sizeof(float), "the workspace");
  bytes = checked_add(bytes, checked_mul(kChunkTokens * sizeof(float), chunk_floats, "the workspace"),
                      "the workspace");
  bytes = checked_add(bytes, n_vocabulary * (kTokenizerBytesPerToken + sizeof(float)), "the workspace");
  return checked_add(bytes, kProgramBytes, "the workspace");
}

// Of a model that runs; none of others.
std::vector<uint64_t> windows_of(const GgufFile& file) {
  try {
    const Geometry geometry = ModelConfig::read(file).geometry();
    return {geometry.window_tokens.begin(), geometry.window_tokens.end()};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

KvShape KvShape::read(const GgufFile& file) {
  const std::string prefix = prefix_of(file);
  const uint64_t n_layers = positive(file, prefix + "block_count");
  if (n_layers > kMaxLayers) {
    throw Error(file.path() + ": " + prefix + "block_count is " + std::to_string(n_layers) +
                ", which is no number of layers");
  }
  KvShape shape;
  const std::string kv_key = prefix + "attention.head_count_kv";
  shape.n_kv_heads =
      per_layer(file, file.find(kv_key) != nullptr ? kv_key : prefix + "attention.head_count", n_layers);
  const std::string key_length = prefix + "attention.key_length";
  shape.key_length = file.find(key_length) != nullptr ? positive(file, key_length)
                                                      : default_head_length(file, prefix, n_layers);
  shape.value_length = file.get_uint_or(prefix + "attention.value_length", shape.key_length);
  shape.window_tokens = windows_of(file);
  return shape;
}

// Bytes that are not of all tokens' exact rows alone.
bool KvShape::needs_geometry(const Recipe& recipe) const {
  return recipe.seals() || recipe.drops() || digest_bytes(recipe.select, 1, recipe.key_format, 1) > 0 ||
         !window_tokens.empty();
}

// For models with windows and recipes that code rows, drop them or keep digests, once it is sure that no sum
// over n_tokens overflows.
Geometry KvShape::coded_geometry(const Recipe& recipe, uint64_t n_tokens) const {
  if (key_length != value_length) {
    throw Error("recipe '" + recipe.text() + "' needs keys as long as values, and the model's are of " +
                std::to_string(key_length) + " and " + std::to_string(value_length));
  }
  if (recipe.coded && key_length > kMaxHeadDim) {
    throw Error("recipe '" + recipe.text() + "': head sizes above " + std::to_string(kMaxHeadDim) +
                " cannot be coded, and the model's is " + std::to_string(key_length));
  }
  // No format takes more than f32, and at the peak a page may exist in both forms. Digests come on top, of
  // which a row's bytes are a factor that is large enough.
  const size_t row_digest = digest_bytes(recipe.select, 1, recipe.key_format, key_length) / kTokensPerPage;
  checked_mul(exact_bytes(Recipe{Format::kF32, Format::kF32}, n_tokens), 4 + row_digest, "the cache");
  Geometry geometry{n_kv_heads.size(), 0, key_length, {}};
  geometry.n_kv_heads.assign(n_kv_heads.begin(), n_kv_heads.end());
  geometry.window_tokens.assign(window_tokens.begin(), window_tokens.end());
  check_windows(recipe, geometry);
  return geometry;
}

uint64_t KvShape::token_bytes(const Recipe& recipe) const {
  return needs_geometry(recipe) ? coded_geometry(recipe, kTokensPerPage).token_bytes(recipe)
                                : exact_token_bytes(recipe);
}

uint64_t KvShape::exact_token_bytes(const Recipe& recipe) const {
  const auto checked_row = [](Format format, uint64_t length) {
    return checked_mul(length, info(format).value_bytes, "a row of the cache");
  };
  const uint64_t head_bytes =
      checked_add(checked_row(recipe.key_format, key_length), checked_row(recipe.value_format, value_length),
                  "a row of the cache");
  uint64_t total = 0;
  for (const uint64_t n : n_kv_heads) {
    total = checked_add(total, checked_mul(n, head_bytes, "the cache"), "the cache");
  }
  return total;
}

uint64_t KvShape::peak_bytes(const Recipe& recipe, uint64_t n_tokens) const {
  if (!needs_geometry(recipe)) return cache_bytes(recipe, n_tokens);
  return coded_geometry(recipe, n_tokens).peak_bytes(recipe, 0, n_tokens, 0);
}

uint64_t KvShape::cache_bytes(const Recipe& recipe, uint64_t n_tokens) const {
  return needs_geometry(recipe) ? coded_geometry(recipe, n_tokens).cache_bytes(recipe, n_tokens)
                                : exact_bytes(recipe, n_tokens);
}

uint64_t KvShape::exact_bytes(const Recipe& recipe, uint64_t n_tokens) const {
  const uint64_t n_pages = n_tokens / kTokensPerPage + (n_tokens % kTokensPerPage != 0 ? 1 : 0);
  return checked_mul(checked_mul(n_pages, kTokensPerPage, "the cache"), exact_token_bytes(recipe),
                     "the cache");
}

uint64_t trained_context_tokens(const GgufFile& file) {
  return positive(file, prefix_of(file) + "context_length");
}

MemoryPrediction predict_memory(const GgufFile& file, uint64_t n_tokens, const Recipe& recipe) {
  const KvShape shape = KvShape::read(file);
  MemoryPrediction prediction;
  for (const TensorInfo& tensor : file.tensors()) {
    prediction.weight_bytes = checked_add(prediction.weight_bytes, loaded_bytes(tensor), "the weights");
  }
  prediction.kv_bytes = shape.cache_bytes(recipe, n_tokens);
  prediction.kv_peak_bytes = shape.peak_bytes(recipe, n_tokens);
  prediction.workspace_bytes = estimate_workspace(file, prefix_of(file), shape, n_tokens);
  checked_add(checked_add(prediction.weight_bytes, prediction.kv_peak_bytes, "the memory needed"),
              prediction.workspace_bytes, "the memory needed");
  return prediction;
}

}  // namespace quire

#include "inspect_report.h"

#include <algorithm>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/chat_template_reader.h"
#include "engine/prediction.h"
#include "engine/vocabulary_reader.h"
#include "format/code_catalogue.h"
#include "format/row_format.h"
#include "inspect_layers.h"
#include "model/config.h"
#include "model/key_bias.h"
#include "text/tokenizer.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownValues = 6;

template <typename T>
Json first_values(const std::vector<T>& values) {
  Json shown = Json::array();
  for (size_t i = 0; i < std::min(values.size(), kShownValues); ++i) shown.push_back(values[i]);
  return shown;
}

Json array_report(const GgufFile& file, const MetadataEntry& entry, const MetadataArray& array) {
  Json report = {{"length", array.n_values}};
  switch (array.element_type) {
    case MetadataType::String: report["first"] = first_values(file.get_string_array(entry.key)); break;
    case MetadataType::F32:
    case MetadataType::F64: report["first"] = first_values(file.get_float_array(entry.key)); break;
    case MetadataType::Bool:
    case MetadataType::Array: break;
    default: report["first"] = first_values(file.get_int_array(entry.key)); break;
  }
  return report;
}

Json metadata_report(const GgufFile& file) {
  Json report = Json::object();
  for (const MetadataEntry& entry : file.metadata()) {
    Json value = std::visit(
        [&](const auto& held) -> Json {
          if constexpr (std::is_same_v<std::decay_t<decltype(held)>, MetadataArray>) {
            try {
              return array_report(file, entry, held);
            } catch (const Error&) {
              return {{"length", held.n_values}};  // for example numbers beyond 64 bits
            }
          } else {
            return held;
          }
        },
        entry.value);
    report[std::string(entry.key)] = {{"type", metadata_value_type_name(entry.value)},
                                      {"value", std::move(value)}};
  }
  return report;
}

Json tensors_report(const GgufFile& file) {
  Json report = Json::array();
  for (const TensorInfo& tensor : file.tensors()) {
    report.push_back({{"name", tensor.name},
                      {"type", tensor_type_name(tensor.type)},
                      {"shape", tensor.shape},
                      {"bytes", tensor.size_bytes},
                      {"offset", tensor.file_offset}});
  }
  return report;
}

Json kv_report(const GgufFile& file) {
  try {
    const KvShape shape = KvShape::read(file);
    Json bytes = Json::object();
    for (const FormatInfo& format : kFormats) {
      bytes[format.name] = shape.token_bytes({format.format, format.format});
    }
    for (int i = 0; i < kCodeCount; ++i) {
      const char* code = info(static_cast<Code>(i)).name;
      try {
        bytes[code] = shape.token_bytes(Recipe::parse(code));
      } catch (const Error&) {
        break;  // a shape that cannot be coded, by any of them
      }
    }
    return bytes;
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

Json prediction_report(const GgufFile& file, uint64_t context_tokens, const Recipe& recipe) {
  try {
    const uint64_t n = context_tokens == 0 ? trained_context_tokens(file) : context_tokens;
    const MemoryPrediction prediction = predict_memory(file, n, recipe);
    return {{"context_tokens", n},
            {"recipe", recipe.text()},
            {"weight_bytes", prediction.weight_bytes},
            {"kv_bytes", prediction.kv_bytes},
            {"kv_peak_bytes", prediction.kv_peak_bytes},
            {"workspace_bytes", prediction.workspace_bytes},
            {"total_bytes", prediction.total_bytes()}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

// The head of a layer with the greatest risk.
Json layer_bias_report(size_t layer, std::span<const KeyBiasCheck> heads) {
  const KeyBiasCheck& worst =
      *std::max_element(heads.begin(), heads.end(),
                        [](const KeyBiasCheck& a, const KeyBiasCheck& b) { return a.risk() < b.risk(); });
  return {{"layer", layer},
          {"norm", worst.bias_norm},
          {"key_norm", worst.key_norm},
          {"risk", worst.risk()},
          {"frame", worst.framed() ? "bias" : "plain"}};
}

Json key_bias_report(const GgufFile& file) {
  try {
    const ModelConfig config = ModelConfig::read(file);
    const std::vector<KeyBiasCheck> checks = check_key_biases(file, config);
    Json layers = Json::array();
    for (size_t first = 0; first < checks.size(); first += config.n_kv_heads) {
      const std::span heads(checks.data() + first, config.n_kv_heads);
      const bool any = std::any_of(heads.begin(), heads.end(),
                                   [](const KeyBiasCheck& check) { return check.bias_norm > 0; });
      if (any) layers.push_back(layer_bias_report(first / config.n_kv_heads, heads));
    }
    return {{"layers", layers}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

// Which parts of Quire refuse the file, and why.
Json obstacles_report(const GgufFile& file) {
  Json obstacles = Json::object();
  const auto attempt = [&](const char* part, const auto& use) {
    try {
      use();
    } catch (const Error& error) {
      obstacles[part] = error.what();
    }
  };
  attempt("model", [&] { check_key_biases(file, ModelConfig::read(file)); });
  attempt("tokenizer", [&] { Tokenizer{read_vocabulary(file)}; });
  attempt("chat template", [&] { read_chat_template(file, Tokenizer{read_vocabulary(file)}); });
  return obstacles;
}

}  // namespace

Json inspect_report(const GgufFile& file, uint64_t context_tokens, const Recipe& recipe) {
  const Json obstacles = obstacles_report(file);
  const bool runs = !obstacles.contains("model") && !obstacles.contains("tokenizer");
  return {{"path", file.path()},
          {"version", file.version()},
          {"file_bytes", file.file_size()},
          {"fingerprint", file.fingerprint()},
          {"metadata", metadata_report(file)},
          {"tensors", tensors_report(file)},
          {"key_bias", key_bias_report(file)},
          {"layers", layers_report(file, context_tokens, recipe)},
          {"kv_bytes_per_token", kv_report(file)},
          {"predicted_memory", prediction_report(file, context_tokens, recipe)},
          {"runs", runs},
          {"obstacles", obstacles}};
}

}  // namespace quire::cli

#include "engine/butler_file.h"

#include <charconv>
#include <cmath>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/half.h"

namespace quire {
namespace {

constexpr std::string_view kFormat = "quire.butler";
constexpr std::string_view kButlerVersion = "1";
// More than any model has; sums and products of two stay far from 2^64.
constexpr size_t kMostOfAnything = 1 << 20;

struct Field {
  const char* name;
  size_t ButlerGeometry::*value;
  bool is_models;  // the model decides it
};

constexpr Field kFields[] = {
    {"n_layers", &ButlerGeometry::n_layers, true},
    {"n_heads", &ButlerGeometry::n_heads, true},
    {"n_kv_heads", &ButlerGeometry::n_kv_heads, true},
    {"head_dim", &ButlerGeometry::head_dim, true},
    {"width", &ButlerGeometry::width, true},
    {"stride", &ButlerGeometry::stride, false},
    {"dim", &ButlerGeometry::dim, false},
    {"hidden", &ButlerGeometry::hidden, false},
};

[[noreturn]] void fail(const SafetensorsFile& file, const std::string& what) {
  throw Error(file.path() + ": " + what);
}

std::string text_of(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    fail(file, std::string("the predictor's file does not say its ") + key);
  }
  return found->second;
}

size_t number_of(const SafetensorsFile& file, const std::string& key) {
  const std::string text = text_of(file, key);
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value == 0 || value > kMostOfAnything) {
    fail(file, std::string("the predictor's ") + key + " is no number from 1 to " +
                   std::to_string(kMostOfAnything));
  }
  return value;
}

ButlerGeometry read_geometry(const SafetensorsFile& file, const ButlerGeometry& model) {
  ButlerGeometry geometry;
  for (const Field& field : kFields) {
    const size_t value = number_of(file, field.name);
    geometry.*field.value = value;
    if (field.is_models && value != model.*field.value) {
      fail(file, std::string("the predictor was made for a model whose ") + field.name + " is " +
                     std::to_string(value) + "; this one's is " + std::to_string(model.*field.value));
    }
  }
  if (geometry.n_layers < 2) fail(file, "a predictor needs a model of at least two layers");
  return geometry;
}

std::string name_of(const char* kind, size_t index, const char* part) {
  return std::string(kind).append(".").append(std::to_string(index)).append(".").append(part);
}

// One tensor of a predictor, by its name and shape.
template <typename Weights, typename F>
void for_each_tensor(Weights& weights, const F& f) {
  const ButlerGeometry& g = weights.geometry;
  for (size_t p = 0; p < weights.producers.size(); ++p) {
    auto& producer = weights.producers[p];
    f(name_of("producer", p, "norm_weight"), std::vector<uint64_t>{g.width}, producer.norm_weight);
    f(name_of("producer", p, "norm_bias"), std::vector<uint64_t>{g.width}, producer.norm_bias);
    f(name_of("producer", p, "in"), std::vector<uint64_t>{g.hidden, g.width}, producer.in);
    f(name_of("producer", p, "out"), std::vector<uint64_t>{g.n_slots(p), g.n_heads, g.dim, g.hidden},
      producer.out);
  }
  for (size_t i = 0; i < weights.projections.size(); ++i) {
    f(name_of("layer", i + 1, "projection"), std::vector<uint64_t>{g.n_kv_heads, g.head_dim, g.dim},
      weights.projections[i]);
  }
}

// As a reader will find it.
float stored(float value, SafetensorsType type) {
  switch (type) {
    case SafetensorsType::kF32: return value;
    case SafetensorsType::kF16: return f16_to_f32(f32_to_f16(value));
    case SafetensorsType::kBF16: return bf16_to_f32(f32_to_bf16(value));
  }
  return value;
}

}  // namespace

ButlerGeometry butler_geometry(const ModelConfig& config) {
  if (config.n_layers < 2) throw Error("a predictor needs a model of at least two layers");
  ButlerGeometry geometry;
  geometry.n_layers = config.n_layers;
  geometry.n_heads = config.n_heads;
  geometry.n_kv_heads = config.n_kv_heads;
  geometry.head_dim = config.head_dim;
  geometry.width = config.width;
  return geometry;
}

std::vector<std::byte> encode_butler(const ButlerWeights& weights, std::string_view fingerprint,
                                     SafetensorsType type, const SafetensorsMetadata& more) {
  SafetensorsWriter writer;
  writer.add_text("format", std::string(kFormat));
  writer.add_text("version", std::string(kButlerVersion));
  writer.add_text("model", std::string(fingerprint));
  for (const Field& field : kFields) {
    writer.add_text(field.name, std::to_string(weights.geometry.*field.value));
  }
  for (const auto& [key, text] : more) writer.add_text(key, text);
  for_each_tensor(weights, [&](const std::string& name, const std::vector<uint64_t>& shape,
                               const std::vector<float>& values) {
    for (const float value : values) {
      if (!std::isfinite(stored(value, type))) {
        throw Error(std::string("the predictor's ").append(name).append(" holds a value that is not finite"));
      }
    }
    writer.add(name, shape, values, type);
  });
  return writer.bytes();
}

ButlerWeights decode_butler(const SafetensorsFile& file, std::string_view fingerprint,
                            const ButlerGeometry& model) {
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != kFormat) {
    fail(file, "this safetensors file holds no predictor; `quire train-butler` makes one");
  }
  if (const std::string version = text_of(file, "version"); version != kButlerVersion) {
    fail(file, std::string("predictors of another version than ").append(kButlerVersion) + " are not known");
  }
  const ButlerGeometry geometry = read_geometry(file, model);
  if (text_of(file, "model") != fingerprint) {
    fail(file, "the predictor belongs to another model; `quire train-butler` makes one for this");
  }
  ButlerWeights weights;
  weights.geometry = geometry;
  weights.producers.resize(geometry.n_producers());
  weights.projections.resize(geometry.n_layers - 1);
  size_t n_tensors = 0;
  for_each_tensor(
      weights, [&](const std::string& name, const std::vector<uint64_t>& shape, std::vector<float>& values) {
        values = file.read(name, shape);
        ++n_tensors;
        for (const float value : values) {
          if (!std::isfinite(value)) fail(file, name + " holds a value that is no finite number");
        }
      });
  if (n_tensors != file.tensors().size()) fail(file, "there are tensors that no predictor has");
  return weights;
}

void save_butler(const ButlerWeights& weights, std::string_view fingerprint, const std::string& path,
                 SafetensorsType type, const SafetensorsMetadata& more) {
  write_file_atomically(path, encode_butler(weights, fingerprint, type, more));
}

ButlerWeights load_butler(const std::string& path, std::string_view fingerprint,
                          const ButlerGeometry& model) {
  return decode_butler(SafetensorsFile::open(path), fingerprint, model);
}

}  // namespace quire

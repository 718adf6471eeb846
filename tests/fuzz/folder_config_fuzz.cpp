// Fuzz target of the config.json reader: any bytes either give numbers within their limits, which become
// metadata that read back, or an Error of one line.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "weights/folder_config.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const quire::FolderConfig& config) {
  require(config.n_layers >= 1 && config.n_layers <= 512);
  require(config.windowed.size() == config.n_layers);
  require(config.n_kv_heads >= 1 && config.n_heads % config.n_kv_heads == 0);
  require(config.head_dim >= 1 && config.norm_epsilon > 0);
  const quire::FolderRope& rope = config.rope;
  require(rope.n_dims >= 2 && rope.n_dims % 2 == 0 && rope.n_dims <= config.head_dim);
  require(rope.base > 0 && rope.factor > 0 && rope.attention_factor > 0 &&
          std::isfinite(rope.attention_factor));
  for (const auto* factors : {&rope.factors, &rope.long_factors, &rope.short_factors}) {
    require(factors->empty() || factors->size() == rope.n_dims / 2);
    for (const float factor : *factors) require(factor > 0 && std::isfinite(factor));
  }
}

void check_metadata(const quire::FolderConfig& config) {
  quire::MetadataBuilder metadata;
  quire::add_config_metadata(config, metadata);
  quire::ModelParts parts;
  parts.path = "fuzz";
  parts.metadata = std::move(metadata.entries);
  parts.memory = std::move(metadata.memory);
  const auto file = quire::GgufFile::from_parts(std::move(parts));
  const std::string prefix = std::string(config.architecture()) + ".";
  require(file.get_string("general.architecture") == config.architecture());
  require(file.get_uint(prefix + "block_count") == config.n_layers);
  require(file.get_uint_or(prefix + "attention.sliding_window", 0) == config.window_tokens);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), n_bytes);
    const quire::FolderConfig config = quire::read_folder_config(text, "config.json");
    check(config);
    check_metadata(config);
  } catch (const quire::Error& error) {
    const std::string message = error.what();
    require(message.size() < 1000 && message.find('\n') == std::string::npos);
  }
  return 0;
}

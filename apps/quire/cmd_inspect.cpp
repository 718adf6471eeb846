// quire inspect: what a model file holds, and the memory it will need, before anything is loaded.
#include <algorithm>
#include <cstdio>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "inspect_layers.h"
#include "inspect_report.h"
#include "options.h"
#include "terminal.h"
#include "weights/open_model.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kInspectExamples =
    "Examples:\n"
    "  quire inspect model.gguf\n"
    "  quire inspect model.gguf -c 8192 --kv f32\n"
    "  quire inspect model.gguf --json | jq .predicted_memory";

constexpr size_t kLongestValue = 100;

struct InspectOptions {
  std::string path;
  std::string model;  // -m, as the other commands have it
  std::string recipe = "full";
  int64_t context_tokens = 0;
  bool context_given = false;
  bool json = false;
};

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text + "  ";
}

std::string dumped(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string value_text(const Json& value) {
  std::string text;
  if (value.is_object()) {
    text = value["length"].dump() + " values";
    if (value.contains("first")) text += ": " + dumped(value["first"]);
  } else {
    text = value.is_string() ? printable(value.get<std::string>()) : dumped(value);
  }
  if (text.size() <= kLongestValue) return text;
  return printable(std::string_view(text).substr(0, kLongestValue)) + " ...";
}

std::string metadata_text(const Json& metadata) {
  std::string out = "metadata\n";
  size_t width = 0;
  for (const auto& [key, entry] : metadata.items()) width = std::max(width, printable(key).size());
  for (const auto& [key, entry] : metadata.items()) {
    out +=
        "  " + padded(printable(key), width) + padded(entry["type"], 15) + value_text(entry["value"]) + "\n";
  }
  return out;
}

std::string tensors_text(const Json& tensors) {
  std::string out = "\ntensors\n";
  size_t width = 0;
  for (const Json& tensor : tensors)
    width = std::max(width, printable(tensor["name"].get<std::string>()).size());
  for (const Json& tensor : tensors) {
    std::string shape;
    for (const Json& dim : tensor["shape"]) shape += (shape.empty() ? "" : " x ") + dim.dump();
    out += "  " + padded(printable(tensor["name"].get<std::string>()), width) + padded(tensor["type"], 5) +
           padded(shape, 14) + tensor["bytes"].dump() + " B\n";
  }
  return out;
}

std::string memory_text(const Json& report) {
  std::string out = "\nKV cache, bytes per token (of coded formats: once coded)\n";
  const Json& kv = report["kv_bytes_per_token"];
  for (const auto& [format, bytes] : kv.items()) out += "  " + padded(format, 8) + value_text(bytes) + "\n";
  const Json& memory = report["predicted_memory"];
  if (memory.contains("error")) return out + "\nmemory: " + value_text(memory["error"]) + "\n";
  out += "\nmemory for a context of " + memory["context_tokens"].dump() + " tokens, recipe " +
         memory["recipe"].get<std::string>() + "\n";
  for (const auto& [label, key] : {std::pair{"weights", "weight_bytes"},
                                   {"KV cache", "kv_bytes"},
                                   {"  at most, in the prompt", "kv_peak_bytes"},
                                   {"everything else (estimate)", "workspace_bytes"},
                                   {"together", "total_bytes"}}) {
    out += "  " + padded(label, 26) + megabytes(memory[key].get<uint64_t>()) + "\n";
  }
  return out;
}

// "layers 0, 27: norm up to 274, WHAT", of the layers in that frame; empty: there are none.
std::string layers_text(const Json& layers, const char* frame, const char* what) {
  std::string numbers;
  double most = 0;
  for (const Json& layer : layers) {
    if (layer["frame"] != frame) continue;
    numbers += (numbers.empty() ? "" : ", ") + layer["layer"].dump();
    most = std::max(most, layer["norm"].get<double>());
  }
  if (numbers.empty()) return "";
  char norm[32];
  std::snprintf(norm, sizeof norm, "%.4g", most);
  return "  layers " + numbers + ": norm up to " + norm + ", " + what + "\n";
}

std::string key_bias_text(const Json& report) {
  if (report.contains("error")) return "";  // said by the verdict
  const Json& layers = report["layers"];
  if (layers.empty()) return "\nkey bias: none\n";
  return "\nkey bias\n" + layers_text(layers, "bias", "coded in the bias frame") +
         layers_text(layers, "plain", "too small to matter to codes");
}

std::string verdict_text(const Json& report) {
  std::string out =
      report["runs"].get<bool>() ? "\nQuire can run this model.\n" : "\nQuire cannot run this model.\n";
  for (const auto& [part, reason] : report["obstacles"].items()) {
    out += "  " + part + ": " + printable(reason.get<std::string>()) + "\n";
  }
  return out;
}

int run(const InspectOptions& options) {
  if (options.path.empty() == options.model.empty()) throw Error("give one model: quire inspect FILE");
  if (options.context_given) check_range("--ctx-size", options.context_tokens, 1, int64_t{1} << 40);
  const Recipe recipe = Recipe::parse(options.recipe);
  const GgufFile file = open_model(options.path.empty() ? options.model : options.path);
  check_recipe(file, static_cast<uint64_t>(options.context_tokens), recipe);
  const Json report = inspect_report(file, static_cast<uint64_t>(options.context_tokens), recipe);
  if (options.json) {
    write_json(report);
    return kOk;
  }
  for (const std::string& note : file.notes()) write_note(note);
  write_out(printable(file.path()) + ": " + file.form() + ", " + megabytes(file.file_size()) +
            ", fingerprint " + file.fingerprint() + "\n\n" + metadata_text(report["metadata"]) +
            tensors_text(report["tensors"]) + memory_text(report) +
            layer_formats_text(report["layers"], recipe.text()) + key_bias_text(report["key_bias"]) +
            verdict_text(report));
  return kOk;
}

}  // namespace

Command add_inspect(CLI::App& root) {
  CLI::App* app = root.add_subcommand("inspect", "Show what a model file holds and the memory it will need.");
  auto options = std::make_shared<InspectOptions>();
  app->add_option("FILE", options->path, "model: GGUF file or Hugging Face folder");
  app->add_option("-m,--model", options->model, "the same as FILE")->type_name("FILE");
  app->add_option("-c,--ctx-size", options->context_tokens,
                  "predict the memory for so many tokens (default: the model's context)")
      ->type_name("N")
      ->each([options](const std::string&) { options->context_given = true; });
  app->add_option("--kv", options->recipe, "recipe of the prediction")
      ->type_name("RECIPE")
      ->capture_default_str();
  app->add_flag("--json", options->json, "print one JSON object");
  app->footer(kInspectExamples);
  return {app, [options] { return run(*options); }};
}

}  // namespace quire::cli

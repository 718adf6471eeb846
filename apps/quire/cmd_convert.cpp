// quire convert: a model in any form to one GGUF file.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/team.h"
#include "commands.h"
#include "engine/engine.h"
#include "engine/vocabulary_reader.h"
#include "engine/vocabulary_writer.h"
#include "options.h"
#include "suggest.h"
#include "terminal.h"
#include "weights/convert.h"
#include "weights/open_model.h"

namespace quire::cli {
namespace {

constexpr const char* kConvertExamples =
    "Examples:\n"
    "  quire convert Llama-3.2-1B-Instruct/ llama.gguf\n"
    "  quire convert Llama-3.2-1B-Instruct/ llama-q8_0.gguf --type q8_0\n"
    "  quire convert big-00001-of-00003.gguf whole.gguf\n"
    "  quire convert model-f16.gguf model-q4_k.gguf --type q4_k -t 8\n"
    "\nOUT appears when it is complete: until then, and if anything goes wrong, what was there stays.";

constexpr const char* kAsIs = "as-is";

const std::map<std::string, TensorType>& types() {
  static const std::map<std::string, TensorType> known = {
      {"f32", TensorType::F32},   {"f16", TensorType::F16},   {"bf16", TensorType::BF16},
      {"q8_0", TensorType::Q8_0}, {"q4_0", TensorType::Q4_0}, {"q4_1", TensorType::Q4_1},
      {"q5_0", TensorType::Q5_0}, {"q5_1", TensorType::Q5_1}, {"q4_k", TensorType::Q4_K},
      {"q5_k", TensorType::Q5_K}, {"q6_k", TensorType::Q6_K},
  };
  return known;
}

struct ConvertFlags {
  std::string in, out;
  std::string type = kAsIs;
  int64_t threads = 0;
  bool json = false;
};

std::optional<TensorType> checked_type(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name == kAsIs) return std::nullopt;
  const auto found = types().find(name);
  if (found != types().end()) return found->second;
  std::vector<std::string> names = {kAsIs};
  std::string list = kAsIs;
  for (const auto& [known, type] : types()) {
    names.push_back(known);
    list += ", " + known;
  }
  throw Error("there is no type '" + name + "'" + did_you_mean(name, names, "; there are " + list));
}

void add_tokenizer(const GgufFile& model, MetadataBuilder& metadata, std::vector<std::string>& notes) {
  const OwnedVocabulary vocabulary = read_vocabulary(model);
  const uint64_t n_rows = model.tensor("token_embd.weight").n_rows();
  const std::string_view architecture = model.get_string_or("general.architecture", "");
  try {
    for (const std::string& note : add_vocabulary(vocabulary, architecture, n_rows, metadata)) {
      notes.push_back(model.path() + ": " + note);
    }
  } catch (const Error& error) {
    throw Error(model.path() + ": " + error.what());
  }
}

// Of a folder the tokenizer lies in files of its own; a GGUF file has these keys already. "none" is
// llama.cpp's word for a model without a vocabulary.
MetadataBuilder missing_metadata(const GgufFile& model, std::vector<std::string>& notes) {
  MetadataBuilder metadata;
  const std::filesystem::path folder(model.path());
  if (!std::filesystem::is_directory(folder)) return metadata;
  if (std::filesystem::exists(folder / "tokenizer.json")) {
    add_tokenizer(model, metadata, notes);
  } else {
    metadata.add_text("tokenizer.ggml.model", "none");
    notes.push_back(model.path() + ": there is no tokenizer.json, so the file has no tokenizer either");
  }
  return metadata;
}

void report(const ConvertFlags& flags, const Conversion& conversion, std::vector<std::string> notes) {
  const auto n_bytes = static_cast<uint64_t>(std::filesystem::file_size(flags.out));
  const std::map<std::string, size_t> counts = conversion.tensors_by_type();
  if (flags.json) {
    write_json({{"path", flags.out}, {"bytes", n_bytes}, {"tensors", counts}, {"notes", notes}});
    return;
  }
  for (const std::string& note : notes) write_note(note);
  std::string tensors;
  for (const auto& [type, n] : counts) {
    tensors += (tensors.empty() ? "" : ", ") + std::to_string(n) + " of " + type;
  }
  write_note("wrote " + printable(flags.out) + ": " + megabytes(n_bytes) + ", tensors: " + tensors);
}

// The files that a model may be made of: the one that is named, those of its folder, its fellow parts.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& in) {
  std::vector<std::filesystem::path> files = {in};
  const bool is_folder = std::filesystem::is_directory(in);
  const std::string name = in.filename().string();
  const size_t of = name.rfind("-of-");
  if (!is_folder && of == std::string::npos) return files;
  const std::filesystem::path parent = in.has_parent_path() ? in.parent_path() : ".";
  for (const auto& entry : std::filesystem::directory_iterator(is_folder ? in : parent)) {
    if (is_folder || entry.path().string().ends_with(name.substr(of))) files.push_back(entry.path());
  }
  return files;
}

// What is read must not be what is written.
void check_output(const ConvertFlags& flags) {
  if (!std::filesystem::exists(flags.out)) return;
  for (const std::filesystem::path& file : files_of(flags.in)) {
    std::error_code ignored;
    if (std::filesystem::equivalent(file, flags.out, ignored)) {
      throw Error(flags.out + ": this is a file of the model that is to be converted");
    }
  }
}

int run(const ConvertFlags& flags) {
  const std::optional<TensorType> type = checked_type(flags.type);
  check_range("--threads", flags.threads, 0, kMaxThreads);
  const GgufFile model = open_model(flags.in);
  check_output(flags);
  std::vector<std::string> notes = model.notes();
  const MetadataBuilder more = missing_metadata(model, notes);
  const Conversion conversion(model, type, more.entries);
  notes.insert(notes.end(), conversion.notes().begin(), conversion.notes().end());
  const auto n_cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  Team team(static_cast<int>(flags.threads > 0 ? flags.threads : std::min<int64_t>(n_cores, kMaxThreads)));
  catch_interrupts();
  try {
    ProgressLine progress("converting", true);
    conversion.write(flags.out, team, [&](double share) {
      if (interrupt_flag()) throw Interrupted{};
      progress.show(share);
    });
  } catch (const Interrupted&) {
    write_note("interrupted; " + printable(flags.out) + " was not written");
    return kInterrupted;
  }
  report(flags, conversion, std::move(notes));
  return kOk;
}

}  // namespace

Command add_convert(CLI::App& root) {
  CLI::App* app = root.add_subcommand(
      "convert", "Write a model as one GGUF file: from a Hugging Face folder, a GGUF file or a split one.");
  auto flags = std::make_shared<ConvertFlags>();
  app->add_option("IN", flags->in, "model: GGUF file or Hugging Face folder")->required();
  app->add_option("OUT", flags->out, "GGUF file to write")->required();
  app->add_option("--type", flags->type,
                  "of matrices: as-is, f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k")
      ->type_name("TYPE")
      ->capture_default_str();
  app->add_option("-t,--threads", flags->threads, "threads (default: all cores)")->type_name("N");
  app->add_flag("--json", flags->json, "print one JSON object about what was written");
  app->footer(kConvertExamples);
  return {app, [flags] { return run(*flags); }};
}

}  // namespace quire::cli

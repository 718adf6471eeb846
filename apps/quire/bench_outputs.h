// The files that `quire bench` writes beside its output.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "study/bench.h"

namespace quire::cli {

// Empty: not asked for.
struct BenchPaths {
  std::string output;
  std::string trace;
  std::string trace_folder;
  std::string svg_folder;
};

// The files are opened, and folders made, before the long run, so that what cannot be written is refused at
// once; they appear when it is done. Everything throws Error.
class BenchOutputs {
 public:
  explicit BenchOutputs(BenchPaths paths);

  void write(const BenchResult& result, const nlohmann::ordered_json& object);

 private:
  BenchPaths paths_;
  std::optional<AtomicFile> output_;
  std::optional<AtomicFile> trace_;
};

}  // namespace quire::cli

// The files that a training of a predictor writes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace quire::cli {

struct ButlerOutputs {
  // "out.safetensors" -> itself, "out.jsonl", "out.svg" and "out.state".
  explicit ButlerOutputs(const std::string& output);

  // Throws Error where one of them is the same file as an input, or cannot be written. "-" is no file. What
  // trainings that were killed have left half written is removed.
  void check(const std::vector<std::string>& inputs) const;
  // What a finished training leaves; first everything is on the disk, then it gets its name.
  void write(std::span<const std::byte> predictor_bytes, const std::string& log_text,
             const std::string& chart_text) const;

  std::string predictor, log, chart;
  std::string state;  // the checkpoint, only while training goes on
};

}  // namespace quire::cli

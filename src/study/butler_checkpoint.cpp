#include "study/butler_checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/atomic_file.h"
#include "base/error.h"
#include "weights/byte_cursor.h"
#include "weights/safetensors.h"

namespace quire {
namespace {

constexpr const char* kFormat = "quire.butler-training";
constexpr size_t kNumbersOfScore = 4;
// Means of shares, with what rounding may add.
constexpr float kMostShare = 1.01f;
// Counts from here on are not exact in single precision.
constexpr float kMostCount = 16777216.0f;

std::vector<float> numbers_of(const std::vector<ButlerCheck>& checks) {
  std::vector<float> numbers;
  for (const ButlerCheck& each : checks) {
    numbers.push_back(static_cast<float>(each.step));
    numbers.push_back(static_cast<float>(each.quality.n_rows));
    for (const auto& layer : each.quality.layers) {
      for (const ButlerScore& score : layer) {
        for (const double value : {score.recall, score.mass, score.oracle_mass, score.always_mass}) {
          numbers.push_back(static_cast<float>(value));
        }
      }
    }
  }
  return numbers;
}

std::vector<ButlerCheck> checks_of(const std::vector<float>& numbers, size_t n_layers) {
  std::vector<ButlerCheck> checks;
  for (auto at = numbers.begin(); at != numbers.end();) {
    ButlerCheck& check = checks.emplace_back();
    check.step = static_cast<size_t>(*at++);
    check.quality.n_rows = static_cast<size_t>(*at++);
    check.quality.layers.resize(n_layers);
    for (auto& layer : check.quality.layers) {
      for (ButlerScore& score : layer) {
        for (double* value : {&score.recall, &score.mass, &score.oracle_mass, &score.always_mass})
          *value = double{*at++};
      }
    }
  }
  return checks;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(SafetensorsFile::open(path)) {}

  [[noreturn]] void fail(const std::string& what) const { throw Error(file_.path() + ": " + what); }

  std::string text(const char* key) const {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? std::string() : found->second;
  }

  uint64_t length(const char* name) const {
    const Safetensor* tensor = file_.find(name);
    return tensor == nullptr ? 0 : tensor->n_values;
  }

  // The tensor's values, each of which `is_meant` holds for.
  template <typename F>
  std::vector<float> values(const char* name, uint64_t n, const F& is_meant) const {
    const std::array<uint64_t, 1> shape = {n};
    std::vector<float> values = file_.read(name, shape);
    if (!std::all_of(values.begin(), values.end(), is_meant)) {
      fail(std::string("the training's ").append(name).append(" hold a value that no training has"));
    }
    return values;
  }

 private:
  SafetensorsFile file_;
};

// Where two texts of settings begin to differ, from the word before on.
std::string difference(const std::string& theirs, const std::string& ours) {
  const auto at = std::mismatch(theirs.begin(), theirs.end(), ours.begin(), ours.end()).first;
  size_t start = static_cast<size_t>(at - theirs.begin());
  for (int words = 0; start > 0 && words < 2; --start) words += theirs[start - 1] == ' ';
  if (start > 0) ++start;
  constexpr size_t kShown = 40;
  return in_quotes(theirs.substr(start, kShown)) + " there, " +
         in_quotes(ours.substr(std::min(start, ours.size()), kShown)) + " here";
}

void check_history(const Reader& file, const std::vector<float>& numbers, size_t per_check, size_t n_losses) {
  const auto is_count = [](float value) {
    return value >= 0 && value < kMostCount && value == std::floor(value);
  };
  float last = -1;
  for (size_t at = 0; at < numbers.size(); at += per_check) {
    const float step = numbers[at], n_rows = numbers[at + 1];
    const bool is_whole = is_count(step) && step > last && step <= static_cast<float>(n_losses) &&
                          is_count(n_rows) && n_rows > 0;
    const auto first = numbers.begin() + static_cast<ptrdiff_t>(at);
    if (!is_whole || !std::all_of(first + 2, first + static_cast<ptrdiff_t>(per_check),
                                  [](float value) { return value >= 0 && value <= kMostShare; })) {
      file.fail("the training's history is damaged");
    }
    last = step;
  }
}

}  // namespace

ButlerCheck kept_check(const ButlerCheck& check) {
  return checks_of(numbers_of({check}), check.quality.layers.size()).front();
}

void save_checkpoint(const ButlerCheckpoint& checkpoint, const std::string& path) {
  SafetensorsWriter writer;
  writer.add_text("format", kFormat);
  writer.add_text("model", checkpoint.model);
  writer.add_text("settings", checkpoint.settings);
  writer.add_text("isa", checkpoint.isa);
  const auto add = [&](const char* name, const std::vector<float>& values) {
    writer.add(name, {values.size()}, values, SafetensorsType::kF32);
  };
  add("parameters", checkpoint.parameters);
  add("first_moments", checkpoint.first_moments);
  add("second_moments", checkpoint.second_moments);
  add("losses", checkpoint.losses);
  add("checks", numbers_of(checkpoint.checks));
  write_file_atomically(path, writer.bytes());
}

ButlerCheckpoint load_checkpoint(const std::string& path, const std::string& model,
                                 const std::string& settings, size_t n_parameters, size_t n_layers) {
  const Reader file(path);
  if (file.text("format") != kFormat) file.fail("this is no checkpoint of a training");
  if (file.text("model") != model) file.fail("the training is of another model");
  ButlerCheckpoint checkpoint{model, file.text("settings"), file.text("isa"), {}, {}, {}, {}, {}};
  if (checkpoint.settings != settings) {
    file.fail("the training had other options or texts: " + difference(checkpoint.settings, settings));
  }
  // What the program shows and writes on.
  constexpr size_t kLongestIsa = 64;
  if (checkpoint.isa.empty() || checkpoint.isa.size() > kLongestIsa ||
      checkpoint.isa.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+") != std::string::npos) {
    file.fail("the instruction set that the training names is none");
  }
  const auto is_finite = [](float value) { return std::isfinite(value); };
  checkpoint.parameters = file.values("parameters", n_parameters, is_finite);
  checkpoint.first_moments = file.values("first_moments", n_parameters, is_finite);
  checkpoint.second_moments = file.values("second_moments", n_parameters,
                                          [](float value) { return std::isfinite(value) && value >= 0; });
  checkpoint.losses = file.values("losses", file.length("losses"), is_finite);
  const uint64_t n_numbers = file.length("checks");
  const size_t per_check = 2 + (n_layers - 1) * kNumbersOfScore * kButlerBudgets.size();
  if (n_numbers % per_check != 0) file.fail("the training's history is damaged");
  const std::vector<float> numbers = file.values("checks", n_numbers, is_finite);
  check_history(file, numbers, per_check, checkpoint.losses.size());
  checkpoint.checks = checks_of(numbers, n_layers - 1);
  return checkpoint;
}

}  // namespace quire

#include "butler_outputs.h"

#include <filesystem>
#include <system_error>

#include "base/atomic_file.h"
#include "base/error.h"
#include "butler_record.h"
#include "terminal.h"

namespace quire::cli {

ButlerOutputs::ButlerOutputs(const std::string& output)
    : predictor(output),
      log(beside(output, ".jsonl")),
      chart(beside(output, ".svg")),
      state(beside(output, ".state")) {}

void ButlerOutputs::check(const std::vector<std::string>& inputs) const {
  for (const std::string& path : {predictor, log, chart, state}) {
    for (const std::string& input : inputs) {
      std::error_code error;  // what is not there is no other file either
      if (input != "-" && std::filesystem::equivalent(path, input, error)) {
        throw Error(printable(path) + " would be written, and is read: it is the same file as " +
                    printable(input));
      }
    }
    const AtomicFile probe(path);
  }
}

void ButlerOutputs::write(std::span<const std::byte> predictor_bytes, const std::string& log_text,
                          const std::string& chart_text) const {
  AtomicFile log_file(log), chart_file(chart), predictor_file(predictor);
  log_file.write(std::as_bytes(std::span(log_text)));
  chart_file.write(std::as_bytes(std::span(chart_text)));
  predictor_file.write(predictor_bytes);
  log_file.commit();
  chart_file.commit();
  predictor_file.commit();
}

}  // namespace quire::cli
